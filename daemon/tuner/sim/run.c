/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/sim.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_live {
	struct sim_state state;
	struct tuner_knobs knobs, ordered; /* knobs in force; knobs in force from the next second on */
	struct sim_rates rates;            /* rates of the last second */
	double daemon_cpu_s; /* CPU time per sample in the last second, after savings by decoded copies */
	/* The hill climber's state. */
	uint32_t knob, wait_s;
	int direction;
	double measured, before;
	struct tuner_knobs last;
};

struct sim_run {
	const struct sim_scenario *scenario;
	struct sim_random random;
	uint64_t now_ns;
	uint32_t second, phase;
	struct sim_live jobs[SIM_MAX_JOBS];
};

static const struct sim_truth *sim_truth_now(const struct sim_run *run, uint32_t index)
{
	return &run->scenario->jobs[index].phases[run->phase];
}

static double noisy(struct sim_run *run, double x)
{
	return x * exp(run->scenario->noise * sim_normal(&run->random));
}

static double noisy_share(struct sim_run *run, double x)
{
	x += run->scenario->noise * 0.15 * sim_normal(&run->random);
	return fmin(fmax(x, 0), 1);
}

/* Returns the bytes that caches leave to decoded copies. */
static double sim_decoded_space(const struct sim_run *run)
{
	double space = run->scenario->memory_bytes;

	for (uint32_t i = 0; i < run->scenario->n_jobs; i++)
		space -= (double)run->jobs[i].knobs.value[TUNER_CACHE_BYTES];
	return fmax(space, 0);
}

static void sense_decoded(struct sim_run *run, uint32_t index, struct stall_sample *s)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	const struct sim_state *state = &run->jobs[index].state;

	s->decoded_cache.usable = t->dataset_bytes / t->sample_bytes;
	s->decoded_cache.samples = state->decoded_ratio * s->decoded_cache.usable;
	s->decoded_cache.bytes = s->decoded_cache.samples * t->decoded_bytes;
	s->decoded_cache.space_bytes = sim_decoded_space(run);
	s->decoded_cache.hit_ratio = state->decoded_hit * t->decoded_serve;
	s->decoded_cache.serve_ratio = t->decoded_serve;
	s->decoded_cache.fresh_cpu_s_per_sample = noisy(run, t->daemon_cpu_s);
	if (state->decoded_ratio > 0) {
		s->decoded_cache.sample_bytes = t->decoded_bytes;
		s->decoded_cache.cpu_s_per_sample = noisy(run, t->daemon_cpu_s * t->decoded_part);
	}
}

static struct stall_sample sim_sense(struct sim_run *run, uint32_t index)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	const struct sim_live *job = &run->jobs[index];
	const struct sim_rates *r = &job->rates;
	double chunk = t->sample_bytes * t->samples_per_chunk, wait, fetch;
	struct stall_sample s = stall_sample_unknown();

	s.job = index + 1;
	s.at_ns = run->now_ns;
	s.covered_s = 1;
	s.source = STALL_SOURCE_CLIENT;
	wait = noisy_share(run, 1 - r->rate / t->device_rate);
	fetch = fmin(noisy_share(run, 1 - r->rate / r->no_fetch_rate), wait);
	s.shares.fetch_stall = fetch;
	s.shares.prep_stall = wait - fetch;
	s.samples_per_s = noisy(run, r->rate);
	s.batch = 64;
	s.n_trainers = 1;
	if (job->state.hit_ratio < 1) {
		s.chunk_latency_s = noisy(run, r->latency_s);
		s.chunk_latency_p95_s = s.chunk_latency_s * 1.4;
		s.source_bytes_per_s = noisy(run, r->bandwidth);
		s.reads_in_flight = r->in_flight;
		s.reading_ratio =
		    fmin(r->rate * (1 - job->state.hit_ratio) * t->sample_bytes / r->bandwidth, 1);
	} else {
		s.reading_ratio = 0;
	}
	s.memory_hit_ratio = job->state.hit_ratio;
	s.chunk_bytes = chunk;
	s.samples_per_chunk = t->samples_per_chunk;
	s.window_chunks = (uint32_t)t->window;
	s.ready_samples = t->ready;
	s.daemon_cpu_s_per_sample = noisy(run, job->daemon_cpu_s);
	s.client_cpu_s_per_sample = noisy(run, t->client_cpu_s);
	if (job->knobs.value[TUNER_CLIENT_WORKERS])
		s.handoff_s_per_sample = noisy(run, t->handoff_s);
	s.client_worker_bytes = t->worker_bytes;
	s.daemon_workers_busy = r->rate * job->daemon_cpu_s;
	s.client_workers_busy = job->knobs.value[TUNER_CLIENT_WORKERS] ? r->rate * t->client_cpu_s : 0;
	s.dataset = index + 1;
	s.dataset_bytes = t->dataset_bytes;
	s.cached_bytes = job->state.cached_bytes;
	s.need_bytes = sim_need_bytes(t);
	s.knobs = job->knobs;
	s.tunable = (1u << TUNER_N_KNOBS) - 1;
	if (t->decoded_bytes > 0)
		sense_decoded(run, index, &s);
	else
		s.tunable &= ~(1u << TUNER_DECODED_BYTES);
	if (t->client_cpu_s <= 0)
		s.tunable &= ~(1u << TUNER_CLIENT_WORKERS);
	return s;
}

