/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support_loop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/node/pool.h"

struct number {
	struct pool_task task;
	uint32_t value;
	uint64_t square;
	uint32_t *finished; /* counts done() calls, only on the loop thread */
	uint32_t order;
};

static void work(struct pool_task *task)
{
	struct number *n = (struct number *)task;

	n->square = (uint64_t)n->value * n->value;
}

static void done(struct pool_task *task)
{
	struct number *n = (struct number *)task;

	n->order = (*n->finished)++;
}

static bool has_finished(void *pool)
{
	return pool_in_flight(pool) == 0;
}

static void run(uint32_t workers, uint32_t later, uint32_t n_tasks, struct number *numbers)
{
	struct pool *pool;
	uint32_t finished = 0;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(pool_new(&loop, workers, &pool), 0);
	assert_int_equal(pool_workers(pool), workers);
	for (uint32_t i = 0; i < n_tasks; i++) {
		numbers[i] =
		    (struct number){.task = {.work = work, .done = done}, .value = i, .finished = &finished};
		pool_submit(pool, NULL, &numbers[i].task);
		if (i == n_tasks / 2)
			pool_set_workers(pool, later);
	}
	loop_until(&loop, has_finished, pool);
	assert_int_equal(finished, n_tasks);
	assert_int_equal(pool_workers(pool), later);
	for (uint32_t i = 0; i < n_tasks; i++)
		assert_int_equal(numbers[i].square, (uint64_t)i * i);
	pool_free(pool);
	loop_end(&loop);
}

TEST(all_tasks_are_done_once)
{
	static struct number numbers[5000];

	run(1, 4, 5000, numbers);
	run(4, 1, 5000, numbers);
	run(3, 3, 5000, numbers);
}

TEST(one_worker_keeps_the_order)
{
	static struct number numbers[500];

	run(1, 1, 500, numbers);
	for (uint32_t i = 0; i < 500; i++)
		assert_int_equal(numbers[i].order, i);
}

TEST(number_of_workers_is_clamped)
{
	struct pool *pool;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(pool_new(&loop, 0, &pool), 0);
	assert_int_equal(pool_workers(pool), 1);
	pool_set_workers(pool, 1000);
	assert_int_equal(pool_workers(pool), POOL_MAX_WORKERS);
	pool_free(pool);
	pool_free(NULL);
	loop_end(&loop);
}

struct slow {
	struct pool_task task;
	_Atomic uint32_t *running, *most;
	uint32_t *finished, order;
};

static void slow_work(struct pool_task *task)
{
	struct slow *s = (struct slow *)task;
	uint32_t now = atomic_fetch_add(s->running, 1) + 1, most = atomic_load(s->most);
	volatile uint64_t sum = 0;

	while (now > most && !atomic_compare_exchange_weak(s->most, &most, now)) {
	}
	for (uint64_t i = 0; i < 200000; i++) /* long enough, as turns are counted in CPU time */
		sum += i;
	(void)sum;
	atomic_fetch_sub(s->running, 1);
}

static void slow_done(struct pool_task *task)
{
	struct slow *s = (struct slow *)task;

	s->order = (*s->finished)++;
}

struct lanes {
	uv_loop_t loop;
	struct pool *pool;
	struct pool_lane lane[2];
	struct slow tasks[2][200];
	_Atomic uint32_t running[2], most[2];
	uint32_t finished;
};

static void lanes_start(struct lanes *l, uint32_t workers)
{
	memset(l, 0, sizeof(*l));
	assert_int_equal(uv_loop_init(&l->loop), 0);
	assert_int_equal(pool_new(&l->loop, workers, &l->pool), 0);
	for (int k = 0; k < 2; k++)
		pool_lane_init(&l->lane[k], (uint32_t)k);
}

static void lanes_submit(struct lanes *l, int k, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		l->tasks[k][i] = (struct slow){.task = {.work = slow_work, .done = slow_done},
					       .running = &l->running[k],
					       .most = &l->most[k],
					       .finished = &l->finished};
		pool_submit(l->pool, &l->lane[k], &l->tasks[k][i].task);
	}
}

static void lanes_end(struct lanes *l)
{
	loop_until(&l->loop, has_finished, l->pool);
	pool_free(l->pool);
	loop_end(&l->loop);
}

/* One lane has ten times the other's work queued before it. The other lane's work still gets its turns. */
TEST(a_lane_cannot_starve_another)
{
	static struct lanes l;

	lanes_start(&l, 1);
	lanes_submit(&l, 0, 200);
	lanes_submit(&l, 1, 20);
	lanes_end(&l);
	for (int i = 0; i < 20; i++)
		assert_true(l.tasks[1][i].order < 150);
	assert_true(pool_lane_cpu_ns(&l.lane[0]) > pool_lane_cpu_ns(&l.lane[1]));
	assert_true(pool_lane_cpu_ns(&l.lane[1]) > 0);
}

