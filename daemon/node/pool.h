/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPU workers: threads behind a queue in and a queue out. work() runs on a worker, done() on the loop's
 * thread afterwards. A task is the caller's memory and must live until its done().
 *
 * Tasks queue in lanes; whose turn it is says work_turns.h: users first, and a user's lanes within his part.
 * A lane's limit is how many of its tasks run at one time. A task costs the CPU time of its thread and what
 * it took elsewhere; a long one no less than the time for which it kept its worker. Both are read off clocks
 * while it runs.
 *
 * A task that `is_long` waits in work() for another process, and may be paused there: then the thread sleeps,
 * and another one has its place. Threads are started when there is work for them, and all but one end after
 * some seconds without any.
 *
 * Locks: one, inside. Neither work() nor done() is called with it held, so both may take any other lock.
 * done() may submit tasks.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "work_turns.h"

struct pool;
struct pool_lane;
struct pool_worker;

struct pool_task {
	void (*work)(struct pool_task *task);
	void (*done)(struct pool_task *task);
	bool is_long;
	uint64_t elsewhere_ns; /* set by work(): CPU time that it took in another process */
	/* the pool's */
	struct pool_task *next;
	struct pool_lane *lane;
	struct pool_worker *worker;      /* it runs there, or is paused */
	uint64_t charged_ns;             /* so far */
	uint64_t begin_cpu_ns, since_ns; /* on its thread's clock; since it has had its place */
	uint64_t held_ns;                /* its place, before that */
	uint64_t so_far_ns, used_ns;     /* elsewhere, and in all */
};

struct pool_queue {
	struct pool_task *head, **tail;
};

/* The caller's memory; must live until its last task's done(). What is in it is the pool's. */
struct pool_lane {
	struct work_lane turns;
	struct pool_queue waiting[WORK_N_KINDS];
	_Atomic uint64_t cpu_ns;
};

#define POOL_MAX_WORKERS 64
#define POOL_MAX_THREADS 256 /* with those that are paused; when there are more, none is paused */
/* The uid of the daemon's own housekeeping, which takes turns as a user does. */
#define POOL_DAEMON UINT32_MAX

int pool_new(uv_loop_t *loop, uint32_t workers, struct pool **ret);
/* lane NULL: the pool's own, without a limit. */
void pool_submit(struct pool *pool, struct pool_lane *lane, struct pool_task *task);
/* In front of the lane's other tasks: what was begun goes on first. */
void pool_submit_first(struct pool *pool, struct pool_lane *lane, struct pool_task *task);
/* Sets how many threads may work at one time; surplus ones end when their task is done. Clamped to 1 ..
 * POOL_MAX_WORKERS. */
void pool_set_workers(struct pool *pool, uint32_t workers);
uint32_t pool_workers(const struct pool *pool);
/* The number of threads now. */
uint32_t pool_threads(struct pool *pool);
/* Tasks submitted whose done() has not run. */
uint64_t pool_in_flight(const struct pool *pool);
/* No task may be in flight. The loop must run once more to close the handle. */
void pool_free(struct pool *pool);

/* In work() of a long task, which has taken so much elsewhere by now. Returns true if its turn is over: then
 * it sees to it that it takes nothing more elsewhere, and pauses. */
bool pool_turn_is_over(struct pool *pool, struct pool_task *task, uint64_t elsewhere_ns);
/* Returns when it is its turn again. */
void pool_pause(struct pool *pool, struct pool_task *task);

/* No limit. uid: who pays for its tasks. */
void pool_lane_init(struct pool_lane *lane, uint32_t uid);
/* At least 1; takes effect with the next task. */
void pool_lane_limit(struct pool *pool, struct pool_lane *lane, uint32_t limit);
/* The same for all lanes of the lane's user together, each of which has to be told. */
void pool_lane_limit_user(struct pool *pool, struct pool_lane *lane, uint32_t limit);
/* How many threads may work for the lane at one time. The thread that sets limits. */
uint32_t pool_lane_workers(const struct pool *pool, const struct pool_lane *lane);
/* CPU time that other processes took for the lane apart from any task: it counts like that of tasks. */
void pool_lane_charge(struct pool *pool, struct pool_lane *lane, uint64_t cpu_ns);
/* CPU time that the lane's tasks have taken, and what it was charged. */
uint64_t pool_lane_cpu_ns(const struct pool_lane *lane);

/* Asserts the invariants of the pool, in builds with assertions. Called at the end of each turn of the event
 * loop. */
#ifdef NDEBUG
static inline void check_pool(struct pool *pool)
{
	(void)pool;
}
#else
void check_pool(struct pool *pool);
#endif
