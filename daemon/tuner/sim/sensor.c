/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates the sensors: the truth with noise. */
#include "run.h"

#include <math.h>

static double noisy(struct sim_run *run, double x)
{
	return x * exp(run->scenario->noise * sim_normal(&run->random));
}

static double noisy_share(struct sim_run *run, double x)
{
	x += run->scenario->noise * 0.15 * sim_normal(&run->random);
	return fmin(fmax(x, 0), 1);
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

struct stall_sample sim_sense(struct sim_run *run, uint32_t index)
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

double sim_cpu_used(const struct sim_run *run, uint32_t index)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	const struct sim_live *job = &run->jobs[index];

	return job->rates.rate * (job->daemon_cpu_s + t->client_cpu_s) + t->trainer_cores;
}

struct stall_node sim_sense_node(const struct sim_run *run)
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