TEST(a_lanes_limit_holds)
{
	static struct lanes l;

	lanes_start(&l, 8);
	pool_lane_limit(l.pool, &l.lane[0], 2);
	lanes_submit(&l, 0, 200);
	lanes_submit(&l, 1, 200);
	lanes_end(&l);
	assert_in_range(l.most[0], 1, 2);
	lanes_start(&l, 8);
	pool_lane_limit(l.pool, &l.lane[0], 0); /* every lane has at least one worker */
	lanes_submit(&l, 0, 50);
	lanes_end(&l);
	assert_int_equal(l.most[0], 1);
}

struct elsewhere {
	struct pool_task task;
	uint64_t ns;
	uint32_t *finished, order, times;
	struct pool *pool;
	struct pool_lane *lane;
};

static void elsewhere_work(struct pool_task *task)
{
	task->elsewhere_ns = ((struct elsewhere *)task)->ns;
}

static void elsewhere_done(struct pool_task *task)
{
	struct elsewhere *e = (struct elsewhere *)task;

	if (e->times-- > 1)
		pool_submit_first(e->pool, e->lane, task);
	else
		e->order = (*e->finished)++;
}

/* CPU time of a task in another process counts for the task's lane, and a task may continue in another
 * turn. */
TEST(work_elsewhere_counts)
{
	struct elsewhere tasks[2][4];
	struct pool_lane lanes[2];
	struct pool *pool;
	uint32_t finished = 0;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(pool_new(&loop, 1, &pool), 0);
	for (int k = 0; k < 2; k++) {
		pool_lane_init(&lanes[k], (uint32_t)k);
		for (int i = 0; i < 4; i++) {
			tasks[k][i] =
			    (struct elsewhere){.task = {.work = elsewhere_work, .done = elsewhere_done},
					       .ns = k ? 1 : UINT64_C(1000000000),
					       .finished = &finished,
					       .times = k ? 1 : 3,
					       .pool = pool,
					       .lane = &lanes[k]};
			pool_submit(pool, &lanes[k], &tasks[k][i].task);
		}
	}
	loop_until(&loop, has_finished, pool);
	assert_true(pool_lane_cpu_ns(&lanes[0]) >= UINT64_C(12000000000));
	assert_true(pool_lane_cpu_ns(&lanes[1]) < UINT64_C(1000000000));
	for (int i = 0; i < 4; i++)
		assert_true(tasks[1][i].order < tasks[0][1].order); /* the lane had its turns */
	pool_free(pool);
	loop_end(&loop);
}

TEST(threads_come_with_work)
{
	static struct lanes l;

	lanes_start(&l, 8);
	assert_int_equal(pool_threads(l.pool), 1);
	lanes_submit(&l, 0, 200);
	assert_in_range(pool_threads(l.pool), 2, 8);
	pool_set_workers(l.pool, 2);
	loop_until(&l.loop, has_finished, l.pool);
	for (int i = 0; i < 1000 && pool_threads(l.pool) > 2; i++)
		usleep(1000);
	assert_in_range(pool_threads(l.pool), 1, 2);
	lanes_end(&l);
}

struct waiting {
	struct pool_task task;
	struct pool *pool;
	_Atomic uint32_t *go;
	_Atomic uint32_t *n_begun;
	uint32_t *n_done;
};

/* Waits for `go`, as for another process, and ends its turn when it is over. */
static void wait_work(struct pool_task *task)
{
	struct waiting *w = (struct waiting *)task;

	atomic_fetch_add(w->n_begun, 1);
	while (!atomic_load(w->go)) {
		usleep(1000);
		if (pool_turn_is_over(w->pool, task, 0))
			pool_pause(w->pool, task);
	}
}

static void wait_done(struct pool_task *task)
{
	++*((struct waiting *)task)->n_done;
}

static bool short_ones_are_done(void *lanes)
{
	return ((struct lanes *)lanes)->finished == 100;
}

/* Long tasks of ten jobs of one user have all workers, and never end. Another user's tasks still get done. */
TEST(long_tasks_pause)
{
	static struct lanes l;
	static struct waiting tasks[40];
	struct pool_lane jobs[10];
	_Atomic uint32_t go = 0, n_begun = 0;
	uint32_t n_done = 0;

	lanes_start(&l, 4);
	for (int i = 0; i < 10; i++)
		pool_lane_init(&jobs[i], 77);
	for (int i = 0; i < 40; i++) {
		tasks[i] = (struct waiting){.task = {.work = wait_work, .done = wait_done, .is_long = true},
					    .pool = l.pool,
					    .go = &go,
					    .n_begun = &n_begun,
					    .n_done = &n_done};
		pool_submit(l.pool, &jobs[i % 10], &tasks[i].task);
	}
	for (int i = 0; i < 60000 && atomic_load(&n_begun) < 4; i++)
		usleep(1000);
	lanes_submit(&l, 0, 100);
	loop_until(&l.loop, short_ones_are_done, &l);
	assert_int_equal(n_done, 0);
	pool_set_workers(l.pool, 1); /* the tasks pause for that, too */
	pool_set_workers(l.pool, 3);
	atomic_store(&go, 1);
	lanes_end(&l);
	assert_int_equal(n_done, 40);
}
