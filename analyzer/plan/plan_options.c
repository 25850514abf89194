/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-9 /* of sums and ratios of doubles */

static size_t at_or_below(const double *points, size_t n, double x)
{
	size_t i = 0;

	while (i < n && points[i] <= x * (1 + TOLERANCE))
		i++;
	return i; /* 0: none */
}

static size_t point_at(const struct plan_job *job, double cores, double memory_bytes)
{
	size_t i = job->cores_known ? at_or_below(job->cores, job->n_cores, cores) : 1;
	size_t k = job->memory_known ? at_or_below(job->memory_bytes, job->n_memory, memory_bytes) : 1;

	return i && k ? (i - 1) * job->n_memory + (k - 1) : SIZE_MAX;
}

/* A place among ascending points: between the points low and low + 1, or at or above the last one. */
struct between_points {
	size_t low;
	double part; /* of the way to the next point */
};

/* Returns false below all points. */
static bool place_of(const double *points, size_t n, double x, struct between_points *ret_place)
{
	size_t i = at_or_below(points, n, x);

	if (!i)
		return false;
	*ret_place = (struct between_points){
	    .low = i - 1, .part = i < n ? fmax(0, (x - points[i - 1]) / (points[i] - points[i - 1])) : 0};
	if (ret_place->part < TOLERANCE)
		ret_place->part = 0;
	return true;
}

/* Interpolates linearly. Returns 0 below all points, and next to a point at which the job does not run. */
static double speed_at(const struct plan_job *job, double cores, double memory_bytes, bool *ret_interpolated)
{
	struct between_points at = {0}, memory = {0};
	double sum = 0;

	*ret_interpolated = false;
	if ((job->cores_known && !place_of(job->cores, job->n_cores, cores, &at)) ||
	    (job->memory_known && !place_of(job->memory_bytes, job->n_memory, memory_bytes, &memory)))
		return 0;
	*ret_interpolated = at.part > 0 || memory.part > 0;
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 2; k++) {
			double weight = (i ? at.part : 1 - at.part) * (k ? memory.part : 1 - memory.part);
			double speed =
			    weight > 0 ? job->speeds[(at.low + i) * job->n_memory + memory.low + k] : 1;

			if (!(speed > 0))
				return 0;
			sum += weight * speed;
		}
	return sum;
}

double plan_speed(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
		  const struct plan_job *job, double home_cores, double home_memory_bytes,
		  bool *ret_interpolated)
{
	const struct plan_shape shape = plan_shape_of(nodes, job);
	double cores = home_cores / shape.home;

	if (shape.n_further)
		cores = fmin(cores, plan_further(cluster, nodes).cores / nodes->accelerators);
	return speed_at(job, cores * job->accelerators, home_memory_bytes / shape.home * job->accelerators,
			ret_interpolated);
}

size_t plan_point(const struct plan *plan, const struct plan_job *job, const struct plan_share *share)
{
	double cores = INFINITY, memory_bytes = INFINITY;

	/* The part with the least for each accelerator sets the pace. */
	for (size_t i = 0; i < share->n_parts; i++) {
		const struct plan_part *part = &plan->parts[share->first_part + i];

		cores = fmin(cores, part->cores / part->accelerators);
		memory_bytes = fmin(memory_bytes, part->memory_bytes / part->accelerators);
	}
	return point_at(job, cores * job->accelerators, memory_bytes * job->accelerators);
}

static uint32_t least_nodes(const struct plan_cluster *cluster, const struct plan_job *job)
{
	uint32_t least = UINT32_MAX;

	for (size_t kind = 0; kind < cluster->n_kinds; kind++) {
		const struct plan_nodes *nodes = &cluster->kinds[kind];
		uint32_t n = plan_shape_of(nodes, job).n_further + 1;

		if (n <= nodes->n && n < least)
			least = n;
	}
	return least;
}

uint32_t plan_nodes_of(const struct plan_cluster *cluster, size_t kind, const struct plan_job *job)
{
	uint32_t n = plan_shape_of(&cluster->kinds[kind], job).n_further + 1;

	return n == least_nodes(cluster, job) ? n : 0;
}

