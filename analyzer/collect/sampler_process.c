/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_process.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "sampler_place.h"
#include "sampler_thread.h"

#define THREADS_MAX    16  /* maximum number of sampled threads per process */
#define CANDIDATES_MAX 256 /* maximum number of threads whose counters are compared from scan to scan */
#define PIPES_MAX      1024
#define COMMAND_BYTES  1024
#define READS_NOTABLE  65536 /* bytes read between two scans from which a thread is worth sampling */

/* A thread that is not sampled yet. */
struct candidate {
	pid_t tid;
	uint64_t read_chars;
};

struct sampler_process {
	const char *root;
	pid_t pid, parent;
	uint64_t start_ticks;
	uint32_t flags; /* enum sample_process */
	bool is_first;  /* its parent is not part of the job */
	bool introduced;
	unsigned int n_scans;
	bool has_framework;
	struct sampler_place *place; /* NULL: the Python stack cannot be read, or not yet */
	bool place_denied;
	struct sampler_thread *threads[THREADS_MAX]; /* the first is the main thread */
	size_t n_threads;
	struct candidate *candidates; /* sorted by tid */
	size_t n_candidates;
};

/* Returns the process's relation to its parent. It is determined twice, because a process may be seen between
 * its fork and its execve. */
static uint32_t flags_find(const char *root, pid_t pid, pid_t parent)
{
	uint64_t own[PIPES_MAX], others[PIPES_MAX];
	char command[COMMAND_BYTES], parents_command[COMMAND_BYTES];
	size_t n_own, n_others;
	uint32_t flags = 0;

	if (!proc_cmdline_read(root, pid, command, sizeof(command)) && command[0]) {
		if (strstr(command, "multiprocessing.spawn") || strstr(command, "multiprocessing.forkserver"))
			flags |= SAMPLE_PROCESS_SPAWNED;
		if (!proc_cmdline_read(root, parent, parents_command, sizeof(parents_command)) &&
		    !strcmp(command, parents_command))
			flags |= SAMPLE_PROCESS_COPY;
	}
	if (proc_pipes(root, pid, own, PIPES_MAX, &n_own) ||
	    proc_pipes(root, parent, others, PIPES_MAX, &n_others))
		return flags | SAMPLE_PROCESS_HIDDEN;
	for (size_t i = 0, k = 0; i < n_own && k < n_others;) {
		if (own[i] == others[k])
			return flags | SAMPLE_PROCESS_SHARES_PIPE;
		if (own[i] < others[k])
			i++;
		else
			k++;
	}
	return flags;
}

int sampler_process_new(const char *root, pid_t pid, const struct sampler_process *parent,
			struct sampler_process **ret_process)
{
	struct sampler_process *process;
	struct proc_stat stat;
	int r = proc_stat_read(root, pid, &stat);

	if (r < 0)
		return r;
	if (stat.state == 'Z' || stat.state == 'X')
		return -ESRCH;
	process = calloc(1, sizeof(*process));
	if (!process)
		return -ENOMEM;
	*process = (struct sampler_process){.root = root,
					    .pid = pid,
					    .parent = parent ? parent->pid : stat.parent,
					    .start_ticks = stat.start_ticks};
	r = sampler_thread_open(root, pid, pid, clock_monotonic_ns(), &process->threads[0]);
	if (r < 0) {
		free(process);
		return r;
	}
	process->n_threads = 1;
	process->is_first = !parent;
	if (parent)
		process->flags = flags_find(root, pid, parent->pid);
	*ret_process = process;
	return 0;
}

void sampler_process_free(struct sampler_process *process)
{
	if (!process)
		return;
	for (size_t i = 0; i < process->n_threads; i++)
		sampler_thread_close(process->threads[i]);
	sampler_place_close(process->place);
	free(process->candidates);
	free(process);
}

pid_t sampler_process_pid(const struct sampler_process *process)
{
	return process->pid;
}

size_t sampler_process_n_threads(const struct sampler_process *process)
{
	return process->n_threads;
}

static bool is_worker(const struct sampler_process *process)
{
	return (process->flags & (SAMPLE_PROCESS_SHARES_PIPE | SAMPLE_PROCESS_HIDDEN)) &&
	       (process->flags & (SAMPLE_PROCESS_COPY | SAMPLE_PROCESS_SPAWNED));
}

