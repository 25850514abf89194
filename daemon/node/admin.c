/* SPDX-License-Identifier: Apache-2.0 */
#include "admin.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/units.h"

#define DEFAULT_OVERFLOW_ID 65534

static struct admin chosen = {.who = ADMIN_ROOT};

uint32_t admin_overflow_id(const char *kind)
{
	unsigned id = DEFAULT_OVERFLOW_ID;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/sys/kernel/overflow%s", kind);
	file = fopen(path, "re");
	if (!file)
		return id;
	if (fscanf(file, "%u", &id) != 1)
		id = DEFAULT_OVERFLOW_ID;
	fclose(file);
	return id;
}

int admin_find_user(const char *value, uint32_t *ret)
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
	if (admin_find_user(value, &admin.uid) < 0)
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is neither root, none, nor a user of this machine or a number",
				 name, value);
	if (admin.uid == admin_overflow_id("uid"))
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
