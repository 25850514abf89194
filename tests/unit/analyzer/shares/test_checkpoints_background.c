/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint_script.h"

#include <linux/futex.h>
#include <math.h>
#include <string.h>

#include "analyzer/trace/frame_work.h"
#include "bpf/metadata.h"

/* Checkpoints that threads and children write while training continues, and their cost. */

/* A thread writes over five steps and is throttled for 500 ticks. At the end the trainer waits for it for
 * 100. */
TEST(a_thread_s_save_stalls_what_waits_for_it)
{
	steps();
	write_file(REQUESTER, 3300, 8600, LARGE);
	script_off(&s, REQUESTER, 3400, 3900, 3900, 0x2, TIMER_WOKE);
	script_off(&s, TRAINER, 8500, 8600, 8600, 0x1, REQUESTER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	const struct checkpoint_item *item = &analysis->checkpoints->items[0];
	assert_true(item->background);
	assert_int_equal(item->bytes, LARGE);
	assert_int_equal(item->stall_ns / TICK_NS, 100);
	assert_int_equal(item->writeback_ns / TICK_NS, 500);
	/* The background part takes 5200, and steps nearly 1000 each. The next checkpoint must not begin
	 * before it ends. One save does not show how much their costs vary. */
	assert_int_equal(analysis->checkpoints->advised_steps, 0);
	assert_non_null(strstr(analysis->checkpoints->unclear, "only one save"));
	assert_int_equal(analysis->checkpoints->advised_least, 6);
}

/* The trainer copies its state for 600 ticks after the backward pass of every fourth of many steps. A thread
 * writes the copy to a file, which it opens up to two steps later. The copy counts as computing, and as the
 * save's cost. For a cost of 5 % of the time, the advice is one save every 12 steps. */
TEST(a_copy_is_the_cost_of_its_save)
{
	for (uint64_t late = 0; late <= 2; late++) {
		const struct checkpoint_report *report;
		struct analysis *analysis;
		uint64_t now = 0;

		script_begin(&s);
		for (uint64_t i = 0; i < 40; i++) {
			bool saves = i % 4 == 3;

			script_mark(&s, TRAINER, now, MARK_NEXT_BEGIN, 0);
			script_mark(&s, TRAINER, now + 100, MARK_NEXT_END, 0);
			script_step(&s, TRAINER, now + 200);
			if (saves && i < 36)
				write_file(HELPER, now + 1550 + 1000 * late, now + 1590 + 1000 * late, LARGE);
			now += saves ? 1600 : 1000;
		}
		script_exit(&s, TRAINER, now + 500);
		analysis = script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4});
		report = analysis->checkpoints;
		assert_non_null(report);
		assert_int_equal(report->n_items, 9);
		assert_true(report->items[0].background);
		assert_in_range(report->copy_ns / TICK_NS, 590, 610);
		assert_in_range(report->advised_steps, 12, 13);
		assert_float_equal(report->overhead, 600.0 * 9 / 40600, 0.01);
		for (size_t i = 0, found = 0; i <= analysis->n_actions; i++) {
			assert_true(i < analysis->n_actions || found);
			found += i < analysis->n_actions &&
				 strstr(analysis->actions[i].text, "Write a checkpoint every 1") != NULL;
		}
		analysis_free(analysis);
	}
}

/* A forked child writes, and the trainer sleeps until the child ends. */
TEST(a_forked_child_s_save_stalls_the_trainer)
{
	steps();
	script_fork(&s, TRAINER, WRITER, 3300);
	struct event *event = script_add(&s, WRITER, EVENT_NAME, 3300, 3300);
	event->name.parent_tgid = TRAINER;
	write_file(WRITER, 3400, 3700, LARGE);
	script_exit(&s, WRITER, 3710);
	script_off(&s, TRAINER, 3310, 3700, 3700, 0x1, WRITER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	const struct checkpoint_item *item = &analysis->checkpoints->items[0];
	assert_true(item->background);
	assert_int_equal(item->bytes, LARGE);
	assert_int_equal(item->stall_ns / TICK_NS, 390);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
}

/* The trainer waits until the thread reports that all is done, also while the thread prepares the data to
 * write. */
TEST(wait_for_a_thread_that_saves)
{
	steps();
	write_file(REQUESTER, 3300, 5600, LARGE);
	script_off(&s, REQUESTER, 5610, 5680, 5680, 0x1, TIMER_WOKE);
	script_off(&s, TRAINER, 5300, 5690, 5690, 0x1, REQUESTER);
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	script_off(&s, TRAINER, 7300, 7400, 7400, 0x1, WRITER); /* by a child that saves nothing */
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 390);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 100);
}

