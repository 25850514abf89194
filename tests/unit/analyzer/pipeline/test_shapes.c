/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include <linux/futex.h>

/* Covers loaders that are threads, the interpreter lock, batches that wait for their turn, ranks, and
 * processes that have the same PID one after the other. */

static struct script s; /* too large for the stack */

#define STEPS 10

enum {
	LOADER = 102, /* thread of the trainer's process */
	SENDER = 103, /* thread of the trainer's process that waits for sockets */
	QUEUE_WORD = 0x5000,
	GIL_WORD = 0x7000,
	GIL_TICKS = 250, /* 5 ms */
};

static void script_reset(void)
{
	script_begin(&s);
}

/* Adds a futex call that sleeps from start to end, until the waker ends it. */
static void sleep_on(uint32_t tid, uint64_t begin_tick, uint64_t end_tick, uint64_t word, uint64_t operation,
		     int64_t result, uint32_t waker_tid)
{
	script_off(&s, tid, begin_tick, end_tick, end_tick, 0x1, waker_tid);
	script_call(&s, tid, begin_tick, end_tick, SYS_futex, EVENT_FILE_NONE, word, result)->call.argument =
	    operation;
}

static void wake(uint32_t tid, uint64_t tick, uint64_t word)
{
	script_call(&s, tid, tick, tick, SYS_futex, EVENT_FILE_NONE, word, 1)->call.argument =
	    FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
}

#define WAIT_FOREVER (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)
#define WAIT_TIMED   (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG)

/* The loader thread reads for 300 ticks and computes for 200. The trainer sleeps until then, and then
 * computes. */
static void thread_steps(void)
{
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_read_file(&s, LOADER, tick, tick + 300);
		sleep_on(TRAINER, tick, tick + 500, QUEUE_WORD, WAIT_FOREVER, 0, LOADER);
		wake(LOADER, tick + 500, QUEUE_WORD);
		sleep_on(LOADER, tick + 502, tick + 999, QUEUE_WORD + 64, WAIT_FOREVER, 0, TRAINER);
		script_step(&s, TRAINER, tick + 600);
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
}

TEST(a_job_with_loader_threads_is_understood)
{
	script_reset();
	thread_steps();
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_THREADS);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			 500 * STEPS);
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL), 290 * STEPS, 310 * STEPS);
	assert_int_equal(analysis->workers.n, 1);
	assert_int_equal(analysis->parts.gil_ns, 0);
}

/* A thread that reads files now and then, but ends none of the trainer's sleeps, is no loader. */
TEST(monitor_is_no_loader)
{
	script_reset();
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_read_file(&s, LOADER, tick + 700, tick + 750);
		sleep_on(LOADER, tick + 760, tick + 1690, QUEUE_WORD, WAIT_FOREVER, 0, TIMER_WOKE);
		script_call(&s, TRAINER, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
		script_read_file(&s, TRAINER, tick + 2, tick + 300);
		script_step(&s, TRAINER, tick + 600);
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(analysis->workers.n, 0);
}

/* As thread_steps(), but in each step the trainer waits for 5 ms for the lock that the loader thread holds,
 * and then the other way round. */
static void lock_steps(uint64_t operation, uint64_t ticks)
{
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1), word = GIL_WORD + 4 * (i % 2);

		script_read_file(&s, LOADER, tick, tick + 100);
		sleep_on(TRAINER, tick, tick + 120, QUEUE_WORD, WAIT_FOREVER, 0, LOADER);
		script_step(&s, TRAINER, tick + 130);
		sleep_on(TRAINER, tick + 150, tick + 150 + ticks, word, operation, -ETIMEDOUT, TIMER_WOKE);
		wake(LOADER, tick + 560, word);
		sleep_on(TRAINER, tick + 555, tick + 560, word, operation, 0, LOADER);
		sleep_on(LOADER, tick + 570, tick + 600, word, operation, 0, TRAINER);
		wake(TRAINER, tick + 600, word);
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
}

