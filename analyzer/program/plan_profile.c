/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs out of JSON: a profile ("diesel.profile/1"), or `dieselctl jobs --json` ("diesel.jobs/1"). */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/model.h"
#include "plan_input.h"
#include "served.h"
#include "lib/json_read.h"

#define POINTS_MAX  64
#define BYTES_LEAST 0x1p20 /* less is a size in another unit */

/* ---- profiles ---------------------------------------------------------------------------------------- */

/* Reads a list of ascending positive numbers. Returns their number; 0 if it is not such a list. */
static size_t points_read(const json_t *list, double points[POINTS_MAX])
{
	size_t n = json_array_size(list);

	for (size_t i = 0; n <= POINTS_MAX && i < n; i++) {
		points[i] = json_number_value(json_array_get(list, i));
		if (!(points[i] > (i ? points[i - 1] : 0)))
			return 0;
	}
	return n <= POINTS_MAX ? n : 0;
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
				 argument->file, POINTS_MAX);
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

int plan_inputs_add_json(const struct plan_argument *argument, const struct plan_grid *grid,
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
