/* SPDX-License-Identifier: Apache-2.0 */
/* All rules together, second by second, on jobs of the simulator. */
#include "world.h"

#include <math.h>
#include <string.h>

#include "sim/sim.h"
#include "lib/cleanup.h"

static struct world world;
/* Up to four jobs, each with the figures of its sample. */
static struct stall_sample samples[4];
static size_t n_samples;

/* A job that is device-bound, with more of everything than it needs. */
static struct stall_sample usual(uint64_t job)
{
	struct stall_sample s = world_job(job);

	s.shares.prep_stall = 0;
	s.samples_per_s = 1000;
	s.chunk_latency_s = s.chunk_latency_p95_s = 0.02;
	s.source_bytes_per_s = 1e9;
	s.reads_in_flight = 4;
	s.reading_ratio = 0.2;
	s.memory_hit_ratio = 0;
	s.window_chunks = 1;
	s.ready_samples = 1000;
	s.daemon_cpu_s_per_sample = 1e-5;
	s.dataset_bytes = 10e9;
	s.need_bytes = 50e6;
	s.tunable = (1u << TUNER_N_KNOBS) - 1;
	s.knobs = (struct tuner_knobs){.value = {4000000000, 8, 4, 0}};
	return s;
}

static int setup(void **unused)
{
	int r = world_begin(&world, 8, 6);

	world.config.workers_max = 16;
	n_samples = 1;
	samples[0] = usual(1);
	return r;
}

static int teardown(void **unused)
{
	world_end(&world);
	return 0;
}

static size_t tick(bool apply)
{
	return world_tick(&world, samples, n_samples, apply);
}

static size_t run(int seconds)
{
	size_t n = 0;

	for (int i = 0; i < seconds; i++)
		n += tick(true);
	return n;
}

static const struct tuner_decision *decision_on(enum tuner_knob knob)
{
	return world_decision(&world, knob);
}

TEST_WITH(device_bound_gives_back, setup, teardown)
{
	run(10);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] < 200000000);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] >= 50000000); /* the need of its sessions */
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], 1);
	assert_int_equal(world.result->views[0].phase, TUNER_PHASE_SETTLED);
	assert_int_equal(run(300), 0); /* and then there are no more decisions */
}

TEST_WITH(pin_is_exact, setup, teardown)
{
	world.config.pins[0] = (struct tuner_pin){.job = 0, .knob = TUNER_DAEMON_WORKERS, .value = 2};
	world.config.pins[1] = (struct tuner_pin){.job = 1, .knob = TUNER_DAEMON_WORKERS, .value = 7};
	world.config.pins[2] = (struct tuner_pin){.job = 0, .knob = TUNER_PREFETCH_CHUNKS, .value = 0};
	world.config.n_pins = 3;
	tick(true);
	assert_non_null(decision_on(TUNER_DAEMON_WORKERS));
	assert_int_equal(decision_on(TUNER_DAEMON_WORKERS)->rule, TUNER_RULE_PIN);
	run(30);
	/* the job's own pin has priority */
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], 7);
	assert_int_equal(samples[0].knobs.value[TUNER_PREFETCH_CHUNKS], 0);
}

TEST_WITH(impossible_pin_is_clamped, setup, teardown)
{
	world.config.pins[0] = (struct tuner_pin){.job = 1, .knob = TUNER_CACHE_BYTES, .value = UINT64_MAX};
	world.config.pins[1] = (struct tuner_pin){.job = 1, .knob = TUNER_DAEMON_WORKERS, .value = 100000};
	world.config.n_pins = 2;
	tick(true);
	assert_non_null(strstr(decision_on(TUNER_DAEMON_WORKERS)->reason, "100000"));
	run(10);
	assert_int_equal(run(30), 0);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] <= world.config.cache_bytes_max);
	assert_true(samples[0].knobs.value[TUNER_DAEMON_WORKERS] <= 16);
}

TEST_WITH(knob_of_the_client_is_left_alone, setup, teardown)
{
	samples[0].tunable &= ~(1u << TUNER_DAEMON_WORKERS);
	run(30);
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], 4);
}

