/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The jobs of a watcher: which are watched, the slices in detail, and their results. One thread. */

#include <stddef.h>

#include "lib/clock.h"
#include "sensor_detail.h"
#include "sensor_message.h"
#include "sensor_tally.h"

struct collector;
struct live;

#define WATCH_WINDOW_NS (DETAIL_MAX_NS + 2 * NS_PER_S)
#define WATCH_JOBS_MAX  1024

struct watched {
	uint64_t job;
	uint32_t root;
	struct tally tally;
	struct writes writes;
	uint64_t tick_ns;         /* when the last report was made */
	struct tally_sums ticked; /* the sums at that time */
	double wait;              /* share of waiting in the last second */
	uint64_t slice_steps;     /* n_steps when the slice began */
	bool to_analyse, looked_at;
	bool has_slice;
	struct stall_shares slice;
	double slice_wait; /* by the marks, while that slice ran */
	uint64_t slice_ns; /* when it ended */
	uint64_t slice_wait_ns, last_steps, last_step_ns;
};

struct watch {
	int fd;
	bool ended;
	struct collector *collector;
	struct live *live;
	struct watched **jobs; /* indexed by their number in `live` */
	size_t n_jobs;
	struct detail_plan plan;
	uint64_t cost_ns; /* of the analyses of the last slice */
};

/* Takes in what the programs recorded. */
void watch_take_events(struct watch *w);

/* A job that cannot be watched gets no reports: the daemon then goes by what clients report. */
void watch_add(struct watch *w, const struct sensor_request *request);
void watch_remove(struct watch *w, uint64_t job);
void watch_remove_all(struct watch *w);

/* Begins and ends slices. */
void watch_plan(struct watch *w);
/* Analyses one job that was in the last slice, so that ticks are answered in between. Returns true if there
 * was one. */
bool watch_analyse_next(struct watch *w);

/* Where the job's time went since its last report. */
void watch_report(struct watched *job, uint64_t now_ns, struct sensor_report *ret);

/* CPU time of this process. */
uint64_t watch_cpu_ns(void);