/* A save starts a thread, for which the trainer waits several times before it goes on. */
TEST(a_thread_of_one_step_is_no_loader)
{
	script_reset();
	script_fork(&s, TRAINER, LOADER, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_step(&s, TRAINER, tick);
		for (uint64_t at = tick + 100; i == 4 && at < tick + 900; at += 200) {
			sleep_on(TRAINER, at, at + 100, QUEUE_WORD, WAIT_FOREVER, 0, LOADER);
			wake(LOADER, at + 100, QUEUE_WORD);
			sleep_on(LOADER, at + 102, at + 150, QUEUE_WORD + 64, WAIT_TIMED, 0, TRAINER);
		}
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_not_equal(analysis->job.loader, LOADER_THREADS);
	assert_in_range(analysis->n_steps, STEPS - 1, STEPS);
}

TEST(trainer_waits_for_the_lock)
{
	script_reset();
	lock_steps(WAIT_TIMED, GIL_TICKS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_THREADS);
	/* The time is neither computing nor a wait for data. It is 250 ticks, and 5 for the second time. */
	assert_int_equal(analysis->parts.gil_starved_ns / TICK_NS, (GIL_TICKS + 5) * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_CPU_STARVED), (GIL_TICKS + 5) * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			 120 * STEPS);
}

/* The same sleeps are another kind of lock if they last for other times, or have no timeout. */
TEST(sleeps_of_other_lengths_are_other_locks)
{
	script_reset();
	lock_steps(WAIT_FOREVER, GIL_TICKS);
	struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->parts.gil_starved_ns, 0);
	analysis_free(analysis);
	script_reset();
	lock_steps(WAIT_TIMED, GIL_TICKS / 2);
	analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->parts.gil_starved_ns, 0);
	analysis_free(analysis);
}

/* Two workers, of which worker 1 is slow every other step. In next() the trainer reads worker 0's batch at
 * 300, which is not due, and worker 1's at 800. The next step finds worker 0's batch ready. */
TEST(head_of_line)
{
	script_reset();
	for (uint64_t i = 0; i < STEPS; i += 2) {
		uint64_t tick = 1000 * (i + 1);

		script_take_index(&s, 0, tick - 900);
		script_take_index(&s, 1, tick - 900);
		script_give_result(&s, 0, tick + 295, tick + 299);
		script_next(&s, 0, tick, tick + 300, tick + 320);
		script_give_result(&s, 1, tick + 795, tick + 799);
		script_next(&s, 1, tick + 321, tick + 800, tick + 820);
		script_request(&s, 0, tick + 830);
		script_step(&s, TRAINER, tick + 900);
		script_request(&s, 1, tick + 1010);
		script_step(&s, TRAINER, tick + 1500);
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->workers.n, 2);
	/* In each pair of steps, the share begins when the first message is read. */
	assert_in_range(analysis->parts.head_of_line_ns / TICK_NS, 500 * STEPS / 2, 560 * STEPS / 2);
}

/* One worker's result may come in several messages, of which the last one is late. */
TEST(one_worker_holds_nobody_up)
{
	script_reset();
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_take_index(&s, 0, tick - 90);
		script_give_result(&s, 0, tick + 295, tick + 299);
		script_next(&s, 0, tick, tick + 300, tick + 320);
		script_give_result(&s, 0, tick + 795, tick + 799);
		script_next(&s, 0, tick + 321, tick + 800, tick + 820);
		script_request(&s, 0, tick + 830);
		script_step(&s, TRAINER, tick + 900);
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->workers.n_at_once, 1);
	assert_int_equal(analysis->parts.head_of_line_ns, 0);
}

/* A rank reads for 100 ticks by itself, then runs its backward pass. In the pass it sleeps for `wait` ticks
 * until a thread of its own, which the network woke, wakes it. */
static void rank_steps(uint32_t trainer, uint64_t read_ticks)
{
	uint32_t sender = trainer + 3;

	script_fork(&s, trainer, sender, 0);
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1), end = tick + 900;

		script_call(&s, trainer, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
		script_read_file(&s, trainer, tick + 2, tick + 2 + read_ticks);
		script_step(&s, trainer, tick + read_ticks + 20);
		script_call(&s, sender, s.last_tick[sender] + 1, end - 5, SYS_epoll_wait, EVENT_FILE_NONE, 0,
			    1);
		script_off(&s, sender, s.last_tick[sender] + 2, end - 5, end - 5, 0x1, TIMER_WOKE);
		sleep_on(trainer, tick + read_ticks + 50, end, QUEUE_WORD, WAIT_FOREVER, 0, sender);
	}
	script_exit(&s, trainer, 1000 * (STEPS + 2));
}

