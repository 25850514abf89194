/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/units.h"
#include "output.h"
#include "plan_input.h"
#include "reports/plan.h"

#define JOBS_MAX     10000
#define COUNTED_PART 5 /* of the simulated jobs, the last fifth is counted, when queues have settled */

static int refuse_too_large(const struct plan_cluster *cluster, const struct plan_inputs *inputs,
			    struct error *err)
{
	for (size_t i = 0; i < inputs->n; i++)
		if (plan_first_too_large(cluster, &inputs->items[i].job, 1) == 0)
			return plan_too_large(inputs->items[i].name, inputs->items[i].job.accelerators, err);
	return 0;
}

/* ---- the plan ---------------------------------------------------------------------------------------- */

struct job_list {
	struct plan_job *jobs;
	struct report_plan_job *about;
	size_t n;
};

static void job_list_free(struct job_list *list)
{
	free(list->jobs);
	free(list->about);
}

static int job_list_make(const struct plan_inputs *inputs, struct job_list *list, struct error *err)
{
	size_t n = 0;

	for (size_t i = 0; i < inputs->n; i++)
		n += inputs->items[i].count;
	if (n > JOBS_MAX)
		return error_set(err, -EINVAL, "more than %d jobs", JOBS_MAX);
	list->jobs = calloc(n + 1, sizeof(*list->jobs));
	list->about = calloc(n + 1, sizeof(*list->about));
	if (!list->jobs || !list->about)
		return error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < inputs->n; i++)
		for (uint32_t k = 0; k < inputs->items[i].count; k++) {
			list->jobs[list->n] = inputs->items[i].job;
			list->about[list->n++] =
			    (struct report_plan_job){inputs->items[i].name, inputs->items[i].unit,
						     inputs->items[i].note, UINT32_MAX, i};
		}
	return 0;
}

/* Returns true if the job is known to be faster with fewer cores and no more memory. */
static bool is_faster_with_fewer(const struct plan_job *job, const struct plan_share *usual)
{
	for (size_t i = 0; job->cores_known && i < job->n_cores && job->cores[i] < usual->cores; i++)
		for (size_t k = 0; k < job->n_memory; k++)
			if ((!job->memory_known || job->memory_bytes[k] <= usual->memory_bytes) &&
			    job->speeds[i * job->n_memory + k] > usual->speed * (1 + 1e-9))
				return true;
	return false;
}

static void note_share(struct plan_input *input, const struct plan_share *usual)
{
	char memory[16];

	if (*input->note)
		return;
	if (is_faster_with_fewer(&input->job, usual))
		snprintf(
		    input->note, sizeof(input->note),
		    "it is faster with fewer cores than the %g of its proportional share. Plan tune gives "
		    "it no more than that, even if cores are left",
		    usual->cores);
	else if (usual->interpolated)
		snprintf(input->note, sizeof(input->note),
			 "its speed with its proportional share (%g cores, %s) was not measured: it is "
			 "interpolated between points of its profile",
			 usual->cores,
			 units_format_bytes(memory, sizeof(memory), (uint64_t)usual->memory_bytes));
}

/* A profile may begin above the share that a job gets, lack its point, or fall. */
static void note_profiles(const struct plan_cluster *cluster, struct plan_inputs *inputs)
{
	for (size_t i = 0; i < inputs->n; i++) {
		struct plan_input *input = &inputs->items[i];
		bool known = true;

		for (size_t kind = 0; kind < cluster->n_kinds; kind++)
			known &= !plan_nodes_of(cluster, kind, &input->job) ||
				 plan_proportional(cluster, &cluster->kinds[kind], &input->job).speed > 0;
		if (!known && !*input->note)
			snprintf(input->note, sizeof(input->note),
				 "unclear how fast it is with its proportional share, which is below all "
				 "points of its "
				 "profile. It keeps this share");
		for (size_t kind = 0; kind < cluster->n_kinds; kind++) {
			struct plan_share usual;

			if (!plan_nodes_of(cluster, kind, &input->job))
				continue;
			usual = plan_proportional(cluster, &cluster->kinds[kind], &input->job);
			note_share(input, &usual);
		}
	}
}

static uint32_t workers_of(const struct plan_input *input, const struct plan *plan,
			   const struct plan_share *share)
{
	size_t point = share->node == PLAN_WAITS ? SIZE_MAX : plan_point(plan, &input->job, share);

	return point == SIZE_MAX || !input->job.cores_known ? UINT32_MAX : input->workers[point];
}

static void report_free(struct report_plan *report)
{
	for (int s = 0; s < PLAN_STRATEGIES; s++)
		plan_free(&report->plans[s]);
}

static int write_text(FILE *stream, const void *user)
{
	return report_plan_text(stream, user);
}

