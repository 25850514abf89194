/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tuning {
	struct tuner_config config;
	struct tuner_state *state;
	struct tuner_result *result;
	bool trace;
};

static void tuning_free(struct tuning *t)
{
	free(t->state);
	free(t->result);
}

static void start(struct sim_run *run, enum sim_policy policy)
{
	const struct sim_scenario *s = run->scenario;

	run->random.state = s->seed * 7919 + 17;
	run->now_ns = 1000 * 1000000000ull;
	for (uint32_t i = 0; i < s->n_jobs; i++) {
		struct sim_live *job = &run->jobs[i];

		job->knobs = s->jobs[i].start;
		if (policy == SIM_DEFAULT || policy == SIM_CLIMBER) {
			job->knobs.value[TUNER_CACHE_BYTES] = (uint64_t)(s->memory_bytes / 2 / s->n_jobs);
			job->knobs.value[TUNER_PREFETCH_CHUNKS] = 2;
			job->knobs.value[TUNER_DAEMON_WORKERS] = (uint64_t)s->cores;
			job->knobs.value[TUNER_CLIENT_WORKERS] =
			    s->jobs[i].phases[0].client_cpu_s > 0 ? (uint64_t)s->cores : 0;
		}
		job->ordered = job->last = job->knobs;
	}
}

double sim_decoded_space(const struct sim_run *run)
{
	double space = run->scenario->memory_bytes;

	for (uint32_t i = 0; i < run->scenario->n_jobs; i++)
		space -= (double)run->jobs[i].knobs.value[TUNER_CACHE_BYTES];
	return fmax(space, 0);
}

/* Computes the truth of this second with the existing decoded copies, and makes more while there is space. */
static struct sim_truth live_decoded(struct sim_run *run, uint32_t index)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	struct sim_live *job = &run->jobs[index];
	double most =
	    sim_decoded_ratio(t, fmin((double)job->knobs.value[TUNER_DECODED_BYTES], sim_decoded_space(run)));
	/* Only samples whose crop a decoded copy serves get one. */
	double made = job->state.decoded_ratio < most ? (1 - job->state.decoded_hit) * t->decoded_serve : 0;

	job->state.decoded_ratio = fmin(job->state.decoded_ratio, most);
	job->state.decoded_hit = fmin(job->state.decoded_hit, job->state.decoded_ratio);
	job->state.decoded_ratio = fmin(most, job->state.decoded_ratio + job->rates.rate * t->sample_bytes /
									     t->dataset_bytes * made);
	return sim_with_decoded(t, job->state.decoded_hit, made);
}

/* Simulates one second of a job: what it consumes, reads and caches. */
static void live(struct sim_run *run, uint32_t index, double cores)
{
	const struct sim_scenario *s = run->scenario;
	const struct sim_truth now = live_decoded(run, index), *t = &now;
	struct sim_live *job = &run->jobs[index];
	double capacity = sim_cached_ratio(t, &job->knobs) * t->dataset_bytes, storage = 1, bytes;

	if (s->burst_period_s > 0 && fmod(run->second, s->burst_period_s) > s->burst_period_s / 2)
		storage = s->burst_factor;
	job->state.cached_bytes = fmin(job->state.cached_bytes, capacity);
	job->state.hit_ratio = fmin(job->state.hit_ratio, job->state.cached_bytes / t->dataset_bytes);
	job->rates = sim_rates(t, cores, &job->knobs, job->state.hit_ratio, storage);
	job->daemon_cpu_s = t->daemon_cpu_s;
	bytes = job->rates.rate * t->sample_bytes;
	job->state.cached_bytes =
	    fmin(job->state.cached_bytes + bytes * (1 - job->state.hit_ratio), capacity);
	job->state.epoch_bytes += bytes;
	if (job->state.epoch_bytes < t->dataset_bytes)
		return;
	job->state.epoch_bytes = fmod(job->state.epoch_bytes, t->dataset_bytes);
	job->state.hit_ratio = job->state.cached_bytes / t->dataset_bytes;
	job->state.decoded_hit = job->state.decoded_ratio;
}

static void print_round(const struct sim_run *run, const struct tuner_result *r)
{
	for (size_t i = 0; i < r->n_verdicts; i++)
		fprintf(stderr, "%3u s job %llu verdict on %llu: %s: %s\n", run->second,
			(unsigned long long)r->verdicts[i].job, (unsigned long long)r->verdicts[i].decision,
			tuner_outcome_name(r->verdicts[i].outcome), r->verdicts[i].text);
	for (size_t i = 0; i < r->n_decisions; i++)
		fprintf(stderr, "%3u s job %llu decision %llu: %s %s %llu -> %llu: %s\n", run->second,
			(unsigned long long)r->decisions[i].job, (unsigned long long)r->decisions[i].id,
			tuner_rule_name(r->decisions[i].rule), tuner_knob_name(r->decisions[i].knob),
			(unsigned long long)r->decisions[i].old_value,
			(unsigned long long)r->decisions[i].new_value, r->decisions[i].reason);
}

