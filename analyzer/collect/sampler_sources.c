/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_sources.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/proc.h"
#include "lib/proc_task.h"

#define TRIES      200 /* maximum waits of 1 ms for the child to sleep in its call */
#define TEXT_BYTES 4096

/* Makes a child that sleeps in a read of a pipe until the pipe is closed. Returns its PID, or -errno. */
static pid_t child_make(int ends[2])
{
	pid_t pid;

	if (pipe(ends))
		return -errno;
	pid = fork();
	if (pid == 0) {
		char byte;

		close(ends[1]);
		_exit(read(ends[0], &byte, 1) == 1);
	}
	if (pid > 0)
		return pid;
	pid = -errno;
	close(ends[0]);
	close(ends[1]);
	return pid;
}

static int read_of_task(const char *root, pid_t pid, const char *name, char *text, size_t size)
{
	_cleanup_(freep) char *whole = NULL;
	char path[4200];
	int r;

	snprintf(path, sizeof(path), "%s/%d/task/%d/%s", root, (int)pid, (int)pid, name);
	r = proc_read_file(path, TEXT_BYTES, &whole, NULL);
	if (r == 0)
		snprintf(text, size, "%s", whole);
	return r;
}

static bool has_schedstat(const char *root, pid_t pid)
{
	struct proc_schedstat stat;
	char text[256];

	/* In a kernel without scheduler information the file exists, but its counters stay 0. */
	return !read_of_task(root, pid, "schedstat", text, sizeof(text)) &&
	       !proc_schedstat_parse(text, &stat) && stat.exec_ns;
}

static bool has_syscall(const char *root, pid_t pid)
{
	struct proc_syscall call = {0};
	char text[256];

	for (int i = 0; i < TRIES && !call.in_call; i++) {
		if (read_of_task(root, pid, "syscall", text, sizeof(text)) || proc_syscall_parse(text, &call))
			return false;
		if (!call.in_call)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return call.in_call;
}

static bool has_wchan(const char *root, pid_t pid)
{
	char text[256];

	return !read_of_task(root, pid, "wchan", text, sizeof(text)) && text[0] && strcmp(text, "0") != 0;
}

static bool has_io(const char *root, pid_t pid)
{
	struct proc_io io;
	char text[512];

	return !read_of_task(root, pid, "io", text, sizeof(text)) && !proc_io_parse(text, &io);
}

static bool has_memory(pid_t pid)
{
	static const int there = 4711; /* has the same address in the child */
	int here = 0;
	struct iovec to = {&here, sizeof(here)}, from = {(void *)(uintptr_t)&there, sizeof(there)};

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof(here) && here == there;
}

int sampler_sources_find(const char *root, struct sampler_source sources[SAMPLER_SOURCES_MAX], size_t *ret_n)
{
	int ends[2];
	pid_t pid = child_make(ends);
	struct proc_stat stat;
	uint64_t pipes[4], cpu_ns;
	size_t n_pipes;
	int r;

	if (pid < 0)
		return pid;
	r = proc_stat_read(root, pid, &stat);
	if (r == 0) {
		const struct sampler_source found[] = {
		    {"cpu-clock", "exact CPU time of each process",
		     "whether other threads of the trainer are computing", !proc_cpu_ns(pid, &cpu_ns)},
		    {"syscall", "the system call in which a thread sleeps",
		     "the distinction between data waits and other waits, unless wchan is readable",
		     has_syscall(root, pid)},
		    {"schedstat", "exact CPU time and run queue of each thread",
		     "cpu_starved, and CPU times finer than 10 ms", has_schedstat(root, pid)},
		    {"wchan", "the kernel function in which a thread sleeps",
		     "nothing, as long as syscall is readable", has_wchan(root, pid)},
		    {"io", "exact read calls and bytes of each thread",
		     "steps, bytes read, and, without workers, the time when loading ends",
		     has_io(root, pid)},
		    {"fd", "the pipes that a process shares with its parent",
		     "the distinction between workers and helper processes, unless command lines show it",
		     !proc_pipes(root, pid, pipes, 4, &n_pipes)},
		    {"memory", "whether the trainer is in next() of a Python loader, and which pipe it polls",
		     "without workers, loading that reads no files (it counts as computing)",
		     has_memory(pid)},
		};

		memcpy(sources, found, sizeof(found));
		*ret_n = sizeof(found) / sizeof(found[0]);
	}
	close(ends[1]); /* the child's read returns, and the child exits */
	close(ends[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}