TEST(the_slowest_rank_is_a_straggler)
{
	script_reset();
	rank_steps(TRAINER, 100);
	rank_steps(400, 700);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_ranks, 2);
	assert_int_equal(analysis->job.trainer_tid, 400);
	for (size_t i = 0; i < 2; i++) {
		const struct analysis_rank *rank = &analysis->ranks[i];
		uint64_t read_ticks = rank->tid == 400 ? 700 : 100, sum_ns = 0;

		assert_int_equal(rank->n_steps, STEPS);
		assert_int_equal(rank->straggler, rank->tid == 400);
		assert_in_range(rank->collective_ns / TICK_NS, (845 - read_ticks) * STEPS,
				(855 - read_ticks) * STEPS);
		assert_true(rank->collective_ns <= rank->share_ns[SHARE_DEVICE]);
		assert_int_equal(rank->share_ns[SHARE_OTHER], 0);
		for (size_t k = 0; k < SHARE_COUNT; k++)
			sum_ns += rank->share_ns[k];
		assert_int_equal(sum_ns, rank->window_ns);
	}
	assert_non_null(strstr(analysis->note, "2 ranks"));
	assert_non_null(strstr(analysis->note, "400"));
}

TEST(equal_ranks_have_no_straggler)
{
	script_reset();
	rank_steps(TRAINER, 300);
	rank_steps(400, 310);
	struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_ranks, 2);
	assert_false(analysis->ranks[0].straggler || analysis->ranks[1].straggler);
	analysis_free(analysis);
	/* The user chose this trainer. */
	analysis = script_analyse(&s, &(struct analysis_input){.root_tgid = TRAINER, .trainer_tid = 400});
	assert_int_equal(analysis->job.trainer_tid, 400);
	assert_int_equal(analysis->n_ranks, 0);
	assert_int_equal(analysis->share_ns[SHARE_OTHER], 0);
	analysis_free(analysis);
}

/* A child that answers over pipes and ends is no worker, and neither is another such child with the same
 * PID. */
TEST(children_that_answer)
{
	script_reset();
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * (i + 1);

		script_call(&s, TRAINER, tick, tick + 1, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
		script_read_file(&s, TRAINER, tick + 2, tick + 300);
		script_fork(&s, TRAINER, WORKER, tick + 310);
		script_call(&s, TRAINER, tick + 311, tick + 312, SYS_write, EVENT_FILE_FIFO, 8000 + 2 * i,
			    500);
		for (uint64_t k = 0; k < (i % 2 ? 1 : 3); k++) {
			script_call(&s, WORKER, tick + 320 + k, tick + 320 + k, SYS_read, EVENT_FILE_FIFO,
				    8000 + 2 * i, k < 2 ? 250 : 0);
			script_call(&s, WORKER, tick + 330 + k, tick + 330 + k, SYS_write, EVENT_FILE_FIFO,
				    8001 + 2 * i, 200);
			script_call(&s, TRAINER, tick + 340 + k, tick + 340 + k, SYS_read, EVENT_FILE_FIFO,
				    8001 + 2 * i, 200);
		}
		if (i % 2 == 0) /* the end of the other children is not waited for */
			script_call(&s, TRAINER, tick + 350, tick + 350, SYS_read, EVENT_FILE_FIFO,
				    8001 + 2 * i, 0);
		script_exit(&s, WORKER, tick + 360);
		script_step(&s, TRAINER, tick + 600);
	}
	script_exit(&s, TRAINER, 1000 * (STEPS + 2));
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(analysis->workers.n, 0);
}

