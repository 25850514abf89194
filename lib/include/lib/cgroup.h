/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Control groups as folders, version 1 and 2 alike: which one a path means, and who is in it. */

#include <stddef.h>
#include <sys/types.h>

/* The folder of a control group: path itself when it is one (/sys/fs/cgroup/...), else where a hierarchy is
 * mounted and path as /proc/PID/cgroup writes it ("/docker/1234"), version 2 first. proc_root is "/proc" or
 * looks like it. -ENOENT: there is none; -ENAMETOOLONG. */
int cgroup_find(const char *proc_root, const char *path, char *buffer, size_t size);

/* Ascending PIDs of all processes in it and in the groups below. A group that goes meanwhile is empty; the
 * group itself: -ENOENT. Caller frees. */
int cgroup_processes(const char *folder, pid_t **ret_pids, size_t *ret_n);
