/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lets this process take on another process's rights to files. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct error;

/*
 * Takes on a process's mount namespace, root and current folder, control groups, user and groups, and drops
 * all privileges: from now on the kernel permits exactly what it permits that process. The process must have
 * only this user and group, as when it was seen: a program that gains rights when it is executed has others,
 * and is refused (-EPERM). The caller needs CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SETUID and
 * CAP_SETGID, and has one thread. *ret_charged: memory is charged to the process's control group. After an
 * error the caller must exit.
 */
int identity_take(pid_t pid, uint64_t start_ticks, uid_t uid, gid_t gid, bool *ret_charged,
		  struct error *err);

/* Opens cgroup.procs of a control group for writing. group: as in /proc/PID/cgroup; if dieseld is in a cgroup
 * namespace, the path may lead outside what is mounted here, and is then refused. hierarchy: "", or e.g.
 * "/memory" of version 1. Returns a descriptor or -errno. */
int identity_open_group(const char *hierarchies, const char *hierarchy, const char *group);
