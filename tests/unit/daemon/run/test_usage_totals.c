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
	const struct usage_row *row;

	for (uint32_t i = 0; (row = usage_row_at(t, i)); i++)
		if (!row->is_other_user && row->uid == uid && strcmp(row->account, account) == 0)
			return row->amounts.jobs;
	return 0;
}

static uint64_t all_jobs(const struct usage_totals *t, uint32_t *ret_n)
{
	const struct usage_row *row;
	uint64_t sum = 0;

	for (*ret_n = 0; (row = usage_row_at(t, *ret_n)); ++*ret_n)
		sum += row->amounts.jobs;
	return sum;
}

static void test_usage_has_a_row_for_user_and_account(void **state)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));
	uint32_t n;

	assert_non_null(t);
	assert_null(usage_row_at(t, 0));
	begin(t, 1000, "physics");
	begin(t, 1000, "physics");
	begin(t, 1000, "");
	begin(t, 1001, "physics");
	assert_int_equal(jobs_of(t, 1000, "physics"), 2);
	assert_int_equal(jobs_of(t, 1000, ""), 1);
	assert_int_equal(jobs_of(t, 1001, "physics"), 1);
	assert_int_equal(all_jobs(t, &n), 4);
	assert_int_equal(n, 3);
	/* The same account, at another location. */
	usage_add(t, 1000, "physics", "team-a", &(struct usage_amounts){.jobs = 1});
	assert_int_equal((all_jobs(t, &n), n), 4);
	usage_add(t, 1001, "physics", "",
		  &(struct usage_amounts){.node_bytes = 3, .cache_bytes = 4, .cache_kib_s = 5});
	usage_add(t, 1001, "physics", "", &(struct usage_amounts){.node_bytes = 30, .cache_kib_s = 50});
	assert_int_equal(usage_row_at(t, 2)->amounts.node_bytes, 33);
	assert_int_equal(usage_row_at(t, 2)->amounts.cache_bytes, 4);
	assert_int_equal(usage_row_at(t, 2)->amounts.cache_kib_s, 55);
}

/* A user who makes up accounts displaces no other user, and no two rows have the same labels. */
static void test_one_user_has_few(void **state)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));
	const struct usage_row *row;
	uint32_t n, n_other = 0;
	char name[16];

	assert_non_null(t);
	begin(t, 1000, USAGE_OTHER);
	usage_add(t, 1000, USAGE_OTHER, USAGE_OTHER, &(struct usage_amounts){.jobs = 1});
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		begin(t, 1000, name);
		assert_int_equal(all_jobs(t, &n), i + 3);
		assert_true(n <= USAGE_MAX_OF_USER);
	}
	for (uint32_t i = 0; (row = usage_row_at(t, i)); i++)
		n_other += !strcmp(row->account, USAGE_OTHER) && !strcmp(row->pod_namespace, USAGE_OTHER);
	assert_int_equal(n_other, 1);
	begin(t, 1001, "physics");
	assert_int_equal(jobs_of(t, 1001, "physics"), 1);
}

static void test_users_beyond_the_table_share_a_row(void **state)
{
	_cleanup_(freep) struct usage_totals *t = calloc(1, sizeof(*t));
	uint32_t n;

	assert_non_null(t);
	for (uint32_t uid = 0; uid < 2 * USAGE_MAX_ROWS; uid++)
		begin(t, uid, "");
	assert_int_equal(all_jobs(t, &n), 2 * USAGE_MAX_ROWS);
	assert_int_equal(n, USAGE_MAX_ROWS + 1);
	assert_true(usage_row_at(t, USAGE_MAX_ROWS)->is_other_user);
	assert_int_equal(usage_row_at(t, USAGE_MAX_ROWS)->amounts.jobs, USAGE_MAX_ROWS);
	begin(t, 5, "");
	assert_int_equal(jobs_of(t, 5, ""), 2);
}

UNIT_TESTS(cmocka_unit_test(test_usage_has_a_row_for_user_and_account),
	   cmocka_unit_test(test_one_user_has_few), cmocka_unit_test(test_users_beyond_the_table_share_a_row))
