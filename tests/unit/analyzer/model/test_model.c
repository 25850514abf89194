/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "analyzer/model.h"

#define MS      1e6
#define N_STEPS 400
#define SAMPLES 4 /* of a batch, one segment each */

/* A job of equal batches and steps, whose times are known by arithmetic. */
struct plant {
	struct model_segment segments[N_STEPS * SAMPLES];
	struct model_batch batches[N_STEPS];
	struct model_step steps[N_STEPS];
	struct model_epoch epoch;
	struct model_job job;
};

static struct plant *plant_setup(uint32_t n_workers)
{
	static struct plant plant;

	memset(&plant, 0, sizeof(plant));
	for (size_t k = 0; k < N_STEPS; k++)
		plant.batches[k] = (struct model_batch){k * SAMPLES, SAMPLES};
	plant.job = (struct model_job){
	    .segments = plant.segments,
	    .n_segments = N_STEPS * SAMPLES,
	    .batches = plant.batches,
	    .steps = plant.steps,
	    .n_steps = N_STEPS,
	    .epochs = &plant.epoch,
	    .n_epochs = 1,
	    .loader = {.n_workers = n_workers, .prefetch = 2},
	    .storage = {.bytes_per_s = INFINITY},
	    .cores = 8,
	    .gang = 1,
	};
	return &plant;
}

static void plant_batch(struct plant *plant, double compute_ns, double latency_ns, double bytes)
{
	for (size_t i = 0; i < N_STEPS * SAMPLES; i++)
		plant->segments[i] = (struct model_segment){.compute_ns = compute_ns / SAMPLES,
							    .latency_ns = latency_ns / SAMPLES,
							    .bytes = bytes / SAMPLES,
							    .size_bytes = bytes / SAMPLES};
}

static void plant_step(struct plant *plant, double cpu_ns, double sleep_ns)
{
	for (size_t k = 0; k < N_STEPS; k++)
		plant->steps[k] = (struct model_step){.cpu_ns = cpu_ns, .sleep_ns = sleep_ns};
}

static struct model_outcome replay(const struct plant *plant, const struct model_scenario *scenario)
{
	struct model_scenario recorded = model_scenario_recorded();
	struct model_outcome outcome;

	assert_int_equal(model_replay(&plant->job, scenario ? scenario : &recorded, NULL, NULL, &outcome), 0);
	return outcome;
}

/* The pipeline fills at its start, for the time of a few of the 400 steps. */
static void check_step(const struct plant *plant, const struct model_scenario *scenario, double step_ns)
{
	double found_ns = replay(plant, scenario).wall_ns / N_STEPS;

	if (fabs(found_ns / step_ns - 1) > 0.03)
		fail_msg("a step takes %.3f ms, expected %.3f ms", found_ns / MS, step_ns / MS);
}

/* A batch takes several cores, as a tokenizer's threads do, so more workers do not get more cores. */
TEST(batches_that_take_several_cores)
{
	struct plant *plant = plant_setup(2);
	struct model_scenario scenario = model_scenario_recorded();

	plant->job.cores = 2;
	plant_batch(plant, 10 * MS, 0, 0);
	plant_step(plant, 1 * MS, 1 * MS);
	for (size_t i = 0; i < N_STEPS * SAMPLES; i++)
		plant->segments[i].width = 2;
	check_step(plant, NULL, 10.5 * MS);
	scenario.n_workers = 4;
	check_step(plant, &scenario, 10.5 * MS);
	/* With more cores, more workers help. */
	plant->job.cores = 16;
	check_step(plant, &scenario, 2.5 * MS);
	/* The trainer makes the batches itself, with all cores. One worker would use one thread. */
	scenario.sharing_ratio = 0;
	plant = plant_setup(0);
	plant->job.cores = 2;
	plant_batch(plant, 10 * MS, 0, 0);
	plant_step(plant, 10 * MS, 0);
	plant->job.gang = 2;
	check_step(plant, NULL, 20 * MS);
	for (size_t i = 0; i < N_STEPS * SAMPLES; i++)
		plant->segments[i].width = 2;
	check_step(plant, NULL, 20 * MS);
	for (uint32_t n = 1; n <= 4; n++) {
		scenario.n_workers = n;
		check_step(plant, &scenario,
			   n == 1 ? 25 * MS : 20 * MS); /* one worker leaves a core idle at times */
	}
}

