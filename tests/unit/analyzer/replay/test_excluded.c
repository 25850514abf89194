/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include <fcntl.h>

#include "bpf/metadata.h"

#include "bpf/metadata.h"

/* Covers time between steps that is not training, such as validation and compiling. */

static struct script s; /* too large for the stack */

#define STEPS 20

static void batch(uint64_t begin_tick, uint64_t end_tick)
{
	script_mark(&s, TRAINER, begin_tick, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	script_mark(&s, TRAINER, end_tick, MARK_BATCH_END, 0);
}

/* Makes steps of 1000 ticks, with next() for 100 and the backward pass at 200. Step `slow` is 5000 long. */
static uint64_t steps(uint64_t slow)
{
	uint64_t tick = 0, slow_tick = 0;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		if (i == slow) {
			slow_tick = tick;
			tick += 4000;
		}
		batch(tick, tick + 100);
		script_step(&s, TRAINER, tick + 200);
		tick += 1000;
	}
	script_exit(&s, TRAINER, tick + 500);
	return slow_tick;
}

static void check_excluded(const struct analysis *analysis, size_t n)
{
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(analysis->steady.n_excluded_steps, n);
	/* The verdict is for the other steps, of whose time a tenth is waiting. */
	assert_float_equal(analysis_steady_ratio(analysis, SHARE_PREP_STALL), 0.1, 0.02);
}

TEST(validation_stands_apart_from_training)
{
	uint64_t tick = steps(10);

	batch(tick, tick + 10); /* the epoch's end */
	for (uint64_t i = 0; i < 9; i++)
		batch(tick + 20 + 400 * i, tick + 320 + 400 * i);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	check_excluded(analysis, 1);
	assert_int_equal(analysis->validation.n_steps, 1);
	assert_int_equal(analysis->validation.ns / TICK_NS, 4000);
	assert_int_equal(analysis->validation.wait_ns / TICK_NS, 10 + 9 * 300);
	/* Waits within validation do not count as waits of a step. */
	assert_int_equal(analysis->wait_mean_ns / TICK_NS, 100);
	assert_int_equal(analysis->wait_p95_ns / TICK_NS, 100);
}

/* The validation pass at the job's end has no step after it, and is not tear-down. */
TEST(the_last_validation)
{
	uint64_t tick = 1000 * STEPS;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		batch(1000 * i, 1000 * i + 100);
		script_step(&s, TRAINER, 1000 * i + 200);
	}
	for (uint64_t i = 0; i < 9; i++)
		batch(tick + 400 * i, tick + 300 + 400 * i);
	script_exit(&s, TRAINER, tick + 3600);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->steady.n_excluded_steps, 0);
	assert_int_equal(analysis->validation.n_steps, 1);
	assert_int_equal(analysis->validation.ns / TICK_NS, 3500);
	assert_int_equal(analysis->validation.wait_ns / TICK_NS, 9 * 300);
	assert_in_range(analysis->window.teardown_ns / TICK_NS, 0, 1000);
}

/* With workers, a step begins where the trainer first polls for a result, which is within next(). */
TEST(validation_with_workers)
{
	uint64_t tick = 0;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		for (uint64_t k = 0; i == 10 && k < 9; k++, tick += 400) {
			script_mark(&s, TRAINER, tick, MARK_BATCH_BEGIN, MARK_BATCH_WORKERS);
			script_mark(&s, TRAINER, tick + 300, MARK_BATCH_END, 0);
		}
		script_mark(&s, TRAINER, tick, MARK_BATCH_BEGIN, MARK_BATCH_WORKERS);
		script_request(&s, 0, tick + 1);
		script_take_index(&s, 0, tick + 2);
		script_give_result(&s, 0, tick + 90, tick + 95);
		script_next(&s, 0, tick + 20, tick + 100, tick + 140);
		script_mark(&s, TRAINER, tick + 150, MARK_BATCH_END, 0);
		script_step(&s, TRAINER, tick + 200);
		tick += 1000;
	}
	script_exit(&s, TRAINER, tick + 500);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->validation.n_steps, 1);
	assert_int_equal(analysis->validation.ns / TICK_NS, 9 * 400);
	assert_int_equal(analysis->steady.n_excluded_steps, 1);
}

/* An epoch's end is one more next() and no validation. The same holds for a second loader, from which the job
 * takes a batch in each step. */
TEST(an_epoch_s_end_is_no_validation)
{
	uint64_t tick = steps(10);

	batch(tick + 3900, tick + 3910);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->validation.n_steps, 0);
	assert_int_equal(analysis->steady.n_excluded_steps, 0);
	assert_true(analysis->validation.known);
	assert_false(analysis->compiling.known);
}

/* Stacks of the samples. The frames are innermost first. */
enum {
	TRAINING = 11,
	COMPILING,
	COMPILED, /* the compiled code runs */
	DEEP,     /* the outer frames were not recorded */
};

