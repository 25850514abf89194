/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/node/cache_quota.h"
#include "daemon/node/quota.h"

static int parse(const char *text, struct cache_quotas *q, struct error *err)
{
	*err = ERROR_INIT;
	return cache_quotas_parse("cache-quota", text, q, err);
}

TEST(quota_rows_name_users_and_groups)
{
	struct cache_quotas q;
	struct error err;

	assert_int_equal(parse("1000=20%, @2000 = 40 %,root=1%", &q, &err), 0);
	assert_int_equal(q.n, 3);
	assert_int_equal(q.rows[0].id, 1000);
	assert_int_equal(q.rows[0].percent, 20);
	assert_true(q.rows[1].is_group);
	assert_int_equal(q.rows[1].id, 2000);
	assert_string_equal(q.rows[1].name, "@2000");
	assert_int_equal(q.rows[2].id, 0);
	assert_string_equal(cache_quotas_name(&q, 2), "@2000");
	assert_string_equal(cache_quotas_name(&q, CACHE_QUOTA_REST), "others");
	assert_int_equal(cache_quotas_bytes(&q, 1, 1000), 200);
	assert_int_equal(cache_quotas_bytes(&q, 2, 1000), 400);
	assert_int_equal(cache_quotas_bytes(&q, CACHE_QUOTA_REST, 1000), 390);
	assert_int_equal(cache_quotas_bytes(&q, 2, UINT64_MAX),
			 UINT64_MAX / 100 * 40 + UINT64_MAX % 100 * 40 / 100);
	assert_int_equal(parse("off", &q, &err), 0);
	assert_int_equal(q.n, 0);
	assert_int_equal(cache_quotas_bytes(&q, CACHE_QUOTA_REST, 7), 7);
	assert_int_equal(parse("1=60%,@1=40%", &q, &err), 0); /* a user and a group with the same number */
}

TEST(mistakes_in_quotas_are_named)
{
	static const char *const table[][2] = {
	    {"1000", "\"1000\" is not a user, or @ and a group"},
	    {"", "\"\" is not a user"},
	    {"=5%", "is not a user"},
	    {"@=5%", "is not a user"},
	    {"1000=20%,", "\"\" is not a user"},
	    {"a\"b=5%", "is not a user"},
	    {"1000=20", "\"20\" of 1000 is not a percentage"},
	    {"1000=%", "\"%\" of 1000 is not a percentage"},
	    {"1000=0%", "\"0%\" of 1000: must be from 1% to 100%"},
	    {"1000=101%", "must be from 1% to 100%"},
	    {"1000=-5%", "must be from 1% to 100%"},
	    {"1000=2.5%", "must be from 1% to 100%"},
	    {"no-such-user=5%,no-such-user=6%",
	     "no-such-user and no-such-user are the same user: write only one"},
	    {"-1=5%", "\"-1\" is not a valid user"},
	    {"@4294967295=5%", "\"4294967295\" is not a valid group"},
	    {"65534=5%", "stands for every user without a number"},
	    {"@65534=5%", "stands for every group without a number"},
	    {"root=5%,1000=6%,0=7%", "root and 0 are the same user: write only one"},
	    {"@5=5%,@5=6%", "@5 and @5 are the same group: write only one"},
	    {"1000=60%,@2000=30%,3000=11%", "the parts up to 3000 add up to 101 %: write at most 100 %"},
	};
	struct cache_quotas q;
	struct error err;
	char many[32 * 8] = "";

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		assert_int_equal(parse(table[i][0], &q, &err), -EINVAL);
		if (strncmp(err.text, "cache-quota: ", 13) != 0 || !strstr(err.text, table[i][1]))
			fail_msg("%s: \"%s\"", table[i][0], err.text);
	}
	for (int i = 0; i < 32; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s%d=1%%", i ? "," : "", 100 + i);
	assert_int_equal(parse(many, &q, &err), -EINVAL);
	assert_non_null(strstr(err.text, "at most 31 parts are possible"));
}

