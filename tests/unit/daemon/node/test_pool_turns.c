/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the workers of a pool are shared. All tasks advance in steps: in each tick every task that has a worker
 * uses 100 ms of CPU time, elsewhere and only in name. The pool must give a worker to every task that may
 * have one before the next tick begins.
 */
#include "tests/support_loop.h"

#include <pthread.h>
#include <stdlib.h>

#include "daemon/node/pool.h"
#include "daemon/node/turn_queue.h"

/* Exceeds the time that a tick takes on a busy machine, which a long task is charged, too. */
#define TICK_NS UINT64_C(100000000)
#define TURN    5 /* in ticks, after which a task is asked whether its turn is over */
#define LANES   1000
#define ENDLESS UINT32_MAX

/* A job of a user, of which `depth` tasks wait or run at a time. Each takes `ticks`. */
struct job {
	struct pool_lane own, *lane;
	bool is_long;
	uint32_t depth, ticks;
	uint32_t n_tasks, n_running, n_done;
	uint64_t worked; /* ticks in which it had a worker */
};

struct step_task {
	struct pool_task task;
	struct world *world;
	struct job *job;
	struct step_task *next_free;
};

struct world {
	uv_loop_t loop;
	uv_async_t changed;
	struct pool *pool;
	struct job *jobs;
	uint32_t n_jobs;
	struct step_task tasks[2 * LANES + 500], *free;
	/* Under the lock: */
	pthread_mutex_t lock;
	pthread_cond_t ticked;
	uint64_t tick;
	uint32_t n_ready; /* tasks that wait for the next tick */
	uint32_t n_busy;  /* tasks that this tick has begun */
	uint32_t n_paused, most_paused;
	bool ends;
};

/* Waits for the next tick. The lock is held. */
static void await_tick(struct world *w, struct job *j)
{
	uint64_t tick = w->tick;

	j->n_running++;
	w->n_ready++;
	uv_async_send(&w->changed);
	while (w->tick == tick && !w->ends)
		pthread_cond_wait(&w->ticked, &w->lock);
	j->n_running--;
	j->worked++;
}

/* Pauses the task if its turn is over. The lock is held. */
static void end_turn(struct world *w, struct step_task *t, uint64_t cost_ns)
{
	bool over;

	pthread_mutex_unlock(&w->lock);
	over = pool_turn_is_over(w->pool, &t->task, cost_ns);
	pthread_mutex_lock(&w->lock);
	w->n_busy--;
	if (!over)
		return;
	w->n_paused++;
	w->most_paused = w->n_paused > w->most_paused ? w->n_paused : w->most_paused;
	pthread_mutex_unlock(&w->lock);
	pool_pause(w->pool, &t->task);
	pthread_mutex_lock(&w->lock);
	w->n_paused--;
}

static void step_work(struct pool_task *task)
{
	struct step_task *t = (struct step_task *)task;
	struct world *w = t->world;
	uint32_t ticks = t->job->ticks, n = 0;

	pthread_mutex_lock(&w->lock);
	while (!w->ends) {
		await_tick(w, t->job);
		if (++n == ticks || w->ends)
			break;
		if (t->job->is_long && n % TURN == 0)
			end_turn(w, t, n * TICK_NS);
		else
			w->n_busy--;
	}
	pthread_mutex_unlock(&w->lock);
	task->elsewhere_ns = n * TICK_NS;
}

static void step_done(struct pool_task *task)
{
	struct step_task *t = (struct step_task *)task;
	struct world *w = t->world;

	t->job->n_tasks--;
	t->job->n_done++;
	t->next_free = w->free;
	w->free = t;
	pthread_mutex_lock(&w->lock);
	w->n_busy -= !w->ends;
	pthread_mutex_unlock(&w->lock);
}

static void on_changed(uv_async_t *async)
{
	(void)async;
}

static struct world *world_begin(uint32_t n_workers, struct job *jobs, uint32_t n_jobs)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->jobs = jobs;
	w->n_jobs = n_jobs;
	for (size_t i = 0; i < sizeof(w->tasks) / sizeof(w->tasks[0]); i++) {
		w->tasks[i].next_free = w->free;
		w->free = &w->tasks[i];
	}
	assert_int_equal(pthread_mutex_init(&w->lock, NULL), 0);
	assert_int_equal(pthread_cond_init(&w->ticked, NULL), 0);
	assert_int_equal(uv_loop_init(&w->loop), 0);
	assert_int_equal(uv_async_init(&w->loop, &w->changed, on_changed), 0);
	assert_int_equal(pool_new(&w->loop, n_workers, &w->pool), 0);
	return w;
}

