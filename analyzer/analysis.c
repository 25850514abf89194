/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/analysis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "checkpoint.h"
#include "lib/cleanup.h"
#include "partition.h"
#include "roles.h"
#include "split.h"
#include "summary.h"
#include "timeline.h"
#include "waits.h"
#include "window.h"

/* Everything that is made on the way, freed in one place. */
struct run {
	const struct analysis_input *input;
	struct analysis *analysis;
	struct timeline *timeline;
	struct roles roles;
	const uint64_t *times; /* backward passes, or returns of next() */
	size_t n_times;
	uint64_t *mark_times;
	struct interval_list checkpoints, helper_checkpoints;
	struct data_waits waits;
	struct window window;
	struct split split;
	struct partition partition;
};

static void run_free(struct run *run)
{
	analysis_free(run->analysis);
	partition_free(&run->partition);
	split_free(&run->split);
	window_free(&run->window);
	data_waits_free(&run->waits);
	interval_list_free(&run->checkpoints);
	interval_list_free(&run->helper_checkpoints);
	free(run->mark_times);
	roles_free(&run->roles);
	timeline_free(run->timeline);
}

static int times_find(struct run *run)
{
	const struct timeline_thread *trainer = run->roles.trainer;

	run->times = trainer->steps;
	run->n_times = trainer->n_steps;
	if (!run->roles.steps_are_marks)
		return 0;
	run->mark_times = calloc(trainer->n_marks + 1, sizeof(*run->mark_times));
	if (!run->mark_times)
		return -ENOMEM;
	run->n_times = 0;
	for (size_t i = 0; i < trainer->n_marks; i++)
		if (trainer->marks[i].kind == MARK_NEXT_END)
			run->mark_times[run->n_times++] = trainer->marks[i].at_ns;
	run->times = run->mark_times;
	return 0;
}

static int checkpoints_collect(struct run *run)
{
	for (size_t i = 0; i < run->timeline->n_threads; i++) {
		enum role role = (enum role)run->roles.of[i];
		int r = 0;

		if (role == ROLE_TRAINER)
			r = checkpoints_find(&run->timeline->threads[i], run->times, run->n_times,
					     &run->checkpoints);
		else if (role == ROLE_HELPER)
			r = checkpoints_find(&run->timeline->threads[i], run->times, run->n_times,
					     &run->helper_checkpoints);
		if (r < 0)
			return r;
	}
	interval_list_tidy(&run->checkpoints);
	interval_list_tidy(&run->helper_checkpoints);
	return 0;
}

/* Who, when, and the shares of each step. */
static int measure(struct run *run)
{
	int r;

	r = times_find(run);
	if (r == 0)
		r = checkpoints_collect(run);
	if (r == 0)
		r = data_waits_find(run->timeline, &run->roles, &run->checkpoints, &run->waits);
	if (r == 0)
		r = window_find(run->times, run->n_times, &run->waits, &run->checkpoints, run->roles.trainer,
				&run->window);
	if (r == 0)
		r = split_waits(run->timeline, &run->roles, &run->waits, &run->window, &run->split);
	if (r == 0)
		r = partition_init(&run->partition, run->timeline, &run->roles, &run->waits,
				   &run->checkpoints, &run->helper_checkpoints);
	if (r < 0)
		return r;
	run->partition.fetch_ns = run->split.fetch_ns;
	for (size_t i = 0; i < run->window.n_steps; i++) {
		struct analysis_step *step = &run->window.steps[i];

		partition_interval(&run->partition, step->begin_ns, step->end_ns, step->share_ns);
		for (size_t k = 0; k < SHARE_COUNT; k++)
			run->analysis->share_ns[k] += step->share_ns[k];
	}
	return 0;
}

static int fill(struct run *run)
{
	struct analysis *analysis = run->analysis;
	const struct timeline_thread *trainer = run->roles.trainer;
	struct timeline_account account;

	analysis->loader = run->waits.loader;
	analysis->method = run->split.method;
	analysis->window_begin_ns = run->window.begin_ns;
	analysis->window_end_ns = run->window.end_ns;
	analysis->steps = steal_pointer(run->window.steps);
	analysis->n_steps = run->window.n_steps;
	if (analysis->window_begin_ns > trainer->first_ns)
		analysis->startup_ns = analysis->window_begin_ns - trainer->first_ns;
	if (analysis->window_end_ns < trainer->last_ns)
		analysis->teardown_ns = trainer->last_ns - analysis->window_end_ns;
	account = timeline_account(trainer, run->window.begin_ns, run->window.end_ns);
	analysis->steal_ns = account.cpu_ns - account.exec_ns;
	summary_workers(run->timeline, &run->roles, analysis);
	summary_evidence(&run->split.tally, analysis);
	summary_losses(run->input, analysis);
	return summary_waits(analysis);
}

