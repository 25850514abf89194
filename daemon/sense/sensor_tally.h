/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What marks and steps alone say of one job, second by second: how long its trainers waited for data. Pure:
 * no clock, no I/O.
 *
 * A trainer is a thread that marks waits. Where a loader marks next(), the time in next() is the wait;
 * otherwise (a program that calls libdiesel itself) it is libdiesel's own sleep.
 */

#include <stdbool.h>
#include <stdint.h>

#include "bpf/event.h"

#define TALLY_TRAINERS  16 /* more ranks in one process tree are left out */
#define TALLY_DURATIONS 64

struct tally_trainer {
	uint32_t tid;
	bool marks_next;   /* its loader marks next() */
	uint64_t begin_ns; /* since when it is in next(); 0: it is not */
	uint64_t sleep_ns; /* since when it sleeps in libdiesel; 0: it does not */
	uint64_t n_steps;
	uint64_t wait_ns; /* of waits that have ended */
	uint64_t last_ns; /* when the last step was */
};

struct wait_tally {
	struct tally_trainer trainers[TALLY_TRAINERS];
	uint32_t n;
	uint64_t durations_ns[TALLY_DURATIONS]; /* of the last steps; a ring */
	uint64_t n_durations;
	bool has_steps; /* backward passes are seen, and count as the steps; else the ends of next() do */
};

void tally_event(struct wait_tally *tally, const struct event *event);

/* Totals at one time, including waits under way. */
struct tally_sums {
	uint64_t wait_ns; /* mean over trainers */
	uint64_t n_steps; /* sum over trainers */
	uint32_t n_trainers;
};

struct tally_sums tally_sums(const struct wait_tally *tally, uint64_t now_ns);

/* A quantile of the durations of the last steps; NAN: none were seen. */
double tally_step_s(const struct wait_tally *tally, double quantile);
