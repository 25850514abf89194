/* SPDX-License-Identifier: Apache-2.0 */
/* Splits each data wait into fetching and the rest. */
#include "tests/unit/analyzer/scene.h"

#include <math.h>
#include <stdlib.h>

#include "analyzer/replay/measure.h"
#include "analyzer/replay/split.h"

static struct script s; /* too large for the stack */

#define STEPS 40
#define MS    1e6

enum { LOADER = 102 };

/* Ten steps of 1000 ticks, each with a wait for its first 400. The window is steps 2 to 7. */
struct stage {
	struct scene scene;
	struct data_wait items[10];
	struct data_waits waits;
	struct window window, run;
	struct service service;
	struct split split;
};

static struct stage *stage_new(enum analysis_loader loader)
{
	static struct stage stage;

	memset(&stage, 0, sizeof(stage));
	stage.waits = (struct data_waits){.loader = loader, .items = stage.items, .n = 10};
	for (uint64_t i = 0; i < 10; i++)
		stage.items[i] = (struct data_wait){.begin_ns = at(1000 * i), .end_ns = at(1000 * i + 400)};
	stage.window = (struct window){.begin_ns = at(2000), .end_ns = at(8000), .observed_ns = 1};
	stage.run = stage.window;
	stage.service.why_not = "nothing to replay";
	stage.split.fetch_ns = calloc(11, sizeof(*stage.split.fetch_ns));
	assert_non_null(stage.split.fetch_ns);
	script_begin(&s);
	return &stage;
}

static void stage_split(struct stage *stage)
{
	const struct study study = {.timeline = (stage->scene = scene_of(&s)).timeline,
				    .roles = &stage->scene.roles,
				    .waits = &stage->waits,
				    .window = &stage->window,
				    .run = &stage->run,
				    .service = &stage->service};
	uint64_t tally_ns = 0, window_ns = 0;

	assert_int_equal(split_waits(&study, &stage->split), 0);
	for (size_t i = 0; i < stage->split.tally.n; i++)
		tally_ns += stage->split.tally.items[i].ns;
	/* The tally covers the waits in the window, whatever the method. */
	for (size_t i = 2; i < 8 && i < stage->waits.n; i++)
		window_ns += stage->items[i].end_ns - stage->items[i].begin_ns;
	assert_int_equal(tally_ns, window_ns);
	for (size_t i = 0; i < stage->waits.n; i++)
		assert_true(stage->split.fetch_ns[i] <= stage->items[i].end_ns - stage->items[i].begin_ns);
}

static void stage_free(struct stage *stage)
{
	interval_list_free(&stage->waits.file_calls);
	split_free(&stage->split);
	scene_free(&stage->scene);
}

TEST(without_waits_nothing_is_split)
{
	struct stage *stage = stage_new(LOADER_NONE);

	stage->waits.n = 0;
	script_exit(&s, TRAINER, 10000);
	stage_split(stage);
	assert_int_equal(stage->split.method, METHOD_NONE);
	stage_free(stage);
}

/* The trainer's own file calls are fetch, cut at the ends of the wait. */
TEST(own_file_calls_are_fetch)
{
	struct stage *stage = stage_new(LOADER_INLINE);

	for (uint64_t i = 0; i < 10; i++) {
		interval_list_add(&stage->waits.file_calls, at(1000 * i - 50 * (i > 0)), at(1000 * i + 100));
		interval_list_add(&stage->waits.file_calls, at(1000 * i + 200), at(1000 * i + 200 + 30 * i));
		interval_list_add(&stage->waits.file_calls, at(1000 * i + 600), at(1000 * i + 700));
	}
	interval_list_tidy(&stage->waits.file_calls);
	script_exit(&s, TRAINER, 10000);
	stage_split(stage);
	assert_int_equal(stage->split.method, METHOD_WALK);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(stage->split.fetch_ns[i] / TICK_NS, 100 + (i < 7 ? 30 * i : 200));
	stage_free(stage);
}

