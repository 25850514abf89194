/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Each data wait, split into what faster storage would save (fetch) and the rest (prep):
 *
 *   libdiesel  stretches between MARK_WAIT_BEGIN and MARK_WAIT_END with a cause that fetches are fetch
 *   inline     the trainer's file calls are fetch: with nobody working ahead nothing overlaps
 *   threads    the walk
 *   workers    the replay's ratio where it reproduces the recording, else the walk
 */

#include "analyzer/loader.h"
#include "analyzer/share.h"
#include "service.h"
#include "analyzer/shares/walk.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

struct split {
	uint64_t *fetch_ns; /* of each wait, at most its length */
	enum analysis_method method;
	/* The steps that are replayed: their recorded time, and the replay's with reading as recorded and
	 * free; 0: none */
	double recorded_ns, replayed_ns, unfetched_ns;
	struct tally tally; /* what the walk charged the waits in the window to */
};

/* If the replay of a recording is off by more, a changed replay says nothing. */
#define SPLIT_TOLERANCE 0.10

struct split_input {
	const struct timeline *timeline;
	const struct roles *roles;
	const struct data_waits *waits;
	const struct window *window;
	const struct window *run;      /* the part of the window that is replayed */
	const struct service *service; /* of run */
};

/* split comes with fetch_ns allocated, one per wait, all 0. Waits outside of the window stay 0, except those
 * of a loader whose reading is seen (inline) or told (libdiesel). What the replay says of the run is extended
 * to all of the window, in proportion. -ENOMEM. */
int split_waits(const struct split_input *input, struct split *split);
void split_free(struct split *split);
