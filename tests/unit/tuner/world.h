/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A node and a tuner for tests that go second by second. The node has 32 GB of memory, half of it free, and
 * caches of up to 8 GB. The test sets the samples. Knobs follow at once.
 */

#include "tests/unit/test.h"

#include <stdlib.h>

#include "tuner/tuner.h"

#define SECOND 1000000000ull

struct world {
	struct tuner_config config;
	struct tuner_state *state;
	struct tuner_result *result;
	struct stall_node node;
	uint64_t now_ns;
};

static inline int world_begin(struct world *w, double cores, double cores_idle)
{
	*w = (struct world){.config = tuner_config_default(),
			    .state = calloc(1, tuner_state_bytes()),
			    .result = calloc(1, sizeof(*w->result)),
			    .node = stall_node_unknown(),
			    .now_ns = 1000 * SECOND};
	w->config.cache_bytes_max = 8000000000;
	w->node.memory_limit_bytes = 32e9;
	w->node.memory_headroom_bytes = 16e9;
	w->node.memory_some_avg10 = 0;
	w->node.cores = cores;
	w->node.cores_idle = cores_idle;
	return w->state && w->result ? 0 : -1;
}

static inline void world_end(struct world *w)
{
	free(w->state);
	free(w->result);
	*w = (struct world){0};
}

/* Returns a job that does not wait for storage, and has no client workers. */
static inline struct stall_sample world_job(uint64_t job)
{
	struct stall_sample s = stall_sample_unknown();

	s.job = s.dataset = job;
	s.covered_s = 1;
	s.source = STALL_SOURCE_CLIENT;
	s.shares.fetch_stall = 0;
	s.chunk_bytes = 10e6;
	s.samples_per_chunk = 100;
	s.client_cpu_s_per_sample = 0;
	s.cached_bytes = 0;
	return s;
}

/* Runs one second. With `apply`, decisions are carried out. Returns their number. */
static inline size_t world_tick(struct world *w, struct stall_sample *samples, size_t n, bool apply)
{
	w->now_ns += SECOND;
	for (size_t i = 0; i < n; i++)
		samples[i].at_ns = w->now_ns;
	tuner_decide(&w->config, w->state, &w->node, samples, n, w->now_ns, w->result);
	for (size_t i = 0; apply && i < w->result->n_decisions; i++) {
		const struct tuner_decision *d = &w->result->decisions[i];
		struct stall_sample *s = samples;

		while (s < samples + n && s->job != d->job)
			s++;
		assert_true(s < samples + n && s->knobs.value[d->knob] == d->old_value);
		assert_true(d->old_value != d->new_value && d->reason[0]);
		s->knobs.value[d->knob] = d->new_value;
	}
	return w->result->n_decisions;
}

static inline const struct tuner_decision *world_decision(const struct world *w, enum tuner_knob knob)
{
	for (size_t i = 0; i < w->result->n_decisions; i++)
		if (w->result->decisions[i].knob == knob)
			return &w->result->decisions[i];
	return NULL;
}

static inline const struct tuner_verdict *world_verdict(const struct world *w, enum tuner_knob knob)
{
	for (size_t i = 0; i < w->result->n_verdicts; i++)
		if (w->result->verdicts[i].knob == knob)
			return &w->result->verdicts[i];
	return NULL;
}
