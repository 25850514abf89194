/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Computes from marks and steps, second by second, how long the trainers of one job waited for data. Pure: no
 * clock, no I/O. */

#include <stdbool.h>
#include <stdint.h>

#include "bpf/event.h"

#define TALLY_TRAINERS  16 /* limit on ranks in one process tree; more are ignored */
#define TALLY_DURATIONS 64

struct tally_trainer {
	uint32_t tid;
	bool marks_next;   /* its loader marks next() */
	uint64_t begin_ns; /* time when it entered next(); 0: it is not in next() */
	uint64_t sleep_ns; /* time when it began to sleep in libdiesel; 0: it does not sleep */
	uint64_t n_steps;
	uint64_t wait_ns; /* sum of waits that have ended */
	uint64_t last_ns; /* time of the last step */
};

struct wait_tally {
	struct tally_trainer trainers[TALLY_TRAINERS];
	uint32_t n;
	uint64_t durations_ns[TALLY_DURATIONS]; /* durations of the last steps; a ring */
	uint64_t n_durations;
	bool has_steps; /* backward passes are visible, and count as steps; otherwise ends of next() do */
};

void tally_event(struct wait_tally *tally, const struct event *event);

/* Totals at one time, including waits in progress. */
struct tally_sums {
	uint64_t wait_ns; /* mean over trainers */
	uint64_t n_steps; /* sum over trainers */
	uint32_t n_trainers;
};

struct tally_sums tally_sums(const struct wait_tally *tally, uint64_t now_ns);

/* Returns a quantile of the durations of the last steps; NAN: no step has been seen. */
double tally_step_s(const struct wait_tally *tally, double quantile);