/* Fetch is the time from each MARK_WAIT_BEGIN of libdiesel to its end, if the wait was for chunks. */
TEST(libdiesel_s_marks_say_what_is_fetch)
{
	struct stage *stage = stage_new(LOADER_DIESEL);

	script_mark(&s, TRAINER, 5, MARK_WAIT_END, MARK_CAUSE_FETCH); /* began before the recording */
	script_mark(&s, TRAINER, 3010, MARK_WAIT_BEGIN, 0);
	script_mark(&s, TRAINER, 3110, MARK_WAIT_END, MARK_CAUSE_FETCH);
	script_mark(&s, TRAINER, 3120, MARK_WAIT_END, MARK_CAUSE_FETCH);
	script_mark(&s, TRAINER, 3200, MARK_WAIT_BEGIN, 0);
	script_mark(&s, TRAINER, 3300, MARK_WAIT_END, MARK_CAUSE_PREP);
	script_mark(&s, TRAINER, 3310, MARK_WAIT_END, MARK_CAUSE_FETCH);
	script_mark(&s, TRAINER, 4390, MARK_WAIT_BEGIN, 0);
	script_mark(&s, TRAINER, 5020, MARK_WAIT_END, MARK_CAUSE_PEERS);
	script_mark(&s, TRAINER, 6000, MARK_WAIT_BEGIN, 0); /* lost */
	script_mark(&s, TRAINER, 6100, MARK_WAIT_BEGIN, 0);
	script_mark(&s, TRAINER, 6130, MARK_WAIT_END, MARK_CAUSE_STAGING);
	script_mark(&s, TRAINER, 9000, MARK_WAIT_BEGIN, 0); /* still waits */
	script_exit(&s, TRAINER, 10000);
	stage_split(stage);
	assert_int_equal(stage->split.method, METHOD_MARKS);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(stage->split.fetch_ns[i] / TICK_NS, i == 3   ? 100
								     : i == 4 ? 10
								     : i == 5 ? 20
								     : i == 6 ? 30
									      : 0);
	stage_free(stage);
}

/* A thread reads until 300 and decodes until 400. Only waits of the window count. */
static void thread_steps(void)
{
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < 10; i++) {
		script_read_file(&s, LOADER, 1000 * i, 1000 * i + 300);
		script_off(&s, TRAINER, 1000 * i + 1, 1000 * i + 390, 1000 * i + 390, 0x1, LOADER);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, TRAINER, 10000);
}

static void check_walked(const struct stage *stage)
{
	assert_int_equal(stage->split.method, METHOD_WALK);
	for (uint64_t i = 0; i < 10; i++)
		assert_in_range(stage->split.fetch_ns[i] / TICK_NS, i >= 2 && i < 8 ? 299 : 0,
				i >= 2 && i < 8 ? 300 : 0);
}

TEST(loader_threads_are_walked)
{
	struct stage *stage = stage_new(LOADER_THREADS);

	thread_steps();
	stage_split(stage);
	check_walked(stage);
	stage_free(stage);
}

/* If the batches of workers cannot be replayed, the critical path of each wait is followed by itself. */
TEST(workers_without_replay)
{
	struct stage *stage = stage_new(LOADER_WORKERS);

	thread_steps();
	stage_split(stage);
	check_walked(stage);
	assert_int_equal(stage->split.recorded_ns, 0);
	assert_int_equal(stage->split.replayed_ns, 0);
	stage_free(stage);
	/* Waits outside of the part that would have been replayed are followed, too. One ended while the
	 * trainer slept. */
	stage = stage_new(LOADER_WORKERS);
	stage->run.end_ns = at(5000);
	stage->items[6].end_ns = at(6200);
	thread_steps();
	stage_split(stage);
	assert_int_equal(stage->split.method, METHOD_WALK);
	assert_int_equal(stage->split.fetch_ns[6], 0);
	stage->split.fetch_ns[6] = stage->split.fetch_ns[5];
	check_walked(stage);
	stage_free(stage);
}

/* A gap of the recording covers the whole window, so nothing was observed. */
TEST(an_unobserved_window_is_walked)
{
	struct stage *stage = stage_new(LOADER_WORKERS);

	stage->service.why_not = NULL;
	stage->run.observed_ns = 0;
	thread_steps();
	stage_split(stage);
	check_walked(stage);
	stage_free(stage);
}

/* A job whose replay is plain arithmetic. The trainer prepares each batch itself, for compute_ns and
 * latency_ns, and then computes a step. */
struct plant {
	struct model_segment segments[STEPS];
	struct model_batch batches[STEPS];
	struct model_step model_steps[STEPS];
	struct model_epoch epoch;
	struct service service;
	struct analysis_step steps[STEPS];
	struct data_wait items[STEPS + 4];
	struct data_waits waits;
	struct window run, window;
	struct split split;
};

/* The recorded run is `off` times as long as the replay. Waits are of 10 ms each. */
static struct plant *plant_new(double latency_ns, double off)
{
	static struct plant plant;
	const uint64_t step_ns = (uint64_t)((latency_ns + 10 * MS) * off), begin_ns = 10 * NS_PER_S;

