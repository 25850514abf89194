/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Splits each data wait into the time that faster storage would save (fetch) and the rest (prep):
 *
 *   libdiesel  intervals from MARK_WAIT_BEGIN to MARK_WAIT_END whose cause is fetching are fetch
 *   inline     the trainer's file calls are fetch: no other thread works ahead, so nothing overlaps
 *   threads    the walk
 *   workers    the replay's ratio where it reproduces the recording, else the walk
 */

#include <stdlib.h>
#include "analyzer/loader.h"
#include "analyzer/share.h"
#include "service.h"
#include "analyzer/shares/study.h"
#include "analyzer/shares/walk.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

struct split {
	uint64_t *fetch_ns; /* fetch part of each wait, at most its length */
	enum analysis_method method;
	/* Times of the replayed steps: recorded, replayed with reading as recorded, replayed with free
	 * reading; 0: none. */
	double recorded_ns, replayed_ns, unfetched_ns;
	struct tally tally; /* the walk's charges for the waits in the window */
};

/* Largest relative error of an unchanged replay with which changed replays are still valid. */
#define SPLIT_TOLERANCE 0.10

/* Splits the waits. The caller allocates split->fetch_ns, one per wait, all 0. Waits outside of the window
 * stay 0, unless the reading is seen (inline) or marked (libdiesel). The replay's result for the run is
 * extended in proportion to all of the window. -ENOMEM. */
int split_waits(const struct study *study, struct split *split);
static inline void split_free(struct split *split)
{
	free(split->fetch_ns);
	*split = (struct split){0};
}
