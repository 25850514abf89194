/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks on a local disk, below those in memory: of datasets that do not fit in memory, what was read from
 * storage once is written to the staging folder, and read from there in later epochs, after restarts too, and
 * by whichever job wants it.
 *
 * Staging holds copies and no rights. A chunk comes from there only when its reader (reader.h) has just
 * opened the chunk's own file, with all its checks, and found it unchanged: so whoever could not read the
 * file gets nothing, and a file that was replaced is read. What comes is verified like anything from storage.
 *
 * It is never needed. A disk that is full, fails, is slow or hangs costs what was on it: whoever waits for it
 * waits a bounded time and reads from storage, and after a few such in a row nobody asks for a while. That is
 * said once.
 *
 * It is for storage that is slower than the staging disk (stage_pace.h): both are measured, and a dataset
 * whose storage is as fast is neither written nor read there.
 *
 * Which: each chunk is used once an epoch, so any part of a dataset is as good as any other, and what lies
 * there stays. What goes for something new is of the dataset that has been out of use for longest. All loop
 * thread.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "dataset/snapshot.h"
#include "daemon/apart/nursery.h"
#include "daemon/node/quota.h"
#include "stage_index.h"
#include "daemon/apart/stager.h"

struct cache;
struct cached_dataset;
struct segment;
struct stage;

struct stage_options {
	const char *folder; /* NULL: no staging */
	bool always;        /* where storage is no slower, too */
	uint64_t bytes;     /* the most that files in it may take */
};

struct stage_figures {
	bool is_open; /* in use now */
	uint64_t files, bytes, limit_bytes;
	uint64_t hits, read_bytes;       /* chunks that came from it */
	uint64_t written, written_bytes; /* that went there */
	uint64_t evicted;                /* that went for others */
	uint64_t damaged;                /* that were not as written */
	uint64_t late, failed;           /* reads that took too long, or failed */
	uint64_t write_failures;
	uint64_t skipped; /* chunks that memory gave up before they were written */
};

int stage_new(uv_loop_t *loop, const struct nursery *nursery, struct cache *cache,
	      const struct stage_options *options, const struct quota *quota, struct stage **ret);
/* Everybody who reads is forgotten. The loop must run once more. Accepts NULL. */
struct stage *stage_free(struct stage *g);

/* A chunk was read from storage and verified: it is written if that is worth while. */
void stage_put(struct stage *g, struct segment *segment);

/* A chunk of so many bytes has come from storage, or from staging, in this time of its own. */
void stage_note(struct stage *g, struct cached_dataset *d, bool from_staging, uint64_t ns, uint64_t bytes);

void stage_figures_get(const struct stage *g, struct stage_figures *ret);