	memset(&plant, 0, sizeof(plant));
	for (uint64_t k = 0; k < STEPS; k++) {
		plant.segments[k] = (struct model_segment){.compute_ns = 5 * MS, .latency_ns = latency_ns};
		plant.batches[k] = (struct model_batch){k, 1};
		plant.model_steps[k] = (struct model_step){.cpu_ns = 5 * MS};
		plant.steps[k] = (struct analysis_step){.begin_ns = begin_ns + k * step_ns,
							.end_ns = begin_ns + (k + 1) * step_ns};
	}
	plant.service.job = (struct model_job){.segments = plant.segments,
					       .n_segments = STEPS,
					       .batches = plant.batches,
					       .steps = plant.model_steps,
					       .n_steps = STEPS,
					       .epochs = &plant.epoch,
					       .n_epochs = 1,
					       .storage = {.bytes_per_s = INFINITY},
					       .cores = 8,
					       .gang = 1};
	plant.service.storage.bytes_per_s = INFINITY;
	plant.run = (struct window){.begin_ns = begin_ns,
				    .end_ns = begin_ns + STEPS * step_ns,
				    .steps = plant.steps,
				    .n_steps = STEPS,
				    .observed_ns = STEPS * step_ns};
	/* Two waits lie before the run and two after it. The first and the last are not in the window. */
	plant.window = plant.run;
	plant.window.begin_ns -= 100 * NS_PER_MS;
	plant.window.end_ns += 100 * NS_PER_MS;
	plant.waits = (struct data_waits){.loader = LOADER_WORKERS, .items = plant.items, .n = STEPS + 4};
	for (uint64_t i = 0; i < STEPS + 4; i++) {
		const uint64_t outside_ns[] = {begin_ns - 150 * NS_PER_MS, begin_ns - 50 * NS_PER_MS,
					       plant.run.end_ns, plant.window.end_ns};
		uint64_t at_ns = i < 2           ? outside_ns[i]
				 : i < STEPS + 2 ? begin_ns + (i - 2) * step_ns
						 : outside_ns[i - STEPS];

		plant.items[i] = (struct data_wait){.begin_ns = at_ns, .end_ns = at_ns + 10 * NS_PER_MS};
	}
	plant.split.fetch_ns = calloc(STEPS + 5, sizeof(*plant.split.fetch_ns));
	assert_non_null(plant.split.fetch_ns);
	return &plant;
}

static double fetch_sum(const struct plant *plant, size_t begin, size_t end)
{
	double sum_ns = 0;

	for (size_t i = begin; i < end; i++)
		sum_ns += (double)plant->split.fetch_ns[i];
	return sum_ns;
}

static void plant_split(struct plant *plant)
{
	struct scene scene;
	struct study study = {.roles = &scene.roles,
			      .waits = &plant->waits,
			      .window = &plant->window,
			      .run = &plant->run,
			      .service = &plant->service};

	script_begin(&s);
	script_exit(&s, TRAINER, 20 * NS_PER_S / TICK_NS);
	scene = scene_of(&s);
	study.timeline = scene.timeline;
	assert_int_equal(split_waits(&study, &plant->split), 0);
	for (size_t i = 0; i < plant->waits.n; i++)
		assert_true(plant->split.fetch_ns[i] <= plant->items[i].end_ns - plant->items[i].begin_ns);
	scene_free(&scene);
}

/* If reading took no time, each step would take 3 ms less, so that much of each wait is fetching. */
TEST(time_saved_in_the_replay_is_fetch)
{
	struct plant *plant = plant_new(3 * MS, 1);

	plant_split(plant);
	assert_int_equal(plant->split.method, METHOD_REPLAY);
	assert_float_equal(plant->split.recorded_ns, STEPS * 13 * MS, 1);
	assert_float_equal(plant->split.replayed_ns, STEPS * 13 * MS, 1000);
	assert_float_equal(plant->split.unfetched_ns, STEPS * 10 * MS, 1000);
	for (size_t i = 2; i < STEPS + 2; i++)
		assert_float_equal((double)plant->split.fetch_ns[i], 3 * MS, 1000);
	/* The rest of the window is split in the same proportion, and nothing outside of it. */
	assert_int_equal(plant->split.fetch_ns[0], 0);
	assert_float_equal((double)plant->split.fetch_ns[1], 3 * MS, 1000);
	assert_float_equal((double)plant->split.fetch_ns[STEPS + 2], 3 * MS, 1000);
	assert_int_equal(plant->split.fetch_ns[STEPS + 3], 0);
	split_free(&plant->split);
}

