/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include <math.h>

static struct script s; /* too large for the stack */

static void script_reset(void)
{
	script_begin(&s);
}

#define STEPS 10

/* One worker makes batch after batch without prefetch. It reads for 600 ticks and computes for 200. The
 * trainer then takes 40 ticks for the handshake and computes for 160. A step is 1000 ticks from wait to wait.
 * At 0 the worker reads the index, from 5 to 605 the file, and from 605 to 805 it computes. At 810 the result
 * is written and the trainer woken, at 850 next() returns, at 900 is the backward pass, at 1000 the next
 * wait. */
static void worker_steps(uint64_t begin_tick, unsigned int n, bool backward)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t tick = begin_tick + 1000 * i;

		script_take_index(&s, 0, tick);
		script_read_file(&s, WORKER, tick + 5, tick + 605);
		script_give_result(&s, 0, tick + 805, tick + 810);
		script_off(&s, WORKER, tick + 811, tick + 998, tick + 998, 1, REQUESTER);
		script_call(&s, WORKER, tick + 810, tick + 999, SYS_poll, EVENT_FILE_FIFO, INDEX_PIPE, 1);
		script_next(&s, 0, tick, tick + 810, tick + 850);
		if (backward)
			script_step(&s, TRAINER, tick + 900);
		script_request(&s, 0, tick + 860);
	}
	script_exit(&s, TRAINER, begin_tick + 1000 * n + 500);
}

static void loader_steps(uint64_t begin_tick, unsigned int n)
{
	worker_steps(begin_tick, n, true);
}

/* The probe in PyTorch came after the job's passes, or the job does not train with PyTorch. */
TEST(without_backward_passes_data_waits_are_counted)
{
	script_reset();
	worker_steps(0, STEPS, false);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->counted, COUNTED_WAITS);
	assert_in_range(analysis->n_steps, STEPS - 1, STEPS);
}

TEST(a_job_with_one_worker_is_understood)
{
	script_reset();
	loader_steps(0, STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_WORKERS);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(analysis->counted, COUNTED_BACKWARD);
	assert_int_equal(analysis->window.begin_ns, at(0));
	/* The last step lasts as long after its backward pass as the median of the others. */
	assert_int_equal(analysis->window.end_ns, at(1000 * STEPS));
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			850 * STEPS - 1, 850 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), 150 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 0);
	/* The worker's file read covers 5..605 of each wait. */
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL), 580 * STEPS, 605 * STEPS);
	assert_int_equal(analysis->verdict, ANALYSIS_FETCH_BOUND);
	assert_int_equal(analysis->workers.n, 1);
	assert_int_equal(analysis->wait_mean_ns, 850 * TICK_NS);
	assert_int_equal(analysis->wait_p95_ns, 850 * TICK_NS);
	assert_int_equal(analysis->window.read_bytes, 100000 * STEPS);
	assert_int_equal(analysis->window.teardown_ns, 500 * TICK_NS);
	assert_string_equal(analysis->evidence[0].role, "worker");
	assert_string_equal(analysis->evidence[0].what, "reading files");
	assert_true(analysis->evidence[0].fetch);
}

/* The recorder's clock was stopped before the last records came, so the observed time is not longer than the
 * recording. */
TEST(what_was_observed_was_recorded)
{
	struct analysis_input input = {
	    .root_tgid = TRAINER, .n_cpus = 4, .begin_ns = at(100), .end_ns = at(1000 * STEPS - 150)};

	script_reset();
	loader_steps(0, STEPS);
	struct analysis *analysis = script_analyse(&s, &input);
	assert_true(analysis->window.observed_ns > input.end_ns - input.begin_ns);
	assert_true(analysis->window.observed_ns <= analysis->recorded.end_ns - analysis->recorded.begin_ns);
	assert_true(analysis->recorded.self_cost_ratio == 0);
	analysis_free(analysis);
	input.bpf_cost_unknown = true;
	analysis = script_analyse(&s, &input);
	assert_true(isnan(analysis->recorded.self_cost_ratio));
	analysis_free(analysis);
}

/* A timer tick that hits the worker while it computes, and happens to make the trainer's CPU runnable, is no
 * evidence that the worker woke the trainer. */
