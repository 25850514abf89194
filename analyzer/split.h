/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Each data wait, split into what faster storage would save (fetch) and the rest (prep):
 *
 *   libdiesel  stretches between MARK_WAIT_BEGIN and MARK_WAIT_END with MARK_CAUSE_FETCH are fetch
 *   inline     the trainer's file calls are fetch: with nobody working ahead nothing overlaps
 *   workers    the replay's ratio where it reproduces the recording, else the walk
 */

#include "analyzer/analysis.h"
#include "walk.h"
#include "waits.h"
#include "window.h"

struct split {
	uint64_t *fetch_ns; /* of each wait, at most its length */
	enum analysis_method method;
	struct tally tally; /* of the waits in the window */
};

/* -ENOMEM. */
int split_waits(const struct timeline *timeline, const struct roles *roles, const struct data_waits *waits,
		const struct window *window, struct split *ret_split);
void split_free(struct split *split);
