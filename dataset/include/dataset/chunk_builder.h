/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds one chunk in memory: add samples until it is full, then finish. chunk_builder_reset() makes a
 * builder ready for another chunk and keeps its buffers. All lengths are in bytes. Not thread-safe.
 */

#include "dataset/chunk.h"
#include "dataset/external.h"

#include <sys/uio.h>

struct chunk_builder;

struct chunk_sample {
	const char *path; /* path_length bytes */
	size_t path_length;
	const void *data;
	size_t bytes;
	uint32_t mode; /* st_mode */
	uint64_t mtime_ns;
	uint64_t source_bytes; /* see struct chunk_record */
	uint64_t offset;       /* external chunks: where the sample begins in the source; data is NULL */
};

/* The file is kept at or below target_bytes, unless a single sample is larger. -EINVAL: target_bytes is not
 * within CHUNK_MIN_BYTES .. CHUNK_MAX_BYTES; -ENOMEM. */
int chunk_builder_new(uint64_t target_bytes, struct chunk_builder **ret);
void chunk_builder_free(struct chunk_builder *b);

/* Empties the builder. flags: enum chunk_flag, and chunk_layout_flags(). */
void chunk_builder_reset(struct chunk_builder *b, uint32_t flags);

/* Makes the chunk external: its samples are ranges of this source, in ascending order, and may overlap. Call
 * it after a reset with CHUNK_FLAG_EXTERNAL. The range's offset and bytes follow from the samples. */
void chunk_builder_external(struct chunk_builder *b, const struct external *source);
/* Marks the chunk as the last one of its source. */
void chunk_builder_end_source(struct chunk_builder *b);

/* Puts the columns of the layout that was chosen by the last reset into the head; borrowed until the chunk is
 * finished. */
void chunk_builder_columns(struct chunk_builder *b, struct columns columns);

/* Compresses chunks from the next reset on with this level (compress.h), as far as that is worth it; 0: does
 * not compress. */
void chunk_builder_compress(struct chunk_builder *b, int level);

enum chunk_builder_result {
	CHUNK_BUILDER_FULL = 1, /* the sample does not fit next to the others: finish, reset, add again */
};

/* Copies the sample into the chunk. CHUNK_BUILDER_FULL, or -EINVAL: not a valid path; -EFBIG: longer than
 * CHUNK_SAMPLE_MAX_BYTES; err names the path. */
int chunk_builder_add(struct chunk_builder *b, const struct chunk_sample *sample, struct error *err);

uint32_t chunk_builder_n_records(const struct chunk_builder *b);

/* Completes the head. Two parts make the file: the head and the padded payload, compressed or not. They
 * belong to the builder and are valid until its next call. At least one record is needed. */
int chunk_builder_finish(struct chunk_builder *b, const struct chunk_id *id, uint64_t created_ns,
			 struct iovec ret_parts[2], struct error *err);
/* Returns the two parts of the plain form of the chunk that was finished last. Digests are computed from the
 * plain form. */
void chunk_builder_plain(const struct chunk_builder *b, struct iovec ret_parts[2]);