/* The service that knows the names may start after dieseld. Until then the row applies to no user, and the
 * others use its part. */
TEST(names_that_are_not_known)
{
	struct cache_quotas q, again;
	struct error err;

	assert_int_equal(parse("no-such-user=50%,@no-such-group=30%,1000=20%", &q, &err), 0);
	assert_int_equal(cache_quotas_check("cache-quota", &q, &err), -EINVAL);
	assert_string_equal(err.text,
			    "cache-quota: \"no-such-user\" is not a user of this machine: write a name "
			    "that the machine knows, or a number");
	assert_int_equal(cache_quotas_find(&q), 2);
	assert_int_equal(cache_quotas_payer(&q, 0, (uint32_t[]){0, UINT32_MAX}, 2), CACHE_QUOTA_REST);
	assert_int_equal(cache_quotas_payer(&q, UINT32_MAX, NULL, 0), CACHE_QUOTA_REST);
	assert_int_equal(cache_quotas_payer(&q, 1000, NULL, 0), 3);
	assert_int_equal(cache_quotas_bytes(&q, 1, 1000), 0);
	assert_int_equal(cache_quotas_bytes(&q, CACHE_QUOTA_REST, 1000), 800);
	/* Now one of the names becomes known, */
	snprintf(q.rows[0].name, sizeof(q.rows[0].name), "daemon");
	assert_int_equal(cache_quotas_find(&q), 1);
	assert_int_equal(cache_quotas_payer(&q, 1, NULL, 0), 1);
	assert_int_equal(cache_quotas_bytes(&q, 1, 1000), 500);
	/* and stays known if the file is read again while the name is unknown. */
	again = q;
	again.rows[0].is_unknown = true;
	cache_quotas_remember(&again, &q);
	assert_int_equal(cache_quotas_payer(&again, 1, NULL, 0), 1);
	again.rows[1].is_unknown = false;
	assert_int_equal(cache_quotas_check("cache-quota", &again, &err), 0);
}

