/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checks a whole dataset: every chunk's head, every sample's checksum, and that snapshot, metadata and
 * chunks agree. Reads everything once and changes nothing.
 */

#include "dataset/chunk.h"
#include "lib/error.h"
#include "lib/progress.h"

struct verify_damage {
	const struct chunk_id *chunk; /* NULL: not in a chunk */
	const char *path;             /* path of the sample, path_length bytes; NULL: not a sample */
	size_t path_length;
	uint64_t offset;    /* offset in the chunk's file */
	bool is_unread;     /* could not be read: nothing is known about the bytes */
	bool snapshot_only; /* damage in the snapshot only, which can be rebuilt from the metadata */
	const char *text;   /* one line: the damage, its location, and the remedy */
};

struct verify_callbacks {
	void (*damage)(const struct verify_damage *damage, void *context);
	void (*note)(const char *text, void *context); /* reports a remark that is no damage */
	progress_callback *progress;
	void *context;
};

struct verify_result {
	uint64_t n_chunks;
	uint64_t n_records; /* samples in chunks, superseded ones too */
	uint64_t bytes;     /* read */
	uint64_t n_damages;
	uint64_t n_unread; /* chunks and samples that could not be read */
};

/* Verifies one version (0: the newest) against its snapshot: the chunks that it needs, and that their samples
 * match the snapshot. Reads the metadata only if the snapshot must be rebuilt from it. Errors as
 * dataset_open_version(). */
int verify_version(const char *dataset_path, uint64_t version, const struct verify_callbacks *callbacks,
		   struct verify_result *ret, struct error *err);

/* Returns 0 even if damage was found, or chunks could not be read: *ret has the counts. Fails only if the
 * dataset could not be examined: no such dataset, no memory. */
int verify_dataset(const char *dataset_path, const struct verify_callbacks *callbacks,
		   struct verify_result *ret, struct error *err);
