/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPU workers: threads behind a queue in and a queue out. work() runs on a worker, done() on the loop's
 * thread afterwards. A task is the caller's memory and must live until its done().
 *
 * Tasks queue in lanes. They take turns: first among users, then among a user's lanes (turns.h). A lane's
 * limit is how many of its tasks run at one time. A task costs the CPU time of its thread plus the CPU time
 * that it used in other processes. A long task costs at least the time for which it occupied its worker. Both
 * are read from clocks while it runs.
 *
 * A task that `is_long` waits in work() for another process, and may be paused there: then its thread sleeps,
 * and another task gets its place. Threads are started when there is work for them, and all but one end after
 * 5 seconds without work.
 *
 * Locks: one, inside. work() and done() are called without it, so both may take any other lock. done() may
 * submit tasks.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "turn_queue.h"
#include "turns.h"

struct pool;
struct pool_lane;
struct pool_worker;
struct work_user;

struct pool_task {
	void (*work)(struct pool_task *task);
	void (*done)(struct pool_task *task);
	bool is_long;
	uint64_t elsewhere_ns; /* set by work(): CPU time that the task used in another process */
	/* private to the pool */
	struct pool_task *next;
	struct pool_lane *lane;
	struct pool_worker *worker;      /* the worker on which it runs or is paused */
	uint64_t charged_ns;             /* cost charged so far */
	uint64_t begin_cpu_ns, since_ns; /* CPU time of its thread at the start; when it got its place */
	uint64_t held_ns;                /* total time that it held places before since_ns */
	uint64_t so_far_ns, used_ns;     /* CPU time so far: in other processes, and in total */
};

enum work_kind {
	WORK_SHORT,  /* runs to its end */
	WORK_LONG,   /* may be paused */
	WORK_PAUSED, /* a long task that was begun */
	WORK_N_KINDS,
};

struct pool_queue {
	struct pool_task *head, **tail;
};

/* Allocated by the caller; must live until its last task's done(). Its fields are private to the pool. */
struct pool_lane {
	uint32_t uid;
	uint32_t limit;      /* maximum number of its tasks that run at one time */
	uint32_t user_limit; /* limit for all tasks of its user together; equal for all lanes of one user */
	uint32_t n[WORK_N_KINDS], n_running;
	bool was_long; /* kind of its last task: short and long tasks alternate, so that neither kind waits
			  for all tasks of the other */
	struct turn turn;
	struct work_user *user; /* NULL: no task of the lane waits or runs */
	struct turn_entry entry;
	struct pool_queue waiting[WORK_N_KINDS];
	_Atomic uint64_t cpu_ns;
};

#define POOL_MAX_WORKERS 64
#define POOL_MAX_THREADS 256 /* including paused ones; at this limit no further task is paused */
/* The uid of the daemon's own housekeeping, which takes turns as a user does. */
#define POOL_DAEMON UINT32_MAX

int pool_new(uv_loop_t *loop, uint32_t workers, struct pool **ret);
/* Queues a task. lane NULL: the pool's own lane, without a limit. */
void pool_submit(struct pool *pool, struct pool_lane *lane, struct pool_task *task);
/* Queues a task before the lane's other tasks, so that work already begun continues first. */
void pool_submit_first(struct pool *pool, struct pool_lane *lane, struct pool_task *task);
/* Sets how many threads may work at one time; surplus ones end when their task is done. Clamped to 1 ..
 * POOL_MAX_WORKERS. */
void pool_set_workers(struct pool *pool, uint32_t workers);
uint32_t pool_workers(const struct pool *pool);
/* Returns the current number of threads. */
uint32_t pool_threads(struct pool *pool);
/* Returns the number of tasks submitted whose done() has not run. */
uint64_t pool_in_flight(const struct pool *pool);
/* Frees the pool. No task may be in flight. The loop must run once more to close the handle. */
void pool_free(struct pool *pool);

/* Called in work() of a long task. elsewhere_ns: CPU time that it has used in other processes so far.
 * Returns true if its turn is over: then it must stop its work elsewhere and call pool_pause(). */
bool pool_turn_is_over(struct pool *pool, struct pool_task *task, uint64_t elsewhere_ns);
/* Pauses the task; returns at its next turn. */
void pool_pause(struct pool *pool, struct pool_task *task);

/* Initialises a lane without a limit. uid: user to whom its tasks are charged. */
void pool_lane_init(struct pool_lane *lane, uint32_t uid);
/* Sets the lane's limit, at least 1; takes effect with the next task. */
void pool_lane_limit(struct pool *pool, struct pool_lane *lane, uint32_t limit);
/* Sets the limit for the sum of all lanes of the lane's user; call it for each of these lanes. */
void pool_lane_limit_user(struct pool *pool, struct pool_lane *lane, uint32_t limit);
/* Returns how many threads may work for the lane at one time. Only on the thread that sets limits. */
uint32_t pool_lane_workers(const struct pool *pool, const struct pool_lane *lane);
/* Charges the lane for CPU time that other processes used outside of any task; it counts like that of
 * tasks. */
void pool_lane_charge(struct pool *pool, struct pool_lane *lane, uint64_t cpu_ns);
/* Returns the CPU time that the lane's tasks have used, including the time charged by pool_lane_charge(). */
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