static const struct profile_frame frames[] = {
    {1, FRAME_PYTHON, "train.py", "main"},
    {2, FRAME_PYTHON, "convert_frame.py", "_compile"},
    {3, FRAME_PYTHON, "compile_fx.py", "align_inputs.<locals>.run"},
};
static uint64_t deep[METADATA_STACK_FRAMES_MAX]; /* filled by main() */
static const uint64_t training[] = {1}, compiling[] = {2, 1}, compiled[] = {3, 1};
static const struct profile_trace traces[] = {{TRAINING, training, 1},
					      {COMPILING, compiling, 2},
					      {COMPILED, compiled, 2},
					      {DEEP, deep, METADATA_STACK_FRAMES_MAX}};
static const struct profile_metadata notes = {
    .frames = frames, .n_frames = 3, .traces = traces, .n_traces = 4, .rate_hz = 1000};

#define HALF_PERIOD 25 /* ticks */

static void sample_steps(uint64_t slow, uint64_t python)
{
	for (uint64_t i = 0; i < STEPS; i++)
		script_sample(&s, TRAINER, (i < slow ? 0 : 4000) + 1000 * i + 500, python);
}

static struct analysis *analyse(void)
{
	return script_analyse(&s,
			      &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4, .profile = &notes});
}

TEST(compiling_stands_apart_from_training)
{
	uint64_t tick = steps(10);

	sample_steps(10, COMPILED);
	script_sample(&s, TRAINER, tick + 500, COMPILING);
	/* asleep in between, while its processes compile */
	script_sample(&s, TRAINER, tick + 3500, COMPILING);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	check_excluded(analysis, 1);
	assert_int_equal(analysis->compiling.n_steps, 1);
	assert_int_equal(analysis->compiling.ns / TICK_NS, 3000 + 2 * HALF_PERIOD);
	assert_int_equal(share_ticks(analysis, SHARE_COMPILING), 3000 + 2 * HALF_PERIOD);
	assert_true(analysis_share_known(analysis, SHARE_COMPILING));
	assert_int_equal(analysis->steady.share_ns[SHARE_COMPILING], 0);
	assert_int_equal(analysis->steady.n_warmup_steps, 0);
	assert_int_equal(analysis->validation.n_steps, 0);
}

/* Compiling is one share, whether the trainer is on a CPU, without one, or asleep. It counts neither as
 * computing nor as a lack of cores that would come again. */
TEST(compiling_is_one_share)
{
	uint64_t tick = 0;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		batch(tick, tick + 100);
		if (i == 10) {
			script_sample(&s, TRAINER, tick + 200, COMPILING);
			script_off(&s, TRAINER, tick + 300, tick + 300, tick + 700, 0, 0);
			script_off(&s, TRAINER, tick + 1000, tick + 3000, tick + 3000, 0x1, TIMER_WOKE);
			script_sample(&s, TRAINER, tick + 3500, COMPILING);
			tick += 4000;
		}
		script_step(&s, TRAINER, tick + 200);
		tick += 1000;
		script_sample(&s, TRAINER, tick - 100, TRAINING);
	}
	script_exit(&s, TRAINER, tick + 500);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_COMPILING), 3300 + 2 * HALF_PERIOD);
	assert_int_equal(share_ticks(analysis, SHARE_CPU_STARVED), 0);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
}

/* Another thread of the trainer's process compiles, while the trainer waits for it or continues. */
TEST(a_thread_compiles)
{
	enum { HELPER = TRAINER + 2 };
	uint64_t tick = steps(10);

	sample_steps(10, TRAINING);
	script_fork(&s, TRAINER, HELPER, 1);
	script_off(&s, HELPER, 2, tick + 990, tick + 990, 0x1, TRAINER);
	script_sample(&s, HELPER, tick + 1000, COMPILING);
	script_off(&s, TRAINER, tick + 2000, tick + 3000, tick + 3000, 0x1, HELPER);
	script_sample(&s, HELPER, tick + 2900, COMPILING);
	script_off(&s, HELPER, tick + 3010, tick + 30000, tick + 30000, 0x1, TIMER_WOKE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_COMPILING), 900 + HALF_PERIOD);
	assert_int_equal(analysis->compiling.ns / TICK_NS, 1900 + 2 * HALF_PERIOD);
}

/* A compiler recurses. The frames around the recorded ones are then unknown, and do not end compiling. A
 * stack that could not be read does not end it, either. */
TEST(deep_stacks_end_nothing)
{
	uint64_t tick = steps(10);

	sample_steps(10, TRAINING);
	script_sample(&s, TRAINER, tick + 500, COMPILING);
	script_sample(&s, TRAINER, tick + 600, DEEP);
	script_sample(&s, TRAINER, tick + 700, 0);
	script_sample(&s, TRAINER, tick + 3500, COMPILING);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(share_ticks(analysis, SHARE_COMPILING), 3000 + 2 * HALF_PERIOD);
}