TEST_WITH(limit_lowered_while_full, setup, teardown)
{
	samples[0].cached_bytes = 3.9e9;
	tick(true);
	world.config.cache_bytes_max = 1000000000;
	tick(true);
	assert_int_equal(decision_on(TUNER_CACHE_BYTES)->rule, TUNER_RULE_LIMIT);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] <= 1000000000);
}

TEST_WITH(pressure_halves_and_recovers, setup, teardown)
{
	const double full = 8e9;
	size_t recoveries = 0;

	/* Storage is so slow that the job is worth the whole cache. */
	samples[0].source_bytes_per_s = 20e6;
	samples[0].chunk_latency_s = samples[0].chunk_latency_p95_s = 0.5;
	samples[0].reads_in_flight = 1;
	samples[0].reading_ratio = 1;
	samples[0].shares.fetch_stall = 0.5;
	samples[0].samples_per_s = 500;
	samples[0].memory_hit_ratio = 0.7;
	samples[0].cached_bytes = full;
	samples[0].knobs.value[TUNER_CACHE_BYTES] = 8000000000;
	run(20);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] > 7000000000);
	world.node.memory_some_avg10 = 15;
	tick(true);
	assert_int_equal(decision_on(TUNER_CACHE_BYTES)->rule, TUNER_RULE_PRESSURE);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] <= 4000000000);
	samples[0].cached_bytes = 3.9e9;
	for (int i = 0; i < 14; i++) { /* while the kernel's mean falls */
		world.node.memory_some_avg10 *= 0.8;
		run(1);
		assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] <= 4000000000);
		assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] > 3000000000);
	}
	for (int i = 0; i < 200; i++) {
		samples[0].cached_bytes = (double)samples[0].knobs.value[TUNER_CACHE_BYTES] * 0.98;
		run(1);
		recoveries += decision_on(TUNER_CACHE_BYTES) &&
			      decision_on(TUNER_CACHE_BYTES)->rule == TUNER_RULE_RECOVER;
	}
	assert_true(recoveries >= 3); /* recovery happens in steps */
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] > 7000000000);
}

TEST_WITH(pressure_stops_at_what_sessions_need, setup, teardown)
{
	for (int i = 0; i < 60; i++) {
		world.node.memory_some_avg10 = 15 + i;
		world.node.memory_headroom_bytes = 0;
		tick(true);
		assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] >= 50000000);
	}
}

TEST_WITH(decisions_of_a_dry_run_are_not_applied, setup, teardown)
{
	size_t decisions = 0, verdicts = 0;

	for (int i = 0; i < 100; i++) { /* in a dry run, decisions are not applied */
		decisions += tick(false);
		for (size_t k = 0; k < world.result->n_verdicts; k++)
			verdicts += world.result->verdicts[k].outcome == TUNER_NOT_APPLIED;
	}
	assert_true(verdicts >= 2);
	assert_in_range(decisions, 3, 8); /* repeated, but not every second */
}

static size_t n_not_applied(int seconds)
{
	size_t n = 0;

	for (int i = 0; i < seconds; i++) {
		tick(false);
		for (size_t k = 0; k < world.result->n_verdicts; k++)
			n += world.result->verdicts[k].outcome == TUNER_NOT_APPLIED &&
			     world.result->verdicts[k].knob == TUNER_CLIENT_WORKERS;
	}
	return n;
}

/* The client follows at its next batch. As long as storage gives it no batch, the client cannot have
 * refused. */
TEST_WITH(a_job_that_gets_no_batch_cannot_follow, setup, teardown)
{
	samples[0].client_cpu_s_per_sample = 3e-3;
	for (int i = 0; i < 10 && !decision_on(TUNER_CLIENT_WORKERS); i++)
		tick(false);
	assert_non_null(decision_on(TUNER_CLIENT_WORKERS));
	samples[0].samples_per_s = 0;
	assert_int_equal(n_not_applied(20), 0);
	samples[0].samples_per_s = 1000;
	assert_int_equal(n_not_applied(5), 0);
	assert_int_equal(n_not_applied(10), 1);
}