/* A replay that is up to a tenth off, in either direction, is trusted. Its saving is then a part of the
 * recorded time. */
TEST(a_replay_up_to_a_tenth_off_is_believed)
{
	const struct {
		double off;
		enum analysis_method method;
	} rows[] = {{0.92, METHOD_REPLAY}, {1.10, METHOD_REPLAY}, {0.90, METHOD_WALK}, {1.13, METHOD_WALK}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct plant *plant = plant_new(3 * MS, rows[i].off);

		plant_split(plant);
		assert_int_equal(plant->split.method, rows[i].method);
		assert_float_equal(fetch_sum(plant, 2, STEPS + 2),
				   rows[i].method == METHOD_REPLAY ? STEPS * 3 * MS * rows[i].off : 0, 1e5);
		split_free(&plant->split);
	}
}

/* Recorded latencies do not reproduce the recording, but a server model with 8 ms per read does. */
TEST(replay_with_a_server)
{
	for (int i = 0; i < 2; i++) {
		struct plant *plant = plant_new(i ? 8 * MS : 3 * MS, i ? 1 : 18.0 / 13);

		plant->service.storage = (struct model_storage){.bytes_per_s = 1e9};
		for (size_t k = 0; k < STEPS; k++)
			plant->segments[k].size_bytes = i ? 1e6 : 8e6;
		plant_split(plant);
		/* If the recorded latencies reproduce it, the server model is not used. */
		assert_int_equal(plant->split.method, METHOD_REPLAY);
		assert_float_equal(plant->split.recorded_ns, STEPS * 18 * MS, 1000);
		assert_float_equal(plant->split.replayed_ns, STEPS * 18 * MS, 1e4);
		for (size_t k = 2; k < STEPS + 2; k++)
			assert_float_equal((double)plant->split.fetch_ns[k], 8 * MS, 1000);
		split_free(&plant->split);
	}
}

/* The saving exceeds the wait of a step. The rest goes to steps with unused wait time, and never exceeds
 * that. */
TEST(steps_get_no_more_fetch_than_they_waited)
{
	struct plant *plant = plant_new(9 * MS, 1);

	/* Every other wait is 6 ms long. The saving is 9 ms per step, 360 ms in all. */
	for (size_t i = 2; i < STEPS + 2; i += 2)
		plant->items[i].end_ns -= 4 * NS_PER_MS;
	plant_split(plant);
	assert_int_equal(plant->split.method, METHOD_REPLAY);
	assert_float_equal(fetch_sum(plant, 2, STEPS + 2), STEPS / 2 * 16 * MS, 1000);
	split_free(&plant->split);
	/* If only some steps read, their waits are filled first, and the rest goes to the other steps. */
	plant = plant_new(0, 1);
	for (size_t k = 0; k < 10; k++)
		plant->segments[k].latency_ns = 12 * MS;
	for (uint64_t k = 0; k < STEPS; k++) {
		plant->steps[k].begin_ns = 10 * NS_PER_S + k * 13 * NS_PER_MS;
		plant->steps[k].end_ns = plant->steps[k].begin_ns + 13 * NS_PER_MS;
		plant->items[k + 2].begin_ns = plant->steps[k].begin_ns;
		plant->items[k + 2].end_ns = plant->steps[k].begin_ns + 10 * NS_PER_MS;
	}
	plant->run.end_ns = plant->window.end_ns = plant->steps[STEPS - 1].end_ns;
	plant->run.observed_ns = STEPS * 13 * NS_PER_MS;
	plant->window = plant->run;
	plant->waits.n = STEPS + 2;
	plant_split(plant);
	assert_int_equal(plant->split.method, METHOD_REPLAY);
	for (size_t k = 0; k < 10; k++)
		assert_float_equal((double)plant->split.fetch_ns[k + 2], 10 * MS, 1000);
	assert_float_equal(fetch_sum(plant, 2, STEPS + 2), STEPS * 13 * MS * (1 - 400.0 / 520), 1e4);
	assert_float_equal((double)plant->split.fetch_ns[STEPS + 1], (double)plant->split.fetch_ns[20], 1000);
	split_free(&plant->split);
}

/* A saving that exceeds the waits of its steps goes first to other steps that read. The rest goes to steps
 * that do not, in proportion to their unused wait time. */
