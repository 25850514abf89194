/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Readers of /proc. root is "/proc" or a directory with the same layout. The files' texts come from other
 * processes or a future kernel: parsers accept known fields, and return -EBADMSG for texts that they cannot
 * read. A process can vanish at any moment, which returns -ENOENT or -ESRCH.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads a file up to max_bytes and leaves out the rest; the text is NUL-terminated. Caller frees. */
int proc_read_file(const char *path, size_t max_bytes, char **ret_text, size_t *ret_length);

/* /proc/PID/stat and /proc/PID/task/TID/stat. */
struct proc_stat {
	pid_t pid;
	char comm[64]; /* may hold spaces and brackets */
	char state;    /* one of R S D T t Z X I */
	pid_t parent;
	uint64_t minor_faults, major_faults;
	uint64_t user_ticks, system_ticks; /* there are sysconf(_SC_CLK_TCK) ticks per second */
	uint64_t n_threads;
	uint64_t start_ticks; /* ticks since boot */
	uint64_t resident_pages;
	bool forked_only; /* a forked copy of its parent that has executed no program */
};

/* Errors: -EBADMSG; for reading also -ENOENT, -ESRCH. */
int proc_stat_parse(const char *text, struct proc_stat *ret_stat);
int proc_stat_read(const char *root, pid_t pid, struct proc_stat *ret_stat);

/* Fields of /proc/PID/status that stat lacks. */
struct proc_status {
	pid_t tgid;
	pid_t ns_pid; /* PID in the innermost PID namespace */
	uid_t uid;    /* effective */
	uint64_t effective_capabilities;
	uint64_t resident_bytes;
	uint64_t voluntary_switches, forced_switches;
};

/* -EBADMSG, -ENOENT, -ESRCH. */
int proc_status_read(const char *root, pid_t pid, struct proc_status *ret_status);

/* Reads the kernel's name of the thread, cut to size. */
int proc_comm_read(const char *root, pid_t pid, char *buffer, size_t size);

/* Reads the command line, with spaces between the words and '?' for control characters, cut to size. Empty
 * for kernel threads and zombies. */
int proc_cmdline_read(const char *root, pid_t pid, char *buffer, size_t size);

struct proc_mapping {
	uint64_t start, end;
	uint64_t offset_bytes;
	uint64_t device; /* kernel encoding: major << 20 | minor */
	uint64_t inode;  /* 0: no file */
	bool readable, writable, executable, shared;
	const char *path; /* "": none; valid only during the call */
};

/* Calls handle() for each mapping of a process; a result other than 0 ends the iteration and is returned.
 * -EBADMSG, -ENOENT, -ESRCH. */
int proc_mappings(const char *root, pid_t pid, int (*handle)(void *user, const struct proc_mapping *mapping),
		  void *user);

/* Decodes, in place, blanks and backslashes in a path of mountinfo, where a blank is \040. */
void proc_unescape(char *text);

/* Return, in ascending order: the TIDs of a process, the PIDs of all processes, and the PIDs of the
 * children of pid's threads. The caller frees. */
int proc_threads(const char *root, pid_t pid, pid_t **ret_tids, size_t *ret_n);
int proc_processes(const char *root, pid_t **ret_pids, size_t *ret_n);
int proc_children(const char *root, pid_t pid, pid_t **ret_pids, size_t *ret_n);

/* Returns the number of bytes that a process has caused to be written to storage, from /proc/PID/io.
 * -EBADMSG, -EACCES, ... */
int proc_written_read(const char *root, pid_t pid, uint64_t *ret_bytes);

/* Lists up to PROC_WRITE_DEVICES file systems (st_dev) on which the process has files open for writing.
 * Checks only its first open files. Returns their number; -EACCES, -ENOENT, ... */
#define PROC_WRITE_DEVICES 8
int proc_write_devices(const char *root, pid_t pid, uint64_t devices[PROC_WRITE_DEVICES]);

/* The "cpu" line of /proc/stat: ticks of all CPUs since boot. steal: ticks that the hypervisor took. */
struct proc_cpu_ticks {
	uint64_t user, nice, system, idle, iowait, irq, softirq, steal;
};

/* -EBADMSG, -ENOENT. */
int proc_cpu_ticks_read(const char *root, struct proc_cpu_ticks *ret_ticks);

struct proc_meminfo {
	uint64_t total_bytes, free_bytes, available_bytes, cached_bytes, dirty_bytes, writeback_bytes;
};

/* -EBADMSG, -ENOENT. */
int proc_meminfo_read(const char *root, struct proc_meminfo *ret_meminfo);