TEST(interrupt_waker_is_not_followed)
{
	script_reset();
	loader_steps(0, STEPS);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_SWITCH && s.events[i].tid == TRAINER) {
			s.events[i].sw.waker_context = WAKER_HARDIRQ;
			s.events[i].sw.waker_tid = WORKER;
		}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	/* The wait is as long as before, but the critical path charges nothing to the worker's reads. */
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			850 * STEPS - 1, 850 * STEPS);
	for (size_t i = 0; i < analysis->n_evidence; i++)
		assert_false(analysis->evidence[i].fetch);
}

TEST(trainer_states_outside_waits)
{
	script_reset();
	loader_steps(0, STEPS);
	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * i;

		script_off(&s, TRAINER, tick + 900, 0, tick + 920, 0, 0);                   /* preempted */
		script_off(&s, TRAINER, tick + 930, tick + 940, tick + 945, 1, TIMER_WOKE); /* a nap */
		/* The trainer joins its OpenMP thread 105, which computes from 950 to 970 and waits for a
		 * core before that. */
		script_off(&s, TRAINER, tick + 946, tick + 970, tick + 970, 1, 105);
		script_off(&s, 105, i ? tick - 20 : tick, tick + 946, tick + 950, 1, TRAINER);
		script_off(&s, 105, tick + 975, tick + 976, tick + 977, 1, TRAINER);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_CPU_STARVED), (20 + 5 + 4) * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_OTHER), 10 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), (150 - 20 - 15 - 4) * STEPS);
}

/* If batches come out of order, one next() reads two messages, and the following one none. */
TEST(out_of_order_batches)
{
	script_reset();
	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t tick = 10000 * i;

		script_take_index(&s, 0, tick);
		script_give_result(&s, 0, tick + 3000, tick + 4000);
		script_give_result(&s, 0, tick + 4001, tick + 5000);
		if (i % 2 == 0) {
			script_next(&s, 0, tick, tick + 4000, tick + 4100);
			script_next(&s, 0, tick + 4150, tick + 5000, tick + 5100);
		}
		script_step(&s, TRAINER, tick + 8000);
		script_request(&s, 0, tick + 8100);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			 5100 * STEPS / 2);
}

/* The trainer asks for a batch by waking its index thread, and then waits for the GIL that this thread
 * takes. */
TEST(ready_batch_shows_by_its_request)
{
	script_reset();
	loader_steps(0, STEPS);
	s.n--; /* removes the exit */
	for (unsigned int i = 0; i < 5; i++) {
		uint64_t tick = 1000 * STEPS + 1000 * i;

		script_off(&s, REQUESTER, tick - 900, tick + 100, tick + 100, 1, TRAINER);
		script_off(&s, TRAINER, tick + 110, tick + 400, tick + 400, 1, REQUESTER);
		script_step(&s, TRAINER, tick + 900);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_steps, STEPS + 5);
	for (size_t k = STEPS; k < STEPS + 5; k++)
		assert_int_equal(analysis->steps[k].share_ns[SHARE_PREP_STALL] +
				     analysis->steps[k].share_ns[SHARE_FETCH_STALL],
				 300 * TICK_NS);
}

TEST(attached_in_mid_wait)
{
	struct analysis_input input = {.root_tgid = TRAINER, .attached = true, .n_cpus = 2};
	size_t n = 0;

	script_reset();
	loader_steps(0, STEPS);
	/* Recording begins at 400. Records that ended before are missing, and records under way are cut and
	 * flagged. */
	for (size_t i = 0; i < s.n; i++) {
		struct event event = s.events[i];

		if (event.end_ns < at(400))
			continue;
		if (event.start_ns < at(400)) {
			event.start_ns = at(400);
			event.flags |= EVENT_FLAG_CLIPPED;
		}
		s.events[n++] = event;
	}
	s.n = n;
	input.begin_ns = at(400);
	input.end_ns = at(1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	/* The wait of the first step is unknown, so the step is left out, not guessed. */
	assert_int_equal(analysis->n_steps, STEPS - 1);
	assert_int_equal(analysis->window.begin_ns, at(1000));
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			850 * (STEPS - 1) - 1, 850 * (STEPS - 1));
}