/* A save is not over because the trainer meets the saver at a lock of the kernel, such as the address
 * space's. The same holds if they meet for a moment at a lock that they share, or if the trainer waited for
 * another process. */
TEST(waits_within_a_save)
{
	steps();
	open_for_writing(REQUESTER, 2300);
	script_call(&s, REQUESTER, 2302, 2900, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 4400, 4600, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 4699, 4700, SYS_close, EVENT_FILE_REG, 60, 0);
	script_off(&s, TRAINER, 3020, 3340, 3340, 0x2, REQUESTER);
	script_off(&s, TRAINER, 3400, 3500, 3500, 0x1, REQUESTER);
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	script_off(&s, TRAINER, 3600, 3950, 3950, 0x1, WRITER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 2 * LARGE);
}

/* Adds a save by a child that lives on. A thread of the trainer's process sends it a request, and waits for
 * its answer. */
static void save_by_child(uint64_t begin_tick, uint64_t end_tick)
{
	script_off(&s, REQUESTER, begin_tick, end_tick + 10, end_tick + 10, 0x1, WRITER);
	write_file(WRITER, begin_tick + 10, end_tick, LARGE);
}

TEST(child_that_answers_a_thread)
{
	steps();
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	/* Each save waits for the one before, for 400 ticks. No backward pass lies between them. */
	save_by_child(2300, 4700);
	script_off(&s, TRAINER, 4320, 4720, 4720, 0x1, REQUESTER);
	save_by_child(4750, 7700);
	script_off(&s, TRAINER, 7320, 7720, 7720, 0x1, REQUESTER);
	save_by_child(7750, 9500);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 800);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
	const struct checkpoint_report *report = analysis->checkpoints;
	assert_int_equal(report->n_items, 3);
	for (size_t i = 0; i < report->n_items; i++)
		assert_int_equal(report->items[i].bytes, LARGE);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_null(strstr(analysis->actions[i].text, "Write checkpoints in the background"));
}

