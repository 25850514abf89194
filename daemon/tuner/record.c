/* SPDX-License-Identifier: Apache-2.0 */
/* Records decisions in the result and in the state, with their reasons in words and numbers. */
#include "round.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/units.h"

static double others_cache(const struct tuner_round *round, size_t index)
{
	double sum = 0;

	for (uint32_t i = 0; i < round->state->n_jobs; i++)
		if (i != index)
			sum += (double)round_value(&round->state->jobs[i], TUNER_CACHE_BYTES);
	return sum;
}

static double others_workers(const struct tuner_round *round, size_t index, enum tuner_knob knob)
{
	double sum = 0;

	for (uint32_t i = 0; i < round->state->n_jobs; i++)
		for (int k = TUNER_DAEMON_WORKERS; k <= TUNER_CLIENT_WORKERS; k++)
			if (i != index || k != (int)knob)
				sum += (double)round_value(&round->state->jobs[i], (enum tuner_knob)k);
	return sum;
}

/* Returns the highest allowed value of the knob. */
static double most_of(const struct tuner_round *round, size_t index, enum tuner_knob knob)
{
	double workers = round->workers_total - others_workers(round, index, knob);

	switch (knob) {
	case TUNER_CACHE_BYTES: return round->cache_growth - others_cache(round, index);
	case TUNER_PREFETCH_CHUNKS: return round->config->prefetch_chunks_max;
	case TUNER_DAEMON_WORKERS: return fmin(round->config->daemon_workers_max, workers);
	case TUNER_CLIENT_WORKERS: return fmin(round->config->client_workers_max, workers);
	case TUNER_DECODED_BYTES: return (double)round->config->decoded_bytes_max;
	}
	return 0;
}

/* Keeps every knob's growth within the node's sums, for any rule. Never prevents shrinking. */
static uint64_t clamp(const struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value)
{
	uint64_t old = round_value(&round->state->jobs[index], knob);
	double most;

	if (knob == TUNER_DAEMON_WORKERS && !value)
		value = 1;
	if (value <= old)
		return value;
	most = most_of(round, index, knob);
	if ((double)value <= most)
		return value;
	return most <= (double)old ? old : (uint64_t)most;
}

void round_decide(struct tuner_round *round, size_t index, const struct wish *wish, const char *format, ...)
{
	enum tuner_knob knob = wish->knob;
	enum tuner_rule rule = wish->rule;
	double expected = wish->expected;
	struct tuner_job *job = &round->state->jobs[index];
	const struct knob_plan *plan = &round->plans[index];
	uint64_t old = round_value(job, knob), since_ns = job->changed_ns;
	uint64_t value = clamp(round, index, knob, wish->value);
	struct tuner_decision *d;
	double stray, decoded_cache;
	va_list args;

	if (value == old || !(job->tunable & 1u << knob) ||
	    round->ret->n_decisions == sizeof(round->ret->decisions) / sizeof(round->ret->decisions[0]))
		return;
	if (job->changes[knob].open && rule != TUNER_RULE_UNDO)
		round_verdict(round, job, knob, TUNER_UNCLEAR, NULL,
			      "the knob changed again before its effect could be measured");
	d = &round->ret->decisions[round->ret->n_decisions++];
	*d = (struct tuner_decision){
	    .id = ++round->state->next_id,
	    .job = job->job,
	    .at_ns = round->now_ns,
	    .knob = knob,
	    .rule = rule,
	    .old_value = old,
	    .new_value = value,
	    .rate_before = plan->now.rate,
	    .wait_before = plan->now.wait,
	    .rate_expected = expected,
	    .wait_expected = plan->demand > 0 && expected > 0 ? fmax(1 - expected / plan->demand, 0) : NAN};
	va_start(args, format);
	vsnprintf(d->reason, sizeof(d->reason), format, args);
	words_mend(d->reason);
	va_end(args);
	job->wanted.value[knob] = value;
	job->asked[knob] = true;
	job->asked_ns[knob] = job->changed_ns = round->now_ns;
	if (knob == TUNER_CLIENT_WORKERS)
		job->took_ns = 0;
	if (isnan(expected))
		return;
	(void)job_stray(job, since_ns, &stray);
	decoded_cache = knob == TUNER_DECODED_BYTES ? decoded_daemon_cpu_s(job, &plan->now, value) : NAN;
	job->changes[knob] = (struct knob_change){.open = true,
						  .id = d->id,
						  .at_ns = round->now_ns,
						  .rule = rule,
						  .old_value = old,
						  .new_value = value,
						  .rate_before = plan->now.rate,
						  .wait_before = plan->now.wait,
						  .fetch_before = plan->now.fetch_wait,
						  .prep_before = plan->now.prep_wait,
						  .demand_before = plan->demand,
						  .bandwidth_before = plan->now.bandwidth,
						  .rate_expected = expected,
						  .cpu_before = plan->now.daemon_cpu_s,
						  .cpu_expected = decoded_cache,
						  .stray_before = stray};
}

