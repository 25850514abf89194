/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/analysis.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/result/advice.h"
#include "analyzer/replay/excluded.h"
#include "analyzer/explain/finders.h"
#include "analyzer/explain/lanes_find.h"
#include "lib/cleanup.h"
#include "analyzer/pages/page_cache_find.h"
#include "analyzer/replay/predict.h"
#include "analyzer/result/ranks.h"
#include "analyzer/sampled/sampled.h"
#include "analyzer/shares/study.h"
#include "analyzer/replay/summary.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/shares/warmup.h"

/* All intermediate results of an analysis, freed in one place. */
struct draft {
	const struct analysis_input *input;
	struct analysis *analysis;
	struct timeline *timeline;
	struct ranks ranks;
	struct measurement *m; /* measurement of the rank that is shown */
};

static void draft_free(struct draft *draft)
{
	analysis_free(draft->analysis);
	ranks_free(&draft->ranks);
	timeline_free(draft->timeline);
}

static bool blind(const struct measurement *m)
{
	bool steps_seen = m->roles.trainer->n_steps || m->roles.step_mark;

	switch (m->waits.loader) {
	case LOADER_NONE:
	case LOADER_INLINE: return !m->waits.marked;
	case LOADER_THREADS: return !steps_seen;
	case LOADER_WORKERS:
	case LOADER_DIESEL: break;
	}
	return false;
}

static void fill(struct draft *draft)
{
	struct analysis *analysis = draft->analysis;
	const struct timeline_thread *trainer = draft->m->roles.trainer, *leader;
	struct timeline_account account;

	analysis->job.trainer_tid = trainer->tid;
	analysis->job.trainer_tgid = trainer->tgid;
	analysis->job.trainer_ns_tid = trainer->ns_tid;
	leader = timeline_find(draft->timeline, trainer->tgid, trainer->first_ns);
	analysis->job.trainer_ns_tgid = leader ? leader->ns_tid : 0;
	analysis->job.n_trainers = draft->m->roles.n_trainers;
	memcpy(analysis->share_ns, draft->m->share_ns, sizeof(analysis->share_ns));
	analysis->job.loader = draft->m->waits.loader;
	analysis->job.blind = blind(draft->m);
	analysis->parts.gil_starved_ns = draft->m->gil_starved_ns;
	analysis->parts.asleep_ns = draft->m->asleep_ns;
	analysis->parts.helped_ns = draft->m->helped_ns;
	analysis->parts.computing_part = draft->m->computing_part;
	analysis->parts.waits_sampled = draft->m->waits_sampled;
	analysis->parts.head_of_line_ns =
	    head_of_line_ns(&draft->m->roles, &draft->m->waits, &draft->m->window);
	analysis->job.method = draft->m->split.method;
	analysis->window.begin_ns = draft->m->window.begin_ns;
	analysis->window.end_ns = draft->m->window.end_ns;
	if (draft->m->window.n_steps)
		analysis_cover_window(analysis);
	analysis->steps = steal_pointer(draft->m->window.steps);
	analysis->n_steps = draft->m->window.n_steps;
	analysis->counted = analysis->n_steps ? draft->m->counted : COUNTED_NONE;
	analysis->window.observed_ns = draft->m->window.observed_ns;
	if (analysis->window.begin_ns > trainer->first_ns)
		analysis->window.startup_ns = analysis->window.begin_ns - trainer->first_ns;
	if (analysis->n_steps && analysis->window.end_ns < trainer->last_ns)
		analysis->window.teardown_ns = trainer->last_ns - analysis->window.end_ns;
	account = timeline_account(trainer, draft->m->window.begin_ns, draft->m->window.end_ns);
	analysis->parts.steal_ns = account.cpu_ns - account.exec_ns;
	summary_workers(draft->timeline, &draft->m->roles, analysis);
	if (analysis->workers.n_at_once < 2) /* one worker's batches come in order */
		analysis->parts.head_of_line_ns = 0;
	summary_evidence(&draft->m->split.tally, analysis);
	summary_losses(draft->input, analysis);
}

