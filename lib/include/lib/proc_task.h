/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * State of one thread, as /proc shows it to an ordinary user:
 * /proc/PID/task/TID/{schedstat,syscall,wchan,io}, the links in /proc/PID/fd, and a process's CPU clock. As
 * in lib/proc.h, root is an argument, and parsers return -EBADMSG for texts that they cannot read. -EACCES,
 * -EPERM: the kernel does not show the file to this user.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Contents of schedstat: exact times by the scheduler's clock. */
struct proc_schedstat {
	uint64_t exec_ns;  /* time on a CPU */
	uint64_t queue_ns; /* time runnable, but without a CPU */
	uint64_t n_slices; /* number of times the thread got a CPU */
};

/* -EBADMSG. */
int proc_schedstat_parse(const char *text, struct proc_schedstat *ret_schedstat);

/* Contents of syscall: the system call in which a thread sleeps. */
struct proc_syscall {
	bool running;     /* the thread is running, so no other field is known */
	bool ended;       /* a zombie */
	bool in_call;     /* false: asleep outside of a call, e.g. in a page fault */
	uint16_t nr;      /* valid with in_call */
	uint64_t args[6]; /* valid with in_call */
};

/* -EBADMSG. */
int proc_syscall_parse(const char *text, struct proc_syscall *ret_syscall);

/* Contents of io, for one thread. */
struct proc_io {
	uint64_t read_chars,
	    written_chars; /* bytes through read and write calls, including those from the page cache */
	uint64_t n_reads, n_writes;       /* such calls */
	uint64_t read_bytes, write_bytes; /* bytes from and to storage */
};

/* -EBADMSG. */
int proc_io_parse(const char *text, struct proc_io *ret_io);

enum proc_wait {
	PROC_WAIT_NONE = 0,        /* not asleep */
	PROC_WAIT_UNKNOWN = 1,     /* asleep, for a reason that the kernel does not reveal */
	PROC_WAIT_PIPE = 2,        /* reading or polling one pipe */
	PROC_WAIT_FILE_READ = 3,   /* reading, opening or faulting in a file */
	PROC_WAIT_FILE_WRITE = 4,  /* writing or syncing a file */
	PROC_WAIT_SOCKET = 5,      /* reading or polling one socket */
	PROC_WAIT_FUTEX = 6,       /* waiting for a lock or a condition of the process itself */
	PROC_WAIT_POLL = 7,        /* polling several descriptors, or an unknown one */
	PROC_WAIT_TIMER = 8,       /* a plain sleep */
	PROC_WAIT_CHILD = 9,       /* waits for a process to end */
	PROC_WAIT_DEVICE = 10,     /* an ioctl, or reading or polling a device */
	PROC_WAIT_OTHER = 11,      /* another system call */
	PROC_WAIT_PIPE_WRITE = 12, /* writing a pipe that is full */
	PROC_WAIT_TIMED_LOCK = 13, /* as PROC_WAIT_FUTEX, but with a timeout */
};

/* Derives the reason of a sleep from the kernel function in wchan; "0" and "" give PROC_WAIT_UNKNOWN.
 * uninterruptible: the thread is in state D, so an unknown function most likely waits for a file. */
enum proc_wait proc_wchan_wait(const char *wchan, bool uninterruptible);

enum proc_file {
	PROC_FILE_OTHER,
	PROC_FILE_REGULAR, /* a regular file or a folder */
	PROC_FILE_PIPE,
	PROC_FILE_SOCKET,
	PROC_FILE_DEVICE,
};

struct proc_link {
	enum proc_file file;
	uint64_t inode; /* inode of a pipe or socket; else 0 */
};

/* Returns the kind of file behind descriptor fd of a process. -ENOENT, -EACCES. */
int proc_link_read(const char *root, pid_t pid, int fd, struct proc_link *ret_link);

/* Returns the inodes of the pipes among a process's descriptors above standard error: ascending, each once,
 * at most max. */
int proc_pipes(const char *root, pid_t pid, uint64_t *inodes, size_t max, size_t *ret_n);

/* Returns the CPU time of a living process: of all its threads together, ended ones included. Needs neither
 * privilege nor /proc. -ESRCH. */
int proc_cpu_ns(pid_t pid, uint64_t *ret_ns);
