/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "daemon/cache/sources/stage_pace.h"

static void add(struct stage_mean *m, uint64_t ns, int n)
{
	for (int i = 0; i < n; i++)
		stage_mean_add(m, ns, 1000);
}

TEST(what_is_not_known_is_tried)
{
	struct stage_mean disk = {.n = 0};
	struct stage_pace p = {.is_off = false};

	assert_false(stage_pace_decide(&p, &disk));
	add(&p.storage, 1000, 100);
	assert_false(stage_pace_decide(&p, &disk));
	assert_false(p.is_off);
	add(&disk, 100000, 3);
	assert_false(stage_pace_decide(&p, &disk));
}

TEST(storage_that_is_as_fast)
{
	struct stage_mean disk = {.n = 0};
	struct stage_pace p = {.is_off = false};

	add(&p.storage, 1000, 4);
	add(&disk, 1000, 4);
	assert_true(stage_pace_decide(&p, &disk));
	assert_true(p.is_off);
	assert_false(stage_pace_decide(&p, &disk));
	/* Storage becomes slow, and then fast again. */
	add(&p.storage, 5000, 20);
	assert_true(stage_pace_decide(&p, &disk));
	assert_false(p.is_off);
	add(&p.staged, 4500, 20);
	assert_false(stage_pace_decide(&p, &disk));
	assert_false(p.is_off);
	add(&p.storage, 1000, 40);
	assert_true(stage_pace_decide(&p, &disk));
	assert_true(p.is_off);
}

TEST(slower_storage_is_staged)
{
	struct stage_mean disk = {.n = 0};
	struct stage_pace p = {.is_off = false};

	add(&p.storage, 3000, 4);
	add(&disk, 1000, 4);
	assert_false(stage_pace_decide(&p, &disk));
	assert_false(p.is_off);
	/* In the end, the measured times of staged chunks decide. */
	add(&p.staged, 9000, 8);
	assert_true(stage_pace_decide(&p, &disk));
	assert_true(p.is_off);
}

TEST(means_forget_old_paces)
{
	struct stage_mean m = {.n = 0};

	stage_mean_add(&m, 1000, 0);
	assert_int_equal(m.n, 0);
	add(&m, 4000, 1);
	assert_true(m.ns_per_byte == 4);
	add(&m, 2000, 1);
	assert_true(m.ns_per_byte == 3);
	add(&m, 1000, 100);
	assert_true(m.ns_per_byte > 0.99 && m.ns_per_byte < 1.01);
}

TEST(the_best_pace_is_kept)
{
	struct stage_mean m = {.n = 0};

	stage_best_add(&m, 4000, 1000);
	stage_best_add(&m, 2000, 1000);
	stage_best_add(&m, 9000, 1000);
	stage_best_add(&m, 1, 0);
	assert_true(m.ns_per_byte == 2);
	assert_int_equal(m.n, 3);
}