static void excluded_forget(struct analysis *analysis)
{
	for (size_t i = 0; i < analysis->n_steps; i++)
		analysis->steps[i].excluded = false;
	analysis->steady.n_excluded_steps = 0;
}

/* Sums the shares of the steady steps. */
static void steady_sum(struct analysis *analysis)
{
	struct analysis_steady *steady = &analysis->steady;

	steady->ns = steady->warmup_ns = 0;
	memset(steady->share_ns, 0, sizeof(steady->share_ns));
	for (size_t i = 0; i < analysis->n_steps; i++) {
		const struct analysis_step *step = &analysis->steps[i];

		if (i < steady->n_warmup_steps)
			steady->warmup_ns += step->end_ns - step->begin_ns;
		if (i < steady->n_warmup_steps || step->excluded)
			continue;
		steady->ns += step->end_ns - step->begin_ns - step->share_ns[SHARE_COMPILING];
		for (size_t k = 0; k < SHARE_COUNT; k++)
			if (k != SHARE_COMPILING)
				steady->share_ns[k] += step->share_ns[k];
	}
}

/* Limits the parts of a share to what is left of it. */
static void parts_limit(struct analysis *analysis)
{
	struct analysis_parts *parts = &analysis->parts;
	const struct {
		uint64_t *part_ns;
		enum analysis_share share;
	} limits[] = {
	    {&parts->peers_ns, SHARE_FETCH_STALL},
	    {&parts->head_of_line_ns, SHARE_PREP_STALL},
	    {&parts->own_prep_ns, SHARE_PREP_STALL},
	    {&parts->daemon_prep_ns, SHARE_PREP_STALL},
	    {&parts->gil_ns, SHARE_PREP_STALL},
	    {&parts->gpu_wait_ns, SHARE_DEVICE},
	    {&parts->helped_ns, SHARE_DEVICE},
	    {&parts->neighbours_ns, SHARE_CPU_STARVED},
	    {&parts->gil_starved_ns, SHARE_CPU_STARVED},
	    {&parts->own_threads_ns, SHARE_CPU_STARVED},
	    {&parts->asleep_ns, SHARE_OTHER},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (*limits[i].part_ns > analysis->share_ns[limits[i].share])
			*limits[i].part_ns = analysis->share_ns[limits[i].share];
}

/* Takes over what checkpoints cost beyond their stalls, which was moved in the steps already. */
static void charge_checkpoints(struct analysis *analysis)
{
	const struct checkpoint_report *report = analysis->checkpoints;
	uint64_t *gil_ns = &analysis->parts.gil_starved_ns;
	bool moved = false;

	for (size_t i = 0; report && i < SHARE_COUNT; i++) {
		moved |= report->moved_ns[i] > 0;
		analysis->share_ns[i] -= report->moved_ns[i];
		analysis->share_ns[SHARE_CHECKPOINT_STALL] += report->moved_ns[i];
	}
	if (!moved)
		return;
	*gil_ns -= report->moved_gil_ns < *gil_ns ? report->moved_gil_ns : *gil_ns;
	parts_limit(analysis);
	steady_sum(analysis);
}

/* Finds the steady steps and their shares. */
static int steady_find(struct draft *draft)
{
	struct analysis *analysis = draft->analysis;
	const struct service *service = &draft->m->service;
	bool from_first = draft->m->run.steps == analysis->steps;
	size_t n_first = service->job.n_epochs > 1 && from_first ? service->job.epochs[1].first_step : 0;
	int r = warmup_find(analysis->steps, analysis->n_steps, n_first, &analysis->steady.n_warmup_steps);

	for (size_t i = analysis->steady.n_warmup_steps; i < analysis->n_steps; i++)
		analysis->steady.n_excluded_steps += analysis->steps[i].excluded;
	if (analysis->n_steps <
	    analysis->steady.n_warmup_steps + analysis->steady.n_excluded_steps + ANALYSIS_STEPS_MIN)
		excluded_forget(analysis); /* too few steady steps would remain */
	if (r == 0)
		steady_sum(analysis);
	return r;
}

static int predictions_add(const struct study *study, struct analysis *analysis)
{
	size_t n_before = study->run->n_steps ? (size_t)(study->run->steps - analysis->steps) : 0;
	size_t n_warmup =
	    analysis->steady.n_warmup_steps > n_before ? analysis->steady.n_warmup_steps - n_before : 0;
	const char *why = NULL;
	int r = 0;

	/* Steps right after warm-up that compile or validate belong to warm-up, too. */
	while (n_warmup < study->run->n_steps && study->run->steps[n_warmup].excluded)
		n_warmup++;
	if (analysis->n_steps >= ANALYSIS_STEPS_MIN && !study->input->shares_only)
		r = predictions_find(study, analysis, n_warmup, analysis->profile, &analysis->predictions,
				     &why);
	if (why)
		snprintf(analysis->no_predictions, sizeof(analysis->no_predictions), "%s", why);
	return r;
}

/* Finds the parts that explain the shares. The analysis must already own the steps. */
static int parts_find(struct draft *draft)
{
	struct window window = draft->m->window;
	struct study study = measurement_study(draft->m, draft->input);
	struct analysis *analysis = draft->analysis;
	int r;

	window.steps = analysis->steps;
	study.window = &window;
	if (!window.n_steps)
		return 0;
	r = profile_find(&study, &analysis->profile);
	if (r == 0)
		r = predictions_add(&study, analysis);
	if (r == 0)
		r = gpu_find(&study, &analysis->gpu);
	if (r == 0 && analysis->gpu) {
		analysis->parts.gpu_wait_known = true;
		analysis->parts.gpu_wait_ns = analysis->gpu->wait_ns;
	}
	if (r == 0)
		r = wait_chain_find(&study, &analysis->chain);
	if (r == 0)
		r = neighbours_find(&study, &analysis->parts.neighbours_ns);
	if (r == 0)
		r = neighbours_find_own(&study, &analysis->parts.own_threads_ns);
	if (r == 0)
		r = phases_find(&study, &analysis->phases);
	if (r == 0)
		r = page_cache_find(&study, &analysis->page_cache);
	if (r == 0 && draft->input->n_lane_segments_max)
		r = lanes_find(&study, draft->input->n_lane_segments_max, &analysis->lanes);
	if (r == 0)
		r = restore_find(&study, &analysis->restored);
	/* last: it changes the shares of steps */
	if (r == 0)
		r = checkpoint_report_find(&study, analysis->share_ns[SHARE_CHECKPOINT_STALL],
					   &analysis->checkpoints);
	if (r == 0)
		charge_checkpoints(analysis);
	return r;
}

static void judge(struct draft *draft)
{
	struct analysis *analysis = draft->analysis;

	if (!draft->m->n_times)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no training step was seen: no backward pass, no DataLoader of PyTorch, and no "
			 "loader of DIESEL");
	else if (analysis->n_steps < ANALYSIS_STEPS_MIN)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "only %zu complete step%s seen, at least %d are needed", analysis->n_steps,
			 analysis->n_steps == 1 ? " was" : "s were", ANALYSIS_STEPS_MIN);
	else if (!analysis->window.observed_ns)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "all steps begin and end at the same time: the recording is damaged");
	if (analysis->insufficient[0]) {
		analysis->verdict = ANALYSIS_INSUFFICIENT;
		return;
	}
	advice_verdict(analysis);
	advice_actions(analysis);
}

