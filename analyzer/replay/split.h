/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Each data wait, split into what faster storage would save (fetch) and the rest (prep):
 *
 *   libdiesel  stretches between MARK_WAIT_BEGIN and MARK_WAIT_END with MARK_CAUSE_FETCH are fetch
 *   inline     the trainer's file calls are fetch: with nobody working ahead nothing overlaps
 *   workers    the replay's ratio where it reproduces the recording, else the walk
 */

#include "analyzer/loader.h"
#include "analyzer/share.h"
#include "service.h"
#include "walk.h"
#include "waits.h"
#include "window.h"

struct split {
	uint64_t *fetch_ns; /* of each wait, at most its length */
	enum analysis_method method;
	/* The replay's own time for the steps that are replayed, as recorded and with reading for nothing; 0:
	 * none */
	double recorded_ns, replayed_ns, unfetched_ns;
	struct tally tally; /* of the waits in the window */
};

/* How far the replay of a recording may be off before it says nothing about a changed one. */
#define SPLIT_TOLERANCE 0.10

struct split_input {
	const struct timeline *timeline;
	const struct roles *roles;
	const struct data_waits *waits;
	const struct window *window;
	const struct window *run;      /* the part of it that is replayed */
	const struct service *service; /* of run */
};

/* split: with fetch_ns allocated, one a wait, all 0. Waits outside of the window stay 0, but for those of a
 * loader whose reading is seen (inline) or told (libdiesel). What the replay says of the run holds for all of
 * the window, in proportion. -ENOMEM. */
int split_waits(const struct split_input *input, struct split *split);
void split_free(struct split *split);

/* split_replay.c: true where the replay is good enough to take its word; else fetch_ns is as it was. -ENOMEM.
 */
int split_by_replay(const struct split_input *input, struct split *split, bool *ret_split);
