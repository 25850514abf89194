/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPU workers: threads behind a queue in and a queue out. work() runs on a worker, done() on the loop's
 * thread afterwards. A task is the caller's memory and must live until its done().
 *
 * Tasks queue in lanes, first in, first out. Lanes take turns by the CPU time that they have used, so that
 * one with much work cannot starve the others; a lane's limit is how many of its tasks run at one time.
 * Threads are started when there is work for them, and all but one end after some seconds without any.
 *
 * Locks: one, inside. Neither work() nor done() is called with it held, so both may take any other lock.
 * done() may submit tasks.
 */

#include <stdint.h>
#include <uv.h>

#include "turns.h"

struct pool;
struct pool_lane;

struct pool_task {
	void (*work)(struct pool_task *task);
	void (*done)(struct pool_task *task);
	uint64_t elsewhere_ns; /* set by work(): CPU time that it took in another process */
	/* the pool's */
	struct pool_task *next;
	struct pool_lane *lane;
};

struct pool_queue {
	struct pool_task *head, **tail;
};

/* The caller's memory; must live until its last task's done(). What is in it is the pool's. */
struct pool_lane {
	struct pool_lane *next; /* in the list of lanes with tasks waiting */
	struct pool_queue waiting;
	uint32_t limit, running;
	struct turn turn; /* by CPU time, in ns */
	uint64_t mean_ns; /* of a task */
	_Atomic uint64_t cpu_ns;
};

#define POOL_MAX_WORKERS 64

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

void pool_lane_init(struct pool_lane *lane); /* no limit */
/* At least 1; takes effect with the next task. */
void pool_lane_limit(struct pool *pool, struct pool_lane *lane, uint32_t limit);
/* How many threads may work for the lane at one time. The thread that sets limits. */
uint32_t pool_lane_workers(const struct pool *pool, const struct pool_lane *lane);
/* CPU time that the lane's tasks have taken. */
uint64_t pool_lane_cpu_ns(const struct pool_lane *lane);
