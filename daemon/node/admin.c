/* SPDX-License-Identifier: Apache-2.0 */
#include "admin.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/units.h"

#define DEFAULT_OVERFLOW_ID 65534
/* Maximum size of one entry: a group's entry has the names of its members. */
#define ENTRY_BYTES_MAX (16u << 20)

static struct admin_choice chosen = {.who = ADMIN_ROOT};

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

static int look_up(const char *name, bool is_group, char *buffer, size_t size, uint32_t *ret)
{
	struct passwd user, *found_user = NULL;
	struct group group, *found_group = NULL;
	int r = is_group ? getgrnam_r(name, &group, buffer, size, &found_group)
			 : getpwnam_r(name, &user, buffer, size, &found_user);

	if (r == ERANGE)
		return -ERANGE;
	if (!found_user && !found_group)
		return -EINVAL;
	*ret = is_group ? group.gr_gid : user.pw_uid;
	return 0;
}

int admin_find(const char *value, bool is_group, uint32_t *ret)
{
	int64_t number;
	int r = -ERANGE;

	if (units_parse_integer(value, 0, UINT32_MAX - 1, &number) == 0) {
		*ret = (uint32_t)number;
		return 0;
	}
	for (size_t size = 16384; r == -ERANGE && size <= ENTRY_BYTES_MAX; size *= 4) {
		_cleanup_(freep) char *buffer = malloc(size);

		r = buffer ? look_up(value, is_group, buffer, size, ret) : -EINVAL;
	}
	return r < 0 ? -EINVAL : 0;
}

bool admin_may_be_name(const char *value)
{
	size_t n = strlen(value);
	int64_t number;

	return n > 0 && n < ADMIN_NAME_BYTES &&
	       (strspn(value, "+-0123456789") < n ||
		units_parse_integer(value, 0, UINT32_MAX - 1, &number) == 0);
}

int admin_parse(const char *name, const char *value, struct admin_choice *ret, struct error *err)
{
	struct admin_choice admin = {.who = ADMIN_USER};

	if (strcmp(value, "none") == 0) {
		*ret = (struct admin_choice){.who = ADMIN_NONE};
		return 0;
	}
	if (!admin_may_be_name(value))
		return error_set(
		    err, -EINVAL,
		    "%s: invalid user \"%s\": must be root, none, or the name or number of a user", name,
		    value);
	snprintf(admin.name, sizeof(admin.name), "%s", value);
	admin.is_unknown = admin_find(value, false, &admin.uid) < 0;
	if (admin.is_unknown) {
		*ret = admin;
		return 0;
	}
	if (admin.uid == admin_overflow_id("uid"))
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is uid %u, which stands for every user without a number in this "
				 "namespace: name another user",
				 name, value, admin.uid);
	*ret = admin.uid == 0 ? (struct admin_choice){.who = ADMIN_ROOT} : admin;
	return 0;
}

void admin_choose(const struct admin_choice *admin)
{
	chosen = *admin;
}

bool admin_is(uint32_t uid)
{
	switch (chosen.who) {
	case ADMIN_ROOT: return uid == 0 || uid == geteuid();
	case ADMIN_USER: return !chosen.is_unknown && uid == chosen.uid;
	case ADMIN_NONE: return false;
	}
	return false;
}

int admin_refuse(struct error *err)
{
	switch (chosen.who) {
	case ADMIN_USER:
		if (chosen.is_unknown)
			return error_set(
			    err, -EPERM,
			    "nobody may change settings yet: dieseld runs with --admin-user %s, a name that "
			    "this machine does not know. Start the service that provides it",
			    chosen.name);
		return error_set(err, -EPERM,
				 "only user %u may change settings: dieseld runs with --admin-user %u",
				 chosen.uid, chosen.uid);
	case ADMIN_NONE:
		return error_set(err, -EPERM,
				 "nobody may change settings: dieseld runs with --admin-user none. Change "
				 "the configuration, then reload dieseld");
	case ADMIN_ROOT: break;
	}
	return error_set(err, -EPERM, "only root and the user of dieseld (uid %u) may change settings",
			 (unsigned)geteuid());
}
