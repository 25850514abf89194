/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPU workers: threads behind a queue in and a queue out. work() runs on a worker, done() on the loop's
 * thread afterwards. A job is the caller's memory and must live until its done(). First in, first out.
 */

#include <stdint.h>
#include <uv.h>

struct pool;

struct pool_job {
	void (*work)(struct pool_job *job);
	void (*done)(struct pool_job *job);
	struct pool_job *next;
};

#define POOL_MAX_WORKERS 64

int pool_new(uv_loop_t *loop, uint32_t workers, struct pool **ret);
void pool_submit(struct pool *pool, struct pool_job *job);
/* Clamped to 1 .. POOL_MAX_WORKERS. -EAGAIN: not all threads could be started; at least one runs. */
int pool_set_workers(struct pool *pool, uint32_t workers);
uint32_t pool_workers(const struct pool *pool);
/* Jobs submitted whose done() has not run. */
uint64_t pool_in_flight(const struct pool *pool);
/* No job may be in flight. The loop must run once more to close the handle. */
void pool_free(struct pool *pool);