TEST(rates_follow_the_formulas)
{
	assert_true(model_fetch_rate(0, 100, 1000, 10) == 0.1);
	assert_true(model_fetch_rate(1, 100, 1000, 10) == 10);
	assert_true(fabs(model_fetch_rate(0.5, 100, 1000, 10) - 1 / 5.05) < 1e-9);
	assert_true(isinf(model_fetch_rate(0.5, 0, 1000, 10)));
	assert_true(model_prep_rate(4, 8, 0.1) == 40);
	assert_true(model_prep_rate(4, 2, 0.1) == 20);
	assert_true(model_prep_rate(0, 2, 0.1) == 10);
	assert_true(model_speed(3, 2, 5) == 2);
	assert_int_equal(model_bound_of(3, 4, 2), MODEL_DEVICE_BOUND);
	assert_int_equal(model_bound_of(3, 4, 5), MODEL_FETCH_BOUND);
	assert_int_equal(model_bound_of(4, 3, 5), MODEL_PREP_BOUND);
	/* The needed cache and workers are enough, and slightly less is not. */
	for (int i = 0; i < 27; i++) {
		double rate = 0.11 + 0.37 * i;
		double x = model_cache_needed(100, 1000, 10, rate);

		assert_true(model_fetch_rate(x, 100, 1000, 10) >= rate * 0.999999);
		assert_true(model_fetch_rate(x - 0.01, 100, 1000, 10) < rate);
	}
	assert_true(isnan(model_cache_needed(100, 1000, 10, 11)));
	assert_true(model_cache_needed(100, 1000, 10, 0.1) == 0);
	assert_int_equal(model_workers_needed(0.1, 30), 3);
	assert_int_equal(model_workers_needed(0.1, 31), 4);
	assert_int_equal(model_workers_needed(0, 31), 1);
	assert_int_equal(model_prefetch_depth(0.1, 1000, 50), 3);
	assert_int_equal(model_prefetch_depth(0.1, 1000, 0), 1);
}

TEST(memory_covers_a_part_of_the_decoded_decoded)
{
	double all = model_decoded_memory(1000, 300e3);

	assert_true(all > 300e6 && all < 350e6);
	assert_float_equal(model_decoded_cover(all / 4, all), 0.25, 1e-12);
	assert_float_equal(model_decoded_cover(all * 2, all), 1, 0);
	assert_float_equal(model_decoded_cover(1e9, 0), 0, 0);
	assert_float_equal(model_decoded_cpu(2e-3, 1e-3, 0), 2e-3, 1e-12);
	assert_float_equal(model_decoded_cpu(2e-3, 1e-3, 0.25), 1.75e-3, 1e-12);
	assert_float_equal(model_decoded_cpu(2e-3, 1e-3, 7), 1e-3, 1e-12);
}

TEST(latency_of_each_reader_is_its_own)
{
	for (uint32_t w = 1; w <= 8; w *= 2) {
		struct plant *plant = plant_setup(w);

		plant_batch(plant, 0, 80 * MS, 0);
		plant_step(plant, 0, 2 * MS);
		check_step(plant, NULL, fmax(80 * MS / w, 2 * MS));
		plant_step(plant, 0, 50 * MS);
		check_step(plant, NULL, fmax(80 * MS / w, 50 * MS));
	}
}

TEST(bandwidth_is_shared)
{
	for (uint32_t w = 1; w <= 8; w *= 2) {
		struct plant *plant = plant_setup(w);
		struct model_scenario faster = model_scenario_recorded();

		plant->job.storage.bytes_per_s = 1e6;
		plant_batch(plant, 0, 0, 40000); /* 40 ms */
		plant_step(plant, 0, 2 * MS);
		check_step(plant, NULL, 40 * MS);
		faster.storage_speed = 2;
		check_step(plant, &faster, 20 * MS);
	}
}

