/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include "bpf/gpu.h"

static struct script s; /* too large for the stack */

#define STEPS    10
#define FUNCTION 1 /* cuStreamSynchronize */

/* A step is 1000 ticks, with a data wait from 0 to 400 by libdiesel's marks and the backward pass at 500. */
static void steps(void)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 400, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, 1000 * i + 500);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
}

static struct event *wait_add(uint32_t tid, uint64_t begin_tick, uint64_t end_tick)
{
	struct event *event = script_add(&s, tid, EVENT_GPU_WAIT, begin_tick, end_tick);

	event->gpu.function = FUNCTION;
	return event;
}

static void each_step(uint64_t begin_tick, uint64_t end_tick)
{
	for (uint64_t i = 0; i < STEPS; i++)
		wait_add(TRAINER, 1000 * i + begin_tick, 1000 * i + end_tick);
}

static struct analysis *analyse(void)
{
	struct analysis *analysis = script_analyse(&s, NULL);

	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL) + share_ticks(analysis, SHARE_FETCH_STALL),
			 400 * STEPS);
	return analysis;
}

static void check_ticks(uint64_t ns, uint64_t ticks)
{
	assert_int_equal(ns / TICK_NS, ticks);
}

TEST(without_a_driver_gpu_waits_are_unknown)
{
	steps();
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_null(analysis->gpu);
	assert_false(analysis->parts.gpu_wait_known);
}

TEST(driver_without_waits)
{
	const struct gpu_probes probes = {.n_probed = 7, .n_expensive = 2, .launches_until_ns = 5};
	struct analysis_input input = {
	    .root_tgid = TRAINER, .gpu_library = "/x/libcuda.so.1", .gpu_probes = &probes};

	steps();
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_true(analysis->parts.gpu_wait_known);
	assert_int_equal(analysis->parts.gpu_wait_ns, 0);
	assert_string_equal(analysis->gpu->library, "/x/libcuda.so.1");
	assert_int_equal(analysis->gpu->n_probed, 7);
	assert_int_equal(analysis->gpu->n_expensive, 2);
	assert_false(analysis->gpu->launches_known);
}

TEST(spinning_is_device)
{
	steps();
	each_step(600, 900);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), 600 * STEPS);
	check_ticks(analysis->parts.gpu_wait_ns, 300 * STEPS);
	check_ticks(analysis->gpu->spin_ns, 300 * STEPS);
	assert_int_equal(analysis->gpu->n_calls, 1);
	assert_string_equal(analysis->gpu->calls[0].name, "cuStreamSynchronize");
	assert_int_equal(analysis->gpu->calls[0].n, STEPS);
	check_ticks(analysis->gpu->calls[0].ns, 300 * STEPS);
}

/* An interrupt ends the sleep. Without the driver's call, the sleep would be unexplained. */
TEST(sleeping_is_device)
{
	steps();
	for (uint64_t i = 0; i < STEPS; i++)
		script_off(&s, TRAINER, 1000 * i + 610, 1000 * i + 880, 1000 * i + 890, 0x1, TIMER_WOKE);
	struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 270 * STEPS);
	analysis_free(analysis);
	each_step(600, 900);
	analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
	/* The thread is runnable, but gets no core for 10. */
	assert_int_equal(share_ticks(analysis, SHARE_CPU_STARVED), 10 * STEPS);
	check_ticks(analysis->parts.gpu_wait_ns, 290 * STEPS);
	check_ticks(analysis->gpu->spin_ns, 20 * STEPS);
	analysis_free(analysis);
}

TEST(preempted_while_spinning)
{
	steps();
	each_step(600, 900);
	for (uint64_t i = 0; i < STEPS; i++)
		script_off(&s, TRAINER, 1000 * i + 700, 0, 1000 * i + 750, 0, TIMER_WOKE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_CPU_STARVED), 50 * STEPS);
	check_ticks(analysis->parts.gpu_wait_ns, 250 * STEPS);
}

/* If next() copies to pinned memory, or the waits for data and for the GPU overlap, the data wait has
 * priority. */
TEST(within_next_counts_once)
{
	steps();
	each_step(100, 300);
	struct analysis *analysis = analyse();
	assert_int_equal(analysis->parts.gpu_wait_ns, 0);
	check_ticks(analysis->gpu->calls[0].ns, 200 * STEPS);
	analysis_free(analysis);
	steps();
	each_step(350, 500);
	analysis = analyse();
	check_ticks(analysis->parts.gpu_wait_ns, 100 * STEPS);
	analysis_free(analysis);
}

