/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the critical path back from the end of a wait, through the threads that ended each sleep. */
#include "tests/unit/analyzer/scene.h"

#include <linux/futex.h>
#include <stdio.h>

#include "analyzer/chain.h"
#include "analyzer/timeline/calls.h"
#include "analyzer/shares/walk.h"

static struct script s; /* too large for the stack */

#define STEPS      8
#define GIL_WORD   0x7000
#define WAIT_TIMED (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG)

enum { LOADER = 102, OTHER = 300 };

static uint64_t ticks_of(const struct tally *tally, const char *what)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < tally->n; i++)
		if (strcmp(tally->items[i].what, what) == 0)
			ns += tally->items[i].ns;
	assert_int_equal(ns % TICK_NS, 0);
	return ns / TICK_NS;
}

static struct wait_chain chain; /* chain of the last walk */

/* Walks, and checks the invariants of a walk. Every ns of the wait is charged once, and the pieces of the
 * chain follow each other from its end to its start. */
static uint64_t walk(const struct scene *scene, uint64_t begin_tick, uint64_t end_tick,
		     struct tally *ret_tally)
{
	uint64_t sum_ns = 0, fetch_sum_ns = 0, fetch_ns;

	*ret_tally = (struct tally){.n = 0};
	fetch_ns = walk_wait(scene->timeline, &scene->roles, at(begin_tick), at(end_tick), ret_tally);
	for (size_t i = 0; i < ret_tally->n; i++) {
		sum_ns += ret_tally->items[i].ns;
		fetch_sum_ns += ret_tally->items[i].fetch ? ret_tally->items[i].ns : 0;
	}
	assert_int_equal(sum_ns, (end_tick - begin_tick) * TICK_NS);
	assert_int_equal(fetch_sum_ns, fetch_ns);
	chain = (struct wait_chain){.wait_begin_ns = at(begin_tick), .wait_end_ns = at(end_tick)};
	walk_chain(scene->timeline, &scene->roles, &chain);
	for (size_t i = 0; i < chain.n; i++) {
		assert_true(chain.pieces[i].begin_ns < chain.pieces[i].end_ns);
		assert_int_equal(chain.pieces[i].end_ns, i ? chain.pieces[i - 1].begin_ns : at(end_tick));
	}
	if (chain.n && chain.n < WAIT_CHAIN_MAX)
		assert_int_equal(chain.pieces[chain.n - 1].begin_ns, at(begin_tick));
	return fetch_ns / TICK_NS;
}

static uint64_t walk_into(struct tally *tally, uint64_t end_tick)
{
	struct scene scene = scene_of(&s);
	uint64_t fetch_ns = walk_wait(scene.timeline, &scene.roles, at(0), at(end_tick), tally);

	scene_free(&scene);
	return fetch_ns / TICK_NS;
}

/* With more activities than a tally can hold, no ns is lost, and the existing ones still count by
 * themselves. */
TEST(a_full_tally_adds_up_the_rest)
{
	static struct tally tally = {.n = TALLY_MAX - 2};
	char text[] = "preparing or taking over a batch";

	for (size_t i = 0; i < tally.n; i++)
		tally.items[i] = (struct tally_item){.role = ROLE_WORKER, .what = text};
	tally.items[7].role = ROLE_TRAINER;
	tally.items[8] = (struct tally_item){.role = ROLE_TRAINER, .what = text, .fetch = true};
	script_begin(&s);
	script_exit(&s, TRAINER, 1000);
	assert_int_equal(walk_into(&tally, 1000), 0);
	assert_int_equal(tally.n, TALLY_MAX - 2);
	assert_int_equal(tally.items[7].ns, 1000 * TICK_NS); /* by role, text and kind */
	tally.items[7].role = ROLE_HELPER;
	for (uint64_t times = 1; times <= 2; times++) {
		assert_int_equal(walk_into(&tally, 1000), 0);
		assert_int_equal(tally.n, TALLY_MAX - 1);
		assert_string_equal(tally.items[TALLY_MAX - 2].what, "anything else");
		assert_int_equal(tally.items[TALLY_MAX - 2].ns, times * 1000 * TICK_NS);
	}
	script_begin(&s);
	script_read_file(&s, TRAINER, 100, 400);
	script_exit(&s, TRAINER, 1000);
	assert_int_equal(walk_into(&tally, 1000), 300);
	assert_int_equal(tally.n, TALLY_MAX);
	assert_true(tally.items[TALLY_MAX - 1].fetch);
	assert_int_equal(tally.items[TALLY_MAX - 1].ns, 300 * TICK_NS);
	assert_int_equal(tally.items[TALLY_MAX - 2].ns, 2700 * TICK_NS);
}