TEST(workers_renewed_each_epoch)
{
	script_reset();
	loader_steps(0, 5);
	s.n--;
	for (unsigned int i = 0; i < 5; i++) { /* another worker with another result pipe */
		uint64_t tick = 6000 + 1000 * i;

		script_take_index(&s, 1, tick);
		script_read_file(&s, WORKER + 10, tick + 5, tick + 605);
		script_give_result(&s, 1, tick + 805, tick + 810);
		script_next(&s, 1, tick, tick + 810, tick + 850);
		script_step(&s, TRAINER, tick + 900);
		script_request(&s, 1, tick + 860);
	}
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_SYSCALL && s.events[i].start_ns >= at(6000) &&
		    s.events[i].call.inode == RESULT_PIPE)
			s.events[i].call.inode = RESULT_PIPE + 1;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_steps, 10);
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			850 * 10 - 1, 850 * 10);
	assert_int_equal(analysis->workers.n, 2);
}

TEST(marks_say_the_wait_and_its_cause)
{
	script_reset();
	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t tick = 1000 * i;

		script_mark(&s, TRAINER, tick, MARK_NEXT_BEGIN, 0);
		if (i % 2) {
			script_mark(&s, TRAINER, tick + 10, MARK_WAIT_BEGIN, 0);
			script_off(&s, TRAINER, tick + 15, tick + 200, tick + 200, 1, TIMER_WOKE);
			script_mark(&s, TRAINER, tick + 210, MARK_WAIT_END,
				    i % 4 == 1 ? MARK_CAUSE_FETCH : MARK_CAUSE_PREP);
		}
		script_mark(&s, TRAINER, tick + 300, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, tick + 600);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_DIESEL);
	assert_int_equal(analysis->job.method, METHOD_MARKS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 200 * 3);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 300 * STEPS - 200 * 3);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), 700 * STEPS);
}

TEST(steps_from_marks_alone)
{
	script_reset();
	for (unsigned int i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 400, MARK_NEXT_END, 0);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 400 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), 600 * STEPS);
}

TEST(without_steps_data_is_insufficient)
{
	script_reset();
	script_call(&s, TRAINER, 10, 20, SYS_read, EVENT_FILE_REG, 1, 1);
	struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
	assert_non_null(strstr(analysis->insufficient, "no training step"));
	assert_int_equal(analysis->n_actions, 0);
	analysis_free(analysis);
	script_reset();
	loader_steps(0, ANALYSIS_STEPS_MIN - 1);
	analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
	assert_non_null(strstr(analysis->insufficient, "only 4 complete steps were seen"));
	analysis_free(analysis);
	script_reset();
	analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->verdict, ANALYSIS_INSUFFICIENT);
	analysis_free(analysis);
}

TEST(lost_events_are_told_with_their_time)
{
	const struct analysis_loss losses[] = {{at(2500), at(3500), 7}, {at(9000), at(9001), 0}};
	struct analysis_input input = {.losses = losses, .n_losses = 2};

	script_reset();
	loader_steps(0, STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_int_equal(analysis->recorded.n_lost, 7);
	assert_int_equal(analysis->n_incomplete, 2);
	assert_true(analysis->steps[1].complete);
	assert_false(analysis->steps[2].complete);
	assert_false(analysis->steps[3].complete);
	assert_true(analysis->recorded.coverage_ratio > 0.79 && analysis->recorded.coverage_ratio < 0.81);
}

TEST(an_override_decides_who_trains)
{
	struct analysis_input input = {.root_tgid = TRAINER, .trainer_tid = 300};

	script_reset();
	loader_steps(0, STEPS);
	for (unsigned int i = 0; i < 6; i++)
		script_step(&s, 300, 1000 * i + 500);
	struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.trainer_tid, TRAINER);
	assert_int_equal(analysis->job.n_trainers, 2);
	analysis_free(analysis);
	analysis = script_analyse(&s, &input);
	assert_int_equal(analysis->job.trainer_tid, 300);
	assert_int_equal(analysis->n_steps, 5); /* no wait was seen, so steps lie between the six passes */
	analysis_free(analysis);
}

TEST(impossible_input_is_refused)
{
	struct analysis_input input = {.begin_ns = 5, .end_ns = 4};
	struct analysis *analysis;
	struct error err = ERROR_INIT;

	assert_int_equal(analysis_run(&input, &analysis, &err), -EINVAL);
	assert_non_null(strstr(err.text, "ends before it begins"));
	input = (struct analysis_input){.n_events = 3};
	assert_int_equal(analysis_run(&input, &analysis, &err), -EINVAL);
	analysis_free(NULL);
}
