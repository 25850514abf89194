/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Plans the shares of training jobs on the nodes of a cluster, after Synergy (OSDI 2022). A job that needs
 * few cores or little memory leaves them to others. No job gets slower than with its proportional share: of a
 * node's cores and memory, the same part as of its accelerators.
 *
 * Pure, except for plan_bound(), which loads a library: no clock, no other I/O, no global state. Inputs are
 * borrowed. Cores and bytes are doubles. A speed is in samples/s, or in any unit common to all shares of a
 * job.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* Nodes of one size. A node without accelerators has slots instead. */
struct plan_nodes {
	uint32_t n, accelerators;
	double cores, memory_bytes;
};

struct plan_cluster {
	const struct plan_nodes *kinds;
	size_t n_kinds;
	double core_step; /* shares are multiples of it; 0: any */
};

/*
 * How fast a job is with a share: speeds[i * n_memory + k] with cores[i] and memory_bytes[k], both ascending.
 * Between two points the speed is interpolated, above all points it is that of the last one, and below all
 * points and next to a speed of 0 it is not known. On several nodes, cores and memory are those of all
 * together, of which each node gives the same part as of the accelerators.
 */
struct plan_job {
	const char *name;
	/* At least 1. A job has as few nodes as it can: one, or all accelerators of several nodes of one kind
	 * and the rest on one more. */
	uint32_t accelerators;
	const double *cores, *memory_bytes, *speeds;
	size_t n_cores, n_memory;
	/* false: the job keeps its proportional share. The list then has one point, which stands for it. */
	bool cores_known, memory_known;
};

enum plan_strategy {
	PLAN_EQUAL,  /* each job has its proportional share */
	PLAN_GREEDY, /* each job, in order, has all that speeds it up, or waits */
	PLAN_TUNE,   /* cores and memory that a job does not need speed up others */
	PLAN_STRATEGIES,
};

#define PLAN_WAITS SIZE_MAX

/* The resource that a waiting job lacks. */
enum plan_lack {
	PLAN_LACKS_NOTHING,
	PLAN_LACKS_ACCELERATORS, /* on one node, or on as many as it needs */
	PLAN_LACKS_CORES,        /* where accelerators are left: only with PLAN_GREEDY */
	PLAN_LACKS_MEMORY,
};

/* A job's part of one node. */
struct plan_part {
	size_t node; /* number of the node, counted over all kinds */
	uint32_t accelerators;
	double cores, memory_bytes;
};

struct plan_share {
	size_t node; /* of its first part; PLAN_WAITS: the job gets no accelerator */
	size_t first_part, n_parts;
	enum plan_lack lack;
	double cores, memory_bytes; /* of all parts */
	double speed;               /* 0 while it waits */
	/* Speed over that with its proportional share of a node; with nodes of several sizes, of one where
	 * that is slowest. 1 if the speed is not known. */
	double relative;
	bool interpolated; /* plan_proportional(): the speed lies between points */
};

struct plan {
	struct plan_share *shares; /* one per job */
	struct plan_part *parts;
	size_t n_parts;
	double total; /* sum of `relative` */
	size_t n_waiting;
};

/* Returns the size of a node. */
const struct plan_nodes *plan_node(const struct plan_cluster *cluster, size_t node);
size_t plan_n_nodes(const struct plan_cluster *cluster);

/* Returns the index in `speeds` of a job's share; SIZE_MAX: it is below all points. */
size_t plan_point(const struct plan *plan, const struct plan_job *job, const struct plan_share *share);

/* Returns how many nodes of such a kind the job has. 0: none, as there are too few, or as it has fewer nodes
 * of another kind. */
uint32_t plan_nodes_of(const struct plan_cluster *cluster, size_t kind, const struct plan_job *job);

/* Returns the job's proportional share of such nodes, with `speed`, and without parts. */
struct plan_share plan_proportional(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
				    const struct plan_job *job);

/* Returns the index of the first job that has more accelerators than the nodes of any one kind; n_jobs if
 * there is none. */
size_t plan_first_too_large(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs);

/* Places the jobs, the earlier ones first where accelerators are short. -ENOMEM, -EINVAL (no node, no
 * accelerator, no point). Free the plan. */
int plan_make(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs,
	      enum plan_strategy strategy, struct plan *ret_plan);
void plan_free(struct plan *plan);

/*
 * Returns an upper limit on the total of any plan of the jobs that do not wait in `plan`, and in which none
 * is slower than with its proportional share. It is the optimum of a linear programme: all nodes of a kind
 * are one large node, and a job may have parts of several shares. -ELIBACC: this system has no libClp.so.1
 * (COIN-OR). -ENOMEM, -EIO.
 */
int plan_bound(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs,
	       const struct plan *plan, double *ret_total, struct error *err);

const char *plan_strategy_name(enum plan_strategy strategy);

/* ---- simulation -------------------------------------------------------------------------------------- */

/* A kind of job that arrives: its part of all arrivals is weight over the sum of weights. */
struct plan_arrival {
	const struct plan_job *job;
	double weight;
};

/*
 * Simulates a cluster to which jobs come. Times between arrivals are exponential. With its proportional share
 * a job would run for 10^x minutes. x is uniform: in 1.5 to 3 for 80 % of the jobs, in 3 to 4 for the others.
 * These are the times of Microsoft's Philly cluster, as Gandiva, Gavel and Synergy simulate them.
 *
 * Jobs start in the order of arrival. One that finds too few accelerators on any node, or too few nodes, lets
 * later ones pass; if jobs may move, those in its way do, as far as they find other nodes.
 * The shares on a node change when a job comes or goes.
 */
struct plan_simulation {
	const struct plan_cluster *cluster;
	const struct plan_arrival *arrivals;
	size_t n_arrivals;
	double jobs_per_hour;
	/* Jobs are counted from 0. The figures are those of the jobs [first, last); arrivals go on until they
	 * have finished. */
	size_t first, last;
	uint64_t seed;
	bool moves; /* a running job may move to another node at no cost, as in Synergy's simulation */
};

struct plan_times {
	double mean_s, p50_s, p99_s; /* from arrival to completion */
	double busy_ratio;           /* accelerators in use, mean over the time of the counted jobs */
	size_t n;
};

/* The same seed gives the same jobs for each strategy. -ENOMEM, -EINVAL. */
int plan_simulate(const struct plan_simulation *simulation, enum plan_strategy strategy,
		  struct plan_times *ret_times);
