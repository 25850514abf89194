/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Staging: chunks on a local disk, as a second level below memory. Chunks of datasets that do not fit in
 * memory are read from storage once and written to the staging folder. Later epochs, also after restarts, and
 * all jobs read them from there.
 *
 * Staging holds copies and grants no rights. A chunk comes from there only when its reader (reader.h) has
 * just opened the chunk's own file, with all checks, and found it unchanged. So a user who cannot read the
 * file gets nothing, and a file that was replaced is read. Staged chunks are verified like chunks from
 * storage.
 *
 * Staging is optional at all times. A disk that is full, fails, is slow or hangs only costs its contents. A
 * load waits for it for a bounded time, then reads from storage; after a few such loads in a row staging is
 * skipped for a while. That is logged once.
 *
 * Staging is for storage that is slower than the staging disk (stage_pace.h). Both are measured, and a
 * dataset whose storage is equally fast is neither written nor read there.
 *
 * Each chunk is used once an epoch, so any part of a dataset is as good as any other, and staged chunks stay.
 * Evicted first is the dataset that has been out of use for longest. Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "dataset/snapshot.h"
#include "daemon/sandboxed/fork_server.h"
#include "daemon/node/quota.h"
#include "stage_index.h"
#include "daemon/sandboxed/stager.h"

struct cache;
struct cached_dataset;
struct segment;
struct stage;

struct stage_options {
	const char *folder; /* NULL: no staging */
	bool always;        /* stage even if storage is at least as fast */
	uint64_t bytes;     /* limit on the size of all staged files */
};

struct stage_figures {
	bool is_open; /* in use now */
	uint64_t files, bytes, limit_bytes;
	uint64_t hits, read_bytes;       /* chunks read from staging */
	uint64_t written, written_bytes; /* chunks written to staging */
	uint64_t evicted;                /* evicted for other chunks */
	uint64_t damaged;                /* files whose contents differ from what was written */
	uint64_t late, failed;           /* reads that took too long, or failed */
	uint64_t write_failures;
	uint64_t skipped; /* chunks evicted from memory before they were written */
};

int stage_new(uv_loop_t *loop, const struct fork_server *fork_server, struct cache *cache,
	      const struct stage_options *options, const struct quota *quota, struct stage **ret);
/* Frees the stage, and forgets all reads in progress. The loop must run once more. Accepts NULL. */
struct stage *stage_free(struct stage *g);

/* Writes a chunk that was read from storage and verified, if that is worthwhile. */
void stage_put(struct stage *g, struct segment *segment);

/* Removes the staged chunks of this folder of chunks. Accepts NULL. */
void stage_forget(struct stage *g, uint64_t folder_dev, uint64_t folder_ino);

/* Notes that a chunk of `bytes` arrived from storage or from staging within ns, counting only the chunk's
 * own part of the time. */
void stage_note(struct stage *g, struct cached_dataset *d, bool from_staging, uint64_t ns, uint64_t bytes);

void stage_figures_get(const struct stage *g, struct stage_figures *ret);