static bool is_idle(void *pool)
{
	return pool_in_flight(pool) == 0;
}

static void world_end(struct world *w)
{
	pthread_mutex_lock(&w->lock);
	w->ends = true;
	pthread_cond_broadcast(&w->ticked);
	pthread_mutex_unlock(&w->lock);
	loop_until(&w->loop, is_idle, w->pool);
	pool_free(w->pool);
	uv_close((uv_handle_t *)&w->changed, NULL);
	loop_end(&w->loop);
	pthread_cond_destroy(&w->ticked);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static void job_init(struct job *j, uint32_t uid, bool is_long, uint32_t depth, uint32_t ticks)
{
	*j = (struct job){.lane = &j->own, .is_long = is_long, .depth = depth, .ticks = ticks};
	pool_lane_init(&j->own, uid);
}

static void ask_for_work(struct world *w)
{
	for (uint32_t i = 0; i < w->n_jobs; i++) {
		struct job *j = &w->jobs[i];

		for (; j->n_tasks < j->depth; j->n_tasks++) {
			struct step_task *t = w->free;

			assert_non_null(t);
			w->free = t->next_free;
			*t = (struct step_task){
			    .task = {.work = step_work, .done = step_done, .is_long = j->is_long},
			    .world = w,
			    .job = j};
			pool_submit(w->pool, j->lane, &t->task);
		}
	}
}

/* Returns the number of a user's tasks that have or should have a worker, if there are enough workers. */
static uint32_t user_demand(const struct world *w, uint32_t uid)
{
	uint32_t n = 0, limit = UINT32_MAX;

	for (uint32_t i = 0; i < w->n_jobs; i++) {
		const struct job *j = &w->jobs[i];

		if (j->own.uid != uid)
			continue;
		n += j->n_tasks < j->own.limit ? j->n_tasks : j->own.limit;
		limit = j->own.user_limit;
	}
	return n < limit ? n : limit;
}

/* The users of the jobs are numbered 0 to 2. */
static uint32_t n_expected(const struct world *w)
{
	uint32_t n = user_demand(w, 0) + user_demand(w, 1) + user_demand(w, 2), most = pool_workers(w->pool);

	return n < most ? n : most;
}

static bool has_ticked(void *world)
{
	struct world *w = world;
	bool has;

	pthread_mutex_lock(&w->lock);
	has = w->n_busy == 0;
	pthread_mutex_unlock(&w->lock);
	return has;
}

static bool is_ready(void *world)
{
	struct world *w = world;
	bool is;

	pthread_mutex_lock(&w->lock);
	is = w->n_ready >= n_expected(w);
	pthread_mutex_unlock(&w->lock);
	return is;
}

/* Fills the workers for the next tick. */
static void settle(struct world *w)
{
	loop_until(&w->loop, has_ticked, w);
	ask_for_work(w);
	loop_until(&w->loop, is_ready, w);
	pthread_mutex_lock(&w->lock);
	assert_int_equal(w->n_ready, n_expected(w));
	pthread_mutex_unlock(&w->lock);
}

static void tick(struct world *w)
{
	settle(w);
	pthread_mutex_lock(&w->lock);
	w->n_busy = w->n_ready;
	w->n_ready = 0;
	w->tick++;
	pthread_cond_broadcast(&w->ticked);
	pthread_mutex_unlock(&w->lock);
}

static void run(struct world *w, uint32_t ticks)
{
	for (uint32_t i = 0; i < ticks; i++)
		tick(w);
	settle(w);
}

/* Returns the ticks of the user's jobs. */
static uint64_t worked_by(const struct world *w, uint32_t uid)
{
	uint64_t ticks = 0;

	for (uint32_t i = 0; i < w->n_jobs; i++)
		ticks += w->jobs[i].own.uid == uid ? w->jobs[i].worked : 0;
	return ticks;
}

static uint32_t running_of(const struct world *w, uint32_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_jobs; i++)
		n += w->jobs[i].own.uid == uid ? w->jobs[i].n_running : 0;
	return n;
}

