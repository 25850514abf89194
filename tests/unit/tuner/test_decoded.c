/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded copies: which job gets memory for them, what effect is expected, and when the memory is taken
 * back. */
#include "world.h"

#include <math.h>
#include <string.h>

#define SAMPLES      10000.0
#define DECODED_SIZE 560e3
#define FRESH_S      2e-3
#define DECODED_S    0.7e-3
#define DEMAND       4000.0

/* A job whose images the daemon decodes, on two cores. It gets 1,000 samples/s, and its demand is 4,000. */
static struct world world;
static struct stall_sample sample;
static double cover;       /* the part of the samples that have a decoded copy from an earlier epoch */
static double serves;      /* the part of the crops that decoded copies serve */
static double helps_s;     /* CPU time that this saves per sample */
static double demand;      /* samples/s of the trainer if it need not wait */
static double fills_s;     /* seconds until all decoded copies are used */
static uint32_t neighbour; /* seconds of five in which others take half of the cores; 0: never */

static int setup(void **unused)
{
	int r = world_begin(&world, 2, 0);

	world.config.workers_max = 4;
	world.config.daemon_workers_max = 2;
	cover = 0;
	serves = 1;
	helps_s = FRESH_S - DECODED_S;
	demand = DEMAND;
	fills_s = 20;
	neighbour = 0;
	sample = world_job(1);
	sample.chunk_latency_s = sample.chunk_latency_p95_s = 0.002;
	sample.source_bytes_per_s = 4e9;
	sample.reads_in_flight = 1;
	sample.reading_ratio = 0.1;
	sample.memory_hit_ratio = 0.9;
	sample.window_chunks = 8;
	sample.ready_samples = 512;
	sample.dataset_bytes = SAMPLES * 100e3;
	sample.need_bytes = 200e6;
	sample.decoded_cache.usable = SAMPLES;
	sample.decoded_cache.samples = sample.decoded_cache.bytes = 0;
	sample.decoded_cache.space_bytes = 3e9;
	sample.decoded_cache.fresh_cpu_s_per_sample = FRESH_S;
	sample.tunable = ((1u << TUNER_N_KNOBS) - 1) & ~(1u << TUNER_CLIENT_WORKERS);
	sample.knobs = (struct tuner_knobs){.value = {400000000, 2, 2, 0, 0}};
	return r;
}

static int teardown(void **unused)
{
	world_end(&world);
	return 0;
}

static const struct tuner_decision *decision(void)
{
	return world_decision(&world, TUNER_DECODED_BYTES);
}

static const struct tuner_verdict *verdict(void)
{
	return world_verdict(&world, TUNER_DECODED_BYTES);
}

/* Returns the cores that neighbours leave, and by which factor they increase the CPU time per sample. */
static void noise(double *ret_cores, double *ret_slower)
{
	uint32_t second = (uint32_t)(world.now_ns / SECOND);
	bool loud = neighbour && (second * 2654435761u >> 16) % 5 < neighbour;

	*ret_cores = loud ? 0.6 + 0.1 * (second % 7) : 2;
	*ret_slower = loud ? 1.1 + 0.1 * (second % 4) : 1;
}

/* Runs one second. Decoded copies are made as soon as there is memory for them. Within fills_s, all of them
 * are used. */
static void tick(void)
{
	double most = (double)sample.knobs.value[TUNER_DECODED_BYTES] / (SAMPLES * DECODED_SIZE), cpu_s,
	       cores, slower;

	noise(&cores, &slower);
	most = most > 1 ? 1 : most;
	cover = most > 0 ? fmin(cover + most / fills_s, most) : 0;
	sample.decoded_cache.hit_ratio = cover * serves;
	sample.decoded_cache.serve_ratio = serves;
	sample.decoded_cache.samples = most * SAMPLES;
	sample.decoded_cache.bytes = sample.decoded_cache.samples * DECODED_SIZE;
	if (most > 0) {
		sample.decoded_cache.sample_bytes = DECODED_SIZE;
		sample.decoded_cache.cpu_s_per_sample = FRESH_S - helps_s;
	}
	cpu_s = (FRESH_S - cover * serves * helps_s) * slower;
	sample.daemon_cpu_s_per_sample = cpu_s;
	sample.daemon_workers_busy = cores;
	sample.samples_per_s = fmin(cores / cpu_s, demand);
	sample.shares.prep_stall = isfinite(demand) ? 1 - sample.samples_per_s / demand : 0.999;
	sample.device_rate = isfinite(demand) ? demand : NAN;
	(void)world_tick(&world, &sample, 1, true);
}

