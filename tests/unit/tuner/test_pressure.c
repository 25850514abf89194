/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>

#include "daemon/tuner/state.h"

#define GIB 0x1p30

static struct tuner_config config;

static struct stall_node node_with(double some, double headroom)
{
	struct stall_node n = stall_node_unknown();

	n.memory_some_avg10 = some;
	n.memory_full_avg10 = 0;
	n.memory_limit_bytes = 16 * GIB;
	n.memory_headroom_bytes = headroom;
	return n;
}

static double at(struct tuner_pressure *p, uint64_t second, double some, double headroom, double in_use)
{
	struct stall_node node = node_with(some, headroom);

	return pressure_ceiling(p, &config, &node, in_use, (100 + second) * SECOND_NS);
}

TEST(calm_is_unbounded)
{
	struct tuner_pressure p = {0};

	assert_true(isinf(at(&p, 0, 0, 8 * GIB, 4 * GIB)));
	assert_true(isinf(at(&p, 1, 9, 8 * GIB, 4 * GIB)));
	assert_true(isinf(at(&p, 2, NAN, NAN, 4 * GIB)));
}

TEST(halves_in_the_same_second)
{
	struct tuner_pressure p = {0};

	assert_true(at(&p, 0, 12, 8 * GIB, 4 * GIB) == 2 * GIB);
	/* avg10 is a mean of 10 s. Its slow fall is no reason for another cut. */
	assert_true(at(&p, 1, 12.5, 8 * GIB, 2 * GIB) == 2 * GIB);
	assert_true(at(&p, 3, 12.5, 8 * GIB, 2 * GIB) == 2 * GIB);
	/* A further rise causes another cut. */
	assert_true(at(&p, 4, 20, 8 * GIB, 2 * GIB) == 1 * GIB);
}

/* Another program thrashes within a limit of its own, while much of the machine is free. A smaller cache
 * would not help it. */
TEST(waits_of_others)
{
	struct tuner_pressure p = {0};
	struct stall_node node = node_with(40, 8 * GIB);

	node.memory_some_now = node.memory_full_avg10 = 40;
	node.memory_free_bytes = 4 * GIB;
	assert_true(isinf(pressure_ceiling(&p, &config, &node, 4 * GIB, 100 * SECOND_NS)));
	node.memory_free_bytes = 1 * GIB;
	assert_true(pressure_ceiling(&p, &config, &node, 4 * GIB, 101 * SECOND_NS) == 2 * GIB);
}

TEST(each_cause_of_pressure_shrinks_the_cache)
{
	struct tuner_pressure p = (struct tuner_pressure){0};
	assert_true(at(&p, 0, 0, 100e6, 4 * GIB) == 2 * GIB); /* headroom below half of the reserve */
	p = (struct tuner_pressure){0};
	struct stall_node node = node_with(0, 8 * GIB);
	node.memory_full_avg10 = 6;
	assert_true(pressure_ceiling(&p, &config, &node, 4 * GIB, SECOND_NS) == 2 * GIB);
	p = (struct tuner_pressure){0};
	node = node_with(2, 8 * GIB);
	node.memory_some_now = 20; /* the mean of ten seconds does not show it yet */
	assert_true(pressure_ceiling(&p, &config, &node, 4 * GIB, SECOND_NS) == 2 * GIB);
	node.memory_some_now = 90; /* only once, since later values show in the mean */
	assert_true(pressure_ceiling(&p, &config, &node, 2 * GIB, 5 * SECOND_NS) == 2 * GIB);
	p = (struct tuner_pressure){0};
	node = node_with(0, 8 * GIB);
	node.oom_kills = 1;
	assert_true(pressure_ceiling(&p, &config, &node, 4 * GIB, SECOND_NS) == 2 * GIB);
}

/* Others take 100 MB per second. The cache gives up in advance the memory that will be gone before the next
 * check. */
TEST(sees_it_coming)
{
	struct tuner_pressure p = {0};

	config.reserve_bytes = 40000000;
	assert_true(isinf(at(&p, 0, 0, 500e6, 128e6)));
	assert_true(isinf(at(&p, 1, 0, 400e6, 128e6)));
	assert_true(isinf(at(&p, 2, 0, 300e6, 128e6)));
	assert_true(isinf(at(&p, 3, 0, 200e6, 128e6)));
	assert_true(at(&p, 4, 0, 100e6, 128e6) == 64e6);
	/* The cut freed 64 MB, but others took 100 MB, so another cut follows. */
	assert_true(at(&p, 5, 0, 64e6, 64e6) == 32e6);
	/* A single step is no trend, and memory that dieseld's own caches take is no danger. */
	p = (struct tuner_pressure){0};
	assert_true(isinf(at(&p, 0, 0, 500e6, 128e6)));
	assert_true(isinf(at(&p, 1, 0, 200e6, 128e6)));
	assert_true(isinf(at(&p, 2, 0, 190e6, 128e6)));
	p = (struct tuner_pressure){0};
	assert_true(isinf(at(&p, 0, 0, 500e6, 0)));
	assert_true(isinf(at(&p, 1, 0, 300e6, 200e6)));
	assert_true(isinf(at(&p, 2, 0, 100e6, 400e6)));
	config.reserve_bytes = 0;
}

TEST(recovers_in_steps)
{
	struct tuner_pressure p = {0};
	double last = at(&p, 0, 12, 8 * GIB, 4 * GIB);
	int raises = 0;
	uint64_t lifted = 0;

	for (uint64_t s = 1; s < 200; s++) {
		double now = at(&p, s, s < 10 ? 12 - (double)s : 0, 8 * GIB, fmin(last, 4 * GIB));

		assert_true(now >= last);
		assert_true(s >= 20 || now == last); /* 15 s of calm come first */
		if (now > last)
			raises++;
		if (isinf(now) && !lifted)
			lifted = s;
		last = now;
	}
	assert_true(raises >= 3);
	assert_true(lifted > 0 && lifted < 120);
}

/* Recovery never takes the last of the headroom. */
TEST(recovers_within_headroom)
{
	struct tuner_pressure p = {0};
	double last = at(&p, 0, 12, 8 * GIB, 4 * GIB);

	for (uint64_t s = 1; s < 200; s++) {
		double used = last - 2 * GIB, now = at(&p, s, 0, 1 * GIB - used, last);

		assert_true(now <= 3 * GIB);
		last = now;
	}
}

static int setup(void **state)
{
	config = tuner_config_default();
	return 0;
}

int main(void)
{
	return run_unit_tests(setup, NULL);
}