TEST(surplus_goes_first_to_steps_that_read)
{
	const struct {
		double latency_ns;
		uint64_t wait_ms;
		double fetch_ns;
	} kinds[] = {{12 * MS, 2, 2 * MS}, {0.3 * MS, 10, 10 * MS}, {0, 5, 0.1 * MS}, {0, 10, 0.2 * MS}};
	struct plant *plant = plant_new(0, 1);
	const double recorded_ns = STEPS * 10 * MS + 10 * 12.3 * MS;
	const uint64_t step_ns = (uint64_t)(recorded_ns / STEPS);

	for (uint64_t k = 0; k < STEPS; k++) {
		plant->segments[k].latency_ns = kinds[k % 4].latency_ns;
		plant->steps[k].begin_ns = 10 * NS_PER_S + k * step_ns;
		plant->steps[k].end_ns = plant->steps[k].begin_ns + step_ns;
		plant->items[k + 2].begin_ns = plant->steps[k].begin_ns;
		plant->items[k + 2].end_ns = plant->steps[k].begin_ns + kinds[k % 4].wait_ms * NS_PER_MS;
	}
	plant->run.end_ns = plant->steps[STEPS - 1].end_ns;
	plant->run.observed_ns = STEPS * step_ns;
	plant->window = plant->run;
	plant->waits.n = STEPS + 2;
	plant_split(plant);
	assert_int_equal(plant->split.method, METHOD_REPLAY);
	for (size_t k = 0; k < STEPS; k++)
		assert_float_equal((double)plant->split.fetch_ns[k + 2], kinds[k % 4].fetch_ns, 1000);
	split_free(&plant->split);
}

/* The two waits of a step are split alike. A step without a wait gets nothing. */
TEST(waits_of_a_step)
{
	struct plant *plant = plant_new(3 * MS, 1);

	/* the second step's wait becomes the first step's */
	plant->items[3].begin_ns = plant->items[2].end_ns;
	plant->items[3].end_ns = plant->items[3].begin_ns + NS_PER_MS;
	plant_split(plant);
	assert_int_equal(plant->split.method, METHOD_REPLAY);
	assert_float_equal((double)plant->split.fetch_ns[2], 10 * (double)plant->split.fetch_ns[3], 1000);
	assert_float_equal(fetch_sum(plant, 2, STEPS + 2), STEPS * 3 * MS, 1e4);
	split_free(&plant->split);
}

TEST(damaged_batches_are_not_replayed)
{
	struct plant *plant = plant_new(3 * MS, 1);

	plant->batches[7].first_segment = STEPS;
	plant_split(plant);
	assert_int_equal(plant->split.method, METHOD_WALK);
	split_free(&plant->split);
}

/* ---- the parts that a measurement combines ---- */

/* A worker's messages are those of its own process, not of a later process with the same number. */
TEST(messages_of_a_tgid_used_again)
{
	const struct analysis_input input = {.root_tgid = TRAINER};
	struct timeline *timeline = NULL;
	struct measurement m;

	script_begin(&s);
	for (uint32_t life = 0; life < 2; life++) {
		uint64_t tick = 10000 * (uint64_t)life;

		script_fork(&s, TRAINER, WORKER, tick);
		script_fork(&s, WORKER, FEEDER, tick + 1);
		for (uint32_t i = 0; i < 4; i++) {
			scene_batch(&s, 0, tick + 1000 * i + 100);
			script_step(&s, TRAINER, tick + 1000 * i + 1000);
		}
		script_take_index(&s, 0, tick + 4200);
		script_exit(&s, FEEDER, tick + 5000);
		script_exit(&s, WORKER, tick + 5001);
	}
	/* Adds a message of a batch that began before the recording. The message of the first process's last
	 * batch was lost. */
	script_call(&s, FEEDER, 50, 51, SYS_write, EVENT_FILE_FIFO, RESULT_PIPE, 300);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].tid == FEEDER && s.events[i].type == EVENT_SYSCALL &&
		    s.events[i].start_ns == at(3605))
			s.events[i].type = EVENT_NAME;
	assert_int_equal(timeline_build(s.events, s.n, &timeline, NULL), 0);
	assert_int_equal(measure(timeline, &input, 0, 4, false, &m), 0);
	assert_int_equal(m.service.n_workers, 2);
	for (size_t w = 0; w < 2; w++) {
		assert_int_equal(m.service.workers[w].n_batches, 4);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(m.service.workers[w].batches[i].published_ns,
					 w == 0 && i == 3 ? 0 : at(10000 * w + 1000 * i + 606));
	}
	measurement_free(&m);
	timeline_free(timeline);
}