TEST(cores_are_shared)
{
	for (uint32_t w = 1; w <= 8; w *= 2)
		for (uint32_t cores = 1; cores <= 4; cores++) {
			struct plant *plant = plant_setup(w);

			plant->job.cores = cores;
			plant_batch(plant, 60 * MS, 0, 0);
			plant_step(plant, 0, 1 * MS);
			check_step(plant, NULL, 60 * MS / fmin(w, cores));
		}
}

TEST(trainer_shares_cores_with_workers)
{
	struct plant *plant = plant_setup(2);

	/* With one core, all work runs one after the other. */
	plant->job.cores = 1;
	plant_batch(plant, 30 * MS, 0, 0);
	plant_step(plant, 10 * MS, 0);
	check_step(plant, NULL, 40 * MS);
	assert_true(replay(plant, NULL).starved_ns > 0);
	/* With two cores, both the trainer and the loader use both. */
	plant->job.cores = plant->job.gang = 2;
	check_step(plant, NULL, (30 + 2 * 10) * MS / 2);
}

TEST(busy_neighbours_slow_a_core_down)
{
	struct plant *plant = plant_setup(2);

	plant->job.cores = 2;
	plant->job.sharing_ratio = 0.5;
	plant_batch(plant, 60 * MS, 0, 0);
	plant_step(plant, 0, 1 * MS);
	check_step(plant, NULL, 60 * MS * 1.5 / 2);
}

TEST(inline_adds_up)
{
	struct plant *plant = plant_setup(0);
	struct model_scenario scenario = model_scenario_recorded();

	plant_batch(plant, 10 * MS, 20 * MS, 0);
	plant_step(plant, 30 * MS, 0);
	check_step(plant, NULL, 60 * MS);
	scenario.fetch_free = true;
	check_step(plant, &scenario, 40 * MS);
	scenario = model_scenario_recorded();
	scenario.device_speed = 3;
	check_step(plant, &scenario, 40 * MS);
	/* If all is loaded in the background, all of it overlaps. */
	scenario = model_scenario_recorded();
	scenario.n_workers = 1;
	check_step(plant, &scenario, 30 * MS);
}

TEST(fetch_free_leaves_preparing)
{
	struct plant *plant = plant_setup(2);
	struct model_scenario scenario = model_scenario_recorded();

	plant_batch(plant, 40 * MS, 100 * MS, 0);
	plant_step(plant, 0, 10 * MS);
	check_step(plant, NULL, 70 * MS);
	scenario.fetch_free = true;
	check_step(plant, &scenario, 20 * MS);
	scenario = model_scenario_recorded();
	scenario.cached_ratio = 0.5;
	check_step(plant, &scenario, 45 * MS);
}

TEST(handing_over_waits_for_the_interpreter)
{
	struct plant *plant = plant_setup(1);

	plant->job.loader.handover_idle_ns = 1 * MS;
	plant->job.loader.handover_busy_ns = 10 * MS;
	plant_batch(plant, 30 * MS, 0, 0);
	plant_step(plant, 0, 35 * MS);
	check_step(plant, NULL, 36 * MS); /* its worker has finished ahead, and is idle */
	plant_batch(plant, 0, 30 * MS, 0);
	plant_step(plant, 0, 20 * MS);
	check_step(plant, NULL, 30 * MS); /* the lock is free during reads, and the hand-over overlaps */
}

TEST(each_epoch_starts_with_empty_queues)
{
	struct plant *plant = plant_setup(2);
	struct model_epoch epochs[4];

	plant_batch(plant, 0, 20 * MS, 0);
	plant_step(plant, 0, 15 * MS);
	for (size_t i = 0; i < 4; i++)
		epochs[i] = (struct model_epoch){.first_step = i * N_STEPS / 4, .start_ns = 1000 * MS};
	plant->job.epochs = epochs;
	plant->job.n_epochs = 4;
	check_step(plant, NULL, 15 * MS + 4 * (1000 + 20) * MS / N_STEPS);
}

