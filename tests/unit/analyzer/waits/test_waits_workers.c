/* SPDX-License-Identifier: Apache-2.0 */
/* When a trainer with worker processes waited for data. */
#include "scene_waits.h"

static struct script s; /* too large for the stack */

#define STEPS 8

enum { LOADER = 102 };

static void worker_steps(uint32_t n_steps)
{
	script_begin(&s);
	script_fork(&s, TRAINER, WORKER, 0);
	script_fork(&s, WORKER, FEEDER, 1);
	for (uint32_t i = 0; i < n_steps; i++) {
		scene_batch(&s, 0, 1000 * i);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
}

TEST(a_look_that_finds_nothing_is_no_wait)
{
	worker_steps(STEPS);
	/* Polls of the pipe find nothing more. */
	script_call(&s, TRAINER, 7516, 7517, SYS_read, EVENT_FILE_FIFO, RESULT_PIPE, -EAGAIN);
	script_call(&s, TRAINER, 7518, 7519, SYS_poll, EVENT_FILE_FIFO, RESULT_PIPE, 1);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_WORKERS);
	assert_false(waits.marked);
	assert_int_equal(waits.n, STEPS);
	for (uint64_t i = 0; i < STEPS; i++) {
		check_wait(&waits, i, 1000 * i + 400, 1000 * i + 550);
		assert_int_equal(waits.items[i].ready_ns, at(1000 * i + 515));
		assert_false(waits.items[i].clipped);
	}
	data_waits_free(&waits);
}

TEST(a_clipped_first_wait_is_marked)
{
	worker_steps(STEPS);
	script_first_call(&s, TRAINER, SYS_poll)->flags = EVENT_FLAG_CLIPPED;
	struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_true(waits.items[0].clipped);
	assert_false(waits.items[1].clipped);
	data_waits_free(&waits);
	scene_free(&scene);
	/* The trainer is known only from then on, and the call is the first record of it. */
	worker_steps(STEPS);
	s.events[0].start_ns = s.events[0].end_ns = at(0);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].tid == TRAINER && s.events[i].start_ns >= at(400) &&
		    s.events[i].start_ns <= at(401))
			s.events[i].start_ns -= 330 * TICK_NS;
	scene = scene_of(&s);
	waits = waits_of(&scene);
	assert_true(waits.items[0].clipped);
	data_waits_free(&waits);
	scene_free(&scene);
	/* If the trainer was born at that time, all of it is known. */
	s.events[0].tid = REQUESTER;
	script_fork(&s, WORKER + 50, TRAINER, 0);
	scene = scene_of(&s);
	waits = waits_of(&scene);
	assert_false(waits.items[0].clipped);
	data_waits_free(&waits);
	scene_free(&scene);
}

/* Activity in the 1.5 ms of CPU time (75 ticks) after the message belongs to the wait, and a socket's within
 * 10 ms. */
TEST(end_of_the_handshake)
{
	const struct {
		uint64_t begin_tick;
		uint16_t nr;
		uint8_t file_type;
		bool belongs;
	} rows[] = {
	    {624, SYS_mmap, EVENT_FILE_NONE, true},     {625, SYS_mmap, EVENT_FILE_NONE, false},
	    {1049, SYS_recvmsg, EVENT_FILE_SOCK, true}, {1050, SYS_recvmsg, EVENT_FILE_SOCK, false},
	    {624, SYS_close, EVENT_FILE_REG, true},     {624, SYS_close, EVENT_FILE_SOCK, true},
	    {600, SYS_close, EVENT_FILE_DIR, false},    {600, SYS_futex, EVENT_FILE_NONE, false},
	    {600, SYS_read, EVENT_FILE_REG, false},
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		struct scene scene;
		struct data_waits waits;

		worker_steps(STEPS);
		/* leaves space after the last batch for 10 ms of computing */
		for (size_t i = 0; i < s.n; i++)
			if (s.events[i].type == EVENT_STEP && s.events[i].end_ns > at(7000))
				s.events[i].start_ns = s.events[i].end_ns = at(9000);
		script_call(&s, TRAINER, 7000 + rows[k].begin_tick, 7000 + rows[k].begin_tick + 2, rows[k].nr,
			    rows[k].file_type, 12, 1);
		scene = scene_of(&s);
		waits = waits_of(&scene);
		assert_int_equal(waits.n, STEPS);
		check_wait(&waits, STEPS - 1, 7400, rows[k].belongs ? 7000 + rows[k].begin_tick + 2 : 7550);
		data_waits_free(&waits);
		scene_free(&scene);
	}
}

/* Unknown time may have been a step. */
TEST(handshake_and_gap)
{
	worker_steps(STEPS);
	script_call(&s, TRAINER, 7710, 7712, SYS_mmap, EVENT_FILE_NONE, 0, 1);
	script_add(&s, 1, EVENT_GAP, 7560, 7700);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	check_wait(&waits, STEPS - 1, 7400, 7550);
	data_waits_free(&waits);
}

/* A backward pass lies behind the wait, however soon it came. */
TEST(no_wait_spans_a_step)
{
	worker_steps(STEPS);
	script_call(&s, TRAINER, 7560, 7562, SYS_mmap, EVENT_FILE_NONE, 0, 1);
	script_step(&s, TRAINER, 7555);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	check_wait(&waits, STEPS - 1, 7400, 7550);
	data_waits_free(&waits);
}