TEST(a_trainer_on_its_cpu_computes)
{
	struct tally tally;

	script_begin(&s);
	script_exit(&s, TRAINER, 1000);
	struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 100, &tally), 0);
	assert_int_equal(tally.n, 0);
	/* The trainer runs on its CPU without other threads, also over hours. */
	assert_int_equal(walk(&scene, 0, 1000, &tally), 0);
	assert_int_equal(tally.n, 1);
	assert_int_equal(tally.items[0].role, ROLE_TRAINER);
	assert_string_equal(tally.items[0].what, "preparing or taking over a batch");
	scene_free(&scene);
	script_begin(&s);
	script_exit(&s, TRAINER, 3 * 3600 * NS_PER_S / TICK_NS);
	scene = scene_of(&s);
	walk(&scene, 0, 3 * 3600 * NS_PER_S / TICK_NS, &tally);
	assert_int_equal(tally.items[0].ns, 3 * 3600 * NS_PER_S);
	scene_free(&scene);
}

/* A thread queues for a core because it slept for storage, so that faster storage ends this wait, too. */
TEST(the_queue_behind_a_read_fetches)
{
	struct tally tally;

	script_begin(&s);
	script_off(&s, TRAINER, 100, 200, 230, 0x2, TIMER_WOKE);
	script_call(&s, TRAINER, 95, 230, SYS_read, EVENT_FILE_REG, DATA_FILE, 1000);
	script_off(&s, TRAINER, 300, 300, 340, 0, TIMER_WOKE);
	script_exit(&s, TRAINER, 1000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 50, 500, &tally), 135);
	assert_int_equal(ticks_of(&tally, "waiting for a core"), 30 + 40);
}

/* A sleep that an interrupt ends stays with the sleeper. It is cut at the wait's edges. */
TEST(an_interrupted_sleep_stays_with_the_sleeper)
{
	struct tally tally;

	script_begin(&s);
	script_off(&s, TRAINER, 50, 150, 160, 0x1, TIMER_WOKE);
	script_off(&s, TRAINER, 180, 250, 280, 0x1, TIMER_WOKE);
	script_exit(&s, TRAINER, 1000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 270, &tally), 0);
	assert_int_equal(ticks_of(&tally, "asleep"), 50 + 70);
	assert_int_equal(ticks_of(&tally, "waiting for a core"), 10 + 20);
	assert_int_equal(ticks_of(&tally, "preparing or taking over a batch"), 20);
	assert_int_equal(walk(&scene, 155, 158, &tally), 0);
	assert_int_equal(ticks_of(&tally, "waiting for a core"), 3);
	assert_int_equal(walk(&scene, 60, 150, &tally), 0);
	assert_int_equal(ticks_of(&tally, "asleep"), 90);
}

/* When it wakes, libdiesel marks why it slept. */
TEST(waiting_for_dieseld)
{
	struct tally tally;

	script_begin(&s);
	script_mark(&s, TRAINER, 45, MARK_WAIT_BEGIN, 0);
	script_off(&s, TRAINER, 50, 150, 160, 0x1, TIMER_WOKE);
	script_mark(&s, TRAINER, 165, MARK_WAIT_END, MARK_CAUSE_PREP);
	script_off(&s, TRAINER, 180, 250, 250, 0x1, TIMER_WOKE);
	script_exit(&s, TRAINER, 1000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 45, 260, &tally), 0);
	assert_int_equal(ticks_of(&tally, walk_daemon_text), 100);
	assert_int_equal(ticks_of(&tally, "waiting for a core"), 10);
	assert_int_equal(ticks_of(&tally, "asleep"), 70);
}

/* A read counts as reading, whichever thread ended it. A page fault does, too, except for one in the
 * program's own files. */
