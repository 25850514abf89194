/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Internals of the replay: the state of a simulated worker. Worker w of W has batches w, w + W, w + 2 W, ...
 * of an epoch. */

#include "analyzer/model.h"

enum sim_phase {
	SIM_IDLE,    /* no batch was requested */
	SIM_ABSENT,  /* not started before `until_ns` */
	SIM_COMPUTE, /* `left_ns` of CPU time */
	SIM_DELAY,   /* lasts until `until_ns` */
	SIM_FETCH_CPU,
	SIM_FETCH, /* lasts until `until_ns` */
};

struct sim_worker {
	enum sim_phase phase;
	double left_ns, until_ns;
	double width; /* cores that SIM_COMPUTE has; at least 1 */
	size_t segment, segment_end;
	size_t n_finished, n_published; /* batches of this epoch */
	double publish_left;            /* remaining part of the next batch to publish, 1 to 0 */
};

/* The storage and other parts of the scenario that concern reading. */
struct sim_reads {
	const struct model_job *job;
	const struct model_scenario *scenario;
	bool moved;                   /* workers do the work that the trainer did itself */
	struct model_storage storage; /* storage of the scenario */
	double storage_state;
	double hit_ratio;       /* recorded, of the groups that read something */
	double mean_latency_ns; /* mean latency of recorded misses */
};

struct sim_reads sim_reads_init(const struct model_job *job, const struct model_scenario *scenario);

/* Begins work on a batch. */
void sim_worker_take(struct sim_worker *worker, struct sim_reads *reads, const struct model_batch *batch,
		     double now_ns);

/* Ends the current phase and begins the next one. Returns true if the batch is finished and the worker idle.
 */
bool sim_worker_next(struct sim_worker *worker, struct sim_reads *reads, double now_ns);

static inline bool sim_worker_runs(const struct sim_worker *worker)
{
	return worker->phase == SIM_COMPUTE || worker->phase == SIM_FETCH_CPU;
}

static inline bool sim_worker_sleeps(const struct sim_worker *worker)
{
	return worker->phase == SIM_ABSENT || worker->phase == SIM_DELAY || worker->phase == SIM_FETCH;
}