/* However many jobs a user has, another user's only job gets as much. */
TEST(users_share_and_not_jobs)
{
	static const uint32_t n_workers[] = {1, 2, 4, 7, 16};

	for (size_t k = 0; k < sizeof(n_workers) / sizeof(n_workers[0]); k++) {
		static struct job jobs[21];
		uint64_t all = (uint64_t)400 * n_workers[k];
		struct world *w;

		for (int i = 0; i < 20; i++)
			job_init(&jobs[i], 1, false, 16, 1);
		job_init(&jobs[20], 2, false, 16, 1);
		w = world_begin(n_workers[k], jobs, 21);
		run(w, 400);
		assert_int_equal(worked_by(w, 1) + worked_by(w, 2), all);
		assert_in_range(worked_by(w, 2), all * 45 / 100, all * 55 / 100);
		world_end(w);
	}
}

/* The jobs of one user share that user's part. */
TEST(jobs_of_a_user_share)
{
	static struct job jobs[5];
	struct world *w;

	for (int i = 0; i < 4; i++)
		job_init(&jobs[i], 1, false, i == 0 ? 200 : 8, i == 1 ? 4 : 1);
	job_init(&jobs[4], 2, false, 8, 1);
	w = world_begin(2, jobs, 5);
	run(w, 1600);
	for (int i = 0; i < 4; i++)
		assert_in_range(jobs[i].worked, 340, 460);
	assert_in_range(jobs[4].worked, 1500, 1700);
	world_end(w);
}

/* Very long tasks give way to another user's tasks, which proceed as if the long ones were short. That holds
 * also for tasks that never end. */
TEST(long_tasks_give_way)
{
	static const uint32_t n_workers[] = {1, 2, 4, 9};

	for (size_t k = 0; k < sizeof(n_workers) / sizeof(n_workers[0]); k++) {
		static struct job jobs[11];
		uint64_t all = (uint64_t)1000 * n_workers[k];
		struct world *w;

		for (int i = 0; i < 10; i++)
			job_init(&jobs[i], 1, true, 8, i % 2 ? 1000 : ENDLESS);
		job_init(&jobs[10], 2, true, 32, 1);
		w = world_begin(n_workers[k], jobs, 11);
		run(w, 1000);
		assert_true(jobs[10].worked >= all * 45 / 100);
		assert_true(jobs[10].n_done >= all * 45 / 100);
		assert_true(worked_by(w, 1) >= all * 45 / 100);
		/* Each paused task keeps a process. */
		assert_in_range(w->most_paused, 0, 3 * n_workers[k] + 2);
		world_end(w);
	}
}

/* A user without competition has all workers, and gives them up within a turn when another user comes. */
TEST(alone_and_not)
{
	static struct job jobs[2];
	struct world *w;

	job_init(&jobs[0], 1, true, 32, ENDLESS);
	job_init(&jobs[1], 2, true, 0, 1);
	w = world_begin(8, jobs, 2);
	run(w, 100);
	assert_int_equal(jobs[0].worked, 800);
	assert_int_equal(w->n_paused, 0);
	jobs[1].depth = 100;
	run(w, TURN + 1);
	jobs[1].worked = 0;
	run(w, 100);
	assert_in_range(jobs[1].worked, 350, 450);
	jobs[1].depth = 0; /* the other user leaves */
	run(w, 60);
	jobs[0].worked = 0;
	run(w, 100);
	assert_int_equal(jobs[0].worked, 800);
	world_end(w);
}

/* While others wait, a user never has more than its share, but at least one worker. */
TEST(bound_at_any_moment)
{
	static struct job jobs[3];
	struct world *w;

	for (uint32_t i = 0; i < 3; i++)
		job_init(&jobs[i], i, false, 100, i == 0 ? 10 : 1);
	w = world_begin(6, jobs, 3);
	run(w, 20);
	for (int i = 0; i < 300; i++) {
		run(w, 1);
		for (int k = 0; k < 3; k++)
			assert_in_range(jobs[k].n_running, 0, 2);
	}
	world_end(w);
}

/* A user's short tasks, for which other users may wait, too, do not wait behind its long ones, and paused
 * tasks have their turns, too. */
TEST(short_tasks_pass)
{
	static struct job jobs[2];
	struct world *w;

	job_init(&jobs[0], 1, true, 8, ENDLESS);
	job_init(&jobs[1], 1, false, 3, 1);
	jobs[1].lane = &jobs[0].own;
	w = world_begin(1, jobs, 2);
	run(w, 600);
	assert_in_range(jobs[1].worked, 90, 110);
	assert_in_range(jobs[0].worked, 490, 510);
	world_end(w);
}