TEST_WITH(idle_rests_and_wakes, setup, teardown)
{
	uint64_t workers;

	samples[0].daemon_cpu_s_per_sample = 3e-3; /* work for three workers */
	run(15);
	workers = samples[0].knobs.value[TUNER_DAEMON_WORKERS];
	assert_true(workers >= 3);
	samples[0].samples_per_s = 0;
	run(40);
	assert_int_equal(world.result->views[0].phase, TUNER_PHASE_IDLE);
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], 1);
	assert_int_equal(run(3600), 0);
	samples[0].samples_per_s = 1000;
	run(3);
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], workers);
}

TEST_WITH(without_samples_the_tuner_is_blind, setup, teardown)
{
	run(15);
	n_samples = 0;
	for (int i = 0; i < 10; i++)
		assert_int_equal(tick(true), 0);
	assert_int_equal(world.result->n_views, 1);
	assert_int_equal(world.result->views[0].phase, TUNER_PHASE_BLIND);
	run(60);
	assert_int_equal(world.result->n_views, 0); /* the job is forgotten */
}

TEST_WITH(without_trainer_times, setup, teardown)
{
	samples[0].source = STALL_SOURCE_NONE;
	samples[0].shares.fetch_stall = samples[0].shares.prep_stall = NAN;
	assert_int_equal(run(60), 0); /* whether the job waits is unknown, so nothing is changed */
}

TEST_WITH(a_clock_that_steps_back_blinds_nothing, setup, teardown)
{
	run(15);
	world.now_ns -= 900 * SECOND; /* the clock steps back */
	assert_int_equal(run(60), 0);
	/* deadlines moved with the clock, so the tuner is not blind for 900 s */
	samples[0].daemon_cpu_s_per_sample = 2e-3;
	samples[0].shares.prep_stall = 0.5;
	samples[0].samples_per_s = 500;
	assert_true(run(20) > 0);
	samples[0].shares.prep_stall = 0;
	samples[0].samples_per_s = 1000;
	run(60);
	world.now_ns += 86400 * SECOND; /* a day of suspend */
	assert_int_equal(run(60), 0);
	assert_int_equal(world.result->views[0].phase, TUNER_PHASE_SETTLED);
	samples[0].daemon_cpu_s_per_sample = 6e-3;
	samples[0].shares.prep_stall = 0.6;
	samples[0].samples_per_s = 400;
	assert_true(run(15) > 0); /* and the tuner still works */
}

TEST_WITH(worse_is_undone, setup, teardown)
{
	bool undone = false;

	run(1);
	for (int i = 0; i < 15; i++) {
		/* Whatever the model says, with fewer than four workers this job is slow. */
		bool slow = samples[0].knobs.value[TUNER_DAEMON_WORKERS] < 4;

		samples[0].samples_per_s = slow ? 500 : 1000;
		samples[0].shares.prep_stall = slow ? 0.5 : 0;
		run(1);
		for (size_t k = 0; k < world.result->n_verdicts; k++)
			undone |= world.result->verdicts[k].outcome == TUNER_UNDONE &&
				  world.result->verdicts[k].knob == TUNER_DAEMON_WORKERS;
	}
	assert_true(undone);
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], 4);
}

/* A dropped cache takes an epoch to fill again, so the first seconds of a new phase are no reason to drop
 * it. */
TEST_WITH(new_phase_keeps_the_cache, setup, teardown)
{
	samples[0].source_bytes_per_s = 60e6;
	samples[0].reading_ratio = 1;
	samples[0].memory_hit_ratio = 0.45;
	samples[0].cached_bytes = 4.5e9;
	run(20);
	uint64_t kept = samples[0].knobs.value[TUNER_CACHE_BYTES];
	assert_in_range(kept, 3500000000, 6000000000);
	samples[0].client_cpu_s_per_sample = 1.3e-3;
	samples[0].shares.prep_stall = 0.3;
	samples[0].samples_per_s = 700;
	samples[0].source_bytes_per_s = 200e6;
	run(5);
	assert_true(samples[0].knobs.value[TUNER_CLIENT_WORKERS] > 0);
	assert_int_equal(samples[0].knobs.value[TUNER_CACHE_BYTES], kept);
	samples[0].shares.prep_stall = 0;
	samples[0].samples_per_s = 1000;
	run(40);
	assert_true(samples[0].knobs.value[TUNER_CACHE_BYTES] < kept / 2);
}

