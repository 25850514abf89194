/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/*
 * The watched system calls: WATCHED_CALLS(X) expands X(name, number, kind) for each. The kind says which
 * arguments become the record's fd, inode and argument. Another architecture needs another file like this
 * one.
 */

enum call_kind {
	CALL_UNWATCHED = 0,
	CALL_FD,     /* fd = argument 1, argument = argument 3 (a count) */
	CALL_CLOSE,  /* fd = argument 1 */
	CALL_SYNC,   /* fd = argument 1 */
	CALL_OPEN,   /* argument = flags (argument 2); the file is the one behind the returned descriptor */
	CALL_OPENAT, /* fd = directory, argument = flags (argument 3); the file as with CALL_OPEN */
	CALL_PATH,   /* fd = argument 1; its file is the directory, or, with an empty path, the file itself */
	CALL_STAT,   /* as CALL_PATH, if it takes CALL_STAT_MIN_NS: Python makes two for each file it opens */
	CALL_POLL,   /* argument = n of fds; with one, fd = that one */
	CALL_COUNT,  /* argument = argument 1 (select: n of fds), no file */
	CALL_MMAP,   /* fd = argument 5, argument = length; only calls that map a file */
	CALL_FUTEX,  /* inode = address, argument = operation, or flags */
	CALL_PLAIN,  /* no file, no argument */
};

#define WATCHED_CALLS(X)                                                                                     \
	X(read, 0, CALL_FD)                                                                                  \
	X(write, 1, CALL_FD)                                                                                 \
	X(open, 2, CALL_OPEN)                                                                                \
	X(close, 3, CALL_CLOSE)                                                                              \
	X(fstat, 5, CALL_STAT)                                                                               \
	X(poll, 7, CALL_POLL)                                                                                \
	X(mmap, 9, CALL_MMAP)                                                                                \
	X(pread64, 17, CALL_FD)                                                                              \
	X(pwrite64, 18, CALL_FD)                                                                             \
	X(readv, 19, CALL_FD)                                                                                \
	X(writev, 20, CALL_FD)                                                                               \
	X(select, 23, CALL_COUNT)                                                                            \
	X(msync, 26, CALL_PLAIN)                                                                             \
	X(nanosleep, 35, CALL_PLAIN)                                                                         \
	X(sendfile, 40, CALL_FD)                                                                             \
	X(connect, 42, CALL_FD)                                                                              \
	X(accept, 43, CALL_FD)                                                                               \
	X(sendto, 44, CALL_FD)                                                                               \
	X(recvfrom, 45, CALL_FD)                                                                             \
	X(sendmsg, 46, CALL_FD)                                                                              \
	X(recvmsg, 47, CALL_FD)                                                                              \
	X(wait4, 61, CALL_PLAIN)                                                                             \
	X(fsync, 74, CALL_SYNC)                                                                              \
	X(fdatasync, 75, CALL_SYNC)                                                                          \
	X(rename, 82, CALL_PLAIN)                                                                            \
	X(futex, 202, CALL_FUTEX)                                                                            \
	X(getdents64, 217, CALL_FD)                                                                          \
	X(clock_nanosleep, 230, CALL_PLAIN)                                                                  \
	X(epoll_wait, 232, CALL_FD)                                                                          \
	X(waitid, 247, CALL_PLAIN)                                                                           \
	X(openat, 257, CALL_OPENAT)                                                                          \
	X(newfstatat, 262, CALL_STAT)                                                                        \
	X(renameat, 264, CALL_PATH)                                                                          \
	X(pselect6, 270, CALL_COUNT)                                                                         \
	X(ppoll, 271, CALL_POLL)                                                                             \
	X(sync_file_range, 277, CALL_FD)                                                                     \
	X(epoll_pwait, 281, CALL_FD)                                                                         \
	X(accept4, 288, CALL_FD)                                                                             \
	X(preadv, 295, CALL_FD)                                                                              \
	X(pwritev, 296, CALL_FD)                                                                             \
	X(recvmmsg, 299, CALL_FD)                                                                            \
	X(renameat2, 316, CALL_PATH)                                                                         \
	X(preadv2, 327, CALL_FD)                                                                             \
	X(pwritev2, 328, CALL_FD)                                                                            \
	X(statx, 332, CALL_STAT)                                                                             \
	X(io_uring_enter, 426, CALL_FD)                                                                      \
	X(openat2, 437, CALL_OPENAT)                                                                         \
	X(epoll_pwait2, 441, CALL_FD)                                                                        \
	X(futex_waitv, 449, CALL_FUTEX)                                                                      \
	X(futex_wait, 455, CALL_FUTEX)

#define WATCHED_NUMBERS 512 /* above every number that can be watched; a power of two */
