/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/*
 * The watched system calls: WATCHED_CALLS(X) expands X(name, number, args) for each. args says which
 * arguments become the record's fd, inode and argument. Another architecture needs another file like this
 * one.
 */

enum call_args {
	ARGS_UNWATCHED = 0,
	ARGS_FD,       /* fd = argument 1, argument = argument 3 (a count) */
	ARGS_SENDFILE, /* fd = argument 2 (the file that is read), argument = argument 4 (a count) */
	ARGS_CLOSE,    /* fd = argument 1 */
	ARGS_SYNC,     /* fd = argument 1 */
	ARGS_OPEN,     /* argument = flags (argument 2); the file is the one behind the returned descriptor */
	ARGS_OPENAT,   /* fd = directory, argument = flags (argument 3); the file as with ARGS_OPEN */
	ARGS_PATH,  /* fd = argument 1; its file is the directory, or, with an empty path, the file itself */
	ARGS_STAT,  /* as ARGS_PATH, but only calls of CALL_STAT_MIN_NS: Python makes two per opened file */
	ARGS_POLL,  /* argument = number of fds; if there is one, fd = that one */
	ARGS_COUNT, /* argument = argument 1 (select: number of fds), no file */
	ARGS_MMAP,  /* fd = argument 5, argument = length; only calls that map a file */
	ARGS_FUTEX, /* inode = address, argument = operation, or flags */
	ARGS_PLAIN, /* no file, no argument */
};

#define WATCHED_CALLS(X)                                                                                     \
	X(read, 0, ARGS_FD)                                                                                  \
	X(write, 1, ARGS_FD)                                                                                 \
	X(open, 2, ARGS_OPEN)                                                                                \
	X(close, 3, ARGS_CLOSE)                                                                              \
	X(fstat, 5, ARGS_STAT)                                                                               \
	X(poll, 7, ARGS_POLL)                                                                                \
	X(mmap, 9, ARGS_MMAP)                                                                                \
	X(pread64, 17, ARGS_FD)                                                                              \
	X(pwrite64, 18, ARGS_FD)                                                                             \
	X(readv, 19, ARGS_FD)                                                                                \
	X(writev, 20, ARGS_FD)                                                                               \
	X(select, 23, ARGS_COUNT)                                                                            \
	X(msync, 26, ARGS_PLAIN)                                                                             \
	X(nanosleep, 35, ARGS_PLAIN)                                                                         \
	X(sendfile, 40, ARGS_SENDFILE)                                                                       \
	X(connect, 42, ARGS_FD)                                                                              \
	X(accept, 43, ARGS_FD)                                                                               \
	X(sendto, 44, ARGS_FD)                                                                               \
	X(recvfrom, 45, ARGS_FD)                                                                             \
	X(sendmsg, 46, ARGS_FD)                                                                              \
	X(recvmsg, 47, ARGS_FD)                                                                              \
	X(wait4, 61, ARGS_PLAIN)                                                                             \
	X(fsync, 74, ARGS_SYNC)                                                                              \
	X(fdatasync, 75, ARGS_SYNC)                                                                          \
	X(rename, 82, ARGS_PLAIN)                                                                            \
	X(futex, 202, ARGS_FUTEX)                                                                            \
	X(getdents64, 217, ARGS_FD)                                                                          \
	X(clock_nanosleep, 230, ARGS_PLAIN)                                                                  \
	X(epoll_wait, 232, ARGS_FD)                                                                          \
	X(waitid, 247, ARGS_PLAIN)                                                                           \
	X(openat, 257, ARGS_OPENAT)                                                                          \
	X(newfstatat, 262, ARGS_STAT)                                                                        \
	X(renameat, 264, ARGS_PATH)                                                                          \
	X(pselect6, 270, ARGS_COUNT)                                                                         \
	X(ppoll, 271, ARGS_POLL)                                                                             \
	X(sync_file_range, 277, ARGS_FD)                                                                     \
	X(epoll_pwait, 281, ARGS_FD)                                                                         \
	X(accept4, 288, ARGS_FD)                                                                             \
	X(preadv, 295, ARGS_FD)                                                                              \
	X(pwritev, 296, ARGS_FD)                                                                             \
	X(recvmmsg, 299, ARGS_FD)                                                                            \
	X(renameat2, 316, ARGS_PATH)                                                                         \
	X(preadv2, 327, ARGS_FD)                                                                             \
	X(pwritev2, 328, ARGS_FD)                                                                            \
	X(statx, 332, ARGS_STAT)                                                                             \
	X(io_uring_enter, 426, ARGS_FD)                                                                      \
	X(openat2, 437, ARGS_OPENAT)                                                                         \
	X(epoll_pwait2, 441, ARGS_FD)                                                                        \
	X(futex_waitv, 449, ARGS_FUTEX)                                                                      \
	X(futex_wait, 455, ARGS_FUTEX)

/* Constants NR_read and so on, one for each watched call. */
#define WATCHED_NUMBER(name, number, args) NR_##name = (number),
enum watched_number { WATCHED_CALLS(WATCHED_NUMBER) };

#define WATCHED_NUMBERS 512 /* above every number that can be watched; a power of two */
