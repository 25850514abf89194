/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For any input, limits and pins hold, no value is absurd, and the tuner's memory stays sound. Samples have
 * random figures, also impossible ones. Clocks jump, and jobs come and go.
 */
#include "tests/unit/test.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "lib/cleanup.h"

#define SECOND   1000000000ull
#define N_JOBS   5
#define CACHE    10000000000ull
#define WORKERS  12
#define PREFETCH 100

static struct sim_random dice;
static struct tuner_config config;

static double roll(double low, double high)
{
	return sim_uniform(&dice, low, high);
}

static double any_double(double usual)
{
	static const double bad[] = {NAN, INFINITY, -INFINITY, -1, 0, 1e300, 1e-300, 1e18, -0.0};
	const size_t n_bad = sizeof(bad) / sizeof(bad[0]);

	if (roll(0, 1) < 0.7)
		return sim_log_uniform(&dice, usual / 10, usual * 10);
	return bad[(size_t)roll(0, (double)n_bad - 1e-9)];
}

static struct stall_sample any_sample(uint64_t now_ns, const struct tuner_knobs *knobs)
{
	struct stall_sample s = stall_sample_unknown();
	double *figures[] = {&s.steps_per_s,        &s.step_p50_s,    &s.fetch_rate,
			     &s.prep_rate,          &s.device_rate,   &s.reads_in_flight,
			     &s.samples_per_chunk,  &s.ready_samples, &s.daemon_workers_busy,
			     &s.client_workers_busy};

	s.job = (uint64_t)roll(0, N_JOBS + 0.99);
	s.at_ns = now_ns;
	if (roll(0, 1) < 0.1)
		s.at_ns = (uint64_t)roll(0, 1e19);
	s.covered_s = any_double(1);
	s.source = (enum stall_source)roll(0, 3.99);
	s.shares.fetch_stall = any_double(0.2);
	s.shares.prep_stall = any_double(0.2);
	s.shares.checkpoint_stall = any_double(0.1);
	s.samples_per_s = any_double(1000);
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		*figures[i] = any_double(100);
	s.chunk_latency_s = any_double(0.05);
	s.chunk_latency_p95_s = any_double(0.1);
	s.source_bytes_per_s = any_double(1e8);
	s.reading_ratio = any_double(0.5);
	s.memory_hit_ratio = any_double(0.5);
	s.chunk_bytes = any_double(8e6);
	s.window_chunks = roll(0, 1) < 0.05 ? UINT32_MAX : (uint32_t)roll(0, 40);
	s.daemon_cpu_s_per_sample = any_double(1e-3);
	s.client_cpu_s_per_sample = any_double(1e-3);
	s.handoff_s_per_sample = any_double(1e-4);
	s.dataset = (uint64_t)roll(0, 3);
	s.dataset_bytes = any_double(1e10);
	s.cached_bytes = any_double(1e9);
	s.need_bytes = any_double(1e8);
	s.tunable = roll(0, 1) < 0.9 ? (1u << TUNER_N_KNOBS) - 1 : (uint32_t)roll(0, 16);
	s.knobs = s.job && s.job <= N_JOBS ? knobs[s.job - 1] : (struct tuner_knobs){0};
	if (roll(0, 1) < 0.02)
		s.knobs.value[(int)roll(0, 3.99)] = UINT64_MAX;
	return s;
}

static struct stall_node any_node(void)
{
	struct stall_node n = stall_node_unknown();

	n.memory_some_avg10 = any_double(2);
	n.memory_full_avg10 = any_double(1);
	n.memory_limit_bytes = any_double(2e10);
	n.memory_headroom_bytes = any_double(1e10);
	n.cores = any_double(8);
	n.cores_idle = any_double(4);
	n.oom_kills = roll(0, 1) < 0.02 ? any_double(1) : 0;
	return n;
}

static bool cleared(const struct tuner_result *r, uint64_t job)
{
	for (size_t i = 0; i < r->n_views; i++)
		if (r->views[i].job == job)
			return false;
	return true;
}

/* Asserts that no reason contains "nan" or "inf". */
static void check_words(const char *text)
{
	for (const char *at = text; *at; at++)
		if (!strncmp(at, "nan", 3) || !strncmp(at, "inf", 3))
			assert_true(isalpha((unsigned char)at[3]) ||
				    (at > text && isalpha((unsigned char)at[-1])));
}

