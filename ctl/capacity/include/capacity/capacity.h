/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much cache, staging disk and CPU a node needs for the jobs that its history tells of. Sums are taken
 * over the jobs of one second, and the largest of them counts. Pure.
 *
 * Sizes are bytes. NAN: no second of the history says.
 */

#include <stddef.h>
#include <stdint.h>

#include "tuner/stall_sample.h"

#define CAPACITY_BUCKETS   4096
#define CAPACITY_PER_CORE  16                    /* buckets */
#define CAPACITY_RESERVE   (UINT64_C(256) << 20) /* memory that a cache leaves free, as the tuner does */
#define CAPACITY_LEAST     (UINT64_C(16) << 20)  /* dieseld takes no smaller cache or staging folder */
#define CAPACITY_OWN_BYTES (UINT64_C(256) << 20) /* dieseld itself, without cache and decoders */

struct capacity_dataset {
	uint64_t key;
	double bytes;
};

struct capacity {
	uint64_t n_seconds; /* in which a job was seen */
	size_t n_jobs_most; /* at one time */

	/* Memory: what sessions cannot run without; the datasets in use at one time, each once; the decoded
	 * forms of all samples. */
	double need_bytes, dataset_bytes, form_bytes;
	double limit_bytes; /* of the node or the daemon's cgroup */
	double room_bytes;  /* the least that other programs left to dieseld */

	/* Distinct datasets, for staging. */
	struct capacity_dataset *datasets;
	size_t n_datasets, n_allocated;

	/* Cores: of the node; at work; seconds by the cores that serving without waits would take. */
	double cores, cores_busy;
	uint64_t seconds_by_cores[CAPACITY_BUCKETS];
};

struct capacity_advice {
	double cache_bytes;     /* 0: the node has no room for what sessions cannot run without */
	double lacking_bytes;   /* memory that the node then lacks; else 0 */
	double missing_bytes;   /* of what would hold all datasets in use and their decoded forms */
	double stage_bytes;     /* all datasets, each once */
	double cores;           /* enough in 95 of 100 seconds */
	double set_aside_bytes; /* memory that jobs must not be given */
};

/* All zero is a capacity that has seen nothing, after this. */
void capacity_init(struct capacity *c);
void capacity_free(struct capacity *c);

/* One second: node may be NULL. Figures that are absurd count as unknown. -ENOMEM. */
int capacity_add(struct capacity *c, const struct stall_node *node, const struct stall_sample *samples,
		 size_t n_samples);

struct capacity_advice capacity_advise(const struct capacity *c);