/* The trainer wakes `tid`, and is preempted by it for these ticks. */
static void wake(uint32_t tid, uint64_t tick, uint64_t ticks)
{
	script_off(&s, tid, tick - 50, tick, tick + 1, 0x1, TRAINER);
	if (ticks)
		script_off(&s, TRAINER, tick, tick, tick + ticks, 0, TIMER_WOKE)->sw.syscall_nr = SYS_futex;
}

static struct data_waits waits_after_wakes(struct scene *scene, uint32_t tid, uint64_t tick, uint64_t ticks)
{
	worker_steps(STEPS);
	wake(tid, tick, ticks);
	script_exit(&s, TRAINER, 8200);
	*scene = scene_of(&s);
	return waits_of(scene);
}

/* The thread that the trainer wakes requests one more batch. A request up to 1.5 ms of CPU time after a wait
 * makes that wait longer. Elsewhere it is a wait of its own. */
TEST(a_request_behind_a_wait_makes_it_longer)
{
	const struct {
		uint64_t tick, ticks, begin_tick, end_tick; /* of the wait that contains it */
		size_t n;
	} rows[] = {
	    {7552, 20, 7400, 7572, STEPS},     {7624, 20, 7400, 7644, STEPS},
	    {7625, 20, 7625, 7645, STEPS + 1}, {7520, 5, 7400, 7550, STEPS},
	    {7100, 20, 7100, 7120, STEPS + 1}, {7950, 10, 7950, 7960, STEPS + 1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scene scene;
		struct data_waits waits = waits_after_wakes(&scene, REQUESTER, rows[i].tick, rows[i].ticks);
		size_t k = data_waits_from(&waits, at(rows[i].tick));

		assert_int_equal(waits.n, rows[i].n);
		check_wait(&waits, k, rows[i].begin_tick, rows[i].end_tick);
		data_waits_free(&waits);
		scene_free(&scene);
	}
}

TEST(requests_at_once)
{
	struct scene scene;
	struct data_waits waits = waits_after_wakes(&scene, REQUESTER, 7700, 0);

	/* The request takes next to no time, but counts as a wait. */
	assert_int_equal(waits.n, STEPS + 1);
	assert_int_equal(waits.items[STEPS].begin_ns, at(7700));
	assert_int_equal(waits.items[STEPS].end_ns, at(7700) + 1);
	data_waits_free(&waits);
	scene_free(&scene);
	/* A request after a step belongs to the next step, however close it is. */
	worker_steps(STEPS);
	script_step(&s, TRAINER, 7555);
	wake(REQUESTER, 7560, 20);
	scene = scene_of(&s);
	waits = waits_of(&scene);
	assert_int_equal(waits.n, STEPS + 1);
	check_wait(&waits, STEPS, 7560, 7580);
	data_waits_free(&waits);
	scene_free(&scene);
}

/* Requests count in the order of time, whichever thread sends them. */
TEST(requests_of_two_threads)
{
	worker_steps(STEPS);
	script_call(&s, LOADER, 6800, 6801, SYS_write, EVENT_FILE_FIFO, INDEX_PIPE, 60);
	wake(LOADER, 6700, 10);
	wake(REQUESTER, 7800, 10);
	script_exit(&s, TRAINER, 8200);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.n, STEPS + 2);
	check_wait(&waits, STEPS - 1, 6700, 6710);
	check_wait(&waits, STEPS + 1, 7800, 7810);
	data_waits_free(&waits);
}

/* The trainer also wakes a thread that writes to no pipe, and a thread of another process. */
TEST(wakes_that_request_nothing)
{
	const uint32_t tids[] = {LOADER, FEEDER};

	for (size_t i = 0; i < 2; i++) {
		struct scene scene;
		struct data_waits waits = waits_after_wakes(&scene, tids[i], 7552, 20);

		assert_int_equal(waits.n, STEPS);
		check_wait(&waits, STEPS - 1, 7400, 7550);
		data_waits_free(&waits);
		scene_free(&scene);
	}
}

/* The pin-memory thread reads the results, and ends sleeps of the trainer. */
TEST(reader_ends_waits)
{
	worker_steps(STEPS);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].tid == TRAINER &&
		    (s.events[i].type == EVENT_SYSCALL || s.events[i].type == EVENT_SWITCH))
			s.events[i].tid = LOADER;
	for (uint64_t i = 0; i < STEPS; i++)
		script_off(&s, TRAINER, 1000 * i + 390, 1000 * i + 560, 1000 * i + 565, 0x1, LOADER);
	script_off(&s, TRAINER, 7600, 7650, 7650, 0x1, REQUESTER); /* this one gives no batch */
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.reader->tid, LOADER);
	struct data_waits waits = waits_of(&scene);
	assert_int_equal(waits.loader, LOADER_WORKERS);
	assert_int_equal(waits.n, STEPS);
	check_wait(&waits, 3, 3390, 3565);
	assert_int_equal(waits.items[3].ready_ns, at(3560));
	data_waits_free(&waits);
}