static double round_down(const struct plan_cluster *cluster, double cores)
{
	return cluster->core_step > 0
		   ? floor(cores / cluster->core_step * (1 + TOLERANCE)) * cluster->core_step
		   : cores;
}

static double round_up(const struct plan_cluster *cluster, double cores)
{
	return cluster->core_step > 0
		   ? ceil(cores / cluster->core_step * (1 - TOLERANCE)) * cluster->core_step
		   : cores;
}

struct plan_part plan_further(const struct plan_cluster *cluster, const struct plan_nodes *nodes)
{
	return (struct plan_part){.accelerators = nodes->accelerators,
				  .cores = round_down(cluster, nodes->cores),
				  .memory_bytes = nodes->memory_bytes};
}

static struct plan_share share_of_home(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
				       const struct plan_job *job)
{
	const struct plan_shape shape = plan_shape_of(nodes, job);
	double part = (double)shape.home / nodes->accelerators;
	struct plan_share share = {.cores = round_down(cluster, part * nodes->cores),
				   .memory_bytes = part * nodes->memory_bytes};

	share.speed = plan_speed(cluster, nodes, job, share.cores, share.memory_bytes, &share.interpolated);
	return share;
}

/* Returns the job's speed with its proportional share of the nodes that give it the least; 0: not known. */
static double reference_speed(const struct plan_cluster *cluster, const struct plan_job *job)
{
	double least = INFINITY;

	for (size_t kind = 0; kind < cluster->n_kinds; kind++) {
		double speed = share_of_home(cluster, &cluster->kinds[kind], job).speed;

		if (plan_nodes_of(cluster, kind, job) && speed > 0)
			least = fmin(least, speed);
	}
	return isinf(least) ? 0 : least;
}

struct plan_share plan_home(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
			    const struct plan_job *job)
{
	struct plan_share share = share_of_home(cluster, nodes, job);
	double reference = share.speed > 0 ? reference_speed(cluster, job) : 0;

	share.relative = reference > 0 ? share.speed / reference : 1;
	return share;
}

struct plan_share plan_proportional(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
				    const struct plan_job *job)
{
	const struct plan_part further = plan_further(cluster, nodes);
	struct plan_share share = plan_home(cluster, nodes, job);
	uint32_t n = plan_shape_of(nodes, job).n_further;

	share.cores += n * further.cores;
	share.memory_bytes += n * further.memory_bytes;
	return share;
}

static int by_speed(const void *a, const void *b)
{
	const struct plan_option *one = a, *other = b;

	if (one->relative != other->relative)
		return one->relative < other->relative ? -1 : 1;
	if (one->cores != other->cores)
		return one->cores < other->cores ? -1 : 1;
	return (one->memory_bytes > other->memory_bytes) - (one->memory_bytes < other->memory_bytes);
}

/* Leaves out each option that another one, not slower, undercuts. */
static void prune(struct plan_options *options)
{
	size_t n = 0;

	qsort(options->items, options->n, sizeof(*options->items), by_speed);
	for (size_t i = 0; i < options->n; i++) {
		const struct plan_option *one = &options->items[i];
		bool needless = false;

		for (size_t k = 0; k < options->n && !needless; k++) {
			const struct plan_option *other = &options->items[k];
			bool same = other->cores == one->cores && other->memory_bytes == one->memory_bytes;

			/* k < i is no slower only if it is as fast, and then it was the cheaper one. */
			needless = k != i && other->cores <= one->cores &&
				   other->memory_bytes <= one->memory_bytes &&
				   other->relative >= one->relative && !(same && k > i);
		}
		if (!needless)
			options->items[n++] = *one;
	}
	options->n = n;
}

/* Returns an option out of a point of the job: what its home and each further node must give for it. false:
 * they cannot. */