/* Asserts that the decisions of this second are valid. */
static void check(const struct tuner_result *r, struct tuner_knobs *knobs)
{
	for (size_t i = 0; i < r->n_decisions; i++) {
		const struct tuner_decision *d = &r->decisions[i];
		bool grows = d->new_value > d->old_value;

		assert_true(d->job >= 1 && d->job <= N_JOBS);
		assert_true(d->knob < TUNER_N_KNOBS && d->new_value != d->old_value);
		assert_non_null(memchr(d->reason, 0, sizeof(d->reason)));
		assert_true(d->reason[0] != 0 && !strchr(d->reason, '\n'));
		check_words(d->reason);
		if (grows && d->knob == TUNER_CACHE_BYTES)
			assert_true(d->new_value <= CACHE);
		if (grows && d->knob == TUNER_PREFETCH_CHUNKS)
			assert_true(d->new_value <= PREFETCH);
		if (grows && d->knob >= TUNER_DAEMON_WORKERS)
			assert_true(d->new_value <= WORKERS);
		if (d->knob == TUNER_DAEMON_WORKERS)
			assert_true(d->new_value >= 1);
		if (d->job == 2 && d->knob == TUNER_PREFETCH_CHUNKS)
			assert_true(d->rule == TUNER_RULE_PIN || d->rule == TUNER_RULE_LIMIT ||
				    d->rule == TUNER_RULE_SHARE);
		knobs[d->job - 1].value[d->knob] = d->new_value;
	}
	for (size_t i = 0; i < r->n_verdicts; i++) {
		assert_true(r->verdicts[i].decision > 0 && r->verdicts[i].text[0]);
		check_words(r->verdicts[i].text);
	}
	for (size_t i = 0; i < r->n_views; i++)
		check_words(r->views[i].text);
	assert_true(r->n_views <= N_JOBS);
}

TEST(random_samples_keep_knobs_within_limits)
{
	_cleanup_(freep) struct tuner_state *tuned = calloc(1, tuner_state_bytes());
	_cleanup_(freep) struct tuner_result *result = calloc(1, sizeof(*result));

	assert_true(tuned && result);
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct tuner_knobs knobs[N_JOBS];
		uint64_t now_ns = 1000 * SECOND;

		dice.state = seed;
		memset(tuned, 0, tuner_state_bytes());
		for (size_t i = 0; i < N_JOBS; i++)
			knobs[i] = (struct tuner_knobs){.value = {CACHE / N_JOBS, 8, 2, 0}};
		for (int second = 0; second < 300; second++) {
			struct stall_sample samples[8];
			struct stall_node node = any_node();
			size_t n = (size_t)roll(0, 8.99);

			now_ns += SECOND;
			if (roll(0, 1) < 0.02)
				now_ns = (uint64_t)roll(1e9, 1e15);
			for (size_t i = 0; i < n; i++)
				samples[i] = any_sample(now_ns, knobs);
			tuner_decide(&config, tuned, roll(0, 1) < 0.1 ? NULL : &node, samples, n, now_ns,
				     result);
			check(result, knobs);
			if (roll(0, 1) < 0.01)
				tuner_forget(tuned, (uint64_t)roll(0, N_JOBS + 2));
		}
		for (uint64_t job = 1; job <= N_JOBS; job++)
			tuner_forget(tuned, job);
		tuner_decide(&config, tuned, NULL, NULL, 0, now_ns + SECOND, result);
		assert_int_equal(result->n_views, 0);
		assert_true(cleared(result, 1));
	}
}

/* If there are more jobs than the tuner can handle, the rest are left as they are, and counted. */
TEST(too_many_jobs)
{
	_cleanup_(freep) struct tuner_state *tuned = calloc(1, tuner_state_bytes());
	_cleanup_(freep) struct tuner_result *result = calloc(1, sizeof(*result));
	struct stall_sample samples[TUNER_MAX_JOBS + 3];

	assert_true(tuned && result);
	for (size_t i = 0; i < TUNER_MAX_JOBS + 3; i++) {
		samples[i] = stall_sample_unknown();
		samples[i].job = i + 1;
		samples[i].at_ns = 5 * SECOND;
		samples[i].covered_s = 1;
		samples[i].samples_per_s = 10;
	}
	tuner_decide(&config, tuned, NULL, samples, TUNER_MAX_JOBS + 3, 5 * SECOND, result);
	assert_int_equal(result->n_samples_refused, 3);
	assert_int_equal(result->n_views, TUNER_MAX_JOBS);
	/* A repeated sample does not count. */
	tuner_decide(&config, tuned, NULL, samples, TUNER_MAX_JOBS, 6 * SECOND, result);
	assert_int_equal(result->n_samples_refused, TUNER_MAX_JOBS);
}

TEST(a_stored_state_of_garbage_is_refused)
{
	_cleanup_(freep) struct tuner_state *stored = calloc(1, tuner_state_bytes());

	assert_true(tuner_state_is_sane(stored));
	memset(stored, 0xff, tuner_state_bytes());
	assert_false(tuner_state_is_sane(stored));
}

int main(void)
{
	config = tuner_config_default();
	config.cache_bytes_max = CACHE;
	config.workers_max = WORKERS;
	config.daemon_workers_max = config.client_workers_max = WORKERS;
	config.prefetch_chunks_max = PREFETCH;
	config.pins[0] = (struct tuner_pin){.job = 2, .knob = TUNER_PREFETCH_CHUNKS, .value = 7};
	config.pins[1] = (struct tuner_pin){.job = 3, .knob = (enum tuner_knob)77, .value = 7};
	config.n_pins = 2;
	return run_unit_tests(NULL, NULL);
}
