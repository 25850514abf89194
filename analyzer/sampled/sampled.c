/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled.h"

#include <stdio.h>

#include "advice.h"
#include "lib/clock.h"
#include "sampled_job.h"
#include "sampled_lanes.h"
#include "sampled_split.h"
#include "sampled_trainer.h"
#include "study.h"

bool sampled_is(const struct analysis_input *input)
{
	for (size_t i = 0; i < input->n_events; i++)
		if (input->events[i].type == EVENT_SAMPLE)
			return true;
	return false;
}

static void evidence_add(struct analysis *analysis, const char *role, const char *what, uint64_t ns,
			 bool fetch)
{
	struct analysis_evidence *evidence = &analysis->evidence[analysis->n_evidence];

	if (!ns)
		return;
	snprintf(evidence->role, sizeof(evidence->role), "%s", role);
	snprintf(evidence->what, sizeof(evidence->what), "%s", what);
	evidence->ns = ns;
	evidence->fetch = fetch;
	analysis->n_evidence++;
}

static void evidence_find(struct analysis *analysis)
{
	const char *role = analysis->loader == LOADER_WORKERS ? "worker" : "trainer";

	evidence_add(analysis, role, "blocked in reading files", analysis->share_ns[SHARE_FETCH_STALL], true);
	evidence_add(analysis, role, "preparing and handing over", analysis->share_ns[SHARE_PREP_STALL],
		     false);
}

static void life_find(const struct sampled_job *job, struct analysis *analysis)
{
	uint64_t first_ns = job->trainer_process->first_ns, last_ns = job->trainer_process->last_ns;

	analysis->trainer_tid = job->trainer->tid;
	analysis->trainer_tgid = job->trainer_process->tgid;
	analysis->n_trainers = 1;
	if (analysis->window_begin_ns > first_ns)
		analysis->startup_ns = analysis->window_begin_ns - first_ns;
	if (analysis->window_end_ns < last_ns)
		analysis->teardown_ns = last_ns - analysis->window_end_ns;
}

/* There are no steps: everything but compiling is steady. */
static void compiling_fill(const struct sampled_job *job, const struct sampled_trainer *trainer,
			   struct analysis *analysis)
{
	analysis->compiling.known = trainer->compiling_known;
	for (size_t i = 0; i < job->trainer->n; i++) {
		const struct event *look = job->trainer->looks[i];

		if (look->sample.place == SAMPLE_PLACE_COMPILING)
			analysis->compiling.ns += look->end_ns - look->start_ns;
	}
	if (!trainer->compiling_ns)
		return;
	analysis->steady_ns = analysis->observed_ns - trainer->compiling_ns;
	for (size_t i = 0; i < SHARE_COUNT; i++)
		analysis->steady_share_ns[i] = i == SHARE_COMPILING ? 0 : analysis->share_ns[i];
}

static void fill(const struct sampled_job *job, const struct sampled_trainer *trainer,
		 struct analysis *analysis)
{
	uint64_t workers_process_ns;

	analysis->loader = trainer->loader;
	analysis->blind =
	    trainer->loader == LOADER_NONE || (trainer->loader == LOADER_INLINE && !trainer->placed);
	analysis->waits_sampled = trainer->guessed;
	analysis->method = METHOD_SAMPLED;
	analysis->window_begin_ns = trainer->begin_ns;
	analysis->window_end_ns = trainer->end_ns;
	analysis_cover_window(analysis);
	analysis->observed_ns = trainer->end_ns - trainer->begin_ns;
	analysis->asleep_ns = trainer->nap_ns < trainer->other_ns ? trainer->nap_ns : trainer->other_ns;
	analysis->gil_starved_ns =
	    trainer->gil_ns < trainer->starved_ns ? trainer->gil_ns : trainer->starved_ns;
	analysis->computing_part = trainer->computing_part;
	analysis->n_looks = trainer->n_looks;
	analysis->n_steps_estimated = trainer->n_steps;
	analysis->coverage_ratio = 1;
	analysis->read_bytes_known = job->known & SAMPLE_KNOWN_IO;
	analysis->read_bytes = trainer->read_bytes;
	sampled_workers_find(job, trainer, analysis, &workers_process_ns);
	sampled_split(job, trainer, workers_process_ns, analysis);
	compiling_fill(job, trainer, analysis);
	if (trainer->n_steps)
		analysis->wait_mean_ns = trainer->wait_ns / trainer->n_steps;
	life_find(job, analysis);
	evidence_find(analysis);
}

