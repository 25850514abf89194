/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded forms: who gets memory for them, what is expected of it, and when it is given up. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/tuner.h"

#define SECOND    1000000000ull
#define SAMPLES   10000.0
#define FORM_SIZE 560e3
#define FRESH_S   2e-3
#define FORM_S    0.7e-3
#define DEMAND    4000.0

/* A job whose images the daemon decodes, on two cores: 1,000 samples/s of the 4,000 that it asks for. */
static struct tuner_config config;
static struct tuner_state *state;
static struct tuner_result *result;
static struct stall_node node;
static struct stall_sample sample;
static uint64_t now_ns;
static double cover;   /* the part of the samples that come out of a form */
static double helps_s; /* what that saves a sample */

static int setup(void **unused)
{
	(void)unused;
	config = tuner_config_default();
	config.cache_bytes_max = 8000000000;
	config.workers_max = 4;
	config.daemon_workers_max = 2;
	state = calloc(1, tuner_state_bytes());
	result = calloc(1, sizeof(*result));
	node = stall_node_unknown();
	node.memory_limit_bytes = 32e9;
	node.memory_headroom_bytes = 16e9;
	node.memory_some_avg10 = 0;
	node.cores = 2;
	node.cores_idle = 0;
	now_ns = 1000 * SECOND;
	cover = 0;
	helps_s = FRESH_S - FORM_S;
	sample = stall_sample_unknown();
	sample.job = sample.dataset = 1;
	sample.covered_s = 1;
	sample.source = STALL_SOURCE_CLIENT;
	sample.shares.fetch_stall = 0;
	sample.chunk_latency_s = sample.chunk_latency_p95_s = 0.002;
	sample.storage_bytes_per_s = 4e9;
	sample.reads_in_flight = 1;
	sample.reading_ratio = 0.1;
	sample.memory_hit_ratio = 0.9;
	sample.chunk_bytes = 10e6;
	sample.samples_per_chunk = 100;
	sample.window_chunks = 8;
	sample.ready_samples = 512;
	sample.client_cpu_s_per_sample = 0;
	sample.dataset_bytes = SAMPLES * 100e3;
	sample.cached_bytes = 0;
	sample.need_bytes = 200e6;
	sample.decoded_samples = SAMPLES;
	sample.form_samples = sample.form_bytes = 0;
	sample.form_room_bytes = 3e9;
	sample.fresh_cpu_s_per_sample = FRESH_S;
	sample.tunable = ((1u << TUNER_N_KNOBS) - 1) & ~(1u << TUNER_CLIENT_WORKERS);
	sample.knobs = (struct tuner_knobs){.value = {400000000, 2, 2, 0, 0}};
	return state && result ? 0 : -1;
}

static int teardown(void **unused)
{
	(void)unused;
	free(state);
	free(result);
	return 0;
}

static const struct tuner_decision *decision(void)
{
	for (size_t i = 0; i < result->n_decisions; i++)
		if (result->decisions[i].knob == TUNER_FORM_BYTES)
			return &result->decisions[i];
	return NULL;
}

static const struct tuner_verdict *verdict(void)
{
	for (size_t i = 0; i < result->n_verdicts; i++)
		if (result->verdicts[i].knob == TUNER_FORM_BYTES)
			return &result->verdicts[i];
	return NULL;
}