/* The first next() checks after a while whether the workers live, which is still one wait. */
TEST(first_next_in_pieces)
{
	script_reset();
	script_off(&s, TRAINER, 11, 1000, 1000, 0x1, TIMER_WOKE);
	script_call(&s, TRAINER, 10, 1000, SYS_poll, EVENT_FILE_FIFO, RESULT_PIPE, 0);
	/* 2 ms of computing */
	for (uint64_t i = 0; i < STEPS; i++) {
		uint64_t tick = 1100 + 1000 * i;

		script_take_index(&s, 0, tick);
		script_read_file(&s, WORKER, tick + 5, tick + 605);
		script_give_result(&s, 0, tick + 805, tick + 810);
		script_next(&s, 0, tick, tick + 810, tick + 850);
		script_request(&s, 0, tick + 860);
		script_step(&s, TRAINER, tick + 900);
	}
	script_exit(&s, TRAINER, 1100 + 1000 * (STEPS + 1));
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(analysis->window.begin_ns, at(10));
}

TEST(an_unknown_trainer_is_refused)
{
	struct analysis_input input = {.root_tgid = TRAINER, .trainer_tid = 999};
	struct analysis *analysis = NULL;
	struct error err = ERROR_INIT;

	script_reset();
	thread_steps();
	input.events = s.events;
	input.n_events = s.n;
	assert_int_equal(analysis_run(&input, &analysis, &err), -ESRCH);
	assert_non_null(strstr(err.text, "999"));
	assert_null(analysis);
}

#define VALIDATED_AT 10 /* the validation comes after this step */
#define VALIDATIONS  3

/* Adds batch i of worker w, `compute` ticks long, requested at `sent`. Returns when the batch is done. */
static uint64_t worker_batch(unsigned int w, uint64_t sent, uint64_t compute)
{
	script_take_index(&s, w, sent);
	script_give_result(&s, w, sent + compute, sent + compute + 2);
	return sent + compute + 4;
}

/* A worker is too slow for the trainer. In mid-epoch the trainer goes through another loader, whose worker
 * stays until the end. */
static void validated_steps(void)
{
	uint64_t now = 0, free = 0;

	script_fork(&s, TRAINER, WORKER, 0);
	for (unsigned int i = 0; i < 3 * VALIDATED_AT; i++) {
		uint64_t done = worker_batch(0, free + 10, 800), ready = done > now ? done : now + 1;

		free = done;
		script_next(&s, 0, now, ready, ready + 30);
		script_request(&s, 0, ready + 27);
		now = ready + 30 + 200;
		script_step(&s, TRAINER, now - 1);
		if (i + 1 != VALIDATED_AT)
			continue;
		script_fork(&s, TRAINER, WORKER + 10, now);
		script_fork(&s, WORKER + 10, FEEDER + 10, now + 1);
		for (unsigned int k = 0; k < VALIDATIONS; k++) {
			size_t first = s.n;

			done = worker_batch(1, now + 10, 500);
			script_request(&s, 1, now + 11);
			script_next(&s, 1, now + 10, done, done + 30);
			now = done + 60;
			for (; first < s.n; first++)
				if (s.events[first].type == EVENT_SYSCALL &&
				    s.events[first].call.inode == RESULT_PIPE)
					s.events[first].call.inode = RESULT_PIPE + 1;
		}
	}
	script_call(&s, WORKER, now, now + 10, SYS_poll, EVENT_FILE_FIFO, INDEX_PIPE, 1);
	script_call(&s, WORKER + 10, now, now + 10, SYS_poll, EVENT_FILE_FIFO, INDEX_PIPE + 1, 1);
	script_exit(&s, TRAINER, now + 1000);
}

TEST(a_validation_s_workers_feed_no_step)
{
	bool counted = false;

	script_reset();
	validated_steps();
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->workers.n, 2);
	assert_int_equal(analysis->workers.n_at_once, 1);
	assert_string_equal(analysis->no_predictions, "");
	assert_non_null(analysis->predictions);
	assert_true(analysis->predictions->curves[WHAT_IF_WORKERS].here == 1);
	for (size_t i = 0; i < analysis->n_actions; i++)
		counted |= strstr(analysis->actions[i].text, "instead of 1") != NULL;
	assert_true(counted);
	assert_int_equal(analysis->parts.head_of_line_ns, 0);
}