TEST(sleeps_that_fetch)
{
	struct tally tally;

	script_begin(&s);
	script_add(&s, LOADER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 200, 200, 0x2, LOADER);
	script_call(&s, TRAINER, 95, 205, SYS_read, EVENT_FILE_REG, DATA_FILE, 1000);
	script_off(&s, TRAINER, 300, 350, 350, 0x2, LOADER)->flags = EVENT_FLAG_MAJOR_FAULT;
	script_off(&s, TRAINER, 400, 430, 430, 0x2, TIMER_WOKE)->flags = EVENT_FLAG_CODE;
	script_exit(&s, LOADER, 1000);
	script_exit(&s, TRAINER, 1000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 50, 500, &tally), 110 + 50);
	assert_int_equal(ticks_of(&tally, "reading files"), 100);
	assert_int_equal(ticks_of(&tally, "in file calls, on the CPU"), 10);
	assert_int_equal(ticks_of(&tally, "reading mapped files"), 50);
	assert_int_equal(ticks_of(&tally, "loading programs and libraries"), 30);
}

static void worker_steps(void)
{
	script_begin(&s);
	script_fork(&s, TRAINER, WORKER, 0);
	script_fork(&s, WORKER, FEEDER, 1);
	for (uint32_t i = 0; i < STEPS; i++) {
		scene_batch(&s, 0, 1000 * i);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
}

/* The path goes through the trainer, feeder, worker, and its disk. */
TEST(a_wait_is_walked_through_its_wakers)
{
	struct tally tally;

	worker_steps();
	struct scene scene = scene_of(&s);
	/* This wait contains only the end of the worker's computing ... */
	assert_int_equal(walk(&scene, 7400, 7550, &tally), 0);
	assert_int_equal(ticks_of(&tally, "taking over the batch"), 40);
	assert_int_equal(ticks_of(&tally, "handing batches over"), 10);
	assert_int_equal(ticks_of(&tally, "decoding and transforming"), 100);
	scene_free(&scene);
	/* ... and a longer wait its reading, too. The worker is asleep from 40 to 290, and on its CPU at both
	 * ends. */
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].tid == TRAINER && s.events[i].start_ns >= at(7400) &&
		    s.events[i].start_ns <= at(7401))
			s.events[i].start_ns -= 300 * TICK_NS;
	scene = scene_of(&s);
	assert_int_equal(walk(&scene, 7101, 7550, &tally), 199);
	assert_int_equal(ticks_of(&tally, "reading files"), 189);
	assert_int_equal(ticks_of(&tally, "in file calls, on the CPU"), 10);
	assert_int_equal(ticks_of(&tally, "decoding and transforming"), 200);
	scene_free(&scene);
}

TEST(imports_of_a_worker_are_start_up)
{
	struct tally tally;

	worker_steps();
	script_call(&s, WORKER, 8, 9, SYS_read, EVENT_FILE_REG, 60, 1000);
	struct scene scene = scene_of(&s);
	/* The path is walked as if the trainer had waited from 5 on, for the worker's first batch. */
	assert_int_equal(walk(&scene, 400, 550, &tally), 0);
	scene_free(&scene);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].tid == TRAINER && s.events[i].start_ns >= at(400) &&
		    s.events[i].start_ns <= at(401))
			s.events[i].start_ns -= 395 * TICK_NS;
	scene = scene_of(&s);
	assert_int_equal(walk(&scene, 6, 550, &tally), 270);
	assert_int_equal(ticks_of(&tally, "decoding and transforming"), 210);
	assert_int_equal(ticks_of(&tally, "starting up"), 14);
	scene_free(&scene);
	/* The worker sleeps for its imports, too. */
	script_off(&s, WORKER, 10, 20, 20, 0x2, TIMER_WOKE);
	script_call(&s, WORKER, 10, 19, SYS_read, EVENT_FILE_REG, 60, 1000);
	scene = scene_of(&s);
	assert_int_equal(walk(&scene, 6, 550, &tally), 270);
	assert_int_equal(ticks_of(&tally, "starting up"), 4);
	assert_int_equal(ticks_of(&tally, "reading files"), 250 + 10);
	scene_free(&scene);
}