TEST(bursts_are_free)
{
	struct plant *plant = plant_setup(0);

	/* A step uses 10 ms of bandwidth, which is saved up while the trainer computes for 20 ms. */
	plant->job.storage = (struct model_storage){.bytes_per_s = 1e6, .burst_ns = 100 * MS};
	plant_batch(plant, 0, 0, 10000);
	plant_step(plant, 20 * MS, 0);
	check_step(plant, NULL, 20 * MS);
	plant_step(plant, 4 * MS, 0);
	check_step(plant, NULL, 10 * MS);
}

/* In uneven jobs, more of a resource never costs time. */
TEST(more_is_not_slower)
{
	uint32_t seed = 7;

	for (uint32_t w = 0; w <= 4; w++) {
		struct plant *plant = plant_setup(w);
		double last_cache = INFINITY, last_storage = INFINITY, last_device = INFINITY;

		plant->job.cores = 16; /* sharing cores may reorder work; without sharing, the order stays */
		for (size_t i = 0; i < N_STEPS * SAMPLES; i++) {
			seed = seed * 1664525 + 1013904223;
			plant->segments[i] = (struct model_segment){.compute_ns = seed % 7 * MS,
								    .latency_ns = seed / 7 % 11 * MS};
		}
		plant_step(plant, 5 * MS, 3 * MS);
		for (int tenth = 0; tenth <= 10; tenth++) {
			double x = tenth / 10.0;
			struct model_scenario scenario = model_scenario_recorded();
			double ns;

			scenario.cached_ratio = x;
			ns = replay(plant, &scenario).wall_ns;
			assert_true(ns <= last_cache * 1.000001);
			last_cache = ns;
			scenario = model_scenario_recorded();
			scenario.storage_speed = 0.5 + 3 * x;
			ns = replay(plant, &scenario).wall_ns;
			assert_true(ns <= last_storage * 1.000001);
			last_storage = ns;
			scenario = model_scenario_recorded();
			scenario.device_speed = 0.5 + 3 * x;
			ns = replay(plant, &scenario).wall_ns;
			assert_true(ns <= last_device * 1.000001);
			last_device = ns;
		}
	}
}

TEST(parts_sum_to_the_whole)
{
	struct plant *plant = plant_setup(3);
	struct model_scenario recorded = model_scenario_recorded();
	double step_ns[N_STEPS], wait_ns[N_STEPS], steps_ns = 0, waits_ns = 0;
	struct model_outcome outcome;

	plant->job.cores = 2;
	plant_batch(plant, 30 * MS, 20 * MS, 0);
	plant_step(plant, 7 * MS, 5 * MS);
	assert_int_equal(model_replay(&plant->job, &recorded, step_ns, wait_ns, &outcome), 0);
	for (size_t k = 0; k < N_STEPS; k++) {
		assert_true(wait_ns[k] >= 0 && wait_ns[k] <= step_ns[k] + 1);
		steps_ns += step_ns[k];
		waits_ns += wait_ns[k];
	}
	assert_true(fabs(steps_ns - outcome.wall_ns) < 1000);
	assert_true(fabs(waits_ns - outcome.wait_ns) < 1000);
	assert_true(fabs(outcome.wait_ns + outcome.device_ns - outcome.wall_ns) < 1000);
}

/* Simulates readers at a server, each with its own pause between requests, for the model to fit. */
static void serve(const struct model_storage *truth, size_t n_readers, double bytes, double pause_ns,
		  struct model_request *requests, size_t n)
{
	double memory = -INFINITY, ready_ns[8] = {0};
	uint32_t seed = 3;

	for (size_t i = 0; i < n; i++) {
		size_t first = 0;

		for (size_t w = 1; w < n_readers; w++)
			if (ready_ns[w] < ready_ns[first])
				first = w;
		seed = seed * 1664525 + 1013904223;
		requests[i] = (struct model_request){.at_ns = ready_ns[first],
						     .bytes = bytes * (0.5 + (seed >> 16) % 1000 / 1000.0),
						     .reader = (uint32_t)first};
		requests[i].wait_ns =
		    truth->latency_ns +
		    model_storage_wait(truth, &memory, requests[i].at_ns, requests[i].bytes);
		ready_ns[first] += requests[i].wait_ns;
		/* A reader pauses now and then. */
		if (i % 16 == 15)
			ready_ns[first] += pause_ns;
	}
}

