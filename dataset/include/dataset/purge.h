/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Gives back what nobody needs: what `dieselctl purge` does. Chunks of which some samples were deleted or
 * replaced are rewritten without them, and chunks that no version needs any more are removed.
 *
 * One commit: before it nothing is removed, and behind it what is removed belongs to no version that can be
 * read. Data goes before the tombstones that hide it, so at any moment a rebuild gives the newest version.
 * The next run finishes what an interrupted one has begun.
 */

#include "lib/error.h"
#include "lib/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct purge_options {
	const char *dataset;
	const char *command; /* for the log, or NULL */
	uint64_t keep;       /* minimum number of versions that stay readable, the newest ones; >= 1 */
	uint64_t older_ns;   /* versions that were the newest within this time stay readable, too */
	uint64_t chunk_bytes;
	uint64_t keep_snapshots; /* writer_keep_snapshots(); 0: its default */
	bool dry_run;            /* changes nothing, and reports the planned result */
	progress_callback *progress;
	bool (*cancelled)(void *context);
	void *context;
};

struct purge_result {
	uint64_t version;                  /* of the dataset afterwards; dry run: current version */
	uint64_t oldest;                   /* version that can be read */
	uint64_t n_holed;                  /* rewritten chunks */
	uint64_t n_samples;                /* copied */
	uint64_t n_resumed;                /* of these, copied by an interrupted run */
	uint64_t n_written;                /* chunks; dry run: 0 */
	uint64_t n_removed, removed_bytes; /* chunks */
	uint64_t n_waiting, waiting_bytes; /* chunks needed only by versions before the newest */
};

/* -EBUSY: there is another writer; -EBADMSG: a sample is damaged (err names it); -ECANCELED. After a failure
 * the dataset is what it was, except -ESTALE: err says so. */
int purge_run(const struct purge_options *options, struct purge_result *ret, struct error *err);
