/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between the daemon and its sensing child: fixed structs, one per datagram, over a socketpair
 * between two copies of one program.
 *
 *   daemon                          child
 *   (FORK_SERVER_KEEP to the keeper)    a watcher is forked, which loads the programs
 *                               <-  READY, or REFUSED (why), and it ends
 *   ADD (job, process)          ->
 *   TICK, once a second         ->
 *                               <-  REPORTS ..., TICKED
 *   REMOVE (job)                ->
 *   the end of the socket       ->  the watcher ends, the programs are unloaded
 */

#include <stdint.h>

#include "tuner/stall_sample.h"
#include "writes.h"

enum sensor_request_type {
	SENSOR_ADD = 1,
	SENSOR_REMOVE,
	SENSOR_TICK,
};

struct sensor_request {
	uint32_t type;
	uint32_t reserved;
	uint64_t job;
	int64_t root;         /* ADD: process, as the daemon sees it */
	uint64_t start_ticks; /* distinguishes the process from a later one with the same number */
};

enum sensor_reply_type {
	SENSOR_READY = 1,
	SENSOR_REFUSED,
	SENSOR_REPORTS,
	SENSOR_TICKED,
};

/* One job, from the last tick to this one. */
struct sensor_report {
	uint64_t job;
	uint64_t at_ns;
	double covered_s;
	double wait; /* exact share of time spent waiting for data; NAN: the job marks no waits */
	struct stall_shares shares;
	double steps_per_s;
	double step_p50_s, step_p95_s;
	double detail_age_s; /* time since the trainer was last recorded in detail; NAN: never */
	uint32_t n_trainers; /* 0: the job's time is not known, and the other figures are meaningless */
	uint32_t reserved;
	struct writes_seen writes;
};

#define SENSOR_REPORTS_MAX 16

struct sensor_reply {
	uint32_t type;
	int32_t code; /* REFUSED: negative errno; REPORTS: number of reports */
	union {
		char why[480]; /* REFUSED */
		struct {
			uint64_t n_lost, cpu_ns, bpf_run_ns, resident_bytes, active_ns;
			uint32_t n_jobs, reserved;
		} ticked;
		struct sensor_report reports[SENSOR_REPORTS_MAX];
	};
};

_Static_assert(sizeof(struct sensor_request) == 32, "sent");
_Static_assert(sizeof(struct sensor_report) == 200, "sent");
_Static_assert(sizeof(struct sensor_reply) == 8 + SENSOR_REPORTS_MAX * 200, "sent");
