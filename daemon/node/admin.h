/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides which users administer this daemon: they may change settings, they see the resources of all users,
 * and no share limits them. A user is a uid as the kernel reports it for the other end of the socket
 * (SO_PEERCRED).
 *
 * All code that treats root differently calls admin_is(). In a pod without a user namespace of its own, root
 * has the node's uid 0, so on such nodes root must have no privilege in dieseld (--admin-user).
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

enum admin_who {
	ADMIN_ROOT, /* root and the daemon's user */
	ADMIN_USER, /* only one user */
	ADMIN_NONE,
};

#define ADMIN_NAME_BYTES 48

struct admin_choice {
	enum admin_who who;
	uint32_t uid;                /* ADMIN_USER: the user */
	char name[ADMIN_NAME_BYTES]; /* ADMIN_USER: as the operator wrote it */
	bool is_unknown; /* the machine cannot resolve that name yet, so nobody is an administrator */
};

/* Parses "root", "none", a user's name or number. Returns 0 also for an unknown name: the service that
 * resolves it may start after dieseld. -EINVAL: not a valid name, or the overflow uid, which represents
 * users without a number here. err begins with the setting's name. */
int admin_parse(const char *name, const char *value, struct admin_choice *ret, struct error *err);

/* Returns true for a possible user number, and for any other text that is not a number and not too long. */
bool admin_may_be_name(const char *value);
/* Finds the number of a user or group of this machine, by name or number. -EINVAL: no such name. May wait
 * for a name service. */
int admin_find(const char *value, bool is_group, uint32_t *ret);
/* Returns the number that the kernel reports for all ids without a mapping in this user namespace. kind:
 * "uid", "gid". */
uint32_t admin_overflow_id(const char *kind);

/* Sets the choice for this process and for processes that it forks later. The default is ADMIN_ROOT. */
void admin_choose(const struct admin_choice *admin);

/* Returns true if the user administers the daemon. */
bool admin_is(uint32_t uid);

/* Sets the error for a user who may not change settings. Returns -EPERM. */
int admin_refuse(struct error *err);