static int analyse(struct draft *draft, struct error *err)
{
	const struct analysis_input *input = draft->input;
	struct analysis *analysis = draft->analysis;
	int r;

	if (sampled_is(input)) {
		r = sampled_analyze(input, analysis);
		return r < 0 ? error_set(err, r, "not enough memory to analyse %zu events", input->n_events)
			     : 0;
	}
	r = timeline_build(input->events, input->n_events, &draft->timeline, err);
	if (r < 0)
		return r;
	analysis->recorded.n_malformed = draft->timeline->n_malformed;
	analysis->recorded.begin_ns = input->end_ns ? input->begin_ns : draft->timeline->begin_ns;
	analysis->recorded.end_ns = input->end_ns ? input->end_ns : draft->timeline->end_ns;
	if (analysis->recorded.end_ns > analysis->recorded.begin_ns)
		analysis->recorded.self_cost_ratio =
		    input->bpf_cost_unknown
			? NAN
			: (double)input->self_cpu_ns /
			      (double)(analysis->recorded.end_ns - analysis->recorded.begin_ns);
	if (input->trainer_tid &&
	    !timeline_find(draft->timeline, input->trainer_tid, draft->timeline->end_ns))
		return error_set(err, -ESRCH, "--trainer %u: no thread of the recording has this ID",
				 input->trainer_tid);
	r = ranks_measure(draft->timeline, input, &draft->ranks);
	if (r == 0)
		draft->m = &draft->ranks.items[draft->ranks.shown];
	if (r == 0 && draft->m->roles.trainer)
		fill(draft);
	if (r == 0)
		r = ranks_fill(&draft->ranks, input->several, analysis);
	if (r == 0 && draft->m->roles.trainer)
		r = excluded_find(draft->m, analysis);
	if (r == 0)
		r = steady_find(draft);
	if (r == 0)
		r = summary_waits(analysis);
	if (r == 0 && draft->m->roles.trainer)
		r = parts_find(draft);
	if (r < 0)
		return error_set(err, r, "not enough memory to analyse %zu events", input->n_events);
	judge(draft);
	ranks_note(&draft->ranks, analysis);
	return 0;
}