static uint64_t start_boottime_ns(const struct sampler_process *process)
{
	return process->start_ticks * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void hand_on_name(const struct sampler_process *process, pid_t tid, uint64_t now_ns,
			 const struct collector_sink *sink)
{
	struct event event = {.start_ns = now_ns,
			      .end_ns = now_ns,
			      .tid = (uint32_t)tid,
			      .tgid = (uint32_t)process->pid,
			      .type = EVENT_ALIVE};
	struct proc_status status;
	char comm[64], folder[4200];

	snprintf(folder, sizeof(folder), "%s/%d/task", process->root, (int)process->pid);
	if (!proc_comm_read(folder, tid, comm, sizeof(comm)))
		snprintf(event.name.comm, sizeof(event.name.comm), "%.15s", comm);
	event.name.start_boottime_ns = start_boottime_ns(process);
	event.name.ns_tid = proc_status_read(folder, tid, &status) ? (uint32_t)tid : (uint32_t)status.ns_pid;
	event.name.parent_tgid = (uint32_t)process->parent;
	sink->event(sink->user, &event);
}

void sampler_process_introduce(struct sampler_process *process, uint64_t now_ns,
			       const struct collector_sink *sink)
{
	struct event event = {.start_ns = now_ns,
			      .end_ns = now_ns,
			      .tid = (uint32_t)process->pid,
			      .tgid = (uint32_t)process->pid,
			      .type = EVENT_SAMPLE_PROCESS};

	if (process->introduced)
		return;
	process->introduced = true;
	hand_on_name(process, process->pid, now_ns, sink);
	event.process.start_boottime_ns = start_boottime_ns(process);
	event.process.parent_tgid = (uint32_t)process->parent;
	event.process.flags = process->flags;
	proc_cpu_ns(process->pid, &event.process.exec_ns);
	sink->event(sink->user, &event);
}

static bool is_looked_at(const struct sampler_process *process, pid_t tid)
{
	for (size_t i = 0; i < process->n_threads; i++)
		if (sampler_thread_tid(process->threads[i]) == tid)
			return true;
	return false;
}

static uint64_t *read_chars_of(struct sampler_process *process, pid_t tid)
{
	size_t at = sorted_count(process->n_candidates, i, process->candidates[i].tid < tid);

	return at < process->n_candidates && process->candidates[at].tid == tid
		   ? &process->candidates[at].read_chars
		   : NULL;
}

/* Returns true if the thread waits at a pipe, or has read a lot since the last scan. */
static bool is_worth_it(struct sampler_process *process, pid_t tid, uint64_t *read_chars)
{
	_cleanup_(freep) char *text = NULL, *io_text = NULL;
	const uint64_t *before = read_chars_of(process, tid);
	struct proc_syscall call;
	struct proc_io io;
	char path[4200];
	uint32_t inode;

	*read_chars = before ? *before : 0;
	snprintf(path, sizeof(path), "%s/%d/task/%d/io", process->root, (int)process->pid, (int)tid);
	if (!proc_read_file(path, 512, &io_text, NULL) && !proc_io_parse(io_text, &io)) {
		*read_chars = io.read_chars;
		if (before && io.read_chars > *before + READS_NOTABLE)
			return true;
	}
	snprintf(path, sizeof(path), "%s/%d/task/%d/syscall", process->root, (int)process->pid, (int)tid);
	return !proc_read_file(path, 512, &text, NULL) && !proc_syscall_parse(text, &call) && call.in_call &&
	       sampler_wait(process->root, process->pid, &call, &inode) == PROC_WAIT_PIPE;
}

static int scan_threads(struct sampler_process *process, size_t space, uint64_t now_ns,
			const struct collector_sink *sink)
{
	_cleanup_(freep) pid_t *tids = NULL;
	struct candidate *candidates;
	size_t n = 0, n_candidates = 0;
	int r = proc_threads(process->root, process->pid, &tids, &n);

	if (r < 0)
		return r == -ENOMEM ? r : -ESRCH;
	candidates = calloc(CANDIDATES_MAX, sizeof(*candidates));
	if (!candidates)
		return -ENOMEM;
	for (size_t i = 0; i < n && n_candidates < CANDIDATES_MAX; i++) {
		uint64_t read_chars;

		if (is_looked_at(process, tids[i]))
			continue;
		if (is_worth_it(process, tids[i], &read_chars) && space && process->n_threads < THREADS_MAX &&
		    !sampler_thread_open(process->root, process->pid, tids[i], now_ns,
					 &process->threads[process->n_threads])) {
			process->n_threads++;
			space--;
			hand_on_name(process, tids[i], now_ns, sink);
			continue;
		}
		candidates[n_candidates++] = (struct candidate){tids[i], read_chars};
	}
	free(process->candidates);
	process->candidates = candidates;
	process->n_candidates = n_candidates;
	return 0;
}

/* Returns true if the name is that of a training library. */
static bool is_framework(const char *name)
{
	static const char *const begins[] = {"libtorch",      "libcuda.", "libcudart.",
					     "libtensorflow", "libjax",   "xla_"};

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return true;
	return false;
}

/* Returns 1, which ends the iteration, if the mapping is a framework's library. */
static int take_mapping(void *user, const struct proc_mapping *mapping)
{
	const char *slash = strrchr(mapping->path, '/');
	struct event *event = user;

	if (!mapping->executable || !slash || !is_framework(slash + 1))
		return 0;
	event->library.inode = mapping->inode;
	event->library.device = mapping->device;
	snprintf(event->library.name, sizeof(event->library.name), "%.15s", slash + 1);
	return 1;
}

static void find_framework(struct sampler_process *process, uint64_t now_ns,
			   const struct collector_sink *sink)
{
	struct event event = {.start_ns = now_ns,
			      .end_ns = now_ns,
			      .tid = (uint32_t)process->pid,
			      .tgid = (uint32_t)process->pid,
			      .type = EVENT_LIBRARY};

	process->has_framework = proc_mappings(process->root, process->pid, take_mapping, &event) == 1;
	if (process->has_framework)
		sink->event(sink->user, &event);
}

/* Opens the reader of the Python stack. May fail at first: many programs begin as a shell or a launcher, and
 * become Python with an exec. */
static void find_place(struct sampler_process *process)
{
	int r;

	if (process->place || process->place_denied)
		return;
	r = sampler_place_open(process->root, process->pid, &process->place);
	process->place_denied = r == -EPERM || r == -EACCES;
}

int sampler_process_scan(struct sampler_process *process, size_t space, uint64_t now_ns,
			 const struct collector_sink *sink)
{
	struct proc_stat stat;

	if (proc_stat_read(process->root, process->pid, &stat) || stat.start_ticks != process->start_ticks ||
	    stat.state == 'Z' || stat.state == 'X')
		return -ESRCH;
	if (process->n_scans++ == 1 && !process->is_first) {
		uint32_t flags = flags_find(process->root, process->pid, process->parent);

		if (flags != process->flags) {
			process->flags = flags;
			process->introduced = false;
		}
	}
	if (is_worker(process))
		return 0;
	/* Searches at ever longer intervals, because reading all mappings is expensive. */
	if ((process->n_scans & (process->n_scans - 1)) == 0) {
		if (!process->has_framework)
			find_framework(process, now_ns, sink);
		find_place(process);
	}
	if (stat.n_threads <= 1)
		return 0;
	return scan_threads(process, space, now_ns, sink);
}

int sampler_process_sample(struct sampler_process *process, uint64_t now_ns,
			   const struct collector_sink *sink)
{
	if (sampler_thread_sample(process->threads[0], process->place, now_ns, sink))
		return -ESRCH;
	for (size_t i = 1; i < process->n_threads;) {
		if (!sampler_thread_sample(process->threads[i], NULL, now_ns, sink)) {
			i++;
			continue;
		}
		sampler_thread_close(process->threads[i]);
		process->threads[i] = process->threads[--process->n_threads];
	}
	return 0;
}

void sampler_process_end(struct sampler_process *process, uint16_t type, uint64_t now_ns,
			 const struct collector_sink *sink)
{
	struct event event = {.start_ns = now_ns,
			      .end_ns = now_ns,
			      .tid = (uint32_t)process->pid,
			      .tgid = (uint32_t)process->pid,
			      .type = type};

	for (size_t i = 0; i < process->n_threads; i++)
		sampler_thread_flush(process->threads[i], sink);
	event.exit.exec_ns = sampler_thread_exec_ns(process->threads[0]);
	event.exit.queue_ns = sampler_thread_queue_ns(process->threads[0]);
	sink->event(sink->user, &event);
}