static void tune(struct sim_run *run, struct tuning *t, struct sim_outcome *o)
{
	struct stall_sample samples[SIM_MAX_JOBS];
	struct stall_node node = sim_sense_node(run);

	for (uint32_t i = 0; i < run->scenario->n_jobs; i++)
		samples[i] = sim_sense(run, i);
	tuner_decide(&t->config, t->state, &node, samples, run->scenario->n_jobs, run->now_ns, t->result);
	for (size_t i = 0; i < t->result->n_decisions; i++) {
		const struct tuner_decision *d = &t->result->decisions[i];

		run->jobs[d->job - 1].ordered.value[d->knob] = d->new_value;
	}
	for (size_t i = 0; i < t->result->n_verdicts; i++) {
		o->n_undone += t->result->verdicts[i].outcome == TUNER_UNDONE;
		o->n_verified += t->result->verdicts[i].outcome == TUNER_VERIFIED;
	}
	if (t->trace)
		print_round(run, t->result);
}

static void record(struct sim_run *run, struct sim_outcome *o)
{
	double fair = run->scenario->cores / run->scenario->n_jobs, bytes = 0, others[SIM_MAX_JOBS] = {0};

	for (uint32_t i = 0; i < run->scenario->n_jobs; i++)
		for (uint32_t k = 0; k < run->scenario->n_jobs; k++)
			others[i] += k == i ? 0 : sim_cpu_used(run, k);
	for (uint32_t i = 0; i < run->scenario->n_jobs; i++) {
		struct sim_live *job = &run->jobs[i];
		const struct sim_truth *t = sim_truth_now(run, i);

		o->rate[i][run->second] = (float)job->rates.rate;
		o->steady[i][run->second] = (float)sim_steady_rate(
		    run->scenario, t, fmax(run->scenario->cores - others[i], fair), &job->knobs);
		o->cost[i][run->second] = (float)sim_cost(run->scenario, t, &job->knobs);
		for (int k = 0; k < TUNER_N_KNOBS; k++)
			o->n_changes[i][run->second] += job->ordered.value[k] != job->knobs.value[k];
		o->last[i][run->phase] = job->knobs;
		bytes += (double)job->ordered.value[TUNER_CACHE_BYTES];
	}
	o->limit_broken |= bytes > run->scenario->memory_bytes;
}

int sim_run(const struct sim_scenario *s, enum sim_policy policy, bool trace, struct sim_outcome *ret)
{
	struct sim_run run = {.scenario = s};
	struct tuning tuning = {.config = tuner_config_default(),
				.state = calloc(1, tuner_state_bytes()),
				.result = calloc(1, sizeof(*tuning.result)),
				.trace = trace};

	if (!tuning.state || !tuning.result) {
		tuning_free(&tuning);
		return -ENOMEM;
	}
	tuning.config.cache_bytes_max = (uint64_t)s->memory_bytes;
	tuning.config.daemon_workers_max = tuning.config.client_workers_max = (uint32_t)s->cores;
	memset(ret, 0, sizeof(*ret));
	ret->n_s = s->phase_s * s->n_phases;
	start(&run, policy);
	for (; run.second < ret->n_s; run.second++) {
		run.phase = run.second / s->phase_s;
		for (uint32_t i = 0; i < s->n_jobs; i++) {
			double cores = s->cores;

			/* The scheduler is fair: a job gets an equal part, plus what others leave. */
			for (uint32_t k = 0; k < s->n_jobs; k++)
				cores -= k == i ? 0 : sim_cpu_used(&run, k);
			live(&run, i, fmax(cores, s->cores / s->n_jobs));
		}
		run.now_ns += 1000000000;
		if (policy == SIM_TUNER)
			tune(&run, &tuning, ret);
		for (uint32_t i = 0; i < s->n_jobs && policy == SIM_CLIMBER; i++)
			sim_climb(&run, i);
		record(&run, ret);
		for (uint32_t i = 0; i < s->n_jobs; i++)
			run.jobs[i].knobs = run.jobs[i].ordered;
	}
	tuning_free(&tuning);
	return 0;
}
