/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, found by the rhythm of reads, or by waits and backward passes. */
#include "tests/unit/analyzer/scene.h"

#include "analyzer/waits/rhythm.h"
#include "analyzer/waits/window.h"

static struct script s; /* too large for the stack */

#define N  40
#define MS UINT64_C(1000000)

static const struct interval_list none;

/* ---- rhythm ---- */

/* Makes steps of n reads of 1 ms each, 2 ms apart, with pause_ns of computing after them. */
static size_t beats_fill(struct beat *beats, size_t n_steps, size_t n_reads, uint64_t pause_ns)
{
	uint64_t at_ns = NS_PER_S, exec_ns = 0, bytes = 0;
	size_t n = 0;

	for (size_t k = 0; k < n_steps; k++)
		for (size_t i = 0; i < n_reads; i++) {
			uint64_t before_ns = i ? 2 * MS : n ? pause_ns : 0;

			at_ns += before_ns;
			exec_ns += before_ns;
			bytes += 100;
			beats[n++] = (struct beat){.begin_ns = at_ns,
						   .end_ns = at_ns + MS,
						   .first_ns = at_ns,
						   .last_ns = at_ns + MS,
						   .exec_begin_ns = exec_ns,
						   .exec_end_ns = exec_ns,
						   .read_bytes = bytes,
						   .pause_ns = before_ns,
						   .n_reads = 1};
			at_ns += MS;
		}
	return n;
}

static void check_tiles(const struct rhythm *rhythm)
{
	uint64_t at_ns = rhythm->begin_ns;

	for (size_t i = 0; i < rhythm->n_computing; i++) {
		assert_true(rhythm->computing[i].begin_ns >= at_ns);
		assert_true(rhythm->computing[i].end_ns >= rhythm->computing[i].begin_ns);
		at_ns = rhythm->computing[i].end_ns;
	}
	assert_true(at_ns <= rhythm->end_ns);
}