static bool option_of(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
		      const struct plan_job *job, const struct plan_option *point,
		      struct plan_option *ret_option)
{
	const struct plan_shape shape = plan_shape_of(nodes, job);
	const struct plan_part further = plan_further(cluster, nodes);
	double part = (double)nodes->accelerators / job->accelerators,
	       home = (double)shape.home / job->accelerators;
	struct plan_option option = *point;

	if (shape.n_further) {
		if (job->cores_known && part * point->cores > further.cores * (1 + TOLERANCE))
			return false;
		if (job->memory_known && part * point->memory_bytes > further.memory_bytes * (1 + TOLERANCE))
			return false;
		option.cores = round_up(cluster, home * point->cores);
		option.memory_bytes = home * point->memory_bytes;
	}
	*ret_option = option;
	return true;
}

/* -ENOMEM. Free the items. */
static int plan_options_make(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
			     const struct plan_job *job, struct plan_options *ret_options)
{
	const struct plan_share usual = plan_home(cluster, nodes, job);
	double reference = reference_speed(cluster, job);
	struct plan_options options = {.items =
					   calloc(job->n_cores * job->n_memory + 1, sizeof(*options.items))};

	if (!options.items)
		return -ENOMEM;
	options.items[options.n++] = (struct plan_option){.cores = usual.cores,
							  .memory_bytes = usual.memory_bytes,
							  .relative = usual.relative,
							  .speed = usual.speed};
	/* A proportional share below all points has an unknown speed, to which nothing can be compared. */
	for (size_t i = 0; usual.speed > 0 && i < (job->cores_known ? job->n_cores : 1); i++)
		for (size_t k = 0; k < (job->memory_known ? job->n_memory : 1); k++) {
			double speed = job->speeds[i * job->n_memory + k];
			struct plan_option option = {.cores = job->cores[i],
						     .memory_bytes = job->memory_bytes[k],
						     .relative = speed / reference,
						     .speed = speed};

			if (!option_of(cluster, nodes, job, &option, &option))
				continue;
			if (!job->cores_known)
				option.cores = usual.cores;
			if (!job->memory_known)
				option.memory_bytes = usual.memory_bytes;
			if (speed >= usual.speed && reference > 0 &&
			    option.cores <= nodes->cores * (1 + TOLERANCE) &&
			    option.memory_bytes <= nodes->memory_bytes * (1 + TOLERANCE))
				options.items[options.n++] = option;
		}
	prune(&options);
	while (options.safe + 1 < options.n &&
	       (options.items[options.safe].cores > usual.cores ||
		options.items[options.safe].memory_bytes > usual.memory_bytes))
		options.safe++;
	*ret_options = options;
	return 0;
}

size_t plan_kind_of(const struct plan_cluster *cluster, size_t node)
{
	size_t kind = 0;

	while (kind + 1 < cluster->n_kinds && node >= cluster->kinds[kind].n)
		node -= cluster->kinds[kind++].n;
	return kind;
}

const struct plan_options *plan_options_of(const struct plan_table *table, size_t job, size_t node)
{
	return &table->options[job * table->cluster->n_kinds + plan_kind_of(table->cluster, node)];
}

int plan_table_make(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs,
		    struct plan_table *ret_table)
{
	struct plan_table table = {.cluster = cluster,
				   .jobs = jobs,
				   .n_jobs = n_jobs,
				   .options = calloc(n_jobs * cluster->n_kinds + 1, sizeof(*table.options))};
	int r = table.options ? 0 : -ENOMEM;

	for (size_t job = 0; r == 0 && job < n_jobs; job++)
		for (size_t kind = 0; r == 0 && kind < cluster->n_kinds; kind++)
			r = plan_options_make(cluster, &cluster->kinds[kind], &jobs[job],
					      &table.options[job * cluster->n_kinds + kind]);
	if (r < 0) {
		plan_table_free(&table);
		return r;
	}
	*ret_table = table;
	return 0;
}

void plan_table_free(struct plan_table *table)
{
	for (size_t i = 0; table->options && i < table->n_jobs * table->cluster->n_kinds; i++)
		free(table->options[i].items);
	free(table->options);
	table->options = NULL;
}
