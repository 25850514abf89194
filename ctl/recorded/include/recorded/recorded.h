/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recording that `diesel-analyze record` has made, as the rounds that a tuner would have been given: one
 * struct stall_sample a second, of one job. What the recording does not tell is not known (NAN): it has seen
 * the trainer and its workers, but neither chunks nor caches nor memory pressure.
 *
 * A sample is one of the trainer's where the recording tells how many a batch has, else a batch. The only
 * knob that may be turned is the number of client workers, and only of a loader that has worker processes or
 * does its work in the trainer; the others are 0.
 */

#include <stdbool.h>
#include <stdint.h>

#include "history/history.h"

struct analysis;
struct error;

/* What makes wall-clock time out of the recording's. */
struct recorded_clock {
	uint64_t monotonic_ns, realtime_ns; /* 0: not known */
};

/* Calls visit for each second of the analysis (one with lanes), as long as it returns 0; else its result.
 * -E2BIG: it spans more than a month, which no recording does. */
int recorded_analysis_rounds(const struct analysis *analysis, const struct recorded_clock *clock,
			     int (*visit)(void *user, const struct history_round *round), void *user);

struct recorded_info {
	bool cut_off;           /* the file ends before the recording did */
	bool sampled;           /* recorded without privilege: approximate */
	char insufficient[160]; /* why its steps cannot be judged; "" */
};

/* The same of a file. Errors as recording_open() (-EBADMSG: it is no recording), recording_analyze(),
 * recorded_analysis_rounds(). */
int recorded_rounds(const char *path, int (*visit)(void *user, const struct history_round *round), void *user,
		    struct recorded_info *ret_info, struct error *err);
