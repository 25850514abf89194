/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's own part of a job's sample: what it delivered, read and computed, from counters that are read
 * once a second. Rates are those of the last second. Storage figures go back as many seconds as it takes to
 * have enough reads, at most SENSED_READINGS readings. Loop thread only. */

#include "sensor_message.h"
#include "daemon/serve/serving.h"
#include "tuner/stall_sample.h"

#define SENSED_READINGS 6

/* Wrong figures from clients spoil only their own job's sample. */
struct sensed_reading {
	uint64_t at_ns;
	struct job_counters counters;
	struct job_taken taken;
};

struct sensed_job {
	struct sensed_job *next;
	uint64_t id;
	pid_t root;                                      /* the job's process; 0: not visible here */
	uint64_t start_ticks;                            /* start time of root */
	bool told;                                       /* the child knows the job */
	bool present;                                    /* it is in serving.jobs */
	struct sensed_reading readings[SENSED_READINGS]; /* a ring */
	uint64_t n_readings;
	uint64_t queue_ns, queue_at_ns; /* total run-queue delay of its threads, and time of the reading */
	double queue_ratio;
	struct writes writes; /* the job's writes, as far as this process may see them */
	bool has_report;      /* `report` is from this second */
	struct sensor_report report;
};

/* Returns the sample of the time between the last two readings. Before there are two, it covers no time, and
 * describes only the current state: knobs, sessions and dataset. */
struct stall_sample sensed_sample(const struct sensed_job *sensed, const struct serving *serving,
				  const struct job *job);