static int write_json(FILE *stream, const void *user)
{
	return report_plan_json(stream, user);
}

static int plan_jobs(const struct plan_arguments *options, const struct plan_cluster *cluster,
		     const struct plan_inputs *inputs, bool json, struct error *err)
{
	_cleanup_(job_list_free) struct job_list list = {0};
	struct error no_bound = ERROR_INIT;
	_cleanup_(report_free) struct report_plan report = {
	    .cluster = cluster, .chosen = options->strategy, .bound = NAN, .slots = options->slots};
	int r = job_list_make(inputs, &list, err);

	if (r < 0)
		return r;
	report.jobs = list.jobs;
	report.about = list.about;
	report.n_jobs = list.n;
	for (int s = 0; r == 0 && s < PLAN_STRATEGIES; s++)
		r = plan_make(cluster, list.jobs, list.n, s, &report.plans[s]);
	if (r < 0)
		return error_errno(err, r, "cannot plan");
	if (plan_bound(cluster, list.jobs, list.n, &report.plans[PLAN_TUNE], &report.bound, &no_bound) < 0)
		report.bound = NAN;
	report.no_bound = no_bound.text;
	for (size_t i = 0; i < list.n; i++)
		list.about[i].n_workers =
		    workers_of(&inputs->items[list.about[i].input], &report.plans[report.chosen],
			       &report.plans[report.chosen].shares[i]);
	return output_write(NULL, stdout, json ? write_json : write_text, &report, err);
}

/* ---- simulation -------------------------------------------------------------------------------------- */

static int write_times_text(FILE *stream, const void *user)
{
	return report_plan_times_text(stream, user);
}

static int write_times_json(FILE *stream, const void *user)
{
	return report_plan_times_json(stream, user);
}

static int simulate(const struct plan_arguments *options, const struct plan_cluster *cluster,
		    const struct plan_inputs *inputs, bool json, struct error *err)
{
	_cleanup_(freep) struct plan_arrival *arrivals = calloc(inputs->n + 1, sizeof(*arrivals));
	const struct plan_simulation simulation = {
	    .cluster = cluster,
	    .arrivals = arrivals,
	    .n_arrivals = inputs->n,
	    .jobs_per_hour = options->jobs_per_hour,
	    .first = options->n_jobs - (options->n_jobs + COUNTED_PART - 1) / COUNTED_PART,
	    .last = options->n_jobs,
	    .seed = options->seed,
	    .moves = !options->stay};
	_cleanup_(freep) const char **notes = calloc(2 * inputs->n + 2, sizeof(char *));
	struct report_plan_times report = {.simulation = &simulation, .notes = notes};
	int r = 0;

	if (!arrivals || !notes)
		return error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < inputs->n; i++)
		arrivals[i] = (struct plan_arrival){&inputs->items[i].job, inputs->items[i].weight};
	for (size_t i = 0; i < inputs->n; i++)
		if (*inputs->items[i].note) {
			notes[2 * report.n_notes] = inputs->items[i].name;
			notes[2 * report.n_notes++ + 1] = inputs->items[i].note;
		}
	for (int s = 0; r == 0 && s < PLAN_STRATEGIES; s++)
		r = plan_simulate(&simulation, s, &report.times[s]);
	if (r < 0)
		return error_errno(err, r, "cannot simulate");
	return output_write(NULL, stdout, json ? write_times_json : write_times_text, &report, err);
}

static int refuse_small(const struct plan_arguments *options, struct error *err)
{
	for (size_t i = 0; i < options->n_kinds; i++) {
		const struct plan_nodes *nodes = &options->kinds[i];

		if (nodes->cores / nodes->accelerators < options->core_step * (1 - 1e-9))
			return error_set(err, -EINVAL,
					 "--cluster: %g cores are less than --core-step %g for each of %u "
					 "accelerators: give a smaller --core-step, such as %.2g",
					 nodes->cores, options->core_step, nodes->accelerators,
					 nodes->cores / nodes->accelerators);
	}
	return 0;
}

int plan_run(const struct plan_arguments *options, bool json, struct error *err)
{
	const struct plan_cluster cluster = {options->kinds, options->n_kinds, options->core_step};
	_cleanup_(plan_inputs_free) struct plan_inputs inputs = {0};
	int r = refuse_small(options, err);

	if (r == 0)
		r = plan_inputs_load(options->arguments, options->n_arguments, &cluster, &inputs, err);
	if (r == 0)
		r = refuse_too_large(&cluster, &inputs, err);
	if (r == 0)
		note_profiles(&cluster, &inputs);
	if (r < 0)
		return r;
	return options->simulate ? simulate(options, &cluster, &inputs, json, err)
				 : plan_jobs(options, &cluster, &inputs, json, err);
}
