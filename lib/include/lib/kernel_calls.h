/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls for which not every C library that we build for has a function: some are older, and musl has
 * but a few. They return -1 and set errno, as those functions do. */

#include <stdint.h>
#include <sys/mman.h>
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

static inline int kernel_pidfd_send_signal(int pidfd, int signal)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* RENAME_NOREPLACE; musl's <stdio.h> lacks it, and <linux/fs.h> conflicts with glibc's <sys/mount.h>. */
#define KERNEL_RENAME_NOREPLACE 1u

/* Renames within a folder; EEXIST if there is a file `to`. */
static inline int kernel_rename_new(int dir_fd, const char *from, const char *to)
{
	return (int)syscall(SYS_renameat2, dir_fd, from, dir_fd, to, KERNEL_RENAME_NOREPLACE);
}

/* Puts the calling process's reads and writes after those of all processes that have not called this
 * (<linux/ioprio.h>, which older systems lack: the class "best effort", its last level). Threads that it
 * starts inherit this. */
static inline int kernel_io_last(void)
{
	return (int)syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7);
}

/* Allocates the pages of writable memory (MADV_POPULATE_WRITE, which older headers lack). EINVAL before Linux
 * 5.14. */
static inline int kernel_populate(void *memory, size_t bytes)
{
	return madvise(memory, bytes, 23);
}

/* Makes small pages of shared memory one huge page (MADV_COLLAPSE, which older headers lack). EINVAL before
 * Linux 6.1. */
static inline int kernel_collapse(void *memory, size_t bytes)
{
	return madvise(memory, bytes, 25);
}

/* Gives the calling thread the idle I/O class: its reads and writes wait for those of all others. */
static inline int kernel_io_idle(void)
{
	return (int)syscall(SYS_ioprio_set, 1, 0, 3 << 13);
}

/* Returns how many pages of this part of a file are in the page cache. EPERM: the caller could not write
 * the file, so the kernel does not report it; ENOSYS before Linux 6.5. */
static inline int kernel_cached_pages(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_pages)
{
	uint64_t range[2] = {offset, bytes}, stat[5]; /* struct cachestat_range, struct cachestat */
	int r = (int)syscall(451, fd, range, stat, 0);

	if (r == 0)
		*ret_pages = stat[0];
	return r;
}
