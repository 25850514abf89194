/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include <errno.h>
#include <string.h>

#include "quota.h"

static int check(uint32_t uid, uint64_t mine, uint64_t all, uint64_t limit)
{
	const struct quota q = {.share_percent = 75, .owner = 900};
	struct usage m = {0}, a = {0};

	m.of[QUOTA_CONNECTIONS] = mine;
	a.of[QUOTA_CONNECTIONS] = all;
	return quota_check(&q, uid, QUOTA_CONNECTIONS, &m, &a, limit, NULL);
}

static void test_share(void **state)
{
	assert_int_equal(check(1000, 768, 768, 1024), 0);
	assert_int_equal(check(1000, 769, 769, 1024), -EDQUOT);
	/* Two users cannot take what is kept for root. */
	assert_int_equal(check(1001, 224, 992, 1024), 0);
	assert_int_equal(check(1001, 225, 993, 1024), -EUSERS);
	for (uint32_t uid = 0; uid <= 900; uid += 900) {
		assert_int_equal(check(uid, 32, 1024, 1024), 0);
		assert_int_equal(check(uid, 1024, 1024, 1024), 0);
		assert_int_equal(check(uid, 33, 1025, 1024), -EUSERS);
	}
}

static void test_extremes(void **state)
{
	const struct quota whole = {.share_percent = 100, .owner = 1};

	assert_int_equal(quota_share(&whole, 1000, UINT64_MAX), UINT64_MAX);
	assert_int_equal(quota_share(&(struct quota){.share_percent = 1}, 1000, UINT64_MAX),
			 UINT64_MAX / 100 + UINT64_MAX % 100 / 100);
	assert_int_equal(quota_share(&(struct quota){.share_percent = 50}, 1000, 3), 1);
	assert_int_equal(check(1000, 0, 0, 0), 0);
	assert_int_equal(check(1000, 1, 1, 0), -EDQUOT);
}

static void test_text(void **state)
{
	const struct quota q = {.share_percent = 50, .owner = 900};
	struct usage mine = {.of = {[QUOTA_BYTES] = 3u << 30}}, all = mine;
	struct error err = ERROR_INIT;

	assert_int_equal(quota_check(&q, 1000, QUOTA_BYTES, &mine, &all, UINT64_C(4) << 30, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "user 1000 would have 3.0 GiB of cache"));
	assert_non_null(strstr(err.text, "may have 2.0 GiB of cache"));
	assert_non_null(strstr(err.text, "--user-share"));
	mine.of[QUOTA_BYTES] = 1;
	all.of[QUOTA_BYTES] = UINT64_C(4) << 30;
	assert_int_equal(quota_check(&q, 1000, QUOTA_BYTES, &mine, &all, UINT64_C(4) << 30, &err), -EUSERS);
	assert_non_null(strstr(err.text, "for users but root"));
	mine.of[QUOTA_CONNECTIONS] = mine.of[QUOTA_CHUNKS] = 2;
	assert_int_equal(quota_check(&q, 1000, QUOTA_CONNECTIONS, &mine, &all, 2, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "would have 2 connections, and a user may have 1 connection of"));
	assert_int_equal(quota_check(&q, 1000, QUOTA_CHUNKS, &mine, &all, 2, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "2 chunks in memory, and a user may have 1 chunk in memory of"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_share),
	    cmocka_unit_test(test_extremes),
	    cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
