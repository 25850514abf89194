/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_input.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "analyzer/model.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/json_read.h"
#include "lib/units.h"
#include "served.h"

#define GRID_MAX     64
#define BYTES_LEAST  0x1p20 /* less is a size without its unit */
#define FOREIGN_MAX  0.1  /* of the time of making batches: with more, its waits for cores are not its own */
#define NOISE        0.01 /* of a speed: the replay's, from one number of cores to the next */
#define MEMORY_PARTS 8    /* of a node, at which a job's speed is computed */

/* ---- arguments --------------------------------------------------------------------------------------- */

/* One argument: FILE[,KEY=VALUE ...]. */
struct plan_argument {
	char *file;
	char *name;                           /* NULL: the file's */
	char *job;                            /* recordings with the same one are of one job; NULL: none */
	uint32_t accelerators;                /* 0: not given */
	uint32_t count;                       /* jobs like this */
	double weight;                        /* its part of all arrivals */
	double dataset_bytes, resident_bytes; /* NAN: not given */
};

static void argument_free(struct plan_argument *argument)
{
	free(argument->file);
	free(argument->name);
	free(argument->job);
	*argument = (struct plan_argument){0};
}

static int wrong(struct error *err, const char *key, const char *value, const char *rule)
{
	return error_set(err, -EINVAL, "%s=%s: must be %s", key, value, rule);
}

static int set_count(const char *key, const char *value, uint32_t *ret_count, struct error *err)
{
	int64_t n;

	if (units_parse_integer(value, 1, 10000, &n))
		return wrong(err, key, value, "a number from 1 to 10000");
	*ret_count = (uint32_t)n;
	return 0;
}

static int set_bytes(const char *key, const char *value, double *ret_bytes, struct error *err)
{
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes))
		return wrong(err, key, value, "a size such as 140G");
	if (bytes && bytes < BYTES_LEAST)
		return wrong(err, key, value, "at least 1M: give a unit, such as 140G");
	*ret_bytes = (double)bytes;
	return 0;
}