TEST(coming_back_gives_no_credit)
{
	static struct job jobs[2];
	struct world *w;

	job_init(&jobs[0], 1, false, 8, 1);
	job_init(&jobs[1], 2, false, 0, 1);
	w = world_begin(1, jobs, 2);
	run(w, 500);
	jobs[0].worked = 0;
	jobs[1].depth = 8;
	run(w, 400);
	assert_in_range(jobs[0].worked, 150, 250);
	jobs[0].worked = 0;
	for (int i = 0; i < 400; i++) { /* the user leaves and returns all the time */
		jobs[1].depth = i % 2 ? 1 : 0;
		run(w, 1);
	}
	assert_true(jobs[0].worked >= 150);
	world_end(w);
}

TEST(many_lanes_take_turns)
{
	static struct job jobs[LANES + 1];
	struct world *w;

	for (uint32_t i = 0; i < LANES; i++)
		job_init(&jobs[i], 1, false, 2, 1);
	job_init(&jobs[LANES], 2, false, 2, 1);
	w = world_begin(2, jobs, LANES + 1);
	run(w, 2 * LANES);
	assert_in_range(jobs[LANES].worked, 3 * LANES / 2, 5 * LANES / 2);
	for (uint32_t i = 0; i < LANES; i++)
		assert_in_range(jobs[i].worked, 1, 3);
	world_end(w);
}

TEST(lane_limits_bound_work_under_way)
{
	static struct job jobs[2];
	struct world *w;

	job_init(&jobs[0], 1, true, 8, ENDLESS);
	job_init(&jobs[1], 1, false, 8, 1);
	w = world_begin(4, jobs, 2);
	pool_lane_limit(w->pool, jobs[0].lane, 2);
	pool_lane_limit(w->pool, jobs[1].lane, 0);
	run(w, 100);
	assert_int_equal(jobs[0].worked, 200);
	assert_int_equal(jobs[1].worked, 100);
	world_end(w);
}

/* However many jobs a user has, they share the workers of that user's limit. */
TEST(limit_of_a_user)
{
	static struct job jobs[4];

	for (int is_long = 0; is_long < 2; is_long++) {
		uint32_t most = 0;
		struct world *w;

		for (uint32_t i = 0; i < 4; i++)
			job_init(&jobs[i], i < 3 ? 1 : 2, is_long, 8, i == 0 && is_long ? ENDLESS : 1);
		w = world_begin(4, jobs, 4);
		for (uint32_t i = 0; i < 3; i++)
			pool_lane_limit_user(w->pool, jobs[i].lane, 1);
		for (uint32_t i = 0; i < 1200; i++) {
			run(w, 1);
			assert_true(running_of(w, 1) <= 1);
		}
		for (uint32_t i = 0; i < 3; i++)
			assert_in_range(jobs[i].worked, 300, 500);
		assert_in_range(worked_by(w, 2), 3500, 3700);
		/* The limit ends as soon as the cores are free. */
		for (uint32_t i = 0; i < 3; i++)
			pool_lane_limit_user(w->pool, jobs[i].lane, 2);
		for (uint32_t i = 0; i < 100; i++) {
			run(w, 1);
			most = running_of(w, 1) > most ? running_of(w, 1) : most;
		}
		assert_int_equal(most, 2);
		world_end(w);
	}
}

#define ENTRIES 500

TEST(a_queue_stays_sorted)
{
	static struct turn_entry entries[ENTRIES];
	struct turn_queue q = {NULL};
	uint64_t last = 0;
	uint32_t n = 0;

	srand(1);
	for (int round = 0; round < 20000; round++) {
		struct turn_entry *e = &entries[rand() % ENTRIES];

		if (rand() % 2)
			e = q.first ? q.first : e;
		if (e->in) {
			turn_queue_remove(e);
			n--;
		} else {
			turn_queue_add(&q, e, (uint64_t)(rand() % 1000));
			n++;
		}
		for (int i = 0; round % 100 == 0 && i < ENTRIES; i++)
			assert_true(!entries[i].in || entries[i].used >= q.first->used);
	}
	for (; q.first; n--) {
		assert_true(q.first->used >= last);
		last = q.first->used;
		turn_queue_remove(q.first);
	}
	assert_int_equal(n, 0);
	turn_queue_remove(&entries[0]); /* entry is in no queue */
}