/* A thread is born during the wait. The path before is that of the thread that made it. */
TEST(time_before_a_birth_is_the_parent_s)
{
	struct tally tally;

	script_begin(&s);
	script_fork(&s, OTHER, OTHER + 1, 300);
	script_add(&s, OTHER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 400, 400, 0x1, OTHER + 1);
	script_off(&s, OTHER, 50, 250, 260, 0x1, TIMER_WOKE);
	script_exit(&s, OTHER, 600);
	script_exit(&s, OTHER + 1, 600);
	script_exit(&s, TRAINER, 600);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 500, &tally), 0);
	assert_int_equal(ticks_of(&tally, "preparing or taking over a batch"), 100);
	assert_int_equal(ticks_of(&tally, "computing"), 100 + 40);
	assert_int_equal(ticks_of(&tally, "waiting for a core"), 10);
	assert_int_equal(ticks_of(&tally, "asleep"), 150);
	assert_int_equal(chain.n, 5);
	assert_int_equal(chain.pieces[1].tid, OTHER + 1);
	assert_int_equal(chain.pieces[1].begin_ns, at(300));
	assert_int_equal(chain.pieces[2].tid, OTHER);
	assert_string_equal(chain.pieces[2].what, chain.pieces[1].what);
}

/* The waking thread's tid was used before, and will be used again. */
TEST(tids_used_again)
{
	struct tally tally;

	script_begin(&s);
	script_fork(&s, TRAINER, OTHER, 10);
	script_off(&s, OTHER, 20, 90, 90, 0x1, TIMER_WOKE);
	script_exit(&s, OTHER, 95);
	script_fork(&s, TRAINER, OTHER, 100);
	script_off(&s, OTHER, 110, 160, 160, 0x2, TIMER_WOKE);
	script_exit(&s, OTHER, 250);
	script_fork(&s, TRAINER, OTHER, 300);
	script_off(&s, OTHER, 310, 390, 390, 0x1, TIMER_WOKE);
	script_off(&s, TRAINER, 120, 200, 200, 0x1, OTHER);
	script_exit(&s, TRAINER, 1000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 120, 400, &tally), 0);
	assert_int_equal(ticks_of(&tally, "computing"), 40);
	assert_int_equal(ticks_of(&tally, "asleep"), 40);
	assert_int_equal(ticks_of(&tally, "preparing or taking over a batch"), 200);
}

/* Threads wake each other at one instant. The records contradict each other, but the walk ends. */
TEST(circles_of_wakers_end)
{
	struct tally tally;

	script_begin(&s);
	script_add(&s, OTHER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 200, 200, 0x1, OTHER);
	script_off(&s, OTHER, 90, 200, 200, 0x1, TRAINER);
	script_exit(&s, TRAINER, 1000);
	struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 300, &tally), 0);
	assert_int_equal(ticks_of(&tally, "preparing or taking over a batch"), 100);
	assert_int_equal(ticks_of(&tally, "not attributed"), 100);
	scene_free(&scene);
	/* The trainer woke itself, and then a tid without a thread woke it. */
	script_begin(&s);
	script_off(&s, TRAINER, 100, 200, 200, 0x1, TRAINER);
	script_off(&s, TRAINER, 300, 400, 400, 0x1, 999);
	script_exit(&s, TRAINER, 1000);
	scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 400, &tally), 0);
	assert_int_equal(ticks_of(&tally, "asleep"), 200);
	scene_free(&scene);
}

/* A gap of the recording does not count as computing. But a thread that wakes another one ran until then,
 * since the end of its last sleep. */
TEST(a_gap_of_the_recording_is_unknown)
{
	struct tally tally;

	script_begin(&s);
	script_off(&s, TRAINER, 100, 400, 400, 0x1, OTHER);
	script_call(&s, OTHER, 350, 360, SYS_getpid, EVENT_FILE_NONE, 0, 0);
	script_call(&s, OTHER, 380, 390, SYS_getpid, EVENT_FILE_NONE, 0, 0);
	script_exit(&s, TRAINER, 1000);
	struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 400, &tally), 0);
	assert_int_equal(ticks_of(&tally, "computing"), 300);
	scene_free(&scene);
	script_begin(&s);
	script_add(&s, 1, EVENT_GAP, 200, 300);
	script_call(&s, TRAINER, 195, 205, SYS_read, EVENT_FILE_REG, DATA_FILE, 10);
	script_exit(&s, TRAINER, 1000);
	scene = scene_of(&s);
	assert_int_equal(walk(&scene, 100, 400, &tally), 5);
	assert_int_equal(ticks_of(&tally, "preparing or taking over a batch"), 195);
	assert_int_equal(ticks_of(&tally, "not attributed"), 100);
	scene_free(&scene);
}

