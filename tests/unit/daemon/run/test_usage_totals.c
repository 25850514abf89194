/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/run/usage_totals.h"
#include "lib/cleanup.h"

static void begin(struct usage_totals *t, uint32_t uid, const char *account)
{
	usage_add(t, uid, account, "", &(struct usage_amounts){.jobs = 1});
}

static uint64_t jobs_of(const struct usage_totals *t, uint32_t uid, const char *account)
{
	for (const struct usage_row *row = t->rows; row < t->rows + t->n; row++)
		if (!row->is_other_user && row->uid == uid && strcmp(row->account, account) == 0)
			return row->amounts.jobs;
	return 0;
}

static uint64_t all_jobs(const struct usage_totals *t)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < t->n; i++)
		sum += t->rows[i].amounts.jobs;
	return sum;
}

TEST(usage_has_a_row_for_user_and_account)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	begin(t, 1000, "physics");
	begin(t, 1000, "physics");
	begin(t, 1000, "");
	begin(t, 1001, "physics");
	assert_int_equal(jobs_of(t, 1000, "physics"), 2);
	assert_int_equal(jobs_of(t, 1000, ""), 1);
	assert_int_equal(jobs_of(t, 1001, "physics"), 1);
	assert_int_equal(all_jobs(t), 4);
	assert_int_equal(t->n, 3);
	/* The same account, at another location. */
	usage_add(t, 1000, "physics", "team-a", &(struct usage_amounts){.jobs = 1});
	assert_int_equal(t->n, 4);
	usage_add(t, 1001, "physics", "",
		  &(struct usage_amounts){.node_bytes = 3, .cache_bytes = 4, .cache_kib_s = 5});
	usage_add(t, 1001, "physics", "", &(struct usage_amounts){.node_bytes = 30, .cache_kib_s = 50});
	assert_int_equal(t->rows[2].amounts.node_bytes, 33);
	assert_int_equal(t->rows[2].amounts.cache_bytes, 4);
	assert_int_equal(t->rows[2].amounts.cache_kib_s, 55);
}

/* A user who makes up accounts displaces no other user, and no two rows have the same labels. */
TEST(one_user_has_few)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));
	uint32_t n_other = 0;
	char name[16];

	assert_non_null(t);
	begin(t, 1000, USAGE_OTHER);
	usage_add(t, 1000, USAGE_OTHER, USAGE_OTHER, &(struct usage_amounts){.jobs = 1});
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		begin(t, 1000, name);
		assert_int_equal(all_jobs(t), i + 3);
		assert_true(t->n <= USAGE_MAX_OF_USER);
	}
	for (const struct usage_row *row = t->rows; row < t->rows + t->n; row++)
		n_other += !strcmp(row->account, USAGE_OTHER) && !strcmp(row->pod_namespace, USAGE_OTHER);
	assert_int_equal(n_other, 1);
	begin(t, 1001, "physics");
	assert_int_equal(jobs_of(t, 1001, "physics"), 1);
}

/* The row of users without a row of their own is not root's. */
TEST(the_row_of_others_is_nobodys)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));
	char name[16];

	assert_non_null(t);
	usage_add(t, 1000, "", "", &(struct usage_amounts){.samples = 1});
	for (int i = 0; i < USAGE_MAX_OF_USER - 1; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		begin(t, 0, name);
		assert_int_equal(jobs_of(t, 0, name), 1);
	}
}

TEST(users_beyond_the_table_share_a_row)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	for (uint32_t uid = 0; uid < 2 * USAGE_MAX_ROWS; uid++)
		begin(t, uid, "");
	assert_int_equal(all_jobs(t), 2 * USAGE_MAX_ROWS);
	assert_int_equal(t->n, USAGE_MAX_ROWS + 1);
	assert_true(t->rows[USAGE_MAX_ROWS].is_other_user);
	assert_int_equal(t->rows[USAGE_MAX_ROWS].amounts.jobs, USAGE_MAX_ROWS);
	begin(t, 5, "");
	assert_int_equal(jobs_of(t, 5, ""), 2);
}
