/* SPDX-License-Identifier: Apache-2.0 */
/* Compares replays of a recording with its unchanged replay. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "analyzer/replay/forecast.h"

#define STEPS 40
#define MS    1e6

/* The trainer prepares each batch itself, with 3 ms of reading and 5 ms of computing, and then trains for 5
 * ms. */
struct plant {
	struct model_segment segments[STEPS];
	struct model_batch batches[STEPS];
	struct model_step model_steps[STEPS];
	struct model_epoch epochs[2];
	struct analysis_step steps[STEPS];
	struct service service;
};

static struct plant *plant_new(size_t n_steps)
{
	static struct plant plant;

	memset(&plant, 0, sizeof(plant));
	for (uint64_t k = 0; k < STEPS; k++) {
		plant.segments[k] =
		    (struct model_segment){.compute_ns = 5 * MS, .latency_ns = 3 * MS, .size_bytes = 1e6};
		plant.batches[k] = (struct model_batch){k, 1};
		plant.model_steps[k] = (struct model_step){.cpu_ns = 5 * MS};
		plant.steps[k] =
		    (struct analysis_step){.begin_ns = k * 13000000, .end_ns = (k + 1) * 13000000};
	}
	plant.epochs[1].first_step = n_steps / 2;
	plant.service.job = (struct model_job){.segments = plant.segments,
					       .n_segments = STEPS,
					       .batches = plant.batches,
					       .steps = plant.model_steps,
					       .n_steps = n_steps,
					       .epochs = plant.epochs,
					       .n_epochs = n_steps > 1 ? 2 : 1,
					       .storage = {.bytes_per_s = INFINITY},
					       .cores = 8,
					       .gang = 1};
	plant.service.storage.bytes_per_s = INFINITY;
	return &plant;
}

TEST(the_warm_up_is_left_out_of_forecasts)
{
	const size_t n_warmups[] = {0, 1, 7, STEPS - 1};

	for (size_t i = 0; i < 4; i++) {
		size_t n_warmup = n_warmups[i] ? n_warmups[i] : 1; /* the first step never counts */
		struct plant *plant = plant_new(STEPS);
		struct forecast forecast;

		assert_int_equal(forecast_init(&forecast, &plant->service, plant->steps, n_warmups[i]), 0);
		assert_int_equal(forecast.first, n_warmup);
		assert_int_equal(forecast.n, STEPS - n_warmup);
		assert_float_equal(forecast.recorded_ns, (double)(STEPS - n_warmup) * 13 * MS, 1);
		assert_float_equal(forecast.replayed_ns, forecast.recorded_ns, 1000);
		assert_float_equal(forecast.error_ratio, 0, 1e-6);
		forecast_free(&forecast);
	}
}

/* If all steps are warm-up, there is nothing to compare. The same holds for a job without steps. */
TEST(no_steady_step)
{
	const size_t n_steps[] = {0, 1, 5, STEPS};

	for (size_t i = 0; i < 4; i++)
		for (size_t more = 0; more < 3; more++) {
			struct plant *plant = plant_new(n_steps[i]);
			struct forecast forecast;

			if (n_steps[i] + more == 0)
				continue;
			assert_int_equal(
			    forecast_init(&forecast, &plant->service, plant->steps, n_steps[i] + more),
			    -EINVAL);
			forecast_free(&forecast);
		}
}

TEST(a_short_job_keeps_its_first_step)
{
	struct plant *plant = plant_new(5);
	struct forecast forecast;

	assert_int_equal(forecast_init(&forecast, &plant->service, plant->steps, 0), 0);
	assert_int_equal(forecast.first, 0);
	assert_int_equal(forecast.n, 5);
	assert_int_equal(forecast.job.n_epochs, 2);
	forecast_free(&forecast);
}

static void answer(double cores_limit, double own_limit, const struct model_scenario *scenario,
		   struct forecast_point *ret_point)
{
	struct forecast_point quick;
	struct forecast forecast;

	assert_int_equal(forecast_init(&forecast, &plant_new(STEPS)->service, plant_new(STEPS)->steps, 0), 0);
	forecast.cores_limit = cores_limit;
	forecast.own_limit = own_limit;
	assert_int_equal(forecast_run(&forecast, scenario, ret_point), 0);
	assert_int_equal(forecast_quick(&forecast, scenario, &quick), 0);
	assert_float_equal(quick.speedup.value, ret_point->speedup.value, 1e-9);
	assert_float_equal(ret_point->fetch_ratio + ret_point->prep_ratio + ret_point->device_ratio, 1, 1e-9);
	assert_true(ret_point->speedup.low <= ret_point->speedup.value &&
		    ret_point->speedup.value <= ret_point->speedup.high);
	forecast_free(&forecast);
}