static int set_text(const char *key, const char *value, char **text, struct error *err)
{
	if (!*value)
		return wrong(err, key, value, "a name");
	free(*text);
	*text = strdup(value);
	return *text ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int set_key(struct plan_argument *argument, const char *key, const char *value, struct error *err)
{
	uint32_t weight = 1;
	int r;

	if (!strcmp(key, "accelerators"))
		return set_count(key, value, &argument->accelerators, err);
	if (!strcmp(key, "count"))
		return set_count(key, value, &argument->count, err);
	if (!strcmp(key, "dataset"))
		return set_bytes(key, value, &argument->dataset_bytes, err);
	if (!strcmp(key, "resident"))
		return set_bytes(key, value, &argument->resident_bytes, err);
	if (!strcmp(key, "weight")) {
		r = set_count(key, value, &weight, err);
		argument->weight = weight;
		return r;
	}
	if (!strcmp(key, "name"))
		return set_text(key, value, &argument->name, err);
	if (!strcmp(key, "job"))
		return set_text(key, value, &argument->job, err);
	return error_set(err, -EINVAL,
			 "unknown key '%s': after the file come accelerators=N, dataset=SIZE, resident=SIZE, "
			 "count=N, weight=N, name=NAME or job=NAME",
			 key);
}

/* -EINVAL, -ENOMEM. Free the strings. */
static int argument_parse(const char *text, struct plan_argument *ret_argument, struct error *err)
{
	_cleanup_(argument_free) struct plan_argument argument = {
	    .file = strdup(text), .count = 1, .weight = 1, .dataset_bytes = NAN, .resident_bytes = NAN};
	char *comma;
	int r = 0;

	if (!argument.file)
		return error_set(err, -ENOMEM, "out of memory");
	while (r == 0 && (comma = strrchr(argument.file, ',')) && strchr(comma, '=')) {
		char *key = comma + 1, *value = strchr(comma, '=');

		*comma = *value = '\0';
		r = set_key(&argument, key, value + 1, err);
	}
	if (r == 0 && isnan(argument.dataset_bytes) != isnan(argument.resident_bytes))
		r = error_set(err, -EINVAL, "dataset=SIZE and resident=SIZE are needed together: add %s",
			      isnan(argument.dataset_bytes) ? "dataset=SIZE" : "resident=SIZE");
	if (r < 0) {
		error_prefix(err, "%s", text);
		return r;
	}
	*ret_argument = argument;
	argument = (struct plan_argument){0};
	return 0;
}

/* ---- the grid ---------------------------------------------------------------------------------------- */

/* The points at which speeds are wanted. */
struct plan_grid {
	double cores[GRID_MAX], memory_bytes[GRID_MAX];
	size_t n_cores, n_memory;
	double n_nodes; /* over which the job lies; not whole if it has a part of one */
};

static void point_add(double *points, size_t *n, double x)
{
	size_t i = 0;

	while (i < *n && points[i] < x)
		i++;
	if (!(x > 0) || *n == GRID_MAX || (i < *n && points[i] == x))
		return;
	memmove(points + i + 1, points + i, (*n - i) * sizeof(*points));
	points[i] = x;
	++*n;
}

/* Adds the points of one kind of nodes. On several nodes each gives the same part as of the accelerators, so
 * points are those of one node, times the number of nodes (which need not be whole). */
static void grid_add(const struct plan_cluster *cluster, const struct plan_nodes *nodes,
		     const struct plan_job *any, uint32_t n_nodes, struct plan_grid *grid)
{
	double step = cluster->core_step > 0 ? cluster->core_step : 0.25, most = nodes->cores,
	       times = n_nodes > 1 ? (double)any->accelerators / nodes->accelerators : 1;
	struct plan_share usual = plan_proportional(cluster, nodes, any);
	uint32_t home = any->accelerators - (n_nodes - 1) * nodes->accelerators;
	double home_cores = usual.cores - (n_nodes - 1) * floor(most / step * (1 + 1e-9)) * step;

	grid->n_nodes = fmax(grid->n_nodes, times);
	point_add(grid->cores, &grid->n_cores,
		  n_nodes > 1 ? home_cores / home * any->accelerators : usual.cores);
	point_add(grid->memory_bytes, &grid->n_memory, usual.memory_bytes);
	for (int part = 1; part <= MEMORY_PARTS; part++)
		point_add(grid->memory_bytes, &grid->n_memory,
			  times * part * nodes->memory_bytes / MEMORY_PARTS);
	for (double x = step; x <= most && grid->n_cores < GRID_MAX / 2; x += x < 2 ? step : fmax(1, step))
		if (x <= 8 || x == floor(x / 2) * 2)
			point_add(grid->cores, &grid->n_cores, x * times);
	for (double x = 32; x <= most; x *= 1.25)
		point_add(grid->cores, &grid->n_cores, floor(x) * times);
	point_add(grid->cores, &grid->n_cores, floor(most) * times);
}

/* Chooses points up to the largest node: the proportional shares, parts of a core up to 2 if these are
 * allowed, each core up to 8, then wider steps. */
static void grid_make(const struct plan_cluster *cluster, uint32_t accelerators, struct plan_grid *grid)
{
	const struct plan_job any = {
	    .accelerators = accelerators, .n_cores = 1, .n_memory = 1, .speeds = (double[]){1}};

	*grid = (struct plan_grid){.n_nodes = 1};
	for (size_t kind = 0; kind < cluster->n_kinds; kind++) {
		uint32_t n = plan_nodes_of(cluster, kind, &any);

		if (n)
			grid_add(cluster, &cluster->kinds[kind], &any, n, grid);
	}
}

/* Adds a job without its speeds, with space for n_cores x n_memory of them. -ENOMEM. */
static int plan_inputs_new(struct plan_inputs *inputs, const struct plan_argument *argument, const char *name,
			   const struct plan_grid *grid, struct plan_input **ret_input)
{
	double *cores = calloc(grid->n_cores + 1, sizeof(*cores));
	double *memory = calloc(grid->n_memory + 1, sizeof(*memory));
	double *speeds = calloc(grid->n_cores * grid->n_memory + 1, sizeof(*speeds));
	uint32_t *workers = calloc(grid->n_cores * grid->n_memory + 1, sizeof(*workers));
	struct plan_input *input;

	if (!cores || !memory || !speeds || !workers ||
	    array_reserve(inputs->items, inputs->n, inputs->n_allocated) < 0) {
		free(cores);
		free(memory);
		free(speeds);
		free(workers);
		return -ENOMEM;
	}
	memcpy(cores, grid->cores, grid->n_cores * sizeof(*cores));
	memcpy(memory, grid->memory_bytes, grid->n_memory * sizeof(*memory));
	memset(workers, 0xff, grid->n_cores * grid->n_memory * sizeof(*workers));
	input = &inputs->items[inputs->n++];
	*input =
	    (struct plan_input){.unit = "steps/s",
				.workers = workers,
				.count = argument->count,
				.weight = argument->weight,
				.job = {.accelerators = argument->accelerators ? argument->accelerators : 1,
					.cores = cores,
					.memory_bytes = memory,
					.speeds = speeds,
					.n_cores = grid->n_cores,
					.n_memory = grid->n_memory}};
	snprintf(input->name, sizeof(input->name), "%s", argument->name ? argument->name : name);
	*ret_input = input;
	return 0;
}

void plan_inputs_free(struct plan_inputs *inputs)
{
	for (size_t i = 0; i < inputs->n; i++) {
		struct plan_input *input = &inputs->items[i];

		free((double *)input->job.cores);
		free((double *)input->job.memory_bytes);
		free((double *)input->job.speeds);
		free(input->workers);
	}
	free(inputs->items);
	*inputs = (struct plan_inputs){0};
}

/* ---- recordings -------------------------------------------------------------------------------------- */

/* Returns the hits of a page cache that holds the part x of a dataset, of which each epoch reads every file
 * once in random order. */
static double page_cache_hits(double x)
{
	if (x >= 1)
		return 1;
	return x > 0 ? x + (1 - x) * log1p(-x) : 0;
}

static bool has_sizes(const struct plan_argument *argument)
{
	return argument->dataset_bytes > 0 && argument->resident_bytes >= 0;
}

/* Memory that the job's processes do not take caches its dataset: on each node, which reads all of it. The
 * last ratio is the recorded one. */
static void ratios_make(const struct plan_argument *argument, const struct plan_grid *grid, double *ratios)
{
	for (size_t k = 0; k < grid->n_memory; k++)
		ratios[k] = page_cache_hits((grid->memory_bytes[k] - argument->resident_bytes) /
					    grid->n_nodes / argument->dataset_bytes);
	ratios[grid->n_memory] = NAN;
}

/* Returns why a recording does not tell how fast the job is with other cores; NULL: it does. */
static const char *why_unknown(const struct analysis *analysis)
{
	if (analysis->verdict == ANALYSIS_INSUFFICIENT)
		return analysis->insufficient;
	if (analysis->predictions && analysis->predictions->foreign_ratio > FOREIGN_MAX)
		return "other programs had its cores while it was recorded";
	if (analysis->predictions)
		return NULL;
	return analysis->no_predictions[0] ? analysis->no_predictions
					   : "it was sampled without privilege, and not recorded by BPF";
}

static void note_memory(struct plan_input *input, const struct plan_argument *argument,
			const struct predictions *predictions)
{
	input->job.memory_known = has_sizes(argument) && predictions->waits_known;
	if (!has_sizes(argument))
		snprintf(input->note, sizeof(input->note),
			 "its need of memory is not known: it keeps its proportional share. To share memory, "
			 "add dataset=SIZE,resident=SIZE");
	else if (!predictions->waits_known)
		snprintf(input->note, sizeof(input->note),
			 "unclear how slow its storage is, as it read nearly all from memory: it keeps its "
			 "proportional share of memory. Evict its files, and record again");
}

/* Takes speeds that differ by less than the noise for equal: fewer cores then do as well. */
static void level(double *speeds, size_t n_cores, size_t n_memory)
{
	for (size_t k = 0; k < n_memory; k++)
		for (size_t i = 0; i < n_cores; i++) {
			double speed = speeds[i * n_memory + k], best = speed;

			for (size_t more = i + 1; more < n_cores; more++)
				if (speeds[more * n_memory + k] * (1 - NOISE) <= speed)
					best = fmax(best, speeds[more * n_memory + k]);
			speeds[i * n_memory + k] = best;
		}
}

/* Takes over the speeds: of each amount of memory, or, if that is not known, those with the recorded hits.
 * Speeds of further recordings replace higher ones. */
static void cells_take(struct plan_input *input, const struct predictions *predictions, size_t n_ratios,
		       bool is_first)
{
	size_t n = input->job.n_memory;
	double *speeds = (double *)input->job.speeds;

	for (size_t i = 0; i < input->job.n_cores; i++)
		for (size_t k = 0; k < n; k++) {
			const struct what_if_cell *cell =
			    &predictions->cells[i * n_ratios + (input->job.memory_known ? k : n_ratios - 1)];

			if (!is_first && cell->steps_per_s >= speeds[i * n + k])
				continue;
			speeds[i * n + k] = cell->steps_per_s;
			input->workers[i * n + k] = cell->n_workers;
		}
	input->job.cores_known = true;
}

/* Leaves out amounts in which the job's processes do not fit, as the kernel would kill it, and fewer cores
 * than the model knows. */
static void grid_cut(double resident_bytes, double cores, struct plan_grid *grid)
{
	size_t n = 0;

	for (size_t i = 0; i < grid->n_cores; i++)
		if (grid->cores[i] >= cores)
			grid->cores[n++] = grid->cores[i];
	grid->n_cores = n;
	n = 0;

	for (size_t k = 0; k < grid->n_memory; k++)
		if (grid->memory_bytes[k] >= resident_bytes)
			grid->memory_bytes[n++] = grid->memory_bytes[k];
	grid->n_memory = n;
}

/* A rank of the job, in one of its recordings. */
struct rank {
	const char *path;
	uint32_t tid;       /* its trainer; 0: found automatically */
	double waits_ratio; /* part of its time in which it waited for other ranks */
	struct analysis *analysis;
};

/* The recordings of one job, and the ranks in them. */
struct sources {
	const struct plan_argument *const *arguments;
	size_t n;
	struct rank *ranks;
	size_t n_ranks, n_allocated;
};

static void sources_free(struct sources *sources)
{
	for (size_t i = 0; i < sources->n_ranks; i++)
		analysis_free(sources->ranks[i].analysis);
	free(sources->ranks);
}

/* Analyses a rank with its part of the grid's cores. */
static int rank_analyze(const struct sources *sources, const struct plan_grid *grid, double part,
			double peers_wait, struct rank *rank, struct error *err)
{
	_cleanup_(recording_closep) struct recording *recording = NULL;
	double ratios[GRID_MAX + 1], cores[GRID_MAX];
	const struct what_if_grid wanted = {cores, ratios, grid->n_cores, grid->n_memory + 1, peers_wait};
	int r = recording_open(rank->path, &recording, err);

	for (size_t i = 0; i < grid->n_cores; i++)
		cores[i] = grid->cores[i] * part;
	ratios_make(sources->arguments[0], grid, ratios);
	analysis_free(rank->analysis);
	rank->analysis = NULL;
	return r < 0 ? r
		     : recording_analyze(recording,
					 &(struct recording_analysis_options){.trainer_tid = rank->tid,
									      .several = sources->n > 1,
									      .grid = &wanted},
					 &rank->analysis, err);
}

/* Analyses a recording, and adds its ranks. The analysis stays with the first. */
static int ranks_find(struct sources *sources, const char *path, const struct plan_grid *grid,
		      struct error *err)
{
	struct rank one = {.path = path};
	const struct analysis *analysis;
	size_t k = 0;
	int r = rank_analyze(sources, grid, 1, 1, &one, err);

	if (r < 0)
		return r;
	analysis = one.analysis;
	do {
		if (k < analysis->n_ranks) {
			const struct analysis_rank *rank = &analysis->ranks[k];

			one.tid = rank->tid;
			one.waits_ratio =
			    rank->window_ns ? (double)rank->collective_ns / (double)rank->window_ns : 0;
		}
		if (array_reserve(sources->ranks, sources->n_ranks, sources->n_allocated) < 0) {
			analysis_free(one.analysis);
			return error_set(err, -ENOMEM, "out of memory");
		}
		sources->ranks[sources->n_ranks++] = one;
		one.analysis = NULL;
	} while (++k < analysis->n_ranks);
	return 0;
}

/* Ranks wait for the slowest, which waits least. With other cores another one may be the slowest, so each is
 * replayed without the waits that the slowest does not have. */
static int ranks_replay(struct sources *sources, const struct plan_grid *grid, struct error *err)
{
	double least = INFINITY;
	int r = 0;

	for (size_t i = 0; i < sources->n_ranks; i++)
		least = fmin(least, sources->ranks[i].waits_ratio);
	for (size_t i = 0; r == 0 && i < sources->n_ranks; i++) {
		struct rank *rank = &sources->ranks[i];

		r = rank_analyze(sources, grid, 1. / (double)sources->n_ranks,
				 rank->waits_ratio > 0 ? least / rank->waits_ratio : 1, rank, err);
	}
	return r;
}

int plan_too_large(const char *name, uint32_t accelerators, struct error *err)
{
	return error_set(err, -EINVAL,
			 "%s: it has %u accelerators, more than all nodes of any one size together: give "
			 "--cluster more nodes, or leave this job out",
			 name, accelerators);
}

static int grid_for(const struct plan_argument *argument, const struct plan_cluster *cluster,
		    uint32_t accelerators, uint32_t n_ranks, struct plan_grid *grid, struct error *err)
{
	grid_make(cluster, accelerators, grid);
	if (!grid->n_cores)
		return plan_too_large(argument->file, accelerators, err);
	grid_cut(has_sizes(argument) ? argument->resident_bytes : 0, n_ranks * MODEL_CORES_MIN, grid);
	return grid->n_memory
		   ? 0
		   : error_set(err, -EINVAL, "%s: no node has the memory of resident", argument->file);
}

/* Loads the recordings: once to count their ranks, and again if there are several. */
static int sources_load(struct sources *sources, const struct plan_cluster *cluster, struct plan_grid *grid,
			uint32_t *ret_accelerators, struct error *err)
{
	const struct plan_argument *first = sources->arguments[0];
	uint32_t accelerators = first->accelerators, n;
	int r;

	grid_make(cluster, accelerators ? accelerators : 1, grid);
	grid_cut(has_sizes(first) ? first->resident_bytes : 0, MODEL_CORES_MIN, grid);
	for (size_t i = 0; i < sources->n; i++) {
		r = ranks_find(sources, sources->arguments[i]->file, grid, err);
		if (r < 0)
			return r;
	}
	n = (uint32_t)sources->n_ranks;
	accelerators = accelerators ? accelerators : n;
	if (accelerators % n)
		return error_set(err, -EINVAL,
				 "%s: accelerators=%u: the job was recorded with %u ranks, each with as many "
				 "accelerators: give a multiple of %u, or leave it out",
				 first->file, accelerators, n, n);
	r = grid_for(first, cluster, accelerators, n, grid, err);
	if (n > 1 && r == 0)
		r = ranks_replay(sources, grid, err);
	if (r == 0)
		*ret_accelerators = accelerators;
	return r;
}

static const char *why_any_unknown(const struct sources *sources)
{
	const char *why = NULL;

	for (size_t i = 0; i < sources->n_ranks && !why; i++)
		why = why_unknown(sources->ranks[i].analysis);
	return why;
}

static void note_ranks(struct plan_input *input, uint32_t n_ranks)
{
	size_t n = strlen(input->note);

	if (input->job.accelerators > n_ranks)
		snprintf(input->note + n, sizeof(input->note) - n,
			 "%sassumed: each of its %u recorded ranks drives %u accelerators, and no rank that "
			 "was not recorded is "
			 "slower",
			 n ? ". And " : "", n_ranks, input->job.accelerators / n_ranks);
}

/* The slowest rank sets the pace. */
static void speeds_take(const struct sources *sources, struct plan_input *input)
{
	size_t n_ratios = input->job.n_memory + 1;
	bool memory_known = true;

	for (size_t i = 0; i < sources->n_ranks; i++) {
		note_memory(input, sources->arguments[0], sources->ranks[i].analysis->predictions);
		memory_known &= input->job.memory_known;
	}
	input->job.memory_known = memory_known;
	input->job.n_memory = memory_known ? n_ratios - 1 : 1;
	for (size_t i = 0; i < sources->n_ranks; i++)
		cells_take(input, sources->ranks[i].analysis->predictions, n_ratios, i == 0);
	level((double *)input->job.speeds, input->job.n_cores, input->job.n_memory);
}

/* Keys of a later recording could contradict those of the first, or be meant for its node. */
static int refuse_later_keys(const struct plan_argument *later, struct error *err)
{
	if (!later->accelerators && later->count == 1 && later->weight == 1 && isnan(later->dataset_bytes) &&
	    !later->name)
		return 0;
	return error_set(
	    err, -EINVAL,
	    "%s: a later recording of job=%s has no other keys: give them once for the whole job, "
	    "with its first recording",
	    later->file, later->job);
}

static int add_recordings(const struct plan_argument *const *arguments, size_t n,
			  const struct plan_cluster *cluster, struct plan_inputs *inputs, struct error *err)
{
	const char *slash = strrchr(arguments[0]->file, '/'), *name = arguments[0]->job ? arguments[0]->job
								      : slash           ? slash + 1
											: arguments[0]->file;
	_cleanup_(sources_free) struct sources sources = {.arguments = arguments, .n = n};
	struct plan_argument with = *arguments[0];
	struct plan_grid grid;
	struct plan_input *input = NULL;
	const char *why;
	int r = sources_load(&sources, cluster, &grid, &with.accelerators, err);

	if (r == 0)
		r = plan_inputs_new(inputs, &with, name, &grid, &input);
	if (r < 0)
		return err->code ? r : error_set(err, r, "out of memory");
	why = why_any_unknown(&sources);
	if (why)
		snprintf(input->note, sizeof(input->note), "unclear: %s. It keeps its proportional share",
			 why);
	else
		speeds_take(&sources, input);
	note_ranks(input, (uint32_t)sources.n_ranks);
	return 0;
}

/* Jobs out of JSON: a profile ("diesel.profile/1"), or `dieselctl jobs --json` ("diesel.jobs/1"). */

/* ---- profiles ---------------------------------------------------------------------------------------- */

/* Reads a list of ascending positive numbers. Returns their number; 0 if it is not such a list. */
static size_t points_read(const json_t *list, double points[GRID_MAX])
{
	size_t n = json_array_size(list);

	for (size_t i = 0; n <= GRID_MAX && i < n; i++) {
		points[i] = json_number_value(json_array_get(list, i));
		if (!(points[i] > (i ? points[i - 1] : 0)))
			return 0;
	}
	return n <= GRID_MAX ? n : 0;
}

/* Returns false if the rows are not n_cores lists of n_memory numbers that are not negative. */
static bool speeds_read(const json_t *rows, const struct plan_grid *grid, double *speeds)
{
	if (json_array_size(rows) != grid->n_cores)
		return false;
	for (size_t i = 0; i < grid->n_cores; i++) {
		const json_t *row = json_array_get(rows, i);

		if (json_array_size(row) != grid->n_memory)
			return false;
		for (size_t k = 0; k < grid->n_memory; k++) {
			const json_t *speed = json_array_get(row, k);

			if (!json_is_number(speed) || !(json_number_value(speed) >= 0))
				return false;
			speeds[i * grid->n_memory + k] = json_number_value(speed);
		}
	}
	return true;
}

/* Refuses keys that nobody reads, because a misspelt one would change the plan unseen. */
static int keys_check(const struct plan_argument *argument, const json_t *root, struct error *err)
{
	static const char *const known[] = {"schema",       "name",          "accelerators", "cores",
					    "memory_bytes", "samples_per_s", "source"};
	const json_t *accelerators = json_object_get(root, "accelerators"), *value;
	const char *key;

	json_object_foreach((json_t *)root, key, value)
	{
		size_t i = 0;

		while (i < sizeof(known) / sizeof(known[0]) && strcmp(key, known[i]) != 0)
			i++;
		if (i == sizeof(known) / sizeof(known[0]))
			return error_set(err, -EINVAL,
					 "%s: unknown key \"%.64s\": a profile has schema, name, "
					 "accelerators, cores, memory_bytes, samples_per_s and source",
					 argument->file, key);
	}
	if (accelerators && !(json_is_integer(accelerators) && json_integer_value(accelerators) >= 1 &&
			      json_integer_value(accelerators) <= 10000))
		return error_set(err, -EINVAL, "%s: accelerators must be a whole number from 1 to 10000",
				 argument->file);
	return 0;
}

static int add_profile(const struct plan_argument *argument, const json_t *root, struct plan_inputs *inputs,
		       struct error *err)
{
	struct plan_argument with = *argument;
	const json_t *accelerators = json_object_get(root, "accelerators");
	struct plan_grid grid = {0};
	struct plan_input *input;
	int r = keys_check(argument, root, err);

	if (r < 0)
		return r;
	grid.n_cores = points_read(json_object_get(root, "cores"), grid.cores);
	grid.n_memory = points_read(json_object_get(root, "memory_bytes"), grid.memory_bytes);
	if (!grid.n_cores || !grid.n_memory)
		return error_set(err, -EINVAL,
				 "%s: cores and memory_bytes must be lists of ascending numbers, at most %d",
				 argument->file, GRID_MAX);
	if (grid.memory_bytes[0] < BYTES_LEAST)
		return error_set(
		    err, -EINVAL,
		    "%s: memory_bytes begins with %g: give bytes, such as 34359738368 for 32 GiB",
		    argument->file, grid.memory_bytes[0]);
	if (!with.accelerators)
		with.accelerators = accelerators ? (uint32_t)json_integer_value(accelerators) : 1;
	r = plan_inputs_new(inputs, &with,
			    *json_string_of(root, "name") ? json_string_of(root, "name") : argument->file,
			    &grid, &input);
	if (r < 0)
		return error_set(err, r, "out of memory");
	if (!speeds_read(json_object_get(root, "samples_per_s"), &grid, (double *)input->job.speeds))
		return error_set(
		    err, -EINVAL,
		    "%s: samples_per_s must be a list per number of cores, each with a speed per amount "
		    "of memory",
		    argument->file);
	input->unit = "samples/s";
	input->job.cores_known = input->job.memory_known = true;
	return 0;
}

/* ---- jobs that dieseld serves ------------------------------------------------------------------------ */

static void served_fill(const struct served *served, struct plan_input *input)
{
	double *speeds = (double *)input->job.speeds;
	bool memory = served_knows_memory(served);
	enum model_bound bound;
	size_t n = memory ? input->job.n_memory : 1;

	for (size_t i = 0; i < input->job.n_cores; i++)
		for (size_t k = 0; k < n; k++) {
			double ratio =
			    (input->job.memory_bytes[k] - served->need_bytes) / served->dataset_bytes;

			/* Memory below its need: dieseld refuses the job. */
			if (memory && ratio < 0)
				continue;
			speeds[i * n + k] = served_speed(
			    served,
			    &(struct served_change){input->job.cores[i], memory ? fmin(ratio, 1) : NAN, 1, 1},
			    &bound);
		}
	input->job.n_memory = n;
	input->job.cores_known = true;
	input->job.memory_known = memory;
	snprintf(
	    input->note, sizeof(input->note), "served by dieseld: the trainer is taken to need one core%s",
	    memory ? ""
		   : "; how slow its storage is was not seen, so it keeps its proportional share of memory");
}

static int add_served(const struct plan_argument *argument, const struct plan_grid *grid, const json_t *job,
		      struct plan_inputs *inputs, struct error *err)
{
	const struct served served = served_read(job);
	const char *why;
	struct plan_input *input;
	int r;

	r = plan_inputs_new(inputs, argument, served.name, grid, &input);
	if (r < 0)
		return error_set(err, r, "out of memory");
	input->unit = "samples/s";
	why = served_why_unclear(&served);
	if (why)
		snprintf(input->note, sizeof(input->note), "unclear: %s. It keeps its proportional share",
			 why);
	else
		served_fill(&served, input);
	return 0;
}

/* Adds the job of a profile, or the jobs of `dieselctl jobs --json`. */
static int plan_inputs_add_json(const struct plan_argument *argument, const struct plan_grid *grid,
				struct plan_inputs *inputs, struct error *err)
{
	__attribute__((cleanup(json_freep))) json_t *root = NULL;
	const json_t *jobs, *job;
	const char *schema;
	size_t i;
	int r = served_load(argument->file, &root, err);

	if (r < 0)
		return r;
	jobs = json_object_get(root, "jobs");
	schema = json_string_of(root, "schema");
	if (!strcmp(schema, "diesel.profile/1"))
		return add_profile(argument, root, inputs, err);
	if (strcmp(schema, SERVED_SCHEMA) != 0)
		return error_set(
		    err, -EINVAL,
		    "%s: expected a recording, a profile (\"schema\": \"diesel.profile/1\") or the output "
		    "of dieselctl jobs --json",
		    argument->file);
	r = served_check(root, argument->file, err);
	if (r < 0)
		return r;
	json_array_foreach(jobs, i, job)
	{
		r = add_served(argument, grid, job, inputs, err);
		if (r < 0)
			return r;
	}
	return r;
}

/* Reads an argument's file and adds its jobs, or reads the recordings of n arguments and adds the one job
 * that they are of. */
static int inputs_add(const struct plan_argument *const *arguments, size_t n,
		      const struct plan_cluster *cluster, struct plan_inputs *inputs, struct error *err)
{
	const struct plan_argument *first = arguments[0];
	struct plan_grid grid;

	for (size_t i = 0; i < n; i++)
		if (served_is_json(arguments[i]->file) == 1 && first->job)
			return error_set(err, -EINVAL,
					 "%s: job=%s is for recordings of the ranks of one job: leave it out",
					 arguments[i]->file, first->job);
	for (size_t i = 1; i < n; i++)
		if (refuse_later_keys(arguments[i], err) < 0)
			return -EINVAL;
	if (served_is_json(first->file) != 1)
		return add_recordings(arguments, n, cluster, inputs, err);
	grid_make(cluster, first->accelerators ? first->accelerators : 1, &grid);
	return plan_inputs_add_json(first, &grid, inputs, err);
}

/* Lists the i-th argument and all later ones of the same job. Returns their number; 0: an earlier one is of
 * the same job. */
static size_t same_job(const struct plan_argument *arguments, size_t i, size_t n_arguments,
		       const struct plan_argument **same)
{
	const char *job = arguments[i].job;
	size_t n = 0;

	for (size_t k = 0; k < n_arguments; k++) {
		if (k != i && (!job || !arguments[k].job || strcmp(arguments[k].job, job) != 0))
			continue;
		if (k < i)
			return 0;
		same[n++] = &arguments[k];
	}
	return n;
}

int plan_inputs_load(const char *const *texts, size_t n_texts, const struct plan_cluster *cluster,
		     struct plan_inputs *inputs, struct error *err)
{
	struct plan_argument *arguments = calloc(n_texts + 1, sizeof(*arguments));
	const struct plan_argument **same = calloc(n_texts + 1, sizeof(struct plan_argument *));
	int r = arguments && same ? 0 : error_set(err, -ENOMEM, "out of memory");

	for (size_t i = 0; r == 0 && i < n_texts; i++)
		r = argument_parse(texts[i], &arguments[i], err);
	for (size_t i = 0; r == 0 && i < n_texts; i++) {
		size_t n = same_job(arguments, i, n_texts, same);

		if (n)
			r = inputs_add(same, n, cluster, inputs, err);
	}
	for (size_t i = 0; arguments && i < n_texts; i++)
		argument_free(&arguments[i]);
	free(same);
	free(arguments);
	return r;
}
