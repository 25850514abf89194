/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's own part of a job's sample: what it delivered, read and computed, from counters that are read
 * once a second. Rates are of the last second; figures of storage of the last second that had enough reads,
 * at most SENSED_READINGS of them. Loop thread only.
 */

#include "sensor_message.h"
#include "serving.h"
#include "tuner/stall_sample.h"

#define SENSED_READINGS 6

/* What clients say is theirs to spoil: only their own job's figures. */
struct sensed_reading {
	uint64_t at_ns;
	struct job_counters counters;
	struct job_taken taken;
};

struct sensed_job {
	struct sensed_job *next;
	uint64_t id;
	pid_t root;                                      /* 0: not to be seen */
	uint64_t start_ticks;                            /* of it */
	bool told;                                       /* the child knows of it */
	bool present;                                    /* it is in server.jobs */
	struct sensed_reading readings[SENSED_READINGS]; /* a ring */
	uint64_t n_readings;
	uint64_t queue_ns, queue_at_ns; /* run-queue delay of its threads so far */
	double queue_ratio;
	bool has_report; /* for this second */
	struct sensor_report report;
};

/* Reads the job's counters. */
void sensed_read(struct sensed_job *sensed, const struct serving *serving, struct job *job, uint64_t now_ns);

/* The sample of the time between the last two readings; nothing covered before the second one. */
struct stall_sample sensed_sample(const struct sensed_job *sensed, const struct serving *serving,
				  const struct job *job);

/* sensor_rates.c: pure. */

/* Of reading `now` against an earlier one. Fills in storage, work, rates and consumption. */
void sensed_storage(const struct sensed_job *sensed, struct stall_sample *sample);
void sensed_work(const struct sensed_reading *before, const struct sensed_reading *now,
		 struct stall_sample *sample);
/* Shares: the child's where there is a report, the clients' else. */
void sensed_shares(const struct sensed_job *sensed, const struct sensed_reading *before,
		   const struct sensed_reading *now, struct stall_sample *sample);
/* F, P, G of what is in the sample by now; docs/tuning.md has the formulas. pool_threads: of the daemon's
 * pool, more of which than there are no job can use. */
void sensed_rates(struct stall_sample *sample, double pool_threads);

const struct sensed_reading *sensed_reading_at(const struct sensed_job *sensed, uint64_t age);