static bool tick_until_turned(int seconds)
{
	for (int i = 0; i < seconds; i++) {
		tick();
		if (decision())
			return true;
	}
	return false;
}

TEST_WITH(taken_and_verified, setup, teardown)
{
	const struct tuner_verdict *found = NULL;

	assert_true(tick_until_turned(60));
	assert_int_equal(decision()->rule, TUNER_RULE_STALL);
	assert_true(decision()->new_value > 2900000000 && decision()->new_value <= 3000000000);
	/* Before there is a decoded copy, its size and what it saves are guesses. */
	assert_non_null(strstr(decision()->reason, "decoding takes 2000 us per sample; space for"));
	assert_non_null(strstr(decision()->reason, "guessed"));
	assert_true(decision()->rate_expected > 1100 && decision()->rate_expected < 2000);
	for (int i = 0; i < 60 && !found; i++) {
		tick();
		assert_null(decision());
		found = verdict();
	}
	assert_non_null(found);
	assert_int_equal(found->outcome, TUNER_VERIFIED);
	assert_true(found->rate_after > 1.2 * found->rate_before);
	assert_non_null(strstr(found->text, "2000 us of CPU time per sample before"));
	assert_false(tick_until_turned(300)); /* and kept */
}

TEST_WITH(what_does_not_help_is_given_up, setup, teardown)
{
	helps_s = 0;
	assert_true(tick_until_turned(60));
	assert_true(tick_until_turned(120));
	assert_int_equal(decision()->rule, TUNER_RULE_UNDO);
	assert_int_equal(decision()->new_value, 0);
	assert_non_null(
	    strstr(decision()->reason, "did not help (2000 us of CPU time per sample before, 2000"));
	assert_false(tick_until_turned(50)); /* nor tried again at once */
}

TEST_WITH(all_that_there_is_to_have, setup, teardown)
{
	sample.decoded_cache.space_bytes = 30e9;
	sample.decoded_cache.sample_bytes = 100e3; /* known, so it is the size of the result */
	assert_true(tick_until_turned(60));
	assert_true(decision()->new_value > 1000000000 && decision()->new_value < 1200000000);
	assert_null(strstr(decision()->reason, "guessed"));
}

/* For large photographs, some crops are decoded at another scale than the scale of their decoded copy. */
TEST_WITH(some_crops_alone, setup, teardown)
{
	const struct tuner_verdict *found = NULL;
	double expected[2];

	for (int i = 0; i < 2; i++) {
		teardown(NULL);
		setup(NULL);
		serves = i ? 0.5 : 1;
		sample.decoded_cache.space_bytes = 30e9;
		sample.decoded_cache.sample_bytes = DECODED_SIZE;
		sample.decoded_cache.cpu_s_per_sample = DECODED_S;
		assert_true(tick_until_turned(60));
		expected[i] = decision()->rate_expected;
		assert_true(i == !!strstr(decision()->reason, ", which serve 50% of the crops"));
	}
	assert_true(expected[1] > 1.3 * 1000 && expected[1] < 1.6 * 1000 && expected[0] > 2 * 1000);
	/* The copies never serve more than half of the crops, so the verdict does not wait for more. */
	for (int i = 0; i < 60 && !found; i++) {
		tick();
		found = verdict();
	}
	assert_non_null(found);
	assert_int_equal(found->outcome, TUNER_VERIFIED);
	assert_false(tick_until_turned(300));
}

/* The copies serve too few crops to be worth a change. */
TEST_WITH(hardly_any_crop, setup, teardown)
{
	serves = 0.01;
	assert_false(tick_until_turned(100));
}

TEST_WITH(one_reason_is_enough_to_take_no_decoded, setup, teardown)
{
	for (int i = 0; i < 6; i++) {
		teardown(NULL);
		setup(NULL);
		switch (i) {
		case 0: sample.decoded_cache.usable = NAN; break; /* served as stored */
		case 1:
			sample.decoded_cache.fresh_cpu_s_per_sample = NAN;
			break;                                         /* nothing was decoded yet */
		case 2: sample.decoded_cache.space_bytes = 1e6; break; /* no space */
		case 3: sample.tunable &= ~(1u << TUNER_DECODED_BYTES); break;
		case 4: world.config.decoded_bytes_max = 0; break;
		case 5:
			world.config.pins[world.config.n_pins++] =
			    (struct tuner_pin){.knob = TUNER_DECODED_BYTES, .value = 0};
			break;
		}
		assert_false(tick_until_turned(100));
	}
}

