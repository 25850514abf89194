/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>

#include "capacity/capacity.h"

#define GIB 0x1p30

static struct capacity c; /* too large for the stack */

static struct stall_node node_with(double headroom)
{
	struct stall_node node = stall_node_unknown();

	node.memory_limit_bytes = 16 * GIB;
	node.memory_headroom_bytes = headroom;
	node.cores = 8;
	return node;
}

/* 1,000 samples/s at half a millisecond each, with half of the time spent waiting for data. */
static struct stall_sample job(uint64_t id, uint64_t dataset, double dataset_bytes)
{
	struct stall_sample s = stall_sample_unknown();

	s.job = id;
	s.dataset = dataset;
	s.dataset_bytes = dataset_bytes;
	s.cached_bytes = dataset_bytes / 2;
	s.need_bytes = GIB / 4;
	s.samples_per_s = 1000;
	s.shares.fetch_stall = 0.25;
	s.shares.prep_stall = 0.25;
	s.daemon_cpu_s_per_sample = 0.0005;
	s.daemon_workers_busy = 0.5;
	return s;
}

static void add(const struct stall_node *node, const struct stall_sample *samples, size_t n)
{
	assert_int_equal(capacity_add(&c, node, samples, n), 0);
}

TEST(jobs_share_what_they_read)
{
	struct stall_node node = node_with(8 * GIB);
	struct stall_sample both[] = {job(1, 7, 2 * GIB), job(2, 7, 2 * GIB)}, other = job(3, 9, GIB);

	capacity_init(&c);
	add(&node, both, 2);
	add(&node, &other, 1);
	struct capacity_advice advice = capacity_advise(&c);
	assert_int_equal(c.n_seconds, 2);
	assert_int_equal(c.n_jobs_most, 2);
	assert_float_equal(c.dataset_bytes / GIB, 2, 1e-9);
	assert_float_equal(c.need_bytes / GIB, 0.5, 1e-9);
	assert_float_equal(advice.cache_bytes / GIB, 2.5, 1e-9);
	assert_float_equal(advice.missing_bytes, 0, 1);
	/* Each dataset counts once, though they were not read at the same time. */
	assert_float_equal(advice.stage_bytes / GIB, 3, 1e-9);
	/* Two jobs at twice their pace need 2 cores. The second with only one job needs 1. */
	assert_float_equal(advice.cores, 2, 1e-9);
	assert_float_equal(c.cores_busy, 1, 1e-9);
	capacity_free(&c);
}

TEST(pace_of_the_device)
{
	struct stall_sample s = job(1, 7, GIB);

	capacity_init(&c);
	s.device_rate = 4000;
	add(NULL, &s, 1);
	assert_float_equal(capacity_advise(&c).cores, 2, 1e-9);
	capacity_free(&c);
}

TEST(unused_memory_is_space_for_a_cache)
{
	struct stall_node node = node_with(GIB);
	struct stall_sample s = job(1, 7, 8 * GIB);

	capacity_init(&c);
	s.decoded_cache.usable = 1e6;
	s.decoded_cache.sample_bytes = 4096;
	add(&node, &s, 1);
	struct capacity_advice advice = capacity_advise(&c);
	/* 1 GiB is unused, and dieseld has 4 GiB. */
	assert_float_equal(c.space_bytes / GIB, 5, 1e-9);
	assert_float_equal(advice.cache_bytes, c.space_bytes - CAPACITY_RESERVE, 1);
	assert_float_equal(advice.missing_bytes, 8.25 * GIB + 4096e6 - advice.cache_bytes, 1);
	assert_float_equal(advice.set_aside_bytes, advice.cache_bytes + CAPACITY_OWN_BYTES, 1);
	/* Other programs left less memory once, and the least amount counts. */
	node.memory_headroom_bytes = 0;
	s.cached_bytes = GIB / 4;
	add(&node, &s, 1);
	assert_float_equal(capacity_advise(&c).cache_bytes, 0, 1e-9);
	assert_float_equal(capacity_advise(&c).set_aside_bytes, 0, 1e-9);
	/* The sessions' need fits, but not together with the memory that must stay free. */
	assert_float_equal(capacity_advise(&c).lacking_bytes, CAPACITY_RESERVE, 1);
	capacity_free(&c);
}

/* dieseld accepts no cache or staging folder that is smaller. */
TEST(advice_is_never_below_the_least_size)
{
	struct stall_node node = node_with(GIB);
	struct stall_sample s = job(1, 7, 1000);

	capacity_init(&c);
	s.need_bytes = 0;
	add(&node, &s, 1);
	assert_float_equal(capacity_advise(&c).cache_bytes, CAPACITY_LEAST, 1);
	assert_float_equal(capacity_advise(&c).stage_bytes, CAPACITY_LEAST, 1);
	assert_float_equal(capacity_advise(&c).lacking_bytes, 0, 1);
	capacity_free(&c);
}

TEST(absurd_figures_are_unknown)
{
	static const double absurd[] = {NAN, -1, INFINITY, 1e300};

	for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++) {
		struct stall_node node = node_with(absurd[i]);
		struct stall_sample s = job(1, 7, absurd[i]);

		capacity_init(&c);
		s.cached_bytes = s.samples_per_s = s.decoded_cache.bytes = s.device_rate = absurd[i];
		s.daemon_cpu_s_per_sample = s.daemon_workers_busy = absurd[i];
		add(&node, &s, 1);
		assert_true(isnan(c.space_bytes));
		assert_float_equal(c.dataset_bytes, 0, 1e-9);
		assert_float_equal(capacity_advise(&c).cores, 0, 1e-9);
		assert_float_equal(capacity_advise(&c).cache_bytes / GIB, 0.25, 1e-9);
		capacity_free(&c);
	}
}
