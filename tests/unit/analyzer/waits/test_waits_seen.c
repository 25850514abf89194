/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders without marks: threads, processes and generators behind queues of the job's own. */
#include "tests/unit/analyzer/script.h"

#include <linux/futex.h>

#include "analyzer/profile.h"
#include "bpf/metadata.h"

static struct script s; /* too large for the stack */

#define STEPS 60

enum { LOADER = 102, OTHER = 300, QUEUE_PIPE = 9000 };

/* Stacks of the samples. The frames are innermost first. */
enum { MODEL = 11, LOADS, TRAINS_IN_IT, LOOP, CLIPS, IMPORTED };

static const struct profile_frame frames[] = {
    {1, FRAME_PYTHON, "train.py", "main"},
    {2, FRAME_PYTHON, "module.py", "Module._call_impl"},
    {3, FRAME_GENERATOR, "data.py", "batches"},
    {4, FRAME_GENERATOR, "loop.py", "losses"},
    {5, FRAME_PYTHON, "_tensor.py", "Tensor.backward"},
    {6, FRAME_GENERATOR, "module.py", "Module.named_parameters"},
    {7, FRAME_PYTHON, "<frozen importlib._bootstrap>", "_find_and_load"},
};
static const uint64_t model[] = {2, 1}, loads[] = {2, 3, 1}, trains_in_it[] = {5, 4, 1}, loop[] = {4, 1},
		      clips[] = {6, 1}, imported[] = {2, 1, 7};
static const struct profile_trace traces[] = {
    {MODEL, model, 2}, {LOADS, loads, 3}, {TRAINS_IN_IT, trains_in_it, 3},
    {LOOP, loop, 2},   {CLIPS, clips, 2}, {IMPORTED, imported, 3}};
static const struct profile_metadata notes = {
    .frames = frames, .n_frames = 7, .traces = traces, .n_traces = 6, .rate_hz = 1000};

static struct analysis *analyse(void)
{
	struct analysis *analysis = script_analyse(
	    &s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4, .profile = &notes});

	return analysis;
}

/* The trainer is asleep in a lock from tick on, until the other thread ends it. end_tick 0: it times out. */
static void lock(uint64_t tick, uint64_t end_tick, uint32_t waker)
{
	script_off(&s, TRAINER, tick, end_tick, end_tick, 0x1, waker ? waker : TIMER_WOKE)->sw.syscall_nr =
	    SYS_futex;
	script_call(&s, TRAINER, tick, end_tick, SYS_futex, EVENT_FILE_NONE, 0x9000, waker ? 0 : -ETIMEDOUT)
	    ->call.argument = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
}

static void nap(uint32_t tid, uint64_t tick, uint64_t end_tick)
{
	script_off(&s, tid, tick, end_tick, end_tick, 0x1, TIMER_WOKE)->sw.syscall_nr = SYS_clock_nanosleep;
	script_call(&s, tid, tick, end_tick, SYS_clock_nanosleep, EVENT_FILE_NONE, 0, 0);
}

/* Makes a trainer that waits 700 of 1000 ticks for a queue, and computes in the rest. */
static void queue_steps(void (*load)(uint64_t tick))
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		load(1000 * i);
		lock(1000 * i, 1000 * i + 700, LOADER);
		script_step(&s, TRAINER, 1000 * i + 800);
		script_sample(&s, TRAINER, 1000 * i + 850, MODEL);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
}

static void check_fed(enum analysis_loader loader, uint64_t wait_ticks)
{
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();

	assert_int_equal(analysis->job.loader, loader);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL) / analysis->n_steps, wait_ticks);
}

static void loads_by_next(uint64_t tick)
{
	script_mark(&s, LOADER, tick + 1, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	script_mark(&s, LOADER, tick + 690, MARK_BATCH_END, 0);
}

static void loads_by_naps(uint64_t tick)
{
	nap(LOADER, tick + 1, tick + 690);
}

static void loads_by_python(uint64_t tick)
{
	script_sample(&s, LOADER, tick + 300, LOADS);
}

static void loads_by_timed_waits(uint64_t tick)
{
	script_off(&s, LOADER, tick + 1, tick + 690, tick + 690, 0x1, TIMER_WOKE)->sw.syscall_nr = SYS_futex;
	script_call(&s, LOADER, tick + 1, tick + 690, SYS_futex, EVENT_FILE_NONE, 0xa000, -ETIMEDOUT)
	    ->call.argument = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
}

TEST(threads_that_fill_a_queue)
{
	void (*const ways[])(uint64_t) = {loads_by_next, loads_by_naps, loads_by_python,
					  loads_by_timed_waits};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		queue_steps(ways[i]);
		check_fed(LOADER_THREADS, 700);
	}
}

static void only_computes(uint64_t tick)
{
	script_off(&s, LOADER, tick + 701, tick + 995, tick + 995, 0x1, TRAINER);
}

/* Threads of OpenMP and autograd do nothing that a loader does. */
TEST(threads_that_compute)
{
	queue_steps(only_computes);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 0);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE) / analysis->n_steps, 1000);
	assert_int_equal(analysis->parts.helped_ns / TICK_NS / analysis->n_steps, 700);
}

/* The trainer repeats get(timeout=...). */
TEST(repeated_timed_waits_are_one_wait)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		loads_by_next(1000 * i);
		lock(1000 * i, 1000 * i + 300, 0);
		lock(1000 * i + 303, 1000 * i + 603, 0);
		lock(1000 * i + 606, 1000 * i + 700, LOADER);
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	check_fed(LOADER_THREADS, 700);
}

