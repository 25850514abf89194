/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Drops privileges. Changes only the calling thread, and threads that it starts later inherit the change:
 * call this before starting any. */

#include <stdint.h>

/* Bit of a capability in a set. The number is a CAP_... of linux/capability.h, which the caller includes. */
#define CAPABILITY(number) (UINT64_C(1) << (number))

/* Drops all capabilities that are not in keep, for good: not even executing a set-user-ID program restores
 * them (no_new_privs). 0 or -errno. */
int capabilities_keep(uint64_t keep);

/* Returns the effective capabilities in *ret_effective. 0 or -errno. */
int capabilities_get(uint64_t *ret_effective);

/* Drops capabilities as capabilities_keep() does, and changes to this user and group, without supplementary
 * groups. -EPERM without CAP_SETUID and CAP_SETGID. */
int capabilities_keep_as(uint64_t keep, uint32_t uid, uint32_t gid);
