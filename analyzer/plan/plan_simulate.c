/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/plan.h"
#include "lib/hash.h"
#include "plan_place.h"

#define LATER_JOBS                                                                                           \
	1000 /* jobs that arrive after the counted ones, so that these do not end in an empty cluster */
#define TRIES      64  /* swaps that are tried when a job has come or gone */
#define SHORT_PART 0.8 /* of all jobs */

/* One job. Work is counted in seconds with its proportional share. */
struct job_life {
	double arrival_s, left_s;
	double speed; /* work per second; 0: it does not run */
	size_t kind;
	bool done;
};

struct cluster_run {
	enum plan_strategy strategy;
	bool moves;
	struct plan_table kinds; /* a row per kind of arrival */
	struct plan_table table; /* a row per job: borrows the options of `kinds` */
	struct plan_job *jobs;
	struct job_life *lives;
	size_t n;
	struct placement place;
	size_t *running, n_running;
	size_t *waiting, n_waiting; /* in order of arrival */
	uint64_t n_free, n_accelerators;
	double now_s;
	double busy_s; /* accelerators in use, times seconds */
};

/* Returns a number in (0, 1]. */
static double lot(uint64_t *state)
{
	return ((double)(splitmix64(state) >> 11) + 1) * 0x1p-53;
}

static size_t kind_drawn(const struct plan_simulation *simulation, uint64_t *state)
{
	double sum = 0, at;
	size_t kind = 0;

	for (size_t i = 0; i < simulation->n_arrivals; i++)
		sum += simulation->arrivals[i].weight;
	at = lot(state) * sum;
	while (kind + 1 < simulation->n_arrivals && at > simulation->arrivals[kind].weight)
		at -= simulation->arrivals[kind++].weight;
	return kind;
}

static void lives_draw(const struct plan_simulation *simulation, struct job_life *lives, size_t n)
{
	uint64_t state = simulation->seed;
	double now_s = 0;

	for (size_t i = 0; i < n; i++) {
		bool is_short;
		double minutes;

		now_s += -log(lot(&state)) * 3600 / simulation->jobs_per_hour;
		is_short = lot(&state) <= SHORT_PART;
		minutes = is_short ? pow(10, 1.5 + 1.5 * lot(&state)) : pow(10, 3 + lot(&state));
		lives[i] = (struct job_life){
		    .arrival_s = now_s, .left_s = 60 * minutes, .kind = kind_drawn(simulation, &state)};
	}
}

static void run_free(struct cluster_run *run)
{
	place_free(&run->place);
	if (run->kinds.options)
		plan_table_free(&run->kinds);
	free(run->table.options);
	free(run->jobs);
	free(run->lives);
	free(run->running);
	free(run->waiting);
}

/* Makes a table with a row per job out of the one with a row per kind of arrival. */
static int table_spread(struct cluster_run *run, const struct plan_cluster *cluster)
{
	run->table =
	    (struct plan_table){.cluster = cluster,
				.jobs = run->jobs,
				.n_jobs = run->n,
				.options = calloc(run->n * cluster->n_kinds, sizeof(struct plan_options))};
	if (!run->table.options)
		return -ENOMEM;
	for (size_t i = 0; i < run->n; i++) {
		run->jobs[i] = run->kinds.jobs[run->lives[i].kind];
		for (size_t k = 0; k < cluster->n_kinds; k++)
			run->table.options[i * cluster->n_kinds + k] =
			    run->kinds.options[run->lives[i].kind * cluster->n_kinds + k];
	}
	return 0;
}

static int run_init(struct cluster_run *run, const struct plan_simulation *simulation, struct plan_job *kinds)
{
	const struct plan_cluster *cluster = simulation->cluster;
	int r;

	for (size_t k = 0; k < cluster->n_kinds; k++)
		run->n_accelerators += (uint64_t)cluster->kinds[k].n * cluster->kinds[k].accelerators;
	run->n_free = run->n_accelerators;
	run->n = simulation->last + LATER_JOBS;
	run->jobs = calloc(run->n, sizeof(*run->jobs));
	run->lives = calloc(run->n, sizeof(*run->lives));
	run->running = calloc(run->n, sizeof(*run->running));
	run->waiting = calloc(run->n, sizeof(*run->waiting));
	if (!run->jobs || !run->lives || !run->running || !run->waiting)
		return -ENOMEM;
	r = plan_table_make(cluster, kinds, simulation->n_arrivals, &run->kinds);
	if (r < 0)
		return r;
	lives_draw(simulation, run->lives, run->n);
	r = table_spread(run, cluster);
	return r < 0 ? r : place_init(&run->table, &run->place);
}

static double usual_speed(const struct cluster_run *run, size_t job, size_t node)
{
	const struct plan_cluster *cluster = run->table.cluster;

	return plan_proportional(cluster, plan_node(cluster, node), &run->table.jobs[job]).relative;
}