TEST(storage_is_found_again)
{
	static struct model_request requests[2000];
	const struct model_storage shared = {.bytes_per_s = 8e6, .burst_ns = 100 * MS, .latency_ns = MS / 2};
	const struct model_storage excluded = {.bytes_per_s = INFINITY, .latency_ns = 20 * MS};
	struct model_storage found;

	for (size_t n_readers = 1; n_readers <= 3; n_readers++) {
		serve(&shared, n_readers, 50000, 60 * MS, requests, 2000);
		assert_int_equal(model_storage_fit(requests, 2000, &found), 0);
		assert_true(fabs(found.bytes_per_s / shared.bytes_per_s - 1) < 0.05);
	}
	serve(&excluded, 3, 50000, 30 * MS, requests, 2000);
	assert_int_equal(model_storage_fit(requests, 2000, &found), 0);
	assert_true(isinf(found.bytes_per_s));
	assert_int_equal(model_storage_fit(requests, 0, &found), 0);
	assert_true(isinf(found.bytes_per_s));
}

TEST(damage_is_refused)
{
	struct plant *plant = plant_setup(2);
	struct model_scenario scenario = model_scenario_recorded();
	struct model_outcome outcome;

	plant_batch(plant, 30 * MS, 0, 0);
	plant->batches[5].n_segments = SIZE_MAX;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	plant->batches[5].n_segments = SAMPLES;
	plant->segments[3].compute_ns = NAN;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	plant->segments[3].compute_ns = -1;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	plant->segments[3].compute_ns = 1e300;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	plant->segments[3].compute_ns = 1;
	plant->epoch.first_step = 1;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	plant->epoch.first_step = 0;
	scenario.storage_speed = 0;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	scenario = model_scenario_recorded();
	scenario.n_workers = MODEL_WORKERS_MAX + 1;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), -EINVAL);
	scenario.n_workers = MODEL_WORKERS_MAX;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), 0);
	/* A job without work takes no time, and ends. */
	plant_batch(plant, 0, 0, 0);
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &outcome), 0);
	assert_true(outcome.wall_ns == 0);
}

/* The trainer needs a core for 4 ms of each step, and two workers 10 ms each per batch. */
TEST(a_scenario_gives_other_cores)
{
	struct plant *plant = plant_setup(2);
	struct model_scenario scenario = model_scenario_recorded();

	plant_batch(plant, 10 * MS, 0, 0);
	plant_step(plant, 4 * MS, 0);
	check_step(plant, NULL, 5 * MS);
	scenario.cores = 1;
	check_step(plant, &scenario, 14 * MS);
	scenario.cores = 2;
	check_step(plant, &scenario, 7 * MS);
	scenario.cores = 64;
	check_step(plant, &scenario, 5 * MS);
	/* More than recorded: the job was held up by its two cores. */
	plant->job.cores = 2;
	check_step(plant, NULL, 7 * MS);
	scenario.cores = 4;
	check_step(plant, &scenario, 5 * MS);
	scenario.cores = 0;
	assert_int_equal(model_replay(&plant->job, &scenario, NULL, NULL, &(struct model_outcome){0}),
			 -EINVAL);
}

/* A part of a core is a quota of CPU time, which does not slow down a thread that stays below it. */
TEST(parts_of_a_core_are_a_quota)
{
	struct plant *plant = plant_setup(0);
	struct model_scenario scenario = model_scenario_recorded();

	plant_batch(plant, 0, 0, 0);
	plant_step(plant, 10 * MS, 40 * MS);
	scenario.cores = 0.5;
	check_step(plant, &scenario, 50 * MS);
	scenario.cores = 0.1; /* 10 ms per 100 ms */
	check_step(plant, &scenario, 100 * MS);
	plant = plant_setup(4);
	plant_batch(plant, 10 * MS, 0, 0);
	plant_step(plant, 2 * MS, 0);
	scenario.cores = 1.5;
	check_step(plant, &scenario, 8 * MS);
	scenario.cores = 0.5;
	check_step(plant, &scenario, 24 * MS);
}