/* The trainer sleeps for the device right before the next get(). */
TEST(a_nap_before_a_wait)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		loads_by_next(1000 * i);
		lock(1000 * i, 1000 * i + 300, LOADER);
		script_step(&s, TRAINER, 1000 * i + 350);
		nap(TRAINER, 1000 * i + 400, 1000 * i + 999);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL) / analysis->n_steps, 300);
	assert_int_equal(analysis->parts.asleep_ns / TICK_NS / analysis->n_steps, 599);
}

/* The trainer calls get_nowait() and sleep() in turn. */
TEST(a_polled_queue_is_waited_for)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		for (uint64_t k = 0; k < 7; k++)
			nap(TRAINER, 1000 * i + 100 * k, 1000 * i + 100 * k + 98);
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	check_fed(LOADER_THREADS, 698);
}

/* The trainer sleeps once per step. In a gap of the recording, it may have computed or not. */
TEST(naps_on_both_sides_of_a_gap_are_not_polling)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		nap(TRAINER, 1000 * i, 1000 * i + 700);
		if (i == 20 || i == 21)
			script_add(&s, 1, EVENT_GAP, 1000 * i + 710, 1000 * i + 990);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(analysis->n_steps, 0);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
}

/* A sleep in a step is no waiting for data, and no device. */
TEST(sleeping_on_purpose)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_step(&s, TRAINER, 1000 * i + 100);
		nap(TRAINER, 1000 * i + 200, 1000 * i + 900);
		script_sample(&s, TRAINER, 1000 * i + 950, MODEL);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 0);
	assert_int_equal(analysis->parts.asleep_ns / TICK_NS / analysis->n_steps, 700);
	assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
	assert_non_null(strstr(analysis->note, "on purpose"));
}

/* A multiprocessing.Queue is filled by hand, so the trainer sends no requests. */
TEST(a_process_that_fills_a_queue)
{
	script_begin(&s);
	script_fork(&s, TRAINER, OTHER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_call(&s, OTHER, 1000 * i + 699, 1000 * i + 700, SYS_write, EVENT_FILE_FIFO, QUEUE_PIPE,
			    300);
		script_off(&s, TRAINER, 1000 * i, 1000 * i + 698, 1000 * i + 698, 0x1, OTHER);
		script_call(&s, TRAINER, 1000 * i, 1000 * i + 699, SYS_read, EVENT_FILE_FIFO, QUEUE_PIPE, 4);
		script_call(&s, TRAINER, 1000 * i + 699, 1000 * i + 700, SYS_read, EVENT_FILE_FIFO,
			    QUEUE_PIPE, 300);
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	check_fed(LOADER_THREADS, 700);
}

static void generator_steps(uint64_t in_front, uint64_t behind)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		for (uint64_t k = 0; k < 14; k++)
			script_sample(&s, TRAINER, 1000 * i + 50 * k + 25, in_front);
		for (uint64_t k = 14; k < 20; k++)
			script_sample(&s, TRAINER, 1000 * i + 50 * k + 25, behind);
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
}

/* Moves the script by these ticks, and lets the trainer read files before its time 0. */
static void imports(uint64_t ticks)
{
	for (size_t i = 1; i < s.n; i++) {
		s.events[i].start_ns += ticks * TICK_NS;
		s.events[i].end_ns += ticks * TICK_NS;
	}
	for (uint64_t tick = 0; tick + 1000 < ticks; tick += 1000) {
		script_call(&s, TRAINER, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
		script_call(&s, TRAINER, tick + 1, tick + 950, SYS_read, EVENT_FILE_REG, DATA_FILE, 100000);
	}
}

TEST(generators_that_load_are_inline_loaders)
{
	generator_steps(LOADS, MODEL);
	check_fed(LOADER_INLINE, 700);
	/* Reads before the first step, such as imports, load no data. */
	generator_steps(LOADS, MODEL);
	imports(60000);
	check_fed(LOADER_INLINE, 700);
	/* A generator that contains the training loop loads nothing. */
	generator_steps(LOOP, TRAINS_IN_IT);
	struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 0);
	assert_int_equal(analysis->verdict, ANALYSIS_UNCLEAR);
	analysis_free(analysis);
	/* Reads of a model's parameters load no data. */
	generator_steps(CLIPS, MODEL);
	analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 0);
	assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
	analysis_free(analysis);
}

/* No record shows how the trainer loads. The model in its stack shows that it computes, also if a module that
 * is being imported trains. */
TEST(model_in_the_stack)
{
	struct analysis *analysis;

	for (uint64_t trace = MODEL; trace <= IMPORTED; trace += IMPORTED - MODEL) {
		generator_steps(trace, trace);
		analysis = analyse();
		assert_true(analysis->job.blind);
		assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
		analysis_free(analysis);
	}
}

/* In inference, the thread whose next() returns is not the one that uses the batch. */
TEST(inference_behind_a_queue)
{
	script_begin(&s);
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		loads_by_next(1000 * i);
		lock(1000 * i, 1000 * i + 700, LOADER);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(analysis->job.trainer_tid, TRAINER);
	assert_int_equal(analysis->verdict, ANALYSIS_PREP_BOUND);
	assert_in_range(analysis->n_steps, STEPS - 2, STEPS);
	assert_int_equal(analysis->counted, COUNTED_WAITS);
}
