/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recording that `diesel-analyze record` has made, as the rounds that a tuner would have been given: one
 * struct stall_sample a second, of one job. What the recording does not tell is not known (NAN): it has seen
 * the trainer and its workers, but neither chunks nor caches nor memory pressure.
 *
 * Where the recording tells how many samples a batch has, "samples" are the trainer's; else each batch counts
 * as one. The only knob that may be turned is the number of client workers, and only of a loader that has
 * worker processes or does its work in the trainer; the others are 0.
 */

#include <stdbool.h>
#include <stdint.h>

#include "history/history.h"

struct analysis;
struct error;

/* Turns the recording's clock into wall-clock time. */
struct recorded_clock {
	uint64_t monotonic_ns, realtime_ns; /* 0: not known */
};

/* Calls visit for each second of the analysis, which must have lanes, as long as visit returns 0. Returns
 * visit's last result. -E2BIG: it spans more than a month, which no recording does. */
int recorded_analysis_rounds(const struct analysis *analysis, const struct recorded_clock *clock,
			     int (*visit)(void *user, const struct history_round *round), void *user);

struct recorded_info {
	bool cut_off;           /* the file ends before the recording did */
	bool sampled;           /* recorded without privilege: approximate */
	char insufficient[160]; /* why its steps cannot be judged, or "" */
};

/* The same for a file. Errors are those of recording_open() (-EBADMSG: it is no recording),
 * recording_analyze(), recorded_analysis_rounds(). */
int recorded_rounds(const char *path, int (*visit)(void *user, const struct history_round *round), void *user,
		    struct recorded_info *ret_info, struct error *err);