TEST_WITH(memory_pressure_takes_decoded_back, setup, teardown)
{
	assert_true(tick_until_turned(60));
	for (int i = 0; i < 60; i++)
		tick();
	world.node.memory_some_avg10 = 15;
	world.node.memory_headroom_bytes = 100e6;
	assert_true(tick_until_turned(2));
	assert_int_equal(decision()->rule, TUNER_RULE_PRESSURE);
	assert_int_equal(decision()->new_value, 0);
	world.node.memory_some_avg10 = 0;
	world.node.memory_headroom_bytes = 16e9;
	assert_false(tick_until_turned(40));
	assert_true(tick_until_turned(120)); /* but it happens in the end */
	assert_int_equal(decision()->rule, TUNER_RULE_STALL);
}

/* Stored chunks have priority for the space. Memory claimed for them is not available to decoded copies. */
TEST_WITH(stored_chunks_have_space_before_decoded, setup, teardown)
{
	assert_true(tick_until_turned(60));
	for (int i = 0; i < 60; i++)
		tick();
	sample.decoded_cache.space_bytes = 1e9;
	assert_true(tick_until_turned(10));
	assert_int_equal(decision()->rule, TUNER_RULE_SHARE);
	/* The memory shrinks in steps, since one second's figure is not trusted. */
	for (int i = 0; i < 20; i++)
		tick();
	assert_int_equal(sample.knobs.value[TUNER_DECODED_BYTES], 1000000000);
	assert_false(tick_until_turned(60));
}

TEST_WITH(a_pinned_size_of_decoded_stays, setup, teardown)
{
	world.config.pins[world.config.n_pins++] =
	    (struct tuner_pin){.knob = TUNER_DECODED_BYTES, .value = 123456789};
	assert_true(tick_until_turned(2));
	assert_int_equal(decision()->rule, TUNER_RULE_PIN);
	assert_int_equal(decision()->new_value, 123456789);
	assert_false(tick_until_turned(100));
}

/* The model still considers the copies worth it, and each time the wait before the next attempt is longer. */
TEST_WITH(tried_again_later, setup, teardown)
{
	int waits[3];

	helps_s = 0.06e-3;
	for (int i = 0; i < 3; i++) {
		sample.decoded_cache.cpu_s_per_sample = NAN;
		for (waits[i] = 0; waits[i] < 1000 && !tick_until_turned(1); waits[i]++)
			sample.decoded_cache.cpu_s_per_sample = NAN;
		assert_int_equal(decision()->rule, TUNER_RULE_STALL);
		assert_true(tick_until_turned(300));
		assert_int_equal(decision()->rule, TUNER_RULE_UNDO);
	}
	assert_true(waits[0] < 60 && waits[1] >= 55 && waits[2] > 1.5 * waits[1] && waits[2] < 300);
}

/* On a machine that others use now and then, the rate shows nothing, and the verdict by CPU time takes
 * longer. */
TEST_WITH(loud_neighbours_make_verdicts_slower, setup, teardown)
{
	for (neighbour = 1; neighbour <= 5; neighbour++) {
		const struct tuner_verdict *found = NULL;
		uint32_t loud = neighbour;

		teardown(NULL);
		setup(NULL);
		/* The neighbours come when decoded copies exist already. */
		assert_true(tick_until_turned(60));
		neighbour = loud;
		for (int i = 0; i < 120 && !found; i++) {
			tick();
			assert_null(decision());
			found = verdict();
		}
		assert_non_null(found);
		assert_int_equal(found->outcome, TUNER_VERIFIED);
		assert_false(tick_until_turned(600));
	}
}

/* An epoch takes longer than ten minutes, in which no copy is used. */
TEST_WITH(a_long_epoch, setup, teardown)
{
	const struct tuner_verdict *found = NULL;

	sample.decoded_cache.usable = 100 * SAMPLES;
	sample.decoded_cache.space_bytes = 100e9;
	assert_true(tick_until_turned(60));
	fills_s = 1e9;
	for (int i = 0; i < 1000; i++) {
		tick();
		assert_null(verdict());
	}
	sample.decoded_cache.usable = SAMPLES;
	fills_s = 20;
	for (int i = 0; i < 60 && !found; i++) {
		tick();
		found = verdict();
	}
	assert_non_null(found);
	assert_int_equal(found->outcome, TUNER_VERIFIED);
}

/* A trainer that only waits needs more than it gets, but its demand is unknown. */
TEST_WITH(all_is_waiting, setup, teardown)
{
	demand = INFINITY;
	assert_true(tick_until_turned(60));
	assert_int_equal(decision()->rule, TUNER_RULE_STALL);
	assert_true(isnan(decision()->wait_expected));
	assert_true(isnan(world.result->views[0].demand));
	assert_false(tick_until_turned(300));
}
