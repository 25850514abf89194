/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Becoming somebody else, as far as files go. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct error;

/*
 * Takes on a process's mount namespace, root and current folder, control groups, user and groups, and gives
 * up all privileges: from now on the kernel permits what it would permit that process, and no more. It must
 * be this user's and this group's alone, as when it was seen: a program that gains rights when it is executed
 * has others, and is refused (-EPERM). Before, the caller takes CAP_SYS_ADMIN, CAP_SYS_CHROOT,
 * CAP_SYS_PTRACE, CAP_SETUID and CAP_SETGID. The caller has one thread. *ret_charged: memory and time are the
 * process's control group's. After an error the caller has to end.
 */
int identity_take(pid_t pid, uint64_t start_ticks, uid_t uid, gid_t gid, bool *ret_charged,
		  struct error *err);

/* Opens cgroup.procs of a group for writing. group is as /proc/PID/cgroup has it, which may lead out of what
 * is mounted here where dieseld is in a namespace of control groups: not followed. hierarchy: "", or
 * "/memory" of version 1. A descriptor or -errno. */
int identity_open_group(const char *hierarchies, const char *hierarchy, const char *group);