static double sim_cpu_used(const struct sim_run *run, uint32_t index)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	const struct sim_live *job = &run->jobs[index];

	return job->rates.rate * (job->daemon_cpu_s + t->client_cpu_s) + t->trainer_cores;
}

static struct stall_node sim_sense_node(const struct sim_run *run)
{
	struct stall_node n = stall_node_unknown();
	double used = 0, bytes = 0;

	for (uint32_t i = 0; i < run->scenario->n_jobs; i++) {
		used += sim_cpu_used(run, i);
		bytes += run->jobs[i].state.cached_bytes + sim_need_bytes(sim_truth_now(run, i));
		bytes += (double)run->jobs[i].knobs.value[TUNER_CLIENT_WORKERS] *
			 sim_truth_now(run, i)->worker_bytes;
	}
	n.memory_some_avg10 = n.memory_full_avg10 = 0;
	n.memory_limit_bytes = run->scenario->memory_bytes * 4;
	n.memory_headroom_bytes = n.memory_limit_bytes - bytes;
	n.cores = run->scenario->cores;
	n.cores_idle = fmax(n.cores - used, 0);
	return n;
}

/*
 * The peer that every autotuner has to beat: a hill climber on the same knobs. It turns one knob per step,
 * and takes three seconds to see the effect. If the rate rose by 2 %, the step is kept and repeated;
 * otherwise it is taken back and the next one tried, first up, then down.
 */
#define N_CLIMBED 4 /* number of knobs that it turns: its jobs have no decoded copies */
#define STEP_S    3
#define BETTER    1.02

static uint64_t step_of(const struct sim_run *run, uint32_t knob)
{
	return knob == TUNER_CACHE_BYTES ? (uint64_t)(run->scenario->memory_bytes / 10) : 1;
}

static bool move(const struct sim_run *run, uint32_t index, struct tuner_knobs *knobs, uint32_t knob,
		 int direction)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	uint64_t step = step_of(run, knob), now = knobs->value[knob];
	double least = knob == TUNER_CACHE_BYTES ? sim_need_bytes(t) : knob == TUNER_DAEMON_WORKERS ? 1 : 0;
	double most = knob == TUNER_CACHE_BYTES       ? run->scenario->memory_bytes
		      : knob == TUNER_PREFETCH_CHUNKS ? 64
						      : run->scenario->cores;
	double to = (double)now + direction * (double)step;

	if (knob == TUNER_CLIENT_WORKERS && t->client_cpu_s <= 0)
		return false;
	if (to < least || to > most)
		return false;
	knobs->value[knob] = (uint64_t)to;
	return true;
}

/* Decides for one job; writes the knobs to `ordered`. */
static void sim_climb(struct sim_run *run, uint32_t index)
{
	struct sim_live *job = &run->jobs[index];
	double measured = job->rates.rate * exp(run->scenario->noise * sim_normal(&run->random));

	job->measured += measured / STEP_S;
	if (++job->wait_s < STEP_S)
		return;
	if (job->direction == 0) {
		job->direction = 1; /* the first interval: nothing was changed */
	} else if (job->measured > job->before * BETTER) {
		job->last = job->ordered; /* continues in the same direction */
	} else {
		job->ordered = job->last;
		if (job->direction > 0) {
			job->direction = -1;
		} else {
			job->direction = 1;
			job->knob = (job->knob + 1) % N_CLIMBED;
		}
		job->measured = fmax(job->before, job->measured);
	}
	job->before = job->measured;
	job->measured = 0;
	job->wait_s = 0;
	job->last = job->ordered;
	for (int i = 0; i < 2 * N_CLIMBED; i++) {
		if (move(run, index, &job->ordered, job->knob, job->direction))
			return;
		if (job->direction > 0) {
			job->direction = -1;
		} else {
			job->direction = 1;
			job->knob = (job->knob + 1) % N_CLIMBED;
		}
	}
}

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