TEST(the_lock_s_holder_accounts_for_the_sleep)
{
	struct tally tally;

	script_begin(&s);
	script_add(&s, LOADER, EVENT_NAME, 0, 0);
	for (uint64_t i = 0; i < 12; i++) {
		uint64_t tick = 1000 * i, word = GIL_WORD + 4 * (i % 2);

		script_off(&s, TRAINER, tick, tick + 250, tick + 250, 0x1, LOADER);
		script_call(&s, TRAINER, tick, tick + 250, SYS_futex, EVENT_FILE_NONE, word, -ETIMEDOUT)
		    ->call.argument = WAIT_TIMED;
		script_off(&s, LOADER, tick + 100, tick + 100, tick + 130, 0, TIMER_WOKE);
		script_call(&s, LOADER, tick + 250, tick + 250, SYS_futex, EVENT_FILE_NONE, word, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
		script_off(&s, LOADER, tick + 600, tick + 650, tick + 650, 0x1, TRAINER);
		script_call(&s, LOADER, tick + 600, tick + 650, SYS_futex, EVENT_FILE_NONE, word, 0)
		    ->call.argument = WAIT_TIMED;
		script_call(&s, TRAINER, tick + 650, tick + 650, SYS_futex, EVENT_FILE_NONE, word, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
	}
	script_exit(&s, TRAINER, 20000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(walk(&scene, 5000, 5260, &tally), 0);
	assert_int_equal(ticks_of(&tally, walk_gil_text), 220);
	assert_int_equal(ticks_of(&tally, "waiting for a core"), 30);
	assert_int_equal(ticks_of(&tally, "preparing or taking over a batch"), 10);
}

TEST(a_full_chain_keeps_its_pieces)
{
	struct tally tally;

	script_begin(&s);
	for (uint64_t i = 0; i < 3 * WAIT_CHAIN_MAX; i++)
		script_off(&s, TRAINER, 20 * i, 20 * i + 10, 20 * i + 10, 0x1, TIMER_WOKE);
	script_exit(&s, TRAINER, 2000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	walk(&scene, 0, 2000, &tally);
	assert_int_equal(tally.n, 2);
	chain = (struct wait_chain){.wait_begin_ns = at(0), .wait_end_ns = at(1440)};
	walk_chain(scene.timeline, &scene.roles, &chain);
	assert_int_equal(chain.n, WAIT_CHAIN_MAX);
	for (size_t i = 0; i < chain.n; i++) {
		assert_int_equal(chain.pieces[i].end_ns, at(1440 - 10 * i));
		assert_int_equal(chain.pieces[i].begin_ns, at(1430 - 10 * i));
		assert_string_equal(chain.pieces[i].role, role_name(ROLE_TRAINER));
	}
}

TEST(call_file_and_source_decide_who_fetches)
{
	const struct {
		uint16_t nr;
		uint8_t file_type, source;
		bool anyone, loads; /* counts as fetching in the trainer; in a worker or loader */
	} rows[] = {
	    {SYS_read, EVENT_FILE_REG, SOURCE_STORAGE, true, true},
	    {SYS_read, EVENT_FILE_SOCK, SOURCE_NETWORK, true, true},
	    {SYS_read, EVENT_FILE_SOCK, SOURCE_LOCAL, false, true},
	    {SYS_epoll_wait, EVENT_FILE_NONE, SOURCE_UNKNOWN, false, true},
	    {SYS_read, EVENT_FILE_FIFO, SOURCE_UNKNOWN, false, false},
	    {SYS_write, EVENT_FILE_REG, SOURCE_STORAGE, false, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct timeline_call call = {.begin_ns = 100,
					     .end_ns = 200,
					     .busy_ns = 100,
					     .kind = call_kind_of(rows[i].nr),
					     .nr = rows[i].nr,
					     .file_type = rows[i].file_type,
					     .source = rows[i].source};
		struct timeline_thread thread = {.calls = &call, .n_calls = 1, .uses_network = true};

		for (int role = ROLE_OTHER; role <= ROLE_LOADER; role++) {
			bool fetches =
			    role == ROLE_WORKER || role == ROLE_LOADER ? rows[i].loads : rows[i].anyone;
			const char *what = walk_fetching(&thread, (enum role)role, 150);

			assert_int_equal(what != NULL, fetches);
			if (what)
				assert_string_equal(what, call_describe(&call));
			assert_int_equal(walk_fetch_calls(&thread, (enum role)role, 0, 1000),
					 fetches ? 100 : 0);
			assert_int_equal(walk_fetch_calls(&thread, (enum role)role, 150, 160),
					 fetches ? 10 : 0);
		}
		/* Both ends count as within the call, and no time outside. */
		assert_int_equal(walk_fetching(&thread, ROLE_WORKER, 100) != NULL, rows[i].loads);
		assert_int_equal(walk_fetching(&thread, ROLE_WORKER, 200) != NULL, rows[i].loads);
		assert_null(walk_fetching(&thread, ROLE_WORKER, 99));
		assert_null(walk_fetching(&thread, ROLE_WORKER, 201));
		assert_int_equal(walk_fetch_calls(&thread, ROLE_WORKER, 200, 300), 0);
		assert_int_equal(walk_fetch_calls(&thread, ROLE_WORKER, 0, 100), 0);
		thread.uses_network = false;
		assert_int_equal(walk_fetching(&thread, ROLE_WORKER, 150) != NULL,
				 rows[i].loads && rows[i].nr != SYS_epoll_wait);
	}
}

TEST(grouped_calls_count_in_proportion)
{
	const uint64_t hour_ns = 3600 * NS_PER_S;
	struct timeline_call call = {
	    .begin_ns = hour_ns, .end_ns = 3 * hour_ns, .busy_ns = hour_ns, .kind = CALL_GROUP};
	struct timeline_thread thread = {.calls = &call, .n_calls = 1};

	assert_int_equal(walk_fetch_calls(&thread, ROLE_TRAINER, 0, 4 * hour_ns), hour_ns);
	assert_int_equal(walk_fetch_calls(&thread, ROLE_TRAINER, 0, 2 * hour_ns), hour_ns / 2);
}

/* A wait for chunks is the time between a pair of libdiesel's marks with that reason. */
TEST(marks_for_chunks_alone_are_fetch)
{
	struct timeline_mark marks[] = {
	    {10, 0, MARK_WAIT_BEGIN}, {20, MARK_CAUSE_FETCH, MARK_WAIT_END},
	    {30, 0, MARK_WAIT_BEGIN}, {40, MARK_CAUSE_PREP, MARK_WAIT_END},
	    {50, 0, MARK_WAIT_BEGIN}, {60, MARK_CAUSE_FETCH, MARK_NEXT_END},
	    {70, 0, MARK_WAIT_BEGIN}, {75, MARK_CAUSE_FETCH, MARK_WAIT_END}, /* of another one */
	};
	struct timeline_thread thread = {.marks = marks, .n_marks = 7};

	for (uint64_t ns = 0; ns < 80; ns++) {
		const char *what = walk_fetching(&thread, ROLE_WORKER, ns);

		assert_int_equal(what != NULL, ns >= 10 && ns < 20);
		if (what)
			assert_string_equal(what, "waiting for chunks");
	}
	marks[1].value = MARK_CAUSE_PEERS;
	assert_string_equal(walk_fetching(&thread, ROLE_TRAINER, 15), walk_peers_text);
	marks[1].value = MARK_CAUSE_STAGING;
	assert_string_equal(walk_fetching(&thread, ROLE_TRAINER, 15), "waiting for chunks from staging");
	marks[1].value = MARK_CAUSE_STAGING + 1;
	assert_null(walk_fetching(&thread, ROLE_TRAINER, 15));
	thread.n_marks = 0;
	assert_null(walk_fetching(&thread, ROLE_WORKER, 15));
}
