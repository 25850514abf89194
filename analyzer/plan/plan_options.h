/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The shares of one node that are worth giving to a job, and the best choice of one for each job of a node.
 */

#include "analyzer/plan.h"

/* A job's home is the node where others may have accelerators, too. It has all of each further node. */
struct plan_shape {
	uint32_t n_further;
	uint32_t home; /* accelerators there */
};

static inline struct plan_shape plan_shape_of(const struct plan_nodes *nodes, const struct plan_job *job)
{
	uint32_t n_further = (job->accelerators - 1) / nodes->accelerators;

	return (struct plan_shape){n_further, job->accelerators - n_further * nodes->accelerators};
}

/* Returns what the job has of each further node. */
struct plan_part plan_further(const struct plan_cluster *cluster, const struct plan_nodes *nodes);

/* Returns the job's speed with such a home; 0: not known. *ret_interpolated: it lies between points. */
double plan_speed(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
		  const struct plan_job *job, double home_cores, double home_memory_bytes,
		  bool *ret_interpolated);

/* Returns the proportional share, with cores and memory of only the home. */
struct plan_share plan_home(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
			    const struct plan_job *job);

struct plan_option {
	double cores, memory_bytes; /* of the home */
	double relative;            /* as in struct plan_share */
	double speed;
};

/* Options by growing `relative`, without those that need more than another and are not faster. Never empty.
 */
struct plan_options {
	struct plan_option *items;
	size_t n;
	size_t safe; /* an option that needs no more than the proportional share */
};

/* The options of each job on each kind of nodes. */
struct plan_table {
	const struct plan_cluster *cluster;
	const struct plan_job *jobs;
	size_t n_jobs;
	struct plan_options *options; /* options[job * n_kinds + kind] */
};

int plan_table_make(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs,
		    struct plan_table *ret_table);
void plan_table_free(struct plan_table *table);

/* Returns the kind of a node. */
size_t plan_kind_of(const struct plan_cluster *cluster, size_t node);

const struct plan_options *plan_options_of(const struct plan_table *table, size_t job, size_t node);

/* Returns the fastest option, and of several the first. */
static inline const struct plan_option *plan_wish(const struct plan_options *options)
{
	return &options->items[options->n - 1];
}