/* The table has the waits of the pin-memory thread and of a watchdog, but the share does not. */
TEST(waits_of_other_threads_are_listed_not_shared)
{
	steps();
	each_step(600, 700);
	for (uint64_t i = 0; i < STEPS; i++)
		wait_add(TRAINER + 2, 1000 * i + 600, 1000 * i + 950);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check_ticks(analysis->parts.gpu_wait_ns, 100 * STEPS);
	check_ticks(analysis->gpu->calls[0].ns, 450 * STEPS);
}

TEST(starved_within_data_waits_only)
{
	steps();
	/* The GPU is drained at 900 of each step. The next work comes at 1300, still in the data wait, which
	 * began at 1000. */
	for (uint64_t i = 0; i + 1 < STEPS; i++) {
		struct event *event =
		    script_add(&s, TRAINER, EVENT_GPU_WORK, 1000 * i + 900, 1000 * i + 1300);

		event->gpu.n_launches = 20 * (i + 1);
		event->gpu.n_copies = i + 1;
	}
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check_ticks(analysis->gpu->starved_ns, 300 * (STEPS - 1));
	assert_int_equal(analysis->gpu->n_launches, 20 * (STEPS - 1));
	assert_int_equal(analysis->gpu->n_copies, STEPS - 1);
}

/* Without a synchronisation, only the end gives the counters a time. */
TEST(totals_of_the_process)
{
	steps();
	struct event *event = script_add(&s, TRAINER, EVENT_GPU_TOTALS, 20000, 20000);
	event->gpu_totals.n_launches = 77;
	event->gpu_totals.n_copies = 5;
	_cleanup_(analysis_freep) struct analysis *analysis =
	    script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .gpu_library = "x"});
	assert_int_equal(analysis->gpu->n_launches, 77);
	assert_int_equal(analysis->gpu->n_copies, 5);
	/* The trainer ended long before. */
	assert_true(analysis->window.teardown_ns < 1000 * TICK_NS);
}

TEST(utilization_of_the_window)
{
	const struct gpu_sample samples[] = {{1, 1.0}, {at(10), 0.25}, {at(5000), 0.75}, {UINT64_MAX, 1.0}};

	steps();
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(
	    &s, &(struct analysis_input){
		    .root_tgid = TRAINER, .gpu_library = "x", .gpu_samples = samples, .n_gpu_samples = 4});
	assert_true(analysis->gpu->utilization == 0.5);
}

TEST(hostile_gpu_records_stay_within_bounds)
{
	steps();
	each_step(600, 900);
	each_step(650, 950);
	each_step(0, 1000 * STEPS);
	wait_add(TRAINER, 700, 750)->gpu.function = 60000;
	wait_add(TRAINER, 800, 700);
	wait_add(999, 600, 700);
	script_add(&s, TRAINER, EVENT_GPU_WORK, 0, 1000 * STEPS)->gpu.n_launches = UINT64_MAX;
	script_add(&s, TRAINER, EVENT_GPU_WORK, 10, 20)->gpu.n_copies = UINT64_MAX;
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_true(analysis->parts.gpu_wait_ns <= analysis->share_ns[SHARE_DEVICE]);
	assert_true(analysis->gpu->starved_ns / TICK_NS <= 2 * 400 * STEPS);
}

/* Without a backward pass and a known loader, a burst of launches followed by a wait of the trainer is a
 * step. */
static void bursts(uint64_t n_launches)
{
	script_begin(&s);
	for (uint64_t i = 0; i < 2 * STEPS; i++) {
		wait_add(TRAINER, 1000 * i + 600, 1000 * i + 900)->gpu.n_launches = n_launches * (i + 1);
		/* No launch has happened since the last wait. */
		wait_add(TRAINER, 1000 * i + 910, 1000 * i + 915)->gpu.n_launches = n_launches * (i + 1);
	}
	script_exit(&s, TRAINER, 2000 * STEPS);
}

TEST(bursts_of_launches_are_steps)
{
	bursts(10);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_in_range(analysis->n_steps, 2 * STEPS - 1, 2 * STEPS);
	/* two thirds of the time were not at the GPU */
	assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
	assert_in_range(analysis->parts.gpu_wait_ns / TICK_NS / analysis->n_steps, 300, 305);
	/* The way in which the job loads its data is unknown. */
	assert_true(analysis->job.blind);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_int_equal(analysis->actions[i].confidence, CONFIDENCE_LOW);
}

/* A thread that only polls whether the device is done makes no steps. */
TEST(waits_without_launches_are_no_steps)
{
	bursts(0);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
}

/* If a wrapper starts the job, the trainer is the main thread that waits for the device most. */
TEST(bursts_of_a_child)
{
	bursts(10);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_GPU_WAIT)
			s.events[i].tid = s.events[i].tgid = WORKER;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.trainer_tid, WORKER);
	assert_in_range(analysis->n_steps, 2 * STEPS - 1, 2 * STEPS);
}