/* Compiling that cannot be seen is not 0. Its time is in other shares. */
TEST(no_python_stacks)
{
	steps(10);
	sample_steps(10, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_false(analysis_share_known(analysis, SHARE_COMPILING));
	assert_true(analysis_share_known(analysis, SHARE_DEVICE));
}

static void write_file(uint32_t tid, uint64_t begin_tick, uint64_t end_tick)
{
	struct event *event =
	    script_call(&s, tid, begin_tick, begin_tick + 1, SYS_openat, EVENT_FILE_REG, 4000, 30);

	event->call.argument = O_WRONLY | O_CREAT;
	script_call(&s, tid, begin_tick + 10, begin_tick + 20, SYS_write, EVENT_FILE_REG, 4000, 200000)
	    ->call.fd = 30;
	script_call(&s, tid, end_tick - 1, end_tick, SYS_close, EVENT_FILE_REG, 4000, 0)->call.fd = 30;
}

/* A file that a compiler writes, by itself or in processes that it starts, is no checkpoint. A file written
 * after compiling is one. */
TEST(a_compiler_s_files)
{
	enum { CHILD = 300 };
	uint64_t tick = steps(10);

	sample_steps(10, TRAINING);
	script_sample(&s, TRAINER, tick + 100, TRAINING);
	write_file(TRAINER, tick + 200, tick + 400); /* no sample yet */
	script_sample(&s, TRAINER, tick + 500, COMPILING);
	write_file(TRAINER, tick + 600, tick + 1500);
	script_fork(&s, TRAINER, CHILD, tick + 1600);
	write_file(CHILD, tick + 1700, tick + 2500);
	script_exit(&s, CHILD, tick + 2600);
	script_sample(&s, TRAINER, tick + 3500, COMPILING);
	struct analysis *analysis = analyse();
	assert_null(analysis->checkpoints);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 0);
	assert_int_equal(share_ticks(analysis, SHARE_COMPILING), 3000 + 2 * HALF_PERIOD);
	analysis_free(analysis);

	write_file(TRAINER, tick + 5300, tick + 5600);
	analysis = analyse();
	assert_non_null(analysis->checkpoints);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 300);
	analysis_free(analysis);
}

/* With 20 s of training after 40 s of compiling, the verdict of device-bound is uncertain, and the report
 * says so. */
TEST(a_job_that_mostly_compiles_is_not_surely_device_bound)
{
	enum { COMPILE_TICKS = 40000, STEP_TICKS = 1000 };
	uint64_t tick = 0;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		batch(tick, tick + 10);
		if (!i) {
			script_sample(&s, TRAINER, tick + 100, COMPILING);
			script_sample(&s, TRAINER, tick + COMPILE_TICKS, COMPILING);
			tick += COMPILE_TICKS;
		}
		script_sample(&s, TRAINER, tick + 150, TRAINING);
		script_step(&s, TRAINER, tick + 200);
		tick += STEP_TICKS;
	}
	script_exit(&s, TRAINER, tick + 500);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse();
	assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
	assert_non_null(strstr(analysis->note, "paid once"));
	assert_true(analysis->n_actions > 0);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_int_equal(analysis->actions[i].confidence, CONFIDENCE_LOW);
	assert_non_null(strstr(analysis->actions[0].text, "compiling took"));
	assert_float_equal(analysis_steady_ratio(analysis, SHARE_DEVICE), 0.99, 0.001);
}

/* Predictions of recurring work leave out compiling. That holds if a step compiles so briefly that it is like
 * the others. It also holds if so few steps do not compile that none is left out. */
TEST(predictions_are_without_compiling)
{
	uint64_t tick = steps(STEPS);
	struct analysis *before = analyse(), *analysis;

	(void)tick;
	sample_steps(STEPS, TRAINING);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_sample(&s, TRAINER, 1000 * i + 600, COMPILING);
		script_sample(&s, TRAINER, 1000 * i + 900, COMPILING);
		script_sample(&s, TRAINER, 1000 * i + 950, TRAINING);
	}
	analysis = analyse();
	assert_int_equal(analysis->steady.n_excluded_steps, 0);
	assert_non_null(before->predictions);
	assert_non_null(analysis->predictions);
	assert_float_equal(before->predictions->recorded_step_s * NS_PER_S / TICK_NS, 1000, 30);
	assert_float_equal(analysis->predictions->recorded_step_s * NS_PER_S / TICK_NS,
			   1000 - 300 - 2 * HALF_PERIOD, 30);
	assert_float_equal(analysis->predictions->replayed_step_s, analysis->predictions->recorded_step_s,
			   0.001);
	assert_true(analysis->predictions->device_rate.value > 1.4 * before->predictions->device_rate.value);
	analysis_free(before);
	analysis_free(analysis);
}

int main(void)
{
	for (size_t i = 0; i < METADATA_STACK_FRAMES_MAX; i++)
		deep[i] = training[0];
	return run_unit_tests(NULL, NULL);
}
