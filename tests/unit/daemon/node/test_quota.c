/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/node/admin.h"
#include "daemon/node/quota.h"

static int check(uint32_t uid, uint64_t mine, uint64_t all, uint64_t limit)
{
	const struct quota q = {.share_percent = 75};
	struct usage m = {0}, a = {0};

	m.of[QUOTA_CONNECTIONS] = mine;
	a.of[QUOTA_CONNECTIONS] = all;
	return quota_check(&q, uid, QUOTA_CONNECTIONS, &m, &a, limit, NULL);
}

TEST(users_get_no_more_than_their_share)
{
	assert_int_equal(check(1000, 768, 768, 1024), 0);
	assert_int_equal(check(1000, 769, 769, 1024), -EDQUOT);
	/* Two users cannot take the memory that is reserved for administrators. */
	assert_int_equal(check(1001, 224, 992, 1024), 0);
	assert_int_equal(check(1001, 225, 993, 1024), -EUSERS);
	assert_int_equal(check(0, 32, 1024, 1024), 0);
	assert_int_equal(check(0, 1024, 1024, 1024), 0);
	assert_int_equal(check(0, 33, 1025, 1024), -EUSERS);
	assert_int_equal(check(geteuid(), 1024, 1024, 1024), 0);
}

static struct admin_choice parsed(const char *value)
{
	struct admin_choice admin;
	struct error err = ERROR_INIT;

	if (admin_parse("admin-user", value, &admin, &err) < 0)
		fail_msg("%s", err.text);
	return admin;
}

TEST(administrators_are_root_none_or_a_user)
{
	static const char *const wrong[] = {"", "-1", "4294967295", "4294967296", "65534"};
	const struct admin_choice root = parsed("root"), none = parsed("none"), user = parsed("900");
	struct error err = ERROR_INIT;

	assert_int_equal(root.who, ADMIN_ROOT);
	assert_int_equal(parsed("0").who, ADMIN_ROOT);
	assert_int_equal(parsed("daemon").uid, 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct admin_choice admin;

		assert_int_equal(admin_parse("admin-user", wrong[i], &admin, &err), -EINVAL);
		assert_ptr_equal(strstr(err.text, "admin-user: "), err.text);
	}
	/* An unknown name matches no user, in particular not user 0. */
	struct admin_choice unknown = parsed("no-such-user");
	assert_true(unknown.is_unknown);
	admin_choose(&unknown);
	assert_false(admin_is(0) || admin_is(geteuid()) || admin_is(unknown.uid) || admin_is(UINT32_MAX));
	assert_int_equal(admin_refuse(&err), -EPERM);
	assert_non_null(strstr(err.text, "a name that this machine does not know"));
	/* uid 0, and the daemon's own user, are ordinary users now. */
	admin_choose(&user);
	assert_true(admin_is(900));
	assert_false(admin_is(0) || admin_is(geteuid()) || admin_is(1000));
	assert_int_equal(check(0, 769, 769, 1024), -EDQUOT);
	assert_int_equal(check(0, 225, 993, 1024), -EUSERS);
	assert_int_equal(check(900, 1024, 1024, 1024), 0);
	admin_choose(&none);
	assert_false(admin_is(900) || admin_is(0) || admin_is(geteuid()) || admin_is(UINT32_MAX));
	admin_choose(&root);
	assert_true(admin_is(0) && admin_is(geteuid()));
	assert_false(admin_is(900));
}

TEST(extreme_limits_do_not_overflow)
{
	const struct quota whole = {.share_percent = 100};

	assert_int_equal(quota_share(&whole, 1000, UINT64_MAX), UINT64_MAX);
	assert_int_equal(quota_share(&(struct quota){.share_percent = 1}, 1000, UINT64_MAX),
			 UINT64_MAX / 100 + UINT64_MAX % 100 / 100);
	assert_int_equal(quota_share(&(struct quota){.share_percent = 50}, 1000, 3), 1);
	assert_int_equal(check(1000, 0, 0, 0), 0);
	assert_int_equal(check(1000, 1, 1, 0), -EDQUOT);
}

TEST(a_refusal_names_user_and_usage)
{
	const struct quota q = {.share_percent = 50};
	struct usage mine = {.of = {[QUOTA_BYTES] = 3u << 30}}, all = mine;
	struct error err = ERROR_INIT;

	assert_int_equal(quota_check(&q, 1000, QUOTA_BYTES, &mine, &all, UINT64_C(4) << 30, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "user 1000 would use 3.0 GiB of cache"));
	assert_non_null(strstr(err.text, "may use 2.0 GiB of cache"));
	assert_non_null(strstr(err.text, "--user-share"));
	mine.of[QUOTA_BYTES] = 1;
	all.of[QUOTA_BYTES] = UINT64_C(4) << 30;
	assert_int_equal(quota_check(&q, 1000, QUOTA_BYTES, &mine, &all, UINT64_C(4) << 30, &err), -EUSERS);
	assert_non_null(strstr(err.text, "for users who do not administer it"));
	mine.of[QUOTA_CONNECTIONS] = mine.of[QUOTA_CHUNKS] = 2;
	assert_int_equal(quota_check(&q, 1000, QUOTA_CONNECTIONS, &mine, &all, 2, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "would use 2 connections, but one user may use 1 connection of"));
	assert_int_equal(quota_check(&q, 1000, QUOTA_CHUNKS, &mine, &all, 2, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "2 chunks in memory, but one user may use 1 chunk in memory of"));
}