static void speeds_set(struct cluster_run *run, size_t node)
{
	const struct place_node *at = &run->place.nodes[node];

	for (size_t i = 0; i < at->n_jobs; i++) {
		size_t job = at->jobs[i];
		const struct plan_options *options = plan_options_of(&run->table, job, node);

		switch (run->strategy) {
		case PLAN_TUNE:
			run->lives[job].speed = options->items[run->place.choice[job]].relative;
			break;
		case PLAN_GREEDY: run->lives[job].speed = plan_wish(options)->relative; break;
		default: run->lives[job].speed = usual_speed(run, job, node); break;
		}
	}
}

/* Shares a node out again after a job has come or gone. */
static int node_share(struct cluster_run *run, size_t node)
{
	size_t tries = TRIES;
	bool moved = false;
	double sum;
	int r = run->strategy == PLAN_TUNE ? place_choose(&run->place, node, &sum) : 0;

	if (r == 0 && run->strategy == PLAN_TUNE && run->moves)
		r = place_swap(&run->place, node, &tries, &moved);
	for (size_t k = 0; r == 0 && k < run->place.n_nodes; k++)
		if (moved || k == node)
			speeds_set(run, k);
	return r;
}

/* Returns the open node of the kind with the most accelerators left; PLAN_WAITS if there is none. Nodes of a
 * job of several nodes do not count: it stays. */
static size_t emptiest(const struct placement *place, size_t kind)
{
	const struct plan_cluster *cluster = place->table->cluster;
	size_t found = PLAN_WAITS;

	for (size_t node = 0; node < place->n_nodes; node++) {
		const struct place_node *at = &place->nodes[node];
		bool stays =
		    !at->n_jobs && at->accelerators < plan_node(place->table->cluster, node)->accelerators;

		for (size_t i = 0; i < at->n_jobs; i++)
			stays |= place->further[at->jobs[i]] != NULL;
		if (!stays && !at->closed && plan_kind_of(cluster, node) == kind &&
		    (found == PLAN_WAITS || at->accelerators > place->nodes[found].accelerators))
			found = node;
	}
	return found;
}

/* Moves the node's jobs to open ones until it has that many accelerators. */
static int node_vacate(struct placement *place, size_t node, uint32_t accelerators,
		       enum plan_strategy strategy, bool *ret_moved)
{
	struct place_node *at = &place->nodes[node];
	int r = 0;

	for (size_t i = at->n_jobs; r == 0 && i-- > 0 && at->accelerators < accelerators;) {
		size_t job = at->jobs[i], to = place_find(place, job, strategy, NULL);

		if (to == PLAN_WAITS)
			continue;
		place_take(place, job);
		r = place_put(place, job, to);
		*ret_moved = true;
	}
	return r;
}

static int kind_vacate(struct placement *place, size_t job, size_t kind, enum plan_strategy strategy,
		       bool *ret_moved)
{
	const struct plan_nodes *nodes = &place->table->cluster->kinds[kind];
	const struct plan_shape shape = plan_shape_of(nodes, &place->table->jobs[job]);
	size_t *targets = calloc(shape.n_further + 1, sizeof(*targets)), n = 0;
	int r = targets ? 0 : -ENOMEM;

	while (r == 0 && n <= shape.n_further) {
		size_t node = emptiest(place, kind);

		if (node == PLAN_WAITS)
			break;
		place->nodes[node].closed = true;
		targets[n++] = node;
	}
	for (size_t i = 0; r == 0 && n == shape.n_further + 1 && i < n; i++)
		r = node_vacate(place, targets[i], i < shape.n_further ? nodes->accelerators : shape.home,
				strategy, ret_moved);
	while (n > 0)
		place->nodes[targets[--n]].closed = false;
	free(targets);
	return r;
}

/* Moves jobs of one node to other nodes, so that `job`, of more than one accelerator, finds the nodes that it
 * needs. *ret_moved becomes true if any was moved, even if that did not suffice. -ENOMEM. */
static int place_vacate(struct placement *place, size_t job, enum plan_strategy strategy, bool *ret_moved)
{
	const struct plan_cluster *cluster = place->table->cluster;
	int r = 0;

	for (size_t kind = 0;
	     r == 0 && kind < cluster->n_kinds && place_find(place, job, strategy, NULL) == PLAN_WAITS;
	     kind++)
		if (plan_nodes_of(cluster, kind, &place->table->jobs[job]))
			r = kind_vacate(place, job, kind, strategy, ret_moved);
	return r;
}

/* Moves running jobs for one that finds too few accelerators on any node, but enough in the cluster. */
static int nodes_vacate(struct cluster_run *run, size_t job)
{
	bool moved = false;
	double sum;
	int r;

	if (!run->moves || run->table.jobs[job].accelerators > run->n_free ||
	    run->table.jobs[job].accelerators < 2)
		return 0;
	r = place_vacate(&run->place, job, run->strategy, &moved);
	for (size_t node = 0; r == 0 && moved && node < run->place.n_nodes; node++) {
		if (run->strategy == PLAN_TUNE)
			r = place_choose(&run->place, node, &sum);
		if (r == 0)
			speeds_set(run, node);
	}
	return r;
}

