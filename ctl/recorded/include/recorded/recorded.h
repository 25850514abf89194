/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Converts a recording of `diesel-analyze record` into the rounds that a tuner would have got: one struct
 * stall_sample per second, for one job. Values that a recording lacks are NAN: it has data on the trainer and
 * its workers, but not on chunks, caches or memory pressure.
 *
 * If the recording has the batch size, "samples" are the trainer's samples; else each batch counts as one.
 * The only adjustable knob is the number of client workers, and only for a loader that has worker processes
 * or works in the trainer; the others are 0.
 */

#include <stdbool.h>
#include <stdint.h>

#include "history/history.h"

struct error;

struct recorded_info {
	bool cut_off;           /* the file ends before the end of the recording */
	bool sampled;           /* recorded without privilege: approximate */
	char insufficient[160]; /* reason why the recording's steps cannot be judged, or "" */
};

/* Calls visit() for each second of the recording, while visit() returns 0. Returns visit()'s last result.
 * Errors are those of recording_open() (-EBADMSG: not a recording) and recording_analyze(); -E2BIG: the file
 * spans more than a month, which no recording does. */
int recorded_rounds(const char *path, int (*visit)(void *user, const struct history_round *round), void *user,
		    struct recorded_info *ret_info, struct error *err);
