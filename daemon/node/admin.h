/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides which users administer this daemon: they set, they see what all users have, and no share applies
 * to them. A user is a uid as the kernel reports it of the other end of the socket (SO_PEERCRED).
 *
 * Everything that treats root differently asks admin_is(). A pod without a user namespace of its own has the
 * node's uid 0, so on such nodes root must have no privilege here (--admin-user).
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

enum admin_who {
	ADMIN_ROOT, /* root, and the daemon's own user */
	ADMIN_USER, /* one user only */
	ADMIN_NONE,
};

#define ADMIN_NAME_BYTES 48

struct admin_choice {
	enum admin_who who;
	uint32_t uid;                /* of ADMIN_USER */
	char name[ADMIN_NAME_BYTES]; /* of ADMIN_USER, as the operator wrote it */
	bool is_unknown;             /* the machine does not know that name yet: nobody administers */
};

/* Reads "root", "none", a user's name or number. Returns 0, also for a name that is not known: what knows it
 * may start after dieseld. -EINVAL: it cannot be a name, or the number stands for users that are not known
 * here. err begins with the setting's name. */
int admin_parse(const char *name, const char *value, struct admin_choice *ret, struct error *err);

/* Returns true for numbers that can be a user's, and for whatever is no number at all. */
bool admin_may_be_name(const char *value);
/* The number of a user or a group of this machine, by name or number. -EINVAL: there is none of that name.
 * May wait for a server of names. */
int admin_find_user(const char *value, uint32_t *ret);
int admin_find_group(const char *value, uint32_t *ret);
/* The number that the kernel gives for all that have none in this user namespace. kind: "uid", "gid". */
uint32_t admin_overflow_id(const char *kind);

/* Decides for this process and for those that it forks from now on. Until then it is ADMIN_ROOT. */
void admin_choose(const struct admin_choice *admin);

/* Returns true if the user administers the daemon. */
bool admin_is(uint32_t uid);

/* The one sentence for somebody who may not set anything. Returns -EPERM. */
int admin_refuse(struct error *err);