/* The demand of a job that hardly computes is measured badly. A seeming change of it does not make it another
 * job. */
TEST_WITH(long_waits_are_judged, setup, teardown)
{
	samples[0].client_cpu_s_per_sample = 4e-3;
	samples[0].shares.prep_stall = 0.9;
	samples[0].samples_per_s = 250;
	samples[0].device_rate = 900;
	for (int i = 0; i < 20 && !samples[0].knobs.value[TUNER_CLIENT_WORKERS]; i++)
		tick(true);
	assert_true(samples[0].knobs.value[TUNER_CLIENT_WORKERS] > 0);
	samples[0].shares.prep_stall = 0.65;
	samples[0].samples_per_s = 480;
	samples[0].device_rate = 1400;
	for (int i = 0; i < 10 && !world.result->n_verdicts; i++)
		tick(true);
	assert_true(world.result->n_verdicts > 0);
	for (size_t i = 0; i < world.result->n_verdicts; i++)
		assert_string_not_equal(world.result->verdicts[i].text, "the job itself changed");
}

TEST_WITH(two_jobs_share, setup, teardown)
{
	n_samples = 2;
	for (int i = 0; i < 2; i++) {
		samples[i] = usual((uint64_t)i + 1);
		samples[i].daemon_cpu_s_per_sample =
		    i ? 8e-3 : 1e-5; /* one needs 8 workers, one hardly any */
		samples[i].shares.prep_stall = i ? 0.5 : 0;
		samples[i].samples_per_s = i ? 500 : 1000;
	}
	world.config.workers_max = 8;
	world.node.cores_idle = 8;
	for (int i = 0; i < 20; i++) {
		run(1);
		assert_true(samples[0].knobs.value[TUNER_DAEMON_WORKERS] +
				samples[1].knobs.value[TUNER_DAEMON_WORKERS] +
				samples[0].knobs.value[TUNER_CLIENT_WORKERS] +
				samples[1].knobs.value[TUNER_CLIENT_WORKERS] <=
			    8);
		samples[1].samples_per_s =
		    fmin((double)samples[1].knobs.value[TUNER_DAEMON_WORKERS] * 125, 1000);
		samples[1].shares.prep_stall = 1 - samples[1].samples_per_s / 1000;
	}
	assert_int_equal(samples[0].knobs.value[TUNER_DAEMON_WORKERS], 1);
	assert_true(samples[1].knobs.value[TUNER_DAEMON_WORKERS] >= 6);
}

TEST_WITH(same_input_same_result, setup, teardown)
{
	_cleanup_(freep) struct tuner_result *first = malloc(sizeof(*first));
	_cleanup_(freep) struct tuner_state *copy = malloc(tuner_state_bytes());

	assert_true(first && copy);
	memcpy(copy, world.state, tuner_state_bytes());
	samples[0].at_ns = world.now_ns + SECOND;
	for (int i = 1; i <= 5; i++) {
		samples[0].at_ns = world.now_ns + (uint64_t)i * SECOND;
		tuner_decide(&world.config, world.state, &world.node, samples, 1, samples[0].at_ns, first);
		tuner_decide(&world.config, copy, &world.node, samples, 1, samples[0].at_ns, world.result);
		assert_int_equal(first->n_decisions, world.result->n_decisions);
		for (size_t k = 0; k < first->n_decisions; k++)
			assert_string_equal(first->decisions[k].reason, world.result->decisions[k].reason);
	}
	assert_memory_equal(world.state, copy, tuner_state_bytes());
}
