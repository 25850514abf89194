/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "lib/proc_task.h"

/* Returns the kind of wait of a thread that sleeps in this call. *ret_inode: inode of the
 * pipe or socket, else 0. */
enum proc_wait sampler_wait(const char *root, pid_t tgid, const struct proc_syscall *call,
			    uint32_t *ret_inode);
