/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The file behind a mapping of another, untrusted process. The process can exchange folders and files under
 * the mapped path, mount over them, make up file systems that never answer, and map devices and pipes, which
 * do something when they are opened.
 *
 * The descriptor is the very file of the mapping, a regular one, on a file system that the kernel serves
 * itself. Callers must use the file through the descriptor (/proc/self/fd/N), never by path.
 */

#include <sys/types.h>

struct proc_mapping;

/* Opens the file for reading. root is "/proc". With CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE the mapping
 * leads to the file; without, its path does, and the kernel is asked whether it is the same. Returns a
 * descriptor, or -errno: -ESTALE: the path now leads to another file; -EACCES: not a regular file, or
 * served by a process (FUSE) or by a file system that is no longer mounted. Never waits for another
 * process. */
int mapped_file_open(const char *root, pid_t pid, const struct proc_mapping *mapping);
