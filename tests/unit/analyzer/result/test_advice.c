/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include <math.h>
#include <string.h>

#include "advice.h"
#include "lib/clock.h"
#include "native.h"

#define CPUS 4

/* A job of 100 s with these percents in fetch and prep; the rest is the device's. */
static struct analysis job(enum analysis_loader loader, unsigned int fetch, unsigned int prep)
{
	struct analysis analysis = {.loader = loader,
				    .method = METHOD_REPLAY,
				    .observed_ns = 100 * NS_PER_S,
				    .n_steps = 1000,
				    .n_cpus = CPUS};

	analysis.share_ns[SHARE_FETCH_STALL] = fetch * NS_PER_S;
	analysis.share_ns[SHARE_PREP_STALL] = prep * NS_PER_S;
	analysis.share_ns[SHARE_DEVICE] = (100 - fetch - prep) * NS_PER_S;
	memcpy(analysis.steady_share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.steady_ns = analysis.observed_ns;
	analysis.job_busy_ns = analysis.observed_ns;
	return analysis;
}

static const struct analysis_action *advise(struct analysis *analysis, const char *words)
{
	advice_verdict(analysis);
	advice_actions(analysis);
	for (size_t i = 0; i < analysis->n_actions; i++)
		if (strstr(analysis->actions[i].text, words))
			return &analysis->actions[i];
	return NULL;
}

/* Nothing is known of any change. */
static struct predictions no_predictions(void)
{
	const struct estimate unknown = {NAN, NAN, NAN};

	return (struct predictions){.half_prep_speedup = unknown,
				    .persistent_speedup = unknown,
				    .cache_ratio_needed = unknown,
				    .storage_factor_needed = unknown,
				    .workers_needed = unknown};
}

/* Half the computing a batch makes no job more than twice as fast, however long it waits. */
static void test_half_is_worth_two_at_most(void **state)
{
	for (unsigned int prep = 10; prep < 100; prep++) {
		struct analysis analysis = job(LOADER_WORKERS, 0, prep);
		const struct analysis_action *action = advise(&analysis, "by half");

		assert_non_null(action);
		assert_true(action->gain_max > 1 && action->gain_max <= 2);
	}
}

static void test_a_job_that_prepares_in_the_trainer(void **state)
{
	struct analysis analysis = job(LOADER_DIESEL, 0, 77);
	const struct analysis_action *action;

	analysis.own_prep_ns = 75 * NS_PER_S;
	action = advise(&analysis, "num_workers=\"auto\"");
	assert_ptr_equal(action, &analysis.actions[0]);
	/* The device's 23 s are left, and preparing on all cores. */
	assert_true(action->gain_max > 3.9 && action->gain_max <= CPUS);
	/* It sleeps for its workers. */
	analysis = job(LOADER_DIESEL, 0, 77);
	analysis.own_prep_ns = 10 * NS_PER_S;
	assert_null(advise(&analysis, "num_workers"));
	/* There is no core for them. */
	analysis = job(LOADER_DIESEL, 0, 77);
	analysis.own_prep_ns = 75 * NS_PER_S;
	analysis.n_cpus = 1;
	assert_null(advise(&analysis, "num_workers"));
}

static void test_workers_are_those_of_the_what_if(void **state)
{
	struct what_if_point points[] = {{.x = 1, .speedup = {1, 0.9, 1.1}},
					 {.x = 2, .speedup = {1.6, 1.4, 1.8}}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 60);

	predictions.curves[WHAT_IF_WORKERS] =
	    (struct what_if_curve){.points = points, .n_points = 2, .here = 1};
	analysis.predictions = &predictions;
	analysis.workers.n = analysis.workers.n_at_once = 2;
	assert_non_null(advise(&analysis, "Use 2 workers instead of 1"));
	/* More of them would not help. */
	points[1].speedup = (struct estimate){1, 0.9, 1.1};
	analysis = job(LOADER_WORKERS, 0, 60);
	analysis.predictions = &predictions;
	assert_null(advise(&analysis, "instead of"));
}

static void test_what_the_model_says_is_in_vain_is_no_advice(void **state)
{
	struct what_if_point cache = {.x = 1, .speedup = {1.001, 0.98, 1.02}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 30, 40);

	predictions.curves[WHAT_IF_CACHE] =
	    (struct what_if_curve){.points = &cache, .n_points = 1, .here = 0};
	predictions.half_prep_speedup = (struct estimate){1.01, 0.99, 1.02};
	analysis.predictions = &predictions;
	assert_null(advise(&analysis, "in memory"));
	assert_null(advise(&analysis, "Make"));
	cache.speedup = (struct estimate){1.4, 1.3, 1.5};
	analysis = job(LOADER_WORKERS, 30, 40);
	analysis.predictions = &predictions;
	assert_non_null(advise(&analysis, "memory"));
}

/* The cores of the other ranks are not idle. */
static void test_idle_cores_are_those_of_the_whole_job(void **state)
{
	struct analysis analysis = job(LOADER_WORKERS, 0, 50);

	analysis.workers.n = analysis.workers.n_at_once = 1;
	assert_non_null(advise(&analysis, "3.0 of 4 cores were idle"));
	analysis = job(LOADER_WORKERS, 0, 50);
	analysis.workers.n = analysis.workers.n_at_once = 1;
	analysis.job_busy_ns = 4 * analysis.observed_ns;
	assert_null(advise(&analysis, "were idle"));
	assert_non_null(advise(&analysis, "all cores are busy"));
}

static void test_workers_that_stay(void **state)
{
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 50);
	const struct analysis_action *action;

