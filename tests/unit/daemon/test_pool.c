/* SPDX-License-Identifier: Apache-2.0 */
#include "../test.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "pool.h"

struct number {
	struct pool_job job;
	uint32_t value;
	uint64_t square;
	uint32_t *finished; /* counts done() calls: loop thread only */
	uint32_t order;
};

static void work(struct pool_job *job)
{
	struct number *n = (struct number *)job;

	n->square = (uint64_t)n->value * n->value;
}

static void done(struct pool_job *job)
{
	struct number *n = (struct number *)job;

	n->order = (*n->finished)++;
}

static void run(uint32_t workers, uint32_t later, uint32_t n_jobs, struct number *numbers)
{
	struct pool *pool;
	uint32_t finished = 0;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(pool_new(&loop, workers, &pool), 0);
	assert_int_equal(pool_workers(pool), workers);
	for (uint32_t i = 0; i < n_jobs; i++) {
		numbers[i] =
		    (struct number){.job = {.work = work, .done = done}, .value = i, .finished = &finished};
		pool_submit(pool, NULL, &numbers[i].job);
		if (i == n_jobs / 2)
			pool_set_workers(pool, later);
	}
	while (pool_in_flight(pool) > 0)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(finished, n_jobs);
	assert_int_equal(pool_workers(pool), later);
	for (uint32_t i = 0; i < n_jobs; i++)
		assert_int_equal(numbers[i].square, (uint64_t)i * i);
	pool_free(pool);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_all_jobs_are_done_once(void **state)
{
	static struct number numbers[5000];

	run(1, 4, 5000, numbers);
	run(4, 1, 5000, numbers);
	run(3, 3, 5000, numbers);
}

static void test_one_worker_keeps_the_order(void **state)
{
	static struct number numbers[500];

	run(1, 1, 500, numbers);
	for (uint32_t i = 0; i < 500; i++)
		assert_int_equal(numbers[i].order, i);
}

static void test_number_of_workers_is_clamped(void **state)
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
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all_jobs_are_done_once),
	    cmocka_unit_test(test_one_worker_keeps_the_order),
	    cmocka_unit_test(test_number_of_workers_is_clamped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