TEST(few_beats_have_no_rhythm)
{
	struct beat beats[N * 4];
	struct rhythm rhythm;
	size_t n = beats_fill(beats, N, 4, 20 * MS);

	for (size_t few = 0; few <= 6;
	     few++) { /* fewer than three steps in the second half, except for the last */
		assert_int_equal(rhythm_find(beats, few, 1, UINT64_MAX, &rhythm), 0);
		assert_int_equal(rhythm.n_steps, 0);
		assert_int_equal(rhythm.n_computing, 0);
		rhythm_free(&rhythm);
	}
	/* Makes steps with any number of reads, with pauses at random. */
	for (size_t i = 1; i < n; i++)
		beats[i].pause_ns = (i * i * 7919 % 13 < 3 ? 20 : 2) * MS;
	assert_int_equal(rhythm_find(beats, n, 1, UINT64_MAX, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, 0);
	rhythm_free(&rhythm);
	/* One read three times, then three reads twice, so no more than three equal steps in a row. */
	n = beats_fill(beats, N, 1, 20 * MS);
	for (size_t i = 0; i < n; i++)
		beats[i].n_reads = i % 5 < 3 ? 1 : 3;
	assert_int_equal(rhythm_find(beats, n, 1, UINT64_MAX, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, 0);
	rhythm_free(&rhythm);
}

TEST(steady_beats_have_a_rhythm)
{
	struct beat beats[N * 4];
	size_t n = beats_fill(beats, N, 4, 20 * MS);
	uint64_t end_ns = beats[n - 1].end_ns + NS_PER_S;
	struct rhythm rhythm;

	assert_int_equal(rhythm_find(beats, n, 1, end_ns, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, N);
	assert_int_equal(rhythm.n_computing, N);
	assert_int_equal(rhythm.begin_ns, beats[0].begin_ns);
	assert_int_equal(rhythm.sample_ns, 6 * MS / 4);
	check_tiles(&rhythm);
	for (size_t k = 0; k + 1 < N; k++) {
		assert_int_equal(rhythm.computing[k].begin_ns, beats[4 * k + 3].end_ns + rhythm.sample_ns);
		assert_int_equal(rhythm.computing[k].end_ns, beats[4 * k + 4].begin_ns);
	}
	/* The last step computes as long as the others, but no longer than the trainer lives. */
	assert_int_equal(rhythm.end_ns, beats[n - 1].end_ns + 20 * MS);
	assert_int_equal(rhythm.computing[N - 1].end_ns, rhythm.end_ns);
	rhythm_free(&rhythm);
	assert_int_equal(rhythm_find(beats, n, 1, beats[n - 1].end_ns, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, N);
	assert_int_equal(rhythm.end_ns, beats[n - 1].end_ns);
	check_tiles(&rhythm);
	rhythm_free(&rhythm);
}

/* Imports read other files, and an evaluation pauses for long. Neither is a step like the others. */
TEST(rhythm_among_others)
{
	struct beat beats[N * 4];
	size_t n = beats_fill(beats, N, 4, 20 * MS);
	struct rhythm rhythm;

	for (size_t i = 0; i < 40; i++)
		beats[i].n_reads = 9;
	for (size_t i = 100; i < n; i++) {
		beats[i].begin_ns += NS_PER_S;
		beats[i].end_ns += NS_PER_S;
		beats[i].first_ns += NS_PER_S;
		beats[i].last_ns += NS_PER_S;
	}
	beats[100].pause_ns += NS_PER_S;
	assert_int_equal(rhythm_find(beats, n, 1, UINT64_MAX, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, N - 10);
	assert_int_equal(rhythm.begin_ns, beats[40].begin_ns);
	check_tiles(&rhythm);
	rhythm_free(&rhythm);
	/* The end of the imports is a batch if it reads as much. */
	for (size_t i = 36; i < 40; i++)
		beats[i].n_reads = 1;
	for (size_t i = 36; i < 40; i++)
		beats[i].pause_ns = 2 * MS;
	assert_int_equal(rhythm_find(beats, n, 1, UINT64_MAX, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, N - 9);
	assert_int_equal(rhythm.begin_ns, beats[36].begin_ns);
	check_tiles(&rhythm);
	rhythm_free(&rhythm);
}

TEST(a_rhythm_of_hours_does_not_overflow)
{
	struct beat beats[N * 4];
	size_t n = beats_fill(beats, N, 4, 3600 * NS_PER_S);
	struct rhythm rhythm;

	assert_int_equal(rhythm_find(beats, n, 1, UINT64_MAX, &rhythm), 0);
	assert_int_equal(rhythm.n_steps, N);
	assert_int_equal(rhythm.end_ns, beats[n - 1].end_ns + 3600 * NS_PER_S);
	check_tiles(&rhythm);
	rhythm_free(&rhythm);
}

/* ---- window ---- */

struct stage {
	struct scene scene;
	struct data_wait items[64];
	struct data_waits waits;
	uint64_t times[64];
	size_t n_times;
};

/* Makes a trainer that lives until end_tick. */
static struct stage *stage_new(uint64_t end_tick)
{
	static struct stage stage;

	memset(&stage, 0, sizeof(stage));
	stage.waits = (struct data_waits){.items = stage.items, .loader = LOADER_INLINE};
	script_begin(&s);
	script_exit(&s, TRAINER, end_tick);
	stage.scene = scene_of(&s);
	return &stage;
}

static void wait_add(struct stage *stage, uint64_t begin_tick, uint64_t end_tick)
{
	stage->items[stage->waits.n++] =
	    (struct data_wait){.begin_ns = at(begin_tick), .end_ns = at(end_tick)};
}

static void pass_add(struct stage *stage, uint64_t tick)
{
	stage->times[stage->n_times++] = at(tick);
}

/* Finds the window, and asserts that its steps tile it. */
static struct window window_of(const struct stage *stage, const struct interval_list *checkpoints)
{
	struct window window;

	assert_int_equal(window_find(stage->times, stage->n_times, &stage->waits, checkpoints,
				     stage->scene.roles.trainer, &window),
			 0);
	for (size_t k = 0; k < window.n_steps; k++) {
		assert_int_equal(window.steps[k].begin_ns, k ? window.steps[k - 1].end_ns : window.begin_ns);
		assert_true(window.steps[k].begin_ns <= window.steps[k].end_ns);
	}
	if (window.n_steps)
		assert_int_equal(window.steps[window.n_steps - 1].end_ns, window.end_ns);
	window_leave_gaps(&window, &none);
	assert_int_equal(window.observed_ns, window.end_ns - window.begin_ns);
	return window;
}

static void check_window(const struct stage *stage, const struct interval_list *checkpoints, size_t n_steps,
			 uint64_t begin_tick, uint64_t end_tick)
{
	struct window window = window_of(stage, checkpoints);

	assert_int_equal(window.n_steps, n_steps);
	if (n_steps) {
		assert_int_equal(window.begin_ns, at(begin_tick));
		assert_int_equal(window.end_ns, at(end_tick));
	}
	window_free(&window);
}

TEST(a_wait_or_a_step_alone_has_no_window)
{
	struct stage *stage = stage_new(10000);

	check_window(stage, &none, 0, 0, 0);
	wait_add(stage, 100, 200);
	check_window(stage, &none, 0, 0, 0); /* a wait and no step */
	stage->waits.n = 0;
	pass_add(stage, 900);
	check_window(stage, &none, 0, 0, 0); /* nothing to measure from */
	pass_add(stage, 1900);
	check_window(stage, &none, 1, 900, 1900);
	pass_add(stage, 1900); /* at the same time as another one */
	check_window(stage, &none, 2, 900, 1900);
	scene_free(&stage->scene);
}

TEST(steps_begin_with_their_wait)
{
	struct stage *stage = stage_new(10000);

	for (uint64_t i = 0; i < 5; i++) {
		if (i != 3)
			wait_add(stage, 1000 * i + 100, 1000 * i + 300);
		wait_add(stage, 1000 * i + 920,
			 1000 * i + 930); /* after the backward pass, so it belongs to the next step */
		if (i == 2)
			stage->waits.n--;
		pass_add(stage, 1000 * i + 900);
	}
	stage->waits.n--;
	struct window window = window_of(stage, &none);
	assert_int_equal(window.n_steps, 5);
	assert_int_equal(window.begin_ns, at(100));
	assert_int_equal(window.steps[1].begin_ns, at(920));
	assert_int_equal(window.steps[2].begin_ns, at(1920));
	/* Without a wait, a step begins 20 after the backward pass, as with the others. */
	assert_int_equal(window.steps[3].begin_ns, at(2920));
	assert_int_equal(window.steps[4].begin_ns, at(3920));
	assert_int_equal(window.end_ns, at(4920));
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(window.steps[i].backward_ns, at(1000 * i + 900));
	window_free(&window);
	scene_free(&stage->scene);
}

/* A step whose wait began before the recording was not seen whole. A step without a wait cannot be the first,
 * either. */
TEST(a_clipped_step_is_not_the_first)
{
	struct stage *stage = stage_new(10000);

	wait_add(stage, 100, 200);
	stage->items[0].clipped = true;
	for (uint64_t i = 0; i < 5; i++) {
		pass_add(stage, 1000 * i + 900);
		if (i > 0)
			wait_add(stage, 1000 * i + 950, 1000 * i + 960);
	}
	check_window(stage, &none, 3, 1950, 4950);
	struct window window = window_of(stage, &none);
	for (uint64_t k = 0; k < 3; k++)
		assert_int_equal(window.steps[k].backward_ns, at(1000 * k + 2900));
	window_free(&window);
	scene_free(&stage->scene);
}

/* A step without a wait behind it lasts for the median of the others after its backward pass, but ends at the
 * next backward pass. */
TEST(time_behind_the_backward_pass)
{
	const uint64_t tails[] = {10, 20, 300, 0, 500};
	struct stage *stage = stage_new(20000);

	wait_add(stage, 100, 200);
	for (uint64_t i = 0; i < 5; i++) {
		pass_add(stage, 1000 * i + 900);
		wait_add(stage, 1000 * i + 900 + tails[i], 1000 * i + 901 + tails[i]);
	}
	pass_add(stage, 5900);
	pass_add(stage, 5915); /* no wait between these two */
	struct window window = window_of(stage, &none);
	assert_int_equal(window.n_steps, 7);
	assert_int_equal(window.steps[4].begin_ns, at(3900)); /* at the time of the backward pass */
	assert_int_equal(window.steps[5].begin_ns, at(5400));
	assert_int_equal(window.steps[6].begin_ns, at(5915));
	assert_int_equal(window.end_ns, at(5935));
	window_free(&window);
	scene_free(&stage->scene);
}

/* The trainer reads a file of some kind once in many steps: where it does is no place for steps to begin. A
 * loader's waits may be as rare, because its batches are ready. */
TEST(rare_reads_do_not_show_where_steps_begin)
{
	struct stage *stage = stage_new(60000);

	wait_add(stage, 100, 200);
	for (uint64_t i = 0; i < 40; i++) {
		pass_add(stage, 1000 * i + 900);
		if (i % 10 == 5)
			wait_add(stage, 1000 * i + 1600, 1000 * i + 1700);
	}
	struct window window = window_of(stage, &none);
	assert_int_equal(window.n_steps, 40);
	assert_int_equal(window.steps[3].begin_ns, at(2900));
	assert_int_equal(window.steps[6].begin_ns, at(6600));
	assert_int_equal(window.steps[7].begin_ns, at(6900));
	window_free(&window);
	stage->waits.loader = LOADER_WORKERS;
	window = window_of(stage, &none);
	assert_int_equal(window.steps[3].begin_ns, at(3600));
	window_free(&window);
	scene_free(&stage->scene);
}

/* Only the last wait leads to the first step. But the trainer polls repeatedly for workers that start up,
 * with next to no computing in between. */
TEST(waits_before_the_first_step)
{
	struct stage *stage = stage_new(10000);

	wait_add(stage, 100, 200);
	wait_add(stage, 1500, 1600); /* 1300 ticks of computing are 26 ms */
	wait_add(stage, 1700, 1800);
	pass_add(stage, 1900);
	wait_add(stage, 2000, 2100);
	pass_add(stage, 2900);
	check_window(stage, &none, 2, 1700, 3000);
	stage->waits.loader = LOADER_THREADS;
	check_window(stage, &none, 2, 1500, 3000);
	stage->waits.loader = LOADER_WORKERS;
	check_window(stage, &none, 2, 1500, 3000);
	stage->items[1].begin_ns = at(1200);
	check_window(stage, &none, 2, 1200, 3000);
	stage->items[1].begin_ns = at(1199); /* 999 ticks are less than 20 ms */
	check_window(stage, &none, 2, 100, 3000);
	stage->items[0].clipped = true;
	check_window(stage, &none, 2, 1199, 3000);
	scene_free(&stage->scene);
}

/* The window ends a median time after the last backward pass. It includes the checkpoint that follows, and
 * ends before the next wait and within the trainer's life. */
TEST(end_of_the_window)
{
	struct stage *stage = stage_new(5400);
	struct interval saved[] = {{at(4890), at(5100)}, {at(5100), at(5200)}, {at(5300), at(6000)}};
	struct interval_list checkpoints = {.items = saved, .n = 3};

	for (uint64_t i = 0; i < 5; i++) {
		wait_add(stage, 1000 * i + 100, 1000 * i + 300);
		pass_add(stage, 1000 * i + 900);
	}
	check_window(stage, &none, 5, 100, 5100); /* 4900 and a median of 200 */
	check_window(stage, &checkpoints, 5, 100, 5200);
	saved[1].end_ns = at(5300);
	check_window(stage, &checkpoints, 5, 100, 5400); /* to the trainer's end */
	saved[0].begin_ns = saved[0].end_ns = at(4900);
	saved[1].begin_ns = at(5101);
	check_window(stage, &checkpoints, 5, 100, 5100); /* after the step */
	wait_add(stage, 5050, 5060);
	check_window(stage, &none, 5, 100, 5050);
	stage->n_times = 0; /* not before the last backward pass, even if the trainer ends earlier */
	for (uint64_t i = 0; i < 5; i++)
		pass_add(stage, 1000 * i + (i == 4 ? 5500 - 4000 : 900));
	check_window(stage, &none, 5, 100, 5500);
	scene_free(&stage->scene);
}

TEST(steps_of_an_hour_have_a_window)
{
	const uint64_t hour = 3600 * NS_PER_S / TICK_NS;
	struct stage *stage = stage_new(10 * hour);

	for (uint64_t i = 0; i < 5; i++) {
		wait_add(stage, i * hour, i * hour + hour / 2);
		pass_add(stage, (i + 1) * hour - 1000);
	}
	check_window(stage, &none, 5, 0, 5 * hour);
	scene_free(&stage->scene);
}

static struct window window_of_steps(struct analysis_step *steps, size_t n)
{
	for (size_t k = 0; k < n; k++)
		steps[k] = (struct analysis_step){.begin_ns = 100 * k + 100, .end_ns = 100 * k + 200};
	return (struct window){.begin_ns = 100, .end_ns = 100 * n + 100, .steps = steps, .n_steps = n};
}

TEST(gaps_take_whole_steps)
{
	struct analysis_step steps[10];
	struct window window = window_of_steps(steps, 10), run;
	struct interval gaps[] = {{50, 100}, {200, 300}, {599, 600}, {900, 901}, {1100, 1200}};
	const struct interval_list list = {.items = gaps, .n = 5};

	window_leave_gaps(&window, &none);
	assert_int_equal(window.n_steps, 10);
	assert_int_equal(window.observed_ns, 1000);
	run = window_longest_run(&window);
	assert_int_equal(run.n_steps, 10);
	assert_int_equal(run.begin_ns, 100);
	assert_int_equal(run.end_ns, 1100);
	assert_int_equal(run.observed_ns, 1000);
	/* Steps that only touch a gap stay: 100, 300, 400, 600, 700, 800, 1000. */
	window_leave_gaps(&window, &list);
	assert_int_equal(window.n_steps, 7);
	assert_int_equal(window.observed_ns, 700);
	assert_int_equal(window.begin_ns, 100);
	assert_int_equal(window.end_ns, 1100);
	run = window_longest_run(&window);
	assert_int_equal(run.n_steps, 3);
	assert_int_equal(run.begin_ns, 600);
	assert_int_equal(run.end_ns, 900);
	assert_int_equal(run.observed_ns, 300);
	assert_ptr_equal(run.steps, window.steps + 3);
}

TEST(the_longest_run_is_by_time)
{
	struct analysis_step steps[4];
	struct window window = window_of_steps(steps, 4), run;

	/* The order is by time, not by number. Among equals, the first comes first. */
	steps[2].begin_ns = 301;
	steps[3] = (struct analysis_step){.begin_ns = 1000, .end_ns = 1200};
	run = window_longest_run(&window);
	assert_int_equal(run.begin_ns, 100);
	assert_int_equal(run.n_steps, 2);
	steps[3].end_ns = 1201;
	run = window_longest_run(&window);
	assert_int_equal(run.begin_ns, 1000);
	assert_int_equal(run.n_steps, 1);
	window.n_steps = 0;
	run = window_longest_run(&window);
	assert_int_equal(run.n_steps, 0);
	assert_int_equal(run.observed_ns, 0);
}
