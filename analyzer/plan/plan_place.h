/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The nodes of jobs, while a plan is made or a simulation runs. */

#include "plan_options.h"

struct place_node {
	uint32_t accelerators; /* free */
	/* the node's size minus the wishes of its jobs; may be below 0 */
	double cores, memory_bytes;
	size_t *jobs; /* jobs whose home it is */
	size_t n_jobs;
	bool closed; /* nothing is placed here while nodes are vacated */
};

struct placement {
	const struct plan_table *table;
	struct place_node *nodes;
	size_t n_nodes;
	size_t *n_empty;  /* per kind: nodes of which nobody has anything */
	size_t *node_of;  /* per job: its home; PLAN_WAITS */
	size_t **further; /* per job: its further nodes, as many as its shape has; NULL: none */
	size_t *choice;   /* per job: an index of its options on its node */
};

int place_init(const struct plan_table *table, struct placement *ret_place); /* -ENOMEM */
void place_free(struct placement *place);

/* Returns the home for a job; PLAN_WAITS if there is none. ret_lack: what it lacks then; may be NULL. */
size_t place_find(const struct placement *place, size_t job, enum plan_strategy strategy,
		  enum plan_lack *ret_lack);

int place_put(struct placement *place, size_t job, size_t node); /* -ENOMEM */
void place_take(struct placement *place, size_t job);

/* Chooses the options of a node's jobs: those with the largest sum of `relative`. -ENOMEM. */
int place_choose(struct placement *place, size_t node, double *ret_sum);

/* Swaps jobs of the node that fall short of their wishes for jobs of other nodes, if that raises the sum of
 * `relative`. Each try costs one of *tries. *ret_better becomes true if jobs were swapped. -ENOMEM. */
int place_swap(struct placement *place, size_t node, size_t *tries, bool *ret_better);
