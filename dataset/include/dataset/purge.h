/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Frees the space of unneeded samples, for `dieselctl purge`. Chunks with deleted or replaced samples are
 * rewritten without these, and chunks that no version needs any more are removed.
 *
 * There is one commit. Nothing is removed before it, and the chunks removed after it belong to no readable
 * version. Data is removed before the tombstones that hide it, so a rebuild gives the newest version at any
 * moment. A later run finishes an interrupted one.
 */

#include "lib/error.h"
#include "lib/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct purge_options {
	const char *dataset;
	const char *command; /* command for the dataset's log, or NULL */
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
	uint64_t version;                  /* version of the dataset afterwards; dry run: current version */
	uint64_t oldest;                   /* version that can be read */
	uint64_t n_holed;                  /* rewritten chunks */
	uint64_t n_samples;                /* copied */
	uint64_t n_resumed;                /* of these, copied by an interrupted run */
	uint64_t n_written;                /* new chunks written; dry run: 0 */
	uint64_t n_removed, removed_bytes; /* chunks */
	uint64_t n_waiting, waiting_bytes; /* chunks needed only by versions before the newest */
};

/* -EBUSY: there is another writer; -EBADMSG: a sample is damaged (err names it); -ECANCELED. After a failure
 * the dataset is what it was, except -ESTALE: err says so. */
int purge_run(const struct purge_options *options, struct purge_result *ret, struct error *err);