/* Sums up the gaps of the recording. */
static int unrecorded_find(const struct analysis_input *input, struct analysis *analysis)
{
	_cleanup_(interval_list_free) struct interval_list gaps = {0};

	for (size_t i = 0; i < input->n_events; i++) {
		const struct event *event = &input->events[i];

		if (event->type == EVENT_GAP && event->start_ns < event->end_ns &&
		    interval_list_add(&gaps, event->start_ns, event->end_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(&gaps);
	analysis->recorded.gaps_ns =
	    interval_list_cover(&gaps, analysis->recorded.begin_ns, analysis->recorded.end_ns);
	analysis->recorded.detail_bytes_per_minute = input->detail_bytes_per_minute;
	return 0;
}

int analysis_run(const struct analysis_input *input, struct analysis **ret_analysis, struct error *err)
{
	struct draft draft = {.input = input};
	int r;

	if ((input->n_events && !input->events) || input->end_ns < input->begin_ns)
		return error_set(err, -EINVAL, "%s",
				 input->end_ns < input->begin_ns
				     ? "the recording ends before it begins"
				     : "the input has an event count, but no events");
	draft.analysis = calloc(1, sizeof(*draft.analysis));
	if (draft.analysis)
		draft.analysis->parts.computing_part = NAN;
	if (draft.analysis && input->command)
		draft.analysis->job.command = strdup(input->command);
	if (!draft.analysis || (input->command && !draft.analysis->job.command)) {
		draft_free(&draft);
		return error_set(err, -ENOMEM, "not enough memory to analyse %zu events", input->n_events);
	}
	draft.analysis->job.root_tgid = input->root_tgid;
	draft.analysis->job.n_cpus = input->n_cpus;
	draft.analysis->job.attached = input->attached;
	r = analyse(&draft, err);
	if (r == 0 && unrecorded_find(input, draft.analysis) < 0)
		r = error_set(err, -ENOMEM, "not enough memory to analyse %zu events", input->n_events);
	if (r == 0)
		*ret_analysis = steal_pointer(draft.analysis);
	draft_free(&draft);
	return r;
}

void analysis_free(struct analysis *analysis)
{
	if (!analysis)
		return;
	free(analysis->job.command);
	free(analysis->steps);
	free(analysis->ranks);
	free(analysis->chain);
	predictions_free(analysis->predictions);
	lanes_free(analysis->lanes);
	gpu_use_free(analysis->gpu);
	phase_times_free(analysis->phases);
	checkpoint_report_free(analysis->checkpoints);
	page_cache_free(analysis->page_cache);
	profile_free(analysis->profile);
	free(analysis);
}