TEST(a_user_s_own_row_pays_first)
{
	struct cache_quotas q, none = {.n = 0};
	struct error err;
	int ends[2];

	assert_int_equal(parse("@2000=20%,1000=10%,@2001=30%", &q, &err), 0);
	assert_int_equal(cache_quotas_payer(&q, 1000, (uint32_t[]){2000}, 1),
			 2); /* a user's own row has priority */
	assert_int_equal(cache_quotas_payer(&q, 1001, (uint32_t[]){2001, 2000}, 2),
			 1); /* in the order of the rows */
	assert_int_equal(cache_quotas_payer(&q, 1001, (uint32_t[]){5, 2001}, 2), 3);
	assert_int_equal(cache_quotas_payer(&q, 1001, (uint32_t[]){1000}, 1), CACHE_QUOTA_REST);
	assert_int_equal(cache_quotas_payer(&q, 2000, NULL, 0), CACHE_QUOTA_REST);
	assert_int_equal(cache_quotas_payer(&none, 1000, NULL, 0), CACHE_QUOTA_REST);
	/* The kernel reports the user at the other end. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	q.rows[0].id = getegid();
	assert_int_equal(cache_quotas_payer_of(&q, ends[0], geteuid()), 1);
	q.rows[0].id = 2000;
	assert_int_equal(cache_quotas_payer_of(&q, ends[0], 1000), 2);
	assert_int_equal(cache_quotas_payer_of(&q, ends[0], 4242), CACHE_QUOTA_REST);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(cache_quotas_payer_of(&q, -1, 1000), 2);
}

static void share(const uint64_t given[CACHE_QUOTA_PAYERS], struct quota_want *wants, size_t n,
		  uint64_t limit)
{
	uint64_t sum = 0, needed = 0;

	cache_quotas_share(given, wants, n, limit);
	for (size_t i = 0; i < n; i++) {
		assert_in_range(wants[i].given, wants[i].need, wants[i].most);
		sum += wants[i].given;
		needed += wants[i].need;
	}
	assert_true(sum <= (limit > needed ? limit : needed));
}

TEST(quotas_are_kept_and_the_rest_is_shared)
{
	static const uint64_t quotas[CACHE_QUOTA_PAYERS] = {50, 20, 30};
	struct quota_want all[] = {
	    {.payer = 0, .need = 5, .most = 1000}, {.payer = 1, .most = 1000}, {.payer = 2, .most = 1000}};
	struct quota_want idle[] = {
	    {.payer = 0, .most = 1000}, {.payer = 1, .most = 5}, {.payer = 2, .most = 40}};
	struct quota_want many[] = {{.payer = 0, .most = 1000},
				    {.payer = 0, .most = 1000},
				    {.payer = 0, .most = 1000},
				    {.payer = 1, .most = 1000}};
	struct quota_want stages[] = {{.payer = 1, .stage = 2, .most = 100},
				      {.payer = 1, .need = 2, .most = 6},
				      {.payer = 1, .stage = 1, .most = 8},
				      {.payer = 0, .most = 1000}};
	struct quota_want needs[] = {
	    {.payer = 0, .need = 70, .most = 70}, {.payer = 1, .most = 50}, {.payer = 2, .most = 90}};

	share(quotas, all, 3, 100);
	assert_int_equal(all[0].given, 50);
	assert_int_equal(all[1].given, 20);
	assert_int_equal(all[2].given, 30);
	/* Memory that one does not need is lent to the others. */
	share(quotas, idle, 3, 100);
	assert_int_equal(idle[1].given, 5);
	assert_int_equal(idle[2].given, 30 + 7);
	assert_int_equal(idle[0].given, 50 + 7);
	/* All users without a row share one quota. */
	share(quotas, many, 4, 70);
	assert_int_equal(many[3].given, 20);
	assert_int_equal(many[0].given + many[1].given + many[2].given, 50 - 2);
	/* A row's own memory goes first to needs, then by stages. */
	share(quotas, stages, 4, 70);
	assert_int_equal(stages[1].given, 6);
	assert_int_equal(stages[2].given, 8);
	assert_int_equal(stages[0].given, 6);
	/* Needs are fulfilled in any case. */
	share(quotas, needs, 3, 100);
	assert_int_equal(needs[0].given, 70);
	assert_int_equal(needs[1].given, 12);
	assert_int_equal(needs[2].given, 18);
	share(quotas, needs, 3, 10);
	assert_int_equal(needs[0].given, 70);
	assert_int_equal(needs[1].given + needs[2].given, 0);
}

TEST(a_need_beyond_its_quota_is_refused)
{
	const uint64_t mib = 1 << 20, limit = 32 * mib; /* of which users may have 31 MiB */
	struct cache_quotas q, none = {.n = 0};
	struct error err;

	assert_int_equal(parse("1000=90%", &q, &err), 0);
	assert_int_equal(quota_check_payer(&q, 1, 1000, 27 * mib, limit, &err), 0);
	assert_int_equal(quota_check_payer(&q, 1, 1000, 28 * mib, limit, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "user 1000 would use 28 MiB of cache"));
	assert_non_null(strstr(err.text, "raise cache-quota"));
	assert_int_equal(quota_check_payer(&q, CACHE_QUOTA_REST, 1001, 3 * mib, limit, &err), 0);
	assert_int_equal(quota_check_payer(&q, CACHE_QUOTA_REST, 1001, 4 * mib, limit, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "cache-quota leaves them 3.1 MiB"));
	assert_int_equal(quota_check_payer(&none, CACHE_QUOTA_REST, 1001, 400 * mib, limit, &err), 0);
	assert_int_equal(quota_check_payer(&q, CACHE_QUOTA_REST, 0, 4 * mib, limit, &err),
			 0); /* an administrator */
}
