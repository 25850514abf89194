/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the folders of control groups, of version 1 and 2, and lists the processes in a group. */

#include <stddef.h>
#include <sys/types.h>

/* Finds the folder of a control group. path is that folder (/sys/fs/cgroup/...), or a group as
 * /proc/PID/cgroup writes it ("/docker/1234"), which is searched for below the mounted hierarchies, version 2
 * first. proc_root is "/proc" or a directory that looks like it. -ENOENT: there is none; -ENAMETOOLONG. */
int cgroup_find(const char *proc_root, const char *path, char *buffer, size_t size);

/* Lists the PIDs of all processes in the group and in its descendant groups, ascending. A descendant that
 * vanishes in the meantime counts as empty. -ENOENT: the group itself does not exist. The caller frees. */
int cgroup_processes(const char *folder, pid_t **ret_pids, size_t *ret_n);