/* Starts the jobs that find accelerators. */
static int jobs_start(struct cluster_run *run)
{
	size_t n = 0, i = 0;
	int r = 0;

	for (; r == 0 && i < run->n_waiting && run->n_free; i++) {
		size_t job = run->waiting[i];
		size_t node = place_find(&run->place, job, run->strategy, NULL);

		if (node == PLAN_WAITS) {
			r = nodes_vacate(run, job);
			if (r == 0)
				node = place_find(&run->place, job, run->strategy, NULL);
		}
		if (node == PLAN_WAITS) {
			run->waiting[n++] = job;
			continue;
		}
		r = place_put(&run->place, job, node);
		if (r == 0)
			r = node_share(run, node);
		run->n_free -= run->table.jobs[job].accelerators;
		run->running[run->n_running++] = job;
	}
	while (i < run->n_waiting)
		run->waiting[n++] = run->waiting[i++];
	run->n_waiting = n;
	return r;
}

static int job_end(struct cluster_run *run, size_t index)
{
	size_t job = run->running[index], node = run->place.node_of[job];

	run->running[index] = run->running[--run->n_running];
	run->lives[job].done = true;
	run->n_free += run->table.jobs[job].accelerators;
	place_take(&run->place, job);
	return node_share(run, node);
}

static void time_pass(struct cluster_run *run, double s)
{
	for (size_t i = 0; i < run->n_running; i++)
		run->lives[run->running[i]].left_s -= s * run->lives[run->running[i]].speed;
	run->busy_s += s * (double)(run->n_accelerators - run->n_free);
	run->now_s += s;
}

/* Returns the index of the running job that ends first, and in how many seconds; INFINITY if none runs. */
static size_t next_end(const struct cluster_run *run, double *ret_s)
{
	size_t found = 0;

	*ret_s = INFINITY;
	for (size_t i = 0; i < run->n_running; i++) {
		const struct job_life *life = &run->lives[run->running[i]];

		if (life->left_s / life->speed < *ret_s) {
			*ret_s = life->left_s / life->speed;
			found = i;
		}
	}
	*ret_s = fmax(0, *ret_s);
	return found;
}

/* Runs until the counted jobs have ended. times_s: from arrival to completion, last - first of them. */
static int run_all(struct cluster_run *run, const struct plan_simulation *simulation, double *times_s)
{
	size_t arrived = 0, left = simulation->last - simulation->first;
	int r = 0;

	while (r == 0 && left) {
		double end_s,
		    arrival_s = arrived < run->n ? run->lives[arrived].arrival_s - run->now_s : INFINITY;
		size_t index = next_end(run, &end_s);

		if (isinf(end_s) && isinf(arrival_s))
			return -EINVAL; /* a job that fits no node */
		time_pass(run, fmin(end_s, arrival_s));
		if (end_s <= arrival_s) {
			size_t job = run->running[index];

			r = job_end(run, index);
			if (job >= simulation->first && job < simulation->last) {
				times_s[job - simulation->first] = run->now_s - run->lives[job].arrival_s;
				left--;
			}
		} else {
			if (arrived == simulation->first)
				run->busy_s = 0;
			run->waiting[run->n_waiting++] = arrived++;
		}
		if (r == 0)
			r = jobs_start(run);
	}
	return r;
}

static int by_value(const void *a, const void *b)
{
	const double *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

static struct plan_times times_of(const struct cluster_run *run, const struct plan_simulation *simulation,
				  double *times_s)
{
	size_t n = simulation->last - simulation->first;
	double begin_s = run->lives[simulation->first].arrival_s;
	struct plan_times times = {.n = n};

	qsort(times_s, n, sizeof(*times_s), by_value);
	for (size_t i = 0; i < n; i++)
		times.mean_s += times_s[i] / (double)n;
	times.p50_s = times_s[n / 2];
	times.p99_s = times_s[(size_t)((double)(n - 1) * 0.99)];
	times.busy_ratio = run->busy_s / ((run->now_s - begin_s) * (double)run->n_accelerators);
	return times;
}

int plan_simulate(const struct plan_simulation *simulation, enum plan_strategy strategy,
		  struct plan_times *ret_times)
{
	struct cluster_run run = {.strategy = strategy, .moves = simulation->moves};
	struct plan_job *kinds = NULL;
	double *times_s = NULL;
	int r = 0;

	if (simulation->last <= simulation->first || !simulation->n_arrivals ||
	    !(simulation->jobs_per_hour > 0) || !plan_n_nodes(simulation->cluster))
		return -EINVAL;
	kinds = calloc(simulation->n_arrivals, sizeof(*kinds));
	times_s = calloc(simulation->last - simulation->first, sizeof(*times_s));
	if (!kinds || !times_s)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < simulation->n_arrivals; i++)
		kinds[i] = *simulation->arrivals[i].job;
	if (r == 0 &&
	    plan_first_too_large(simulation->cluster, kinds, simulation->n_arrivals) < simulation->n_arrivals)
		r = -EINVAL;
	if (r == 0)
		r = run_init(&run, simulation, kinds);
	if (r == 0)
		r = run_all(&run, simulation, times_s);
	if (r == 0)
		*ret_times = times_of(&run, simulation, times_s);
	run_free(&run);
	free(kinds);
	free(times_s);
	return r;
}