/* Did it do hardly anything but import since it was looked at? */
static bool only_starts(const struct sampled_job *job)
{
	size_t n_importing = 0, n = 0;

	for (size_t i = 0; i < job->trainer->n; i++) {
		enum sample_place place = (enum sample_place)job->trainer->looks[i]->sample.place;

		if (place == SAMPLE_PLACE_COMPUTING || place == SAMPLE_PLACE_COMPILING ||
		    place == SAMPLE_PLACE_NEXT || place == SAMPLE_PLACE_DIESEL)
			return false;
		n += place != SAMPLE_PLACE_UNKNOWN;
		n_importing += place == SAMPLE_PLACE_IMPORTING;
	}
	return n && 2 * n_importing > n;
}

static void judge(const struct sampled_job *job, struct analysis *analysis)
{
	if (job->trainer && !job->n_workers && only_starts(job))
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no training step was seen: the job imported modules, and came to no loader and no "
			 "model");
	else if (!analysis->trainer_tid)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no process could be looked at");
	else if (analysis->n_looks < SAMPLED_LOOKS_MIN)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "the trainer was looked at only %zu times while it trained, at least %d are needed",
			 analysis->n_looks, SAMPLED_LOOKS_MIN);
	else if (analysis->loader == LOADER_NONE && !(job->known & SAMPLE_KNOWN_IO))
		snprintf(
		    analysis->insufficient, sizeof(analysis->insufficient),
		    "the job has no workers and hides its /proc/PID/io: preparing data cannot be told from "
		    "computing");
	else if (analysis->loader == LOADER_NONE && !job->trainer_process->framework_ns)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no loading of data was seen, nor a library of PyTorch, TensorFlow, JAX or CUDA");
	if (analysis->insufficient[0]) {
		analysis->verdict = ANALYSIS_INSUFFICIENT;
		return;
	}
	advice_verdict(analysis);
	advice_actions(analysis);
	if (!(job->known & (SAMPLE_KNOWN_SYSCALL | SAMPLE_KNOWN_WCHAN)) && !analysis->note[0])
		snprintf(analysis->note, sizeof(analysis->note),
			 "what the job's threads sleep in is hidden: every sleep of the trainer counts as "
			 "data wait");
	/* If the trainer prepares most of it itself, it does not wait for dieseld. */
	if (analysis->loader == LOADER_DIESEL && !analysis->note[0] &&
	    2 * analysis->own_prep_ns < analysis->share_ns[SHARE_PREP_STALL])
		snprintf(analysis->note, sizeof(analysis->note),
			 "whether dieseld waits for storage is not seen without privilege: all data wait is "
			 "shown as preparing");
	/* Nobody can be sure of what is approximate. */
	for (size_t i = 0; i < analysis->n_actions; i++)
		if (analysis->actions[i].confidence == CONFIDENCE_HIGH)
			analysis->actions[i].confidence = CONFIDENCE_MEDIUM;
}

int sampled_analyze(const struct analysis_input *input, struct analysis *analysis)
{
	struct sampled_job job;
	struct sampled_trainer trainer = {0};
	int r = sampled_job_find(input->events, input->n_events, input->trainer_tid, &job);

	analysis->approximate = true;
	if (r == 0) {
		analysis->begin_ns = input->end_ns ? input->begin_ns : job.begin_ns;
		analysis->end_ns = input->end_ns ? input->end_ns : job.end_ns;
		if (analysis->end_ns > analysis->begin_ns)
			analysis->self_cost_ratio =
			    (double)input->self_cpu_ns / (double)(analysis->end_ns - analysis->begin_ns);
	}
	if (r == 0 && job.trainer)
		r = sampled_trainer_find(&job, &trainer);
	if (r == 0 && trainer.end_ns > trainer.begin_ns)
		fill(&job, &trainer, analysis);
	if (r == 0 && trainer.end_ns > trainer.begin_ns && input->n_lane_segments_max)
		r = sampled_lanes_find(&job, &trainer, input->n_lane_segments_max, &analysis->lanes);
	if (r == 0)
		judge(&job, analysis);
	sampled_trainer_free(&trainer);
	sampled_job_free(&job);
	return r;
}