/* The child reports that the save is done by another thread than the one that writes. */
TEST(child_that_answers_by_another_thread)
{
	steps();
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	script_add(&s, SPEAKER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	write_file(WRITER, 3400, 4700, LARGE);
	script_off(&s, TRAINER, 4320, 4720, 4720, 0x1, SPEAKER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 400);
}

/* The trainer waits for a thread that does not write itself, but waits for the one that writes. */
TEST(wait_for_a_thread_that_waits_for_a_save)
{
	steps();
	write_file(REQUESTER, 3300, 5600, LARGE);
	script_off(&s, HELPER, 3300, 5610, 5610, 0x1, REQUESTER);
	script_off(&s, TRAINER, 5250, 5650, 5650, 0x1, HELPER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 400);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
}

/* A thread does not wait for a save if a child that saves nothing wakes it, or if a saving thread of its own
 * process does. Files that children of other processes write are no checkpoints. */
TEST(who_saves_nothing)
{
	steps();
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	script_add(&s, 160, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	script_add(&s, 170, EVENT_NAME, 10, 10)->name.parent_tgid = 160;
	write_file(WRITER, 1300, 1700, LARGE);
	write_file(REQUESTER, 2300, 2700, LARGE);
	write_file(170, 3300, 5700, LARGE);
	script_off(&s, HELPER, 6300, 6400, 6400, 0x1, REQUESTER);
	script_off(&s, HELPER, 6500, 6700, 6700, 0x1, 160);
	script_off(&s, TRAINER, 6300, 6710, 6710, 0x1, HELPER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 0);
	assert_int_equal(analysis->checkpoints->n_items, 2);
}

/* Stacks for script_sample(&s, ...): 11 trains, 12 saves, 13 imports the module that saves. */
static struct analysis *analyse_sampled(void)
{
	static const struct profile_frame frames[] = {
	    {1, FRAME_PYTHON, "train.py", "main"},
	    {2, FRAME_PYTHON, "state_dict_saver.py", "async_save"},
	    {3, FRAME_PYTHON, "state_dict_saver.py", "<module>"},
	};
	static const uint64_t training[] = {1}, saving[] = {2, 1}, importing[] = {3, 1};
	static const struct profile_trace traces[] = {{11, training, 1}, {12, saving, 2}, {13, importing, 2}};
	const struct profile_metadata notes = {
	    .frames = frames, .n_frames = 3, .traces = traces, .n_traces = 3, .rate_hz = 1000};
	return script_analyse(&s,
			      &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4, .profile = &notes});
}

TEST(orbax_s_functions_save_and_load)
{
	assert_int_equal(frame_work_of("async_checkpointer.py", "AsyncCheckpointer.save"), STACK_SAVE);
	assert_int_equal(frame_work_of("async_checkpointer.py", "_AsyncManager._thread_func"), STACK_SAVE);
	assert_int_equal(frame_work_of("async_checkpointer.py", "AsyncCheckpointer.restore"), STACK_LOAD);
	assert_int_equal(frame_work_of("checkpointer.py", "Checkpointer.restore"), STACK_LOAD);
	assert_int_equal(frame_work_of("future.py", "_SignalingThread.run"), STACK_SAVE);
	assert_int_equal(frame_work_of("future.py", "Future.result"), STACK_OTHER);
	assert_int_equal(frame_work_of("memory.py", "Memory.populate"), STACK_SAVE);
	assert_int_equal(frame_work_of("memory.py", "Memory.beat"), STACK_OTHER);
	assert_int_equal(frame_work_of("checkpointer.py", "Checkpointer._save"), STACK_SAVE);
	assert_int_equal(frame_work_of("async_checkpointer.py", "<module>"), STACK_OTHER);
}

/* Copying the state makes no call. Samples of the stack show it, to half a sampling interval (25 ticks). */
TEST(copy_by_stack_samples)
{
	steps();
	for (uint64_t i = 0; i < STEPS; i++) {
		script_sample(&s, TRAINER, 1000 * i + 250, 11);
		script_sample(&s, TRAINER, 1000 * i + 850, i == 5 ? 13 : 11);
	}
	for (uint64_t tick = 3400; tick <= 3600; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	script_off(&s, TRAINER, 3450, 3540, 3540, 0x1, TIMER_WOKE); /* asleep during the copy */
	/* a backward pass at 7200 limits the copy */
	script_sample(&s, TRAINER, 7210, 12);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 250 + 35);
}

/* The copy begins when the save before has ended, but by the samples it seems to begin before that save's
 * last write. */
TEST(copy_right_behind_a_save)
{
	steps();
	open_for_writing(REQUESTER, 2300);
	script_call(&s, REQUESTER, 2302, 2400, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 3380, 3393, SYS_write, EVENT_FILE_REG, 60, LARGE);
	script_call(&s, REQUESTER, 3394, 3395, SYS_close, EVENT_FILE_REG, 60, 0);
	for (uint64_t tick = 3400; tick <= 3600; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	write_file(REQUESTER, 3610, 4700, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	assert_int_equal(analysis->checkpoints->n_items, 2);
	assert_int_equal(analysis->checkpoints->items[0].bytes, 2 * LARGE);
	assert_int_equal(analysis->checkpoints->items[1].bytes, LARGE);
}

/* The copy is too quick for samples. The trainer ends the sleep of the thread that saves, or of one that has
 * a child save. */
TEST(a_save_that_is_handed_over_is_another_one)
{
	for (int by_child = 0; by_child < 2; by_child++) {
		uint32_t writer = by_child ? WRITER : REQUESTER;

		steps();
		if (by_child) {
			script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
			script_off(&s, REQUESTER, 2250, 3200, 3200, 0x1, WRITER);
		}
		write_file(writer, 2300, 3201, LARGE);
		script_off(&s, REQUESTER, 3205, 3600, 3601, 0x1, TRAINER);
		write_file(writer, 3610, 4700, LARGE);
		_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
		assert_int_equal(analysis->checkpoints->n_items, 2);
		assert_int_equal(analysis->checkpoints->items[1].bytes, LARGE);
	}
}

/* At a lock, the trainer also ends sleeps of the thread that saves. */
TEST(a_lock_between_two_files_hands_no_save_over)
{
	steps();
	write_file(REQUESTER, 3300, 3400, LARGE);
	script_off(&s, REQUESTER, 3410, 3500, 3500, 0x1, TRAINER);
	write_file(REQUESTER, 3510, 3600, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
}

/* The save is written by a child that existed before. */
TEST(copy_right_behind_a_save_of_a_child)
{
	steps();
	script_add(&s, WRITER, EVENT_NAME, 10, 10)->name.parent_tgid = TRAINER;
	write_file(WRITER, 2300, 3395, LARGE);
	for (uint64_t tick = 3400; tick <= 3600; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	write_file(WRITER, 3610, 4700, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	assert_int_equal(analysis->checkpoints->n_items, 2);
	assert_int_equal(analysis->checkpoints->items[1].bytes, LARGE);
}

/* A thread pickles over several steps and then writes. Between two saves it is asleep. */
TEST(thread_by_stack_samples)
{
	steps();
	for (uint64_t begin = 2300; begin <= 8300; begin += 6000) {
		for (uint64_t tick = begin; tick <= begin + 2300; tick += 50)
			script_sample(&s, REQUESTER, tick, 12);
		write_file(REQUESTER, begin + 2310, begin + 2400, LARGE);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	assert_int_equal(analysis->checkpoints->n_items, 2);
	const struct checkpoint_item *item = &analysis->checkpoints->items[0];
	assert_int_equal((item->begin_ns - at(0)) / TICK_NS, 2275);
	assert_int_equal((item->end_ns - at(0)) / TICK_NS, 4700);
}

/* If calls show when a save begins or ends, samples within them do not make it longer. */
TEST(samples_within_calls)
{
	steps();
	write_file(TRAINER, 3300, 3400, LARGE);
	for (uint64_t tick = 3305; tick <= 3405; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	write_file(TRAINER, 3420, 3500, LARGE);
	script_sample(&s, TRAINER, 3455, 12);
	script_sample(&s, TRAINER, 3495, 12);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 200);
}

/* The trainer copies the state, and a thread writes it steps later, which is one checkpoint. A write that
 * follows no copy, or that the trainer makes itself later on, does not belong to another checkpoint. */
TEST(copy_and_what_writes_it)
{
	steps();
	for (uint64_t tick = 1400; tick <= 1600; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	write_file(REQUESTER, 3300, 3700, LARGE);
	for (uint64_t tick = 5400; tick <= 5600; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	write_file(TRAINER, 6300, 6700, LARGE);
	script_call(&s, REQUESTER, 8300, 8310, SYS_fsync, EVENT_FILE_REG, 70, 0); /* of a log */
	write_file(REQUESTER, 9300, 9700, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	const struct checkpoint_report *report = analysis->checkpoints;
	assert_int_equal(report->n_items, 3);
	assert_int_equal((report->items[0].begin_ns - at(0)) / TICK_NS, 1375);
	assert_int_equal((report->items[1].begin_ns - at(0)) / TICK_NS, 6300);
	assert_int_equal((report->items[2].begin_ns - at(0)) / TICK_NS, 9300);
}

/* The trainer waited for a save in between, so a later save writes another state. */
TEST(copy_and_a_later_save)
{
	steps();
	for (uint64_t tick = 1400; tick <= 1600; tick += 50)
		script_sample(&s, TRAINER, tick, 12);
	script_off(&s, TRAINER, 2300, 2700, 2700, 0x1, REQUESTER);
	write_file(REQUESTER, 3300, 3700, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse_sampled();
	assert_int_equal(analysis->checkpoints->n_items, 1);
	assert_int_equal((analysis->checkpoints->items[0].begin_ns - at(0)) / TICK_NS, 3300);
}

/* An event writer writes much, but in small pieces, while training continues. */
TEST(log_of_a_thread_is_none)
{
	steps();
	open_for_writing(REQUESTER, 50);
	for (uint64_t i = 0; i < STEPS; i++)
		small_writes(REQUESTER, 1000 * i + 600, 3);
	script_call(&s, REQUESTER, 1000 * STEPS - 100, 1000 * STEPS - 99, SYS_close, EVENT_FILE_REG, 60, 0);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_null(analysis->checkpoints);
}

#define GIL_WORD  0x7000
#define GIL_TIMED (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG)

static void sleep_on_lock(uint32_t tid, uint64_t begin_tick, uint64_t end_tick, uint64_t word, int64_t result,
			  uint32_t waker_tid)
{
	script_off(&s, tid, begin_tick, end_tick, end_tick, 0x1, waker_tid);
	script_call(&s, tid, begin_tick, end_tick, SYS_futex, EVENT_FILE_NONE, word, result)->call.argument =
	    GIL_TIMED;
}

static void wake_at_lock(uint32_t tid, uint64_t tick, uint64_t word)
{
	script_call(&s, tid, tick, tick, SYS_futex, EVENT_FILE_NONE, word, 1)->call.argument =
	    FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
}

/* The trainer waits for the interpreter lock for 255 ticks, and then the other thread does for 30. */
static void lock_step(uint64_t i, uint64_t tick)
{
	uint64_t word = GIL_WORD + 4 * (i % 2);

	sleep_on_lock(TRAINER, tick + 350, tick + 600, word, -ETIMEDOUT, TIMER_WOKE);
	wake_at_lock(HELPER, tick + 606, word);
	sleep_on_lock(TRAINER, tick + 601, tick + 606, word, 0, HELPER);
	sleep_on_lock(HELPER, tick + 620, tick + 650, word, 0, TRAINER);
	wake_at_lock(TRAINER, tick + 650, word);
}

/* Steps 3 to 8 run during a save. One of them waits for it for 100, which is a stall and does not count in
 * the tail. */
#define IS_BESIDE(i) ((i) >= 3 && (i) <= 8)

static void long_steps(const int *longer)
{
	uint64_t tick = 0;

	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, tick, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, tick + 100, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, tick + 200);
		if (IS_BESIDE(i) || i == 10)
			lock_step(i, tick);
		tick += (uint64_t)(1000 + longer[i]);
	}
	script_exit(&s, TRAINER, tick + 500);
}

TEST(steps_during_a_save_take_longer)
{
	/* The first step does not count. */
	static const int longer[STEPS] = {0, 20, -20, 200, 200, 200, 200, 300, 200, 20, -20, 0};
	const struct checkpoint_tail *tail;

	long_steps(longer);
	write_file(REQUESTER, 3300, 9200, LARGE);
	/* Step 7 begins at 7800. */
	script_off(&s, TRAINER, 8500, 8600, 8600, 0x1, REQUESTER);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 1);
	tail = analysis->checkpoints->tail;
	assert_non_null(tail);
	assert_int_equal(tail->n_during, 6);
	assert_int_equal(tail->n_others, STEPS - 1 - 6);
	/* The 6 steps during the save take 1200 each without the stall. The others take 1020, 980, 1020, 980,
	 * and 1200 for the last one, which is taken to be as long as the median. */
	assert_float_equal(tail->ns / TICK_NS, 6 * 1200 - 6.0 / 5 * 5200, 0.1);
	assert_float_equal(tail->error_ns / TICK_NS, 2 * 6 * sqrt(33600.0 / 5 / 4), 0.1);
	assert_float_equal(tail->gil_ns / TICK_NS, 6 * 255 - 6.0 / 5 * 255, 0.1);
	assert_float_equal(tail->share_ns[SHARE_CPU_STARVED], tail->gil_ns, 1);
	assert_float_equal(tail->share_ns[SHARE_DEVICE], tail->ns - tail->gil_ns, 1);
	assert_float_equal(tail->share_ns[SHARE_CHECKPOINT_STALL], 0, 0.1);
}

/* Too few steps run during the save for a tail. */
TEST(no_tail_of_few_steps)
{
	steps();
	write_file(REQUESTER, 3300, 6600, LARGE);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_null(analysis->checkpoints->tail);
}

/* A job that saves, in ticks: the trainer copies the state, which looks like computing, or writes it itself.
 * Another thread writes the copy for `full`, and steps take `slow` longer meanwhile. For `stage` of that it
 * has not written yet, but mostly waits for a lock. */
struct saver {
	uint64_t copy, own, full, slow, stage;
	uint64_t every; /* as recorded, in steps */
};

static uint64_t save_add(const struct saver *saver, uint64_t now, uint64_t *busy_until, bool record)
{
	if (*busy_until > now && record)
		script_off(&s, TRAINER, now, *busy_until, *busy_until, 0x1, HELPER);
	now = (*busy_until > now ? *busy_until : now) + saver->copy;
	if (saver->own && record)
		write_file(TRAINER, now, now + saver->own, LARGE);
	if (saver->full && record && !saver->stage) {
		write_file(HELPER, now + 1, now + saver->full, LARGE);
	} else if (saver->full && record) {
		open_for_writing(HELPER, now + 1);
		script_off(&s, HELPER, now + 3, now + saver->stage, now + saver->stage, 0x1, TIMER_WOKE);
		script_call(&s, HELPER, now + saver->stage + 300, now + saver->full - 2, SYS_write,
			    EVENT_FILE_REG, 60, LARGE);
		script_call(&s, HELPER, now + saver->full - 1, now + saver->full, SYS_close, EVENT_FILE_REG,
			    60, 0);
	}
	*busy_until = now + saver->full;
	return now + saver->own;
}

/* Runs the job for `saves` intervals and returns its time. */
static uint64_t saver_run(const struct saver *saver, uint64_t every, uint64_t saves, bool record)
{
	uint64_t now = 0, busy_until = 0, noise = 1;

	for (uint64_t i = 1; i <= every * saves; i++) {
		uint64_t begin = now;

		noise = (noise * 5 + 3) % 32;
		now += 985 + noise + (busy_until > now ? saver->slow : 0);
		if (record) {
			script_mark(&s, TRAINER, begin, MARK_NEXT_BEGIN, 0);
			script_mark(&s, TRAINER, begin + 100, MARK_NEXT_END, 0);
			script_step(&s, TRAINER, begin + 200);
		}
		if (i % every == 0 && i < every * saves)
			now = save_add(saver, now, &busy_until, record);
	}
	return now;
}

/* Returns the least interval whose saves cost at most 5 % of the time, of all of them. */
static uint64_t saver_sweep(const struct saver *saver)
{
	static const struct saver never = {0};

	for (uint64_t every = 1; every < 500; every++) {
		double without = (double)saver_run(&never, every, 21, false);

		if ((double)saver_run(saver, every, 21, false) - without <= 0.05 * without)
			return every;
	}
	return 0;
}

static struct analysis *saver_analyse(const struct saver *saver)
{
	uint64_t end;

	script_begin(&s);
	end = saver_run(saver, saver->every, 12, true);
	script_exit(&s, TRAINER, end + 100);
	return script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4});
}

TEST(the_interval_is_that_of_a_sweep_over_all)
{
	static const struct saver savers[] = {
	    {.own = 400, .every = 5},
	    {.own = 3000, .every = 10},
	    {.own = 300, .copy = 200, .every = 8},
	    {.copy = 600, .full = 1500, .every = 10},
	    {.copy = 100, .full = 4000, .slow = 200, .every = 12},
	    {.full = 6000, .slow = 300, .every = 15},
	    {.copy = 300, .full = 20000, .slow = 50, .every = 30},
	    {.copy = 2000, .full = 7000, .slow = 500, .every = 20},
	    {.copy = 200, .full = 25000, .slow = 100, .every = 40},
	};

	for (size_t i = 0; i < sizeof(savers) / sizeof(*savers); i++) {
		_cleanup_(analysis_freep) struct analysis *analysis = saver_analyse(&savers[i]);
		const struct checkpoint_report *report = analysis->checkpoints;
		double best = (double)saver_sweep(&savers[i]);

		assert_non_null(report);
		assert_int_equal(report->n_items, 11);

		assert_in_range(report->advised_steps, floor(0.8 * best), ceil(1.2 * best));
		assert_in_range(report->advised_steps, report->advised_least, report->advised_most);
		assert_null(report->unclear);
		double sum_ns = 0;
		for (size_t k = 0; k < CHECKPOINT_CAUSES; k++)
			sum_ns += report->cause_ns[k];
		assert_float_equal(sum_ns / TICK_NS, report->cost_ns / TICK_NS, 2);
		assert_float_equal(report->cause_ns[CHECKPOINT_WRITE] / TICK_NS, savers[i].own, 5);
		assert_float_equal(report->cause_ns[CHECKPOINT_WAIT], 0, 1);
		/* The share contains it all. */
		assert_float_equal((double)share_ticks(analysis, SHARE_CHECKPOINT_STALL),
				   11 * report->cost_ns / TICK_NS, 0.04 * 11 * report->cost_ns / TICK_NS);
	}
}

/* Each save waits for the one before. No step runs without a save, so what a step takes is not known. */
TEST(no_interval_if_saves_follow_one_another)
{
	static const struct saver saver = {.copy = 100, .full = 9000, .slow = 200, .every = 6};
	_cleanup_(analysis_freep) struct analysis *analysis = saver_analyse(&saver);
	const struct checkpoint_report *report = analysis->checkpoints;

	assert_int_equal(report->n_items, 11);
	assert_int_equal(report->advised_steps, 0);
	assert_int_equal(report->advised_most, 0);
	assert_non_null(report->unclear);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_null(strstr(analysis->actions[i].text, "Write a checkpoint every"));
}

/* A longer interval ends the waits, so the interval does not count them. */
TEST(waits_for_the_save_before_end_with_a_longer_interval)
{
	struct saver saver = {.copy = 300, .full = 9000, .every = 6};
	_cleanup_(analysis_freep) struct analysis *analysis = NULL;
	const struct checkpoint_report *report;
	uint64_t now = 0, busy_until = 0;

	script_begin(&s);
	for (uint64_t i = 1; i <= 180; i++) {
		script_mark(&s, TRAINER, now, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, now + 100, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, now + 200);
		now += 1000;
		if (i % 30 == 10 || i % 30 == 16) /* two in a row, and a pause */
			now = save_add(&saver, now, &busy_until, true);
	}
	script_exit(&s, TRAINER, now + 100);
	analysis = script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4});
	report = analysis->checkpoints;
	assert_int_equal(report->n_items, 12);
	for (size_t i = 0; i < 12; i++)
		assert_in_range(report->items[i].wait_ns / TICK_NS, i % 2 ? 0 : 2900, i % 2 ? 0 : 3100);
	assert_in_range(report->cost_ns / TICK_NS, 280, 320);
	assert_in_range(report->cause_ns[CHECKPOINT_COPY] / TICK_NS, 280, 320);
	assert_in_range(report->cause_ns[CHECKPOINT_WAIT] / TICK_NS, 6 * 2900 / 11, 6 * 3100 / 11);
	assert_in_range(report->advised_steps, 9, 10);
}

/* The copy follows the backward pass, and the rest of its step is as slow as the save's other steps. That
 * is no part of the copy. */
TEST(the_rest_of_a_copy_s_step_is_no_copy)
{
	_cleanup_(analysis_freep) struct analysis *analysis = NULL;
	const struct checkpoint_report *report;
	uint64_t now = 200, busy_until = 0;

	script_begin(&s);
	for (uint64_t i = 1; i <= 180; i++) {
		script_step(&s, TRAINER, now);
		if (i % 18 == 0) {
			write_file(HELPER, now + 300, now + 300 + 5 * 1250, LARGE);
			busy_until = now + 300 + 5 * 1250;
			now += 300;
		}
		now += busy_until > now ? 1250 : 1000;
	}
	script_exit(&s, TRAINER, now + 100);
	analysis = script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .n_cpus = 4});
	report = analysis->checkpoints;
	assert_in_range(report->n_items, 9, 10);
	assert_in_range(report->cost_ns / TICK_NS, 1530, 1570);
	assert_in_range(report->cause_ns[CHECKPOINT_COPY] / TICK_NS, 280, 320);
	assert_in_range(report->cause_ns[CHECKPOINT_UNKNOWN] / TICK_NS, 1220, 1280);
}

/* Between the pieces of a save there may be a step; saves of other sizes are no pieces. */
TEST(pieces_with_pauses_are_one_save)
{
	steps();
	write_file(REQUESTER, 1300, 1800, LARGE);
	write_file(REQUESTER, 3100, 3150, LARGE / 4);
	write_file(REQUESTER, 3300, 3900, LARGE - LARGE / 4);
	write_file(REQUESTER, 5300, 5900, LARGE);
	write_file(REQUESTER, 7300, 7350, LARGE / 4);
	write_file(REQUESTER, 8300, 8350, LARGE / 4);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 5);
	assert_int_equal(analysis->checkpoints->items[1].bytes, LARGE);
	assert_int_equal(analysis->checkpoints->items[3].bytes, LARGE / 4);
}

/* The trainer also waits in the middle of a save. The save's two files have as many bytes as other saves. */
TEST(a_wait_in_the_middle_of_a_save_ends_none)
{
	steps();
	for (uint64_t i = 1; i <= 9; i += 4) {
		uint64_t tick = 1000 * i + 300;

		write_file(REQUESTER, tick, tick + 350, LARGE / 4);
		if (i != 5)
			script_off(&s, TRAINER, tick + 10, tick + 360, tick + 360, 0x1, REQUESTER);
		write_file(REQUESTER, tick + 370, tick + 800, LARGE - LARGE / 4);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(0);
	assert_int_equal(analysis->checkpoints->n_items, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(analysis->checkpoints->items[i].bytes, LARGE);
		assert_int_equal(analysis->checkpoints->items[i].wait_ns, 0);
		assert_int_equal(analysis->checkpoints->items[i].write_ns / TICK_NS, 346 + 426);
	}
}

static bool advises(const struct analysis *analysis, const char *text)
{
	for (size_t i = 0; i < analysis->n_actions; i++)
		if (strstr(analysis->actions[i].text, text))
			return true;
	return false;
}

/* Staging that takes more from the steps than it works is better awaited; else it is not. */
TEST(staging_that_slows_steps_is_to_be_awaited)
{
	const struct saver costly = {.full = 6000, .stage = 4000, .slow = 400, .every = 12};
	const struct saver cheap = {.full = 6000, .stage = 4000, .slow = 60, .every = 12};
	_cleanup_(analysis_freep) struct analysis *analysis = saver_analyse(&costly);

	assert_true(advises(analysis, "Wait for the staging of a checkpoint"));
	assert_in_range(analysis->checkpoints->stage_ns / TICK_NS, 290, 320);
	assert_in_range(analysis->checkpoints->stage_slowed_ns / TICK_NS, 1100, 1700);
	analysis_free(analysis);
	analysis = saver_analyse(&cheap);
	assert_false(advises(analysis, "Wait for the staging of a checkpoint"));
}
