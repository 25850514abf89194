/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls for which some C libraries that we support lack a function: older ones, and musl. As those
 * functions do, each returns -1 and sets errno on failure. */

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

/* Returns a descriptor of a process. The caller needs no permission to signal that process. */
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

/* Renames from one folder to another. EEXIST: a file `to` exists. */
static inline int kernel_move_new(int from_fd, const char *from, int to_fd, const char *to)
{
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, KERNEL_RENAME_NOREPLACE);
}

/* Renames within a folder. EEXIST: as above. */
static inline int kernel_rename_new(int dir_fd, const char *from, const char *to)
{
	return kernel_move_new(dir_fd, from, dir_fd, to);
}

/* Gives the calling thread the lowest level of the I/O class "best effort": its reads and writes come after
 * those of processes that have not called this. Threads that it starts inherit this. Older systems lack
 * <linux/ioprio.h>. */
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

/* Turns small pages of shared memory into a huge page (MADV_COLLAPSE, which older headers lack). EINVAL
 * before Linux 6.1. */
static inline int kernel_collapse(void *memory, size_t bytes)
{
	return madvise(memory, bytes, 25);
}

/* Gives the calling thread the idle I/O class: its reads and writes wait for those of all others. */
static inline int kernel_io_idle(void)
{
	return (int)syscall(SYS_ioprio_set, 1, 0, 3 << 13);
}

/* Returns the number of pages of this part of a file that are in the page cache. EPERM: the kernel reports
 * them only to users who may write the file; ENOSYS before Linux 6.5. */
static inline int kernel_cached_pages(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_pages)
{
	uint64_t range[2] = {offset, bytes}, stat[5]; /* struct cachestat_range, struct cachestat */
	int r = (int)syscall(451, fd, range, stat, 0);

	if (r == 0)
		*ret_pages = stat[0];
	return r;
}
