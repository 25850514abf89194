/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Repairs a dataset: verifies it, restores each damaged or missing chunk bit for bit, and then rebuilds
 * metadata and snapshot if they are damaged.
 *
 * A chunk's head is taken from the file itself, a replica, or the metadata if that has all samples of the
 * chunk. Each sample is taken from the file, a replica or the source, whichever has bytes that match the
 * checksum in the head. The result replaces the file only if metadata, snapshot and digest prove that it is
 * the packed chunk. Until then, and if the disk is full, the file stays as it is. While chunks are replaced,
 * no other writer can change the dataset.
 */

#include "lib/progress.h"
#include "dataset/pack.h"
#include "dataset/verify.h"

struct repair_chunk {
	const struct chunk_id *id; /* NULL: metadata and snapshot */
	bool repaired;             /* repaired; with dry_run: could be repaired */
	uint32_t n_records;
	uint32_t n_samples; /* samples that came from a source other than the file itself */
	const char *text;   /* one line: the repair that was done, or why nothing could be repaired */
};

struct repair_options {
	const char *const *from; /* replicas (datasets), and trees of files that were packed */
	size_t n_from;
	const char *command; /* command for the dataset's log */
	bool dry_run;
	pack_rewriter
	    *rewrite; /* NULL: files that were rewritten (struct chunk_record) cannot be reproduced */

	struct verify_callbacks verify; /* for the verification */
	/* All may be NULL. */
	void (*verified)(const struct verify_result *result, void *context); /* verification has ended */
	void (*chunk)(const struct repair_chunk *chunk, void *context);
	void (*lost)(const struct verify_damage *sample,
		     void *context); /* called for each sample that was found nowhere */
	progress_callback *progress;
	void *context; /* for the callbacks above */
};

struct repair_result {
	struct verify_result verified;
	uint64_t n_repaired; /* with dry_run: chunks that could be repaired */
	uint64_t n_unrepaired;
};

/* Returns 0 even if not everything could be repaired. Fails if the dataset could not be examined, if an entry
 * of `from` is neither dataset nor folder, or with -EBUSY if another writer is at work. */
int repair_dataset(const char *dataset_path, const struct repair_options *options, struct repair_result *ret,
		   struct error *err);