/* One second. Forms are made within ten, once there is memory for them, and used in the next ten. */
static void tick(void)
{
	double most = (double)sample.knobs.value[TUNER_FORM_BYTES] / (SAMPLES * FORM_SIZE), cpu_s;

	most = most > 1 ? 1 : most;
	cover = most > 0 ? fmin(cover + most / 20, most) : 0;
	sample.form_hit_ratio = cover;
	sample.form_samples = most * SAMPLES;
	sample.form_bytes = sample.form_samples * FORM_SIZE;
	if (most > 0) {
		sample.form_sample_bytes = FORM_SIZE;
		sample.form_cpu_s_per_sample = FORM_S;
	}
	cpu_s = FRESH_S - cover * helps_s;
	sample.daemon_cpu_s_per_sample = cpu_s;
	sample.daemon_workers_busy = 2;
	sample.samples_per_s = fmin(2 / cpu_s, DEMAND);
	sample.shares.prep_stall = 1 - sample.samples_per_s / DEMAND;
	sample.device_rate = DEMAND;
	now_ns += SECOND;
	sample.at_ns = now_ns;
	tuner_decide(&config, state, &node, &sample, 1, now_ns, result);
	for (size_t i = 0; i < result->n_decisions; i++) {
		const struct tuner_decision *d = &result->decisions[i];

		assert_true(d->reason[0]);
		sample.knobs.value[d->knob] = d->new_value;
	}
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

static void test_taken_and_verified(void **unused)
{
	const struct tuner_verdict *found = NULL;

	(void)unused;
	assert_true(tick_until_turned(60));
	assert_int_equal(decision()->rule, TUNER_RULE_STALL);
	assert_true(decision()->new_value > 2900000000 && decision()->new_value <= 3000000000);
	/* Before there is a form, its size and what it saves are guesses. */
	assert_non_null(strstr(decision()->reason, "decoding takes 2000 us a sample; room for"));
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
	assert_false(tick_until_turned(300)); /* and kept */
}

static void test_what_does_not_help_is_given_up(void **unused)
{
	(void)unused;
	helps_s = 0;
	assert_true(tick_until_turned(60));
	assert_true(tick_until_turned(120));
	assert_int_equal(decision()->rule, TUNER_RULE_UNDO);
	assert_int_equal(decision()->new_value, 0);
	assert_non_null(strstr(decision()->reason, "did not help"));
	assert_false(tick_until_turned(50)); /* nor tried again at once */
}

static void test_all_that_there_is_to_have(void **unused)
{
	(void)unused;
	sample.form_room_bytes = 30e9;
	sample.form_sample_bytes = 100e3; /* known: it is what comes out */
	assert_true(tick_until_turned(60));
	assert_true(decision()->new_value > 1000000000 && decision()->new_value < 1200000000);
	assert_null(strstr(decision()->reason, "guessed"));
}

/* Each of these alone is enough of a reason. */
static void test_not_taken(void **unused)
{
	(void)unused;
	for (int i = 0; i < 6; i++) {
		teardown(NULL);
		setup(NULL);
		switch (i) {
		case 0: sample.decoded_samples = NAN; break;        /* served as stored */
		case 1: sample.fresh_cpu_s_per_sample = NAN; break; /* nothing was decoded yet */
		case 2: sample.form_room_bytes = 1e6; break;        /* no room */
		case 3: sample.tunable &= ~(1u << TUNER_FORM_BYTES); break;
		case 4: config.form_bytes_max = 0; break;
		case 5:
			config.pins[config.n_pins++] =
			    (struct tuner_pin){.knob = TUNER_FORM_BYTES, .value = 0};
			break;
		}
		assert_false(tick_until_turned(100));
	}
}

static void test_pressure(void **unused)
{
	(void)unused;
	assert_true(tick_until_turned(60));
	for (int i = 0; i < 60; i++)
		tick();
	node.memory_some_avg10 = 15;
	node.memory_headroom_bytes = 100e6;
	assert_true(tick_until_turned(2));
	assert_int_equal(decision()->rule, TUNER_RULE_PRESSURE);
	assert_int_equal(decision()->new_value, 0);
	node.memory_some_avg10 = 0;
	node.memory_headroom_bytes = 16e9;
	assert_false(tick_until_turned(40));
	assert_true(tick_until_turned(120)); /* but in the end */
	assert_int_equal(decision()->rule, TUNER_RULE_STALL);
}

/* Stored chunks are to have the room: what is claimed for them is not the forms'. */
static void test_less_room(void **unused)
{
	(void)unused;
	assert_true(tick_until_turned(60));
	for (int i = 0; i < 60; i++)
		tick();
	sample.form_room_bytes = 1e9;
	assert_true(tick_until_turned(10));
	assert_int_equal(decision()->rule, TUNER_RULE_SHARE);
	/* In steps: one second's figure is not believed at once. */
	for (int i = 0; i < 20; i++)
		tick();
	assert_int_equal(sample.knobs.value[TUNER_FORM_BYTES], 1000000000);
	assert_false(tick_until_turned(60));
}

static void test_pinned(void **unused)
{
	(void)unused;
	config.pins[config.n_pins++] = (struct tuner_pin){.knob = TUNER_FORM_BYTES, .value = 123456789};
	assert_true(tick_until_turned(2));
	assert_int_equal(decision()->rule, TUNER_RULE_PIN);
	assert_int_equal(decision()->new_value, 123456789);
	assert_false(tick_until_turned(100));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_taken_and_verified),
	    TEST(test_what_does_not_help_is_given_up),
	    TEST(test_all_that_there_is_to_have),
	    TEST(test_not_taken),
	    TEST(test_pressure),
	    TEST(test_less_room),
	    TEST(test_pinned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