	predictions.persistent_speedup = (struct estimate){1.33, 1.2, 1.4};
	analysis.predictions = &predictions;
	action = advise(&analysis, "persistent_workers=True");
	assert_ptr_equal(action, &analysis.actions[0]);
	assert_true(action->gain.value == 1.33);
	predictions.persistent_speedup = (struct estimate){1.01, 1, 1.02};
	analysis = job(LOADER_WORKERS, 0, 50);
	analysis.predictions = &predictions;
	assert_null(advise(&analysis, "persistent_workers"));
}

static void test_the_part_of_images(void **state)
{
	struct profile profile = {.n_samples = 1000};
	struct estimate part;

	assert_true(isnan(native_part(NULL).value));
	assert_true(isnan(native_part(&profile).value)); /* none is not zero, and no part either */
	profile.images = (struct profile_images){.n_decode = 600, .n_codec = 400, .n_transform = 200};
	part = native_part(&profile);
	assert_float_equal(part.value, 0.8, 1e-9);
	assert_true(part.low > 0.77 && part.low < 0.8 && part.high > 0.8 && part.high < 0.83);
	/* What stays in Python may come first. */
	profile.images.n_foreign = 10;
	part = native_part(&profile);
	assert_float_equal(part.value, 0.8, 1e-9);
	assert_true(part.low < 0.6 && part.high > 0.8);
	/* Pillow, but of kinds that dieseld does not decode. */
	profile.images.n_codec = 10;
	assert_true(isnan(native_part(&profile).value));
	/* Too little to be said. */
	profile.images = (struct profile_images){.n_decode = 90, .n_codec = 90};
	assert_true(isnan(native_part(&profile).value));
	profile = (struct profile){.n_samples = 19, .images = {.n_decode = 19, .n_codec = 19}};
	assert_true(isnan(native_part(&profile).value));
	assert_float_equal(native_cost(0.8, 4), 0.4, 1e-9);
}

static void test_images_that_dieseld_could_decode(void **state)
{
	struct profile profile = {.n_samples = 1000, .images = {.n_decode = 700, .n_codec = 500}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 80);
	const struct analysis_action *action;

	/* Nobody knows what preparing does. */
	assert_null(advise(&analysis, "native"));
	analysis = job(LOADER_WORKERS, 0, 80);
	analysis.profile = &profile;
	action = advise(&analysis, "dieselctl pack");
	assert_ptr_equal(action, &analysis.actions[0]);
	assert_int_equal(action->confidence, CONFIDENCE_LOW);
	assert_true(action->gain.value == 0 && action->gain_max > 4.9 && action->gain_max < 5.1);
	/* Narrow as it is, the gain is other jobs': never sure. */
	analysis = job(LOADER_WORKERS, 0, 80);
	predictions.native.speedup = (struct estimate){3, 2.9, 3.1};
	analysis.predictions = &predictions;
	analysis.profile = &profile;
	action = advise(&analysis, "native");
	assert_true(action->gain.value == 3);
	assert_int_equal(action->confidence, CONFIDENCE_MEDIUM);
	predictions.native.speedup = (struct estimate){1.01, 0.9, 1.1};
	analysis = job(LOADER_WORKERS, 0, 80);
	analysis.predictions = &predictions;
	analysis.profile = &profile;
	assert_null(advise(&analysis, "native"));
	/* dieseld serves it, and could do more. */
	analysis = job(LOADER_DIESEL, 0, 80);
	analysis.profile = &profile;
	assert_null(advise(&analysis, "dieselctl pack"));
	analysis = job(LOADER_DIESEL, 0, 80);
	analysis.profile = &profile;
	assert_non_null(advise(&analysis, "native=False"));
	/* It does all it can. */
	analysis = job(LOADER_DIESEL, 0, 80);
	analysis.daemon_prep_ns = 60 * NS_PER_S;
	assert_non_null(advise(&analysis, "Give dieseld more cores"));
	analysis.n_actions = 0;
	assert_null(advise(&analysis, "Make preparing cheaper"));
	/* It waits for other nodes, not for storage. */
	analysis = job(LOADER_DIESEL, 40, 0);
	assert_non_null(advise(&analysis, "larger cache"));
	analysis = job(LOADER_DIESEL, 40, 0);
	analysis.peers_ns = analysis.share_ns[SHARE_FETCH_STALL];
	assert_non_null(advise(&analysis, "dieselctl cluster status"));
	analysis.n_actions = 0;
	analysis.peers_ns = analysis.share_ns[SHARE_FETCH_STALL];
	assert_null(advise(&analysis, "larger cache"));
	/* It waits for something else. */
	analysis = job(LOADER_WORKERS, 40, 2);
	analysis.profile = &profile;
	assert_null(advise(&analysis, "native"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_half_is_worth_two_at_most),
	    cmocka_unit_test(test_a_job_that_prepares_in_the_trainer),
	    cmocka_unit_test(test_workers_are_those_of_the_what_if),
	    cmocka_unit_test(test_what_the_model_says_is_in_vain_is_no_advice),
	    cmocka_unit_test(test_idle_cores_are_those_of_the_whole_job),
	    cmocka_unit_test(test_workers_that_stay),
	    cmocka_unit_test(test_the_part_of_images),
	    cmocka_unit_test(test_images_that_dieseld_could_decode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
