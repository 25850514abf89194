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

/* Fills in the part of the dataset that the job's ranks on this node need, in chunks and in decoded copies,
 * and how much of it is in memory. */
void sensed_dataset(const struct serving *serving, const struct job *job, struct stall_sample *sample);

/* Returns a reading by its age, 0: the latest; NULL: there is none. */
const struct sensed_reading *sensed_reading_at(const struct sensed_job *sensed, uint64_t age);

/* sensor_rates.c: pure. */

/* Fills in the figures of arrived chunks, from the latest reading and earlier ones. shares: true if the job
 * has other nodes, whose figures are then filled in, too. */
void sensed_source(const struct sensed_job *sensed, bool shares, struct stall_sample *sample);
/* Fills in what each tier delivers. Call it after sensed_source(), whose memory_hit_ratio it uses. */
void sensed_flows(const struct sensed_job *sensed, bool shares, struct stall_sample *sample);
/* Fills in the figures of decoded copies, except those that sensed_dataset() fills in. */
void sensed_decoded(const struct sensed_reading *before, const struct sensed_reading *now,
		    struct stall_sample *sample);
/* Fills in the work of daemon workers and client workers between the two readings. */
void sensed_work(const struct sensed_reading *before, const struct sensed_reading *now,
		 struct stall_sample *sample);
/* Fills in the shares: the child's if there is a report, else the clients'. */
void sensed_shares(const struct sensed_job *sensed, const struct sensed_reading *before,
		   const struct sensed_reading *now, struct stall_sample *sample);
/* Fills in fetch_rate, prep_rate and device_rate from the other figures of the sample;
 * docs/explanation/tuning.md has the formulas. pool_threads: size of the daemon's pool, the maximum number of
 * threads that a job can use. */
void sensed_rates(struct stall_sample *sample, double pool_threads);
