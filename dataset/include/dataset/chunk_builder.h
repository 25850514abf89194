/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds one chunk in memory: add samples until it is full, then finish. A builder can be used again
 * after chunk_builder_reset(); its buffers stay. All lengths are in bytes. Not thread-safe.
 */

#include "dataset/chunk.h"

#include <sys/uio.h>

struct chunk_builder;

struct chunk_sample {
	const char *path; /* path_length bytes */
	size_t path_length;
	const void *data;
	size_t bytes;
	uint32_t mode; /* st_mode */
	uint64_t mtime_ns;
};

/* target_bytes: the file's size is kept at or below it, unless a single sample is larger. CHUNK_MIN_BYTES
 * .. CHUNK_MAX_BYTES, -EINVAL otherwise; -ENOMEM. */
int chunk_builder_new(uint64_t target_bytes, struct chunk_builder **ret);
void chunk_builder_free(struct chunk_builder *b);

/* Empties the builder. flags: enum chunk_flag. */
void chunk_builder_reset(struct chunk_builder *b, uint32_t flags);

enum chunk_builder_result {
	CHUNK_BUILDER_FULL = 1, /* the sample does not fit beside the others: finish, reset, add again */
};

/* Copies the sample. -EINVAL: not a valid path; -EFBIG: longer than CHUNK_SAMPLE_MAX_BYTES. Both texts
 * name the path. */
int chunk_builder_add(struct chunk_builder *b, const struct chunk_sample *sample, struct error *err);

uint32_t chunk_builder_n_records(const struct chunk_builder *b);

/* Completes the head. The two parts (head, payload with padding) are the file; they are the builder's and
 * valid until its next call. At least one record is needed. */
int chunk_builder_finish(struct chunk_builder *b, const struct chunk_id *id, uint64_t created_ns,
			 struct iovec ret_parts[2], struct error *err);
