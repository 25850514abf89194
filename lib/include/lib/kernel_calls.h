/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls for which only C libraries have a function that are newer than some we build for. They return
 * -1 and set errno, as those functions do. */

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Closes all descriptors from first to last. */
static inline int kernel_close_range(unsigned first, unsigned last)
{
	return (int)syscall(__NR_close_range, first, last, 0);
}

/* A descriptor of a process, which need not be the caller's to signal. */
static inline int kernel_pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}
