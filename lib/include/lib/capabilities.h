/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Privileges to give up. Of the calling thread: call it before others are started, they inherit. */

#include <stdint.h>

/* A set: 1 << CAP_..., of linux/capability.h, which the caller includes. */
#define CAPABILITY(number) (UINT64_C(1) << (number))

/* Gives up all capabilities but these of those it has, for good: also by exec of a set-user-ID program
 * (no_new_privs). -errno. */
int capabilities_keep(uint64_t keep);

/* Those in force. */
int capabilities_get(uint64_t *ret_effective);

/* Goes on as this user and group, with no other groups, and with these capabilities of those it has. -EPERM
 * without CAP_SETUID and CAP_SETGID. */
int capabilities_keep_as(uint64_t keep, uint32_t uid, uint32_t gid);
