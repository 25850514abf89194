/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Computes how much cache, staging disk and CPU a node needs for the jobs in its history. Sums the needs of
 * all jobs in each second, and takes the largest sum. Pure.
 *
 * Sizes are bytes. NAN: unknown in every second of the history.
 */

#include <stddef.h>
#include <stdint.h>

#include "tuner/stall_sample.h"

#define CAPACITY_BUCKETS   4096
#define CAPACITY_PER_CORE  16                    /* buckets */
#define CAPACITY_RESERVE   (UINT64_C(256) << 20) /* memory that a cache leaves free, as the tuner does */
#define CAPACITY_LEAST     (UINT64_C(16) << 20)  /* smallest cache or staging folder that dieseld accepts */
#define CAPACITY_OWN_BYTES (UINT64_C(256) << 20) /* dieseld itself, without cache and decoders */

struct capacity_dataset {
	uint64_t key;
	double bytes;
};

struct capacity {
	uint64_t n_seconds; /* seconds with at least one job */
	size_t n_jobs_most; /* most jobs at one time */

	/* Memory: the minimum for the sessions to run, the datasets in use at one time (each counted once),
	 * and the decoded copies of all samples. */
	double need_bytes, dataset_bytes, decoded_bytes;
	double limit_bytes; /* limit of the node or the daemon's cgroup */
	double space_bytes; /* least memory that other programs left to dieseld */

	/* Distinct datasets, for staging. */
	struct capacity_dataset *datasets;
	size_t n_datasets, n_allocated;

	/* Cores of the node, most cores busy in dieseld's workers, and a histogram of seconds by the cores
	 * needed to serve without waits. */
	double cores, cores_busy;
	uint64_t seconds_by_cores[CAPACITY_BUCKETS];
};

struct capacity_advice {
	double cache_bytes;     /* 0: the node lacks memory for the minimum of the sessions */
	double lacking_bytes;   /* memory missing for that minimum; else 0 */
	double missing_bytes;   /* memory missing to hold all datasets in use and their decoded copies */
	double stage_bytes;     /* size of all datasets, each counted once */
	double cores;           /* enough in 95 of 100 seconds */
	double set_aside_bytes; /* memory to reserve for dieseld, so not available to jobs */
};

/* Initialises an empty capacity: counts are 0, other figures NAN. */
void capacity_init(struct capacity *c);
void capacity_free(struct capacity *c);

/* Adds one second of the history. node may be NULL. Absurd figures count as unknown. -ENOMEM. */
int capacity_add(struct capacity *c, const struct stall_node *node, const struct stall_sample *samples,
		 size_t n_samples);

struct capacity_advice capacity_advise(const struct capacity *c);