/* Neighbours, and other threads of the job, have cores that the replay gives to workers. */
TEST(workers_have_no_more_than_the_cores)
{
	struct model_scenario scenario = model_scenario_recorded();
	struct forecast_point point;

	scenario.n_workers = 4;
	answer(INFINITY, INFINITY, &scenario, &point);
	assert_true(point.speedup.value > 2 && !point.limited);
	answer(1.2, 1.5, &scenario, &point);
	assert_float_equal(point.speedup.value, 1.2, 1e-9);
	assert_true(point.limited && point.prep_ratio > 0.4);
	scenario.cores = 9; /* of its own: 9 / 8 of those it had */
	answer(1, 1.2, &scenario, &point);
	assert_float_equal(point.speedup.value, 1.35, 1e-9);
	/* Half of the work is to compute batches. */
	scenario = model_scenario_recorded();
	scenario.n_workers = 4;
	scenario.prep_cost = 0;
	answer(1, 1, &scenario, &point);
	assert_float_equal(point.speedup.value, 2, 1e-9);
	/* Without more workers the replay has seen the waits for cores itself. */
	scenario = model_scenario_recorded();
	scenario.device_speed = 2;
	answer(1, 1, &scenario, &point);
	assert_true(point.speedup.value > 1.2 && !point.limited);
}

/* The replay leaves out the time in which steps compiled, since later steps will not compile again. */
TEST(compiling_is_left_out)
{
	struct plant *plant = plant_new(STEPS);
	struct forecast forecast;

	for (size_t k = 20; k < STEPS; k++) {
		plant->steps[k].begin_ns += (k - 20) * 100000000;
		plant->steps[k].end_ns += (k - 19) * 100000000;
		plant->steps[k].share_ns[SHARE_COMPILING] = 100000000;
		plant->model_steps[k].fixed_ns = 100 * MS;
	}
	assert_int_equal(forecast_init(&forecast, &plant->service, plant->steps, 0), 0);
	assert_float_equal(forecast.recorded_ns, (STEPS - 1) * 13 * MS, 1);
	assert_float_equal(forecast.error_ratio, 0, 1e-6);
	forecast_free(&forecast);
}

/* Without workers the recording does not show how cores slow each other down. */
TEST(first_workers_may_slow_each_other_down)
{
	struct model_scenario scenario = model_scenario_recorded();
	struct plant *plant = plant_new(STEPS);
	struct forecast forecast;
	struct forecast_point point;

	plant->service.job.cores = 2;
	for (size_t k = 0; k < STEPS; k++)
		plant->segments[k].latency_ns = 0;
	assert_int_equal(forecast_init(&forecast, &plant->service, plant->steps, 1), 0);
	scenario.n_workers = 2;
	assert_int_equal(forecast_run(&forecast, &scenario, &point), 0);
	double kept = 1 - forecast.error_ratio;
	assert_true(point.speedup.value > 1.4 && point.speedup.value < 1.7);
	assert_true(point.speedup.low < 0.9 * kept * point.speedup.value);
	assert_true(point.speedup.high > 1.1 * point.speedup.value);
	forecast_free(&forecast);
}

/* A model of the server that explains the recording is used, with saved-up bandwidth if necessary. Without
 * such a model, the recorded latencies stay. */
TEST(a_server_s_rate_is_taken_where_it_explains_the_steps)
{
	struct plant *plant = plant_new(STEPS);
	struct forecast forecast;

	plant->service.storage = (struct model_storage){.bytes_per_s = 1e9 / 3};
	assert_int_equal(forecast_init(&forecast, &plant->service, plant->steps, 0), 0);
	assert_ptr_equal(forecast.job.segments, forecast.segments);
	assert_true(forecast.job.storage.drained);
	assert_true(forecast.error_ratio < 0.01);
	forecast_free(&forecast);
	plant->service.storage.bytes_per_s = 1e9 / 9;
	assert_int_equal(forecast_init(&forecast, &plant->service, plant->steps, 0), 0);
	assert_ptr_equal(forecast.job.segments, plant->segments);
	assert_float_equal(forecast.error_ratio, 0, 1e-6);
	forecast_free(&forecast);
}