static const char *bytes_text(char buffer[24], double bytes)
{
	return isnan(bytes) ? "?" : units_format_bytes(buffer, 24, (uint64_t)fmin(fmax(bytes, 0), 1e18));
}

void round_explain(const struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value,
		   char *text, size_t size)
{
	const struct tuner_job *job = &round->state->jobs[index];
	const struct job_figures *f = &round->plans[index].now;
	char one[24], two[24], handoff[64] = "";

	switch (knob) {
	case TUNER_CACHE_BYTES:
		snprintf(text, size, "storage delivers %s/s, %.0f samples/s need %s/s: %.0f%% of %s cached",
			 bytes_text(one, job->full_bandwidth > 0 ? job->full_bandwidth : f->bandwidth),
			 f->demand, bytes_text(two, f->demand * f->chunk_bytes / f->samples_per_chunk),
			 100 * target_cached_ratio(f, (double)value),
			 bytes_text((char[24]){0}, f->dataset_bytes));
		return;
	case TUNER_PREFETCH_CHUNKS:
		if (f->latency_p95_s > 0)
			snprintf(one, sizeof(one), " (95 %%: %.1f ms)", 1e3 * f->latency_p95_s);
		else
			one[0] = 0;
		snprintf(text, size,
			 "a chunk of %.0f samples takes %.1f ms%s, %.0f samples/s are requested, the shuffle "
			 "window has %.0f chunks",
			 f->samples_per_chunk, 1e3 * f->latency_s, one, f->demand, f->window);
		return;
	case TUNER_DAEMON_WORKERS:
		snprintf(text, size, "%.1f us of the daemon's CPU per sample, %.0f samples/s requested",
			 1e6 * f->daemon_cpu_s, f->demand);
		return;
	case TUNER_CLIENT_WORKERS:
		if (isfinite(f->handoff_s)) /* unknown until a worker has handed a sample over */
			snprintf(handoff, sizeof(handoff), "hand-over from a worker %.1f us, ",
				 1e6 * f->handoff_s);
		snprintf(text, size, "%.1f us of Python per sample, %s%.0f samples/s requested",
			 1e6 * f->client_cpu_s, handoff, f->demand);
		return;
	case TUNER_DECODED_BYTES: round_explain_decoded(round, index, value, text, size); return;
	}
}

void round_views(struct tuner_round *round)
{
	round->ret->n_views = round->state->n_jobs;
	for (uint32_t i = 0; i < round->state->n_jobs; i++) {
		const struct tuner_job *job = &round->state->jobs[i];
		const struct job_figures *f = &round->plans[i].now;
		struct tuner_view *v = &round->ret->views[i];
		char speed[80];

		*v = (struct tuner_view){.job = job->job,
					 .phase = job->phase,
					 .wanted = job->wanted,
					 .model = job->model,
					 .rate = f->rate,
					 .demand = round->plans[i].demand,
					 .wait = f->wait};
		switch (job->phase) {
		case TUNER_PHASE_NEW: snprintf(v->text, sizeof(v->text), "too few measurements yet"); break;
		case TUNER_PHASE_BLIND:
			snprintf(v->text, sizeof(v->text), "no usable measurements: knobs stay as they are");
			break;
		case TUNER_PHASE_IDLE: snprintf(v->text, sizeof(v->text), "takes no data"); break;
		case TUNER_PHASE_JUMPING:
		case TUNER_PHASE_SETTLED:
			/* Both are measured, so that the rate may be the larger one. */
			if (f->rate > v->demand)
				snprintf(speed, sizeof(speed), "%.0f samples/s, all that are requested",
					 f->rate);
			else
				snprintf(speed, sizeof(speed), "%.0f of %.0f samples/s requested", f->rate,
					 v->demand);
			snprintf(v->text, sizeof(v->text),
				 "%s; waits %.1f%% for data (%.1f%% storage, "
				 "%.1f%% preparing)",
				 speed, 100 * f->wait, 100 * f->fetch_wait, 100 * f->prep_wait);
			break;
		}
		words_mend(v->text);
	}
}