static void judge(struct run *run)
{
	struct analysis *analysis = run->analysis;

	if (!run->n_times)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no training step was seen: no backward pass of PyTorch and no loader of DIESEL");
	else if (analysis->n_steps < ANALYSIS_STEPS_MIN)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "only %zu whole step%s seen, at least %d are needed", analysis->n_steps,
			 analysis->n_steps == 1 ? " was" : "s were", ANALYSIS_STEPS_MIN);
	else if (analysis->window_end_ns <= analysis->window_begin_ns)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "all steps happened at the same time: the recording is damaged");
	if (analysis->insufficient[0]) {
		analysis->verdict = ANALYSIS_INSUFFICIENT;
		return;
	}
	advice_verdict(analysis);
	advice_actions(analysis);
}

static int analyse(struct run *run, struct error *err)
{
	const struct analysis_input *input = run->input;
	struct analysis *analysis = run->analysis;
	int r;

	r = timeline_build(input->events, input->n_events, &run->timeline, err);
	if (r < 0)
		return r;
	analysis->n_malformed = run->timeline->n_malformed;
	analysis->begin_ns = input->end_ns ? input->begin_ns : run->timeline->begin_ns;
	analysis->end_ns = input->end_ns ? input->end_ns : run->timeline->end_ns;
	if (analysis->end_ns > analysis->begin_ns)
		analysis->self_cost_ratio =
		    (double)input->self_cpu_ns / (double)(analysis->end_ns - analysis->begin_ns);
	r = roles_find(run->timeline, input->root_tgid, input->trainer_tid, &run->roles);
	if (r == 0 && run->roles.trainer) {
		analysis->trainer_tid = run->roles.trainer->tid;
		analysis->trainer_tgid = run->roles.trainer->tgid;
		analysis->n_trainers = run->roles.n_trainers;
		r = measure(run);
		if (r == 0)
			r = fill(run);
	}
	if (r < 0)
		return error_set(err, r, "not enough memory to analyse %zu events", input->n_events);
	judge(run);
	return 0;
}

int analysis_run(const struct analysis_input *input, struct analysis **ret_analysis, struct error *err)
{
	struct run run = {.input = input};
	int r;

	if ((input->n_events && !input->events) || input->end_ns < input->begin_ns)
		return error_set(err, -EINVAL, "%s",
				 input->end_ns < input->begin_ns ? "the recording ends before it begins"
								 : "a number of events without events");
	run.analysis = calloc(1, sizeof(*run.analysis));
	if (run.analysis && input->command)
		run.analysis->command = strdup(input->command);
	if (!run.analysis || (input->command && !run.analysis->command)) {
		run_free(&run);
		return error_set(err, -ENOMEM, "not enough memory to analyse %zu events", input->n_events);
	}
	run.analysis->root_tgid = input->root_tgid;
	run.analysis->n_cpus = input->n_cpus;
	run.analysis->attached = input->attached;
	r = analyse(&run, err);
	if (r == 0)
		*ret_analysis = steal_pointer(run.analysis);
	run_free(&run);
	return r;
}

void analysis_free(struct analysis *analysis)
{
	if (!analysis)
		return;
	free(analysis->command);
	free(analysis->steps);
	free(analysis);
}

double analysis_share_ratio(const struct analysis *analysis, enum analysis_share share)
{
	uint64_t wall_ns = analysis->window_end_ns - analysis->window_begin_ns;

	return wall_ns ? (double)analysis->share_ns[share] / (double)wall_ns : 0;
}

double analysis_wait_ratio(const struct analysis *analysis)
{
	return analysis_share_ratio(analysis, SHARE_FETCH_STALL) +
	       analysis_share_ratio(analysis, SHARE_PREP_STALL);
}
