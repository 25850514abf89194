/* SPDX-License-Identifier: Apache-2.0 */
#include "admin.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/units.h"

/* The number that the kernel gives for a user who has none in this user namespace. */
#define DEFAULT_OVERFLOW_UID 65534

static struct admin chosen = {.who = ADMIN_ROOT};

static uint32_t overflow_uid(void)
{
	FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
	unsigned uid = DEFAULT_OVERFLOW_UID;

	if (!file)
		return uid;
	if (fscanf(file, "%u", &uid) != 1)
		uid = DEFAULT_OVERFLOW_UID;
	fclose(file);
	return uid;
}

static int find_user(const char *value, uint32_t *ret)
{
	const struct passwd *user;
	int64_t number;

	if (units_parse_integer(value, 0, UINT32_MAX - 1, &number) == 0) {
		*ret = (uint32_t)number;
		return 0;
	}
	user = getpwnam(value);
	if (!user)
		return -EINVAL;
	*ret = user->pw_uid;
	return 0;
}

int admin_parse(const char *name, const char *value, struct admin *ret, struct error *err)
{
	struct admin admin = {.who = ADMIN_USER};

	if (strcmp(value, "none") == 0) {
		*ret = (struct admin){.who = ADMIN_NONE};
		return 0;
	}
	if (find_user(value, &admin.uid) < 0)
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is neither root, none, nor a user of this machine or a number",
				 name, value);
	if (admin.uid == overflow_uid())
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is uid %u, which stands for every user without a number here: "
				 "name another one",
				 name, value, admin.uid);
	*ret = admin.uid == 0 ? (struct admin){.who = ADMIN_ROOT} : admin;
	return 0;
}

void admin_choose(const struct admin *admin)
{
	chosen = *admin;
}

bool admin_is(uint32_t uid)
{
	switch (chosen.who) {
	case ADMIN_ROOT: return uid == 0 || uid == geteuid();
	case ADMIN_USER: return uid == chosen.uid;
	case ADMIN_NONE: return false;
	}
	return false;
}

int admin_refuse(struct error *err)
{
	switch (chosen.who) {
	case ADMIN_USER:
		return error_set(err, -EPERM, "only user %u may set anything: dieseld has --admin-user %u",
				 chosen.uid, chosen.uid);
	case ADMIN_NONE:
		return error_set(err, -EPERM,
				 "nobody may set anything: dieseld has --admin-user none: change its "
				 "configuration, and reload it");
	case ADMIN_ROOT: break;
	}
	return error_set(err, -EPERM, "only root and the user of dieseld (uid %u) may set anything",
			 (unsigned)geteuid());
}
