/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/source.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "bpf/collector.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/launch.h"
#include "lib/proc.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "sampler_place.h"
#include "sampler_wait.h"

/*
 * The sampler replaces the collector of bpf/collector.h without privilege, less exactly. It reads /proc many
 * times per second, and emits EVENT_SAMPLE and EVENT_SAMPLE_PROCESS (bpf/event.h), in addition to EVENT_ALIVE
 * and EVENT_EXIT for processes. Time on the CPU and in the run queue is exact; the reason why a thread sleeps
 * is sampled.
 *
 * The order of calls and the contracts are the collector's. The job is never stopped or changed. The sampler
 * limits its own cost to SAMPLER_COST_MAX of one CPU by sampling less often.
 */

#define SAMPLER_COST_MAX 0.02

/*
 * One thread that is sampled repeatedly. Its files of /proc stay open: they show this thread, and never a
 * later one with the same ID. A thread that slept at the last sample and has not run since is still in that
 * sleep. Its counters suffice to show this, and such samples are emitted as one event.
 */

#define TEXT_BYTES   1024
#define HOLD_NS      NS_PER_S /* a longer sleep becomes several events */
#define HOLD_SAMPLES UINT8_MAX

struct thread_counters {
	uint64_t exec_ns, queue_ns, process_ns;
	uint64_t n_slices; /* 0: not known */
	struct proc_io io;
};

struct sampler_thread {
	const char *root;
	pid_t tgid, tid;
	int schedstat_fd, syscall_fd, io_fd, stat_fd, wchan_fd;
	bool looked; /* the counters were read at least once */
	struct thread_counters last;
	uint64_t last_ns;
	char state;
	uint8_t wait;  /* enum proc_wait */
	uint8_t place; /* enum sample_place */
	uint32_t inode;
	uint16_t known;
	/* merged samples of one sleep, not passed on yet; other threads of the process may run in this
	 * time */
	struct thread_counters held;
	uint64_t held_ns;
	unsigned int n_held;
};

static int open_file(const char *root, pid_t tgid, pid_t tid, const char *name)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/%d/task/%d/%s", root, (int)tgid, (int)tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Reads the text from its start, which makes the kernel generate it again. */
static int read_text(int fd, char text[TEXT_BYTES])
{
	ssize_t n;

	if (fd < 0)
		return fd;
	n = pread(fd, text, TEXT_BYTES - 1, 0);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	return 0;
}

/* Opens the thread's files. root is borrowed. -ESRCH, -ENOENT: the thread has ended; -EACCES: none of the
 * files is readable. */
static int thread_open(const char *root, pid_t tgid, pid_t tid, uint64_t now_ns,
		       struct sampler_thread **ret_thread)
{
	struct sampler_thread *thread;
	char text[TEXT_BYTES];
	int stat_fd = open_file(root, tgid, tid, "stat");

	if (stat_fd < 0)
		return stat_fd;
	thread = calloc(1, sizeof(*thread));
	if (!thread) {
		close(stat_fd);
		return -ENOMEM;
	}
	*thread = (struct sampler_thread){
	    .root = root, .tgid = tgid, .tid = tid, .stat_fd = stat_fd, .last_ns = now_ns, .state = 'R'};
	thread->schedstat_fd = open_file(root, tgid, tid, "schedstat");
	thread->syscall_fd = open_file(root, tgid, tid, "syscall");
	thread->io_fd = open_file(root, tgid, tid, "io");
	thread->wchan_fd = -ENOENT;
	if (thread->schedstat_fd >= 0 && !read_text(thread->schedstat_fd, text))
		thread->known |= SAMPLE_KNOWN_SCHEDSTAT;
	if (thread->io_fd >= 0 && !read_text(thread->io_fd, text))
		thread->known |= SAMPLE_KNOWN_IO;
	if (thread->syscall_fd >= 0 && !read_text(thread->syscall_fd, text))
		thread->known |= SAMPLE_KNOWN_SYSCALL;
	else
		thread->wchan_fd = open_file(root, tgid, tid, "wchan");
	/* Descriptors are scarce in a job of many threads: stat is needed only if other files cannot be
	 * read. */
	if ((thread->known & SAMPLE_KNOWN_SCHEDSTAT) && (thread->known & SAMPLE_KNOWN_SYSCALL)) {
		close(thread->stat_fd);
		thread->stat_fd = -ENOENT;
	}
	*ret_thread = thread;
	return 0;
}

static void thread_close(struct sampler_thread *thread)
{
	closep(&thread->schedstat_fd);
	closep(&thread->syscall_fd);
	closep(&thread->io_fd);
	closep(&thread->stat_fd);
	closep(&thread->wchan_fd);
	free(thread);
}

static uint64_t ticks_ns(uint64_t ticks)
{
	return ticks * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Reads the counters that show whether the thread has run since the last sample. */
static int read_counters(struct sampler_thread *thread, struct thread_counters *counters,
			 struct proc_stat *stat)
{
	char text[TEXT_BYTES];
	struct proc_schedstat schedstat;
	int r;

	*stat = (struct proc_stat){0};
	*counters = thread->last;
	if (thread->tid == thread->tgid) {
		r = proc_cpu_ns(thread->tgid, &counters->process_ns);
		if (r == -ESRCH)
			return r;
		thread->known |= r < 0 ? 0 : SAMPLE_KNOWN_PROCESS;
	}
	if (thread->stat_fd >= 0) {
		r = read_text(thread->stat_fd, text);
		if (r == 0)
			r = proc_stat_parse(text, stat);
		if (r < 0)
			return r;
		if (!(thread->known & SAMPLE_KNOWN_SCHEDSTAT))
			counters->exec_ns = ticks_ns(stat->user_ticks + stat->system_ticks);
	}
	if (thread->known & SAMPLE_KNOWN_SCHEDSTAT) {
		r = read_text(thread->schedstat_fd, text);
		if (r == 0)
			r = proc_schedstat_parse(text, &schedstat);
		if (r < 0)
			return r;
		counters->exec_ns = schedstat.exec_ns;
		counters->queue_ns = schedstat.queue_ns;
		counters->n_slices = schedstat.n_slices;
	}
	return 0;
}

static uint32_t cut(uint64_t before, uint64_t after, uint16_t *known)
{
	uint64_t difference = after > before ? after - before : 0;

	if (difference > UINT32_MAX)
		*known |= SAMPLE_CUT;
	return difference > UINT32_MAX ? UINT32_MAX : (uint32_t)difference;
}

static void hand_on(struct sampler_thread *thread, uint64_t end_ns, const struct thread_counters *now,
		    unsigned int n, const struct collector_sink *sink)
{
	const struct thread_counters *before = &thread->last;
	uint64_t n_reads = now->io.n_reads - before->io.n_reads;
	uint16_t known = thread->known;
	struct event event = {.start_ns = thread->last_ns,
			      .end_ns = end_ns,
			      .tid = (uint32_t)thread->tid,
			      .tgid = (uint32_t)thread->tgid,
			      .type = EVENT_SAMPLE};

	event.sample.exec_ns = cut(before->exec_ns, now->exec_ns, &known);
	event.sample.queue_ns = cut(before->queue_ns, now->queue_ns, &known);
	event.sample.process_ns = cut(before->process_ns, now->process_ns, &known);
	event.sample.read_bytes = cut(before->io.read_chars, now->io.read_chars, &known);
	event.sample.written_bytes = cut(before->io.written_chars, now->io.written_chars, &known);
	event.sample.n_reads = n_reads > UINT16_MAX ? UINT16_MAX : (uint16_t)n_reads;
	event.sample.inode = thread->inode;
	event.sample.known = known;
	event.sample.state = (uint8_t)thread->state;
	event.sample.wait = thread->wait;
	event.sample.n = (uint8_t)n;
	event.sample.place = thread->place;
	sink->event(sink->user, &event);
	thread->last = *now;
	thread->last_ns = end_ns;
}

/* Passes the samples that were held back to the sink. */
static void thread_flush(struct sampler_thread *thread, const struct collector_sink *sink)
{
	if (!thread->n_held)
		return;
	hand_on(thread, thread->held_ns, &thread->held, thread->n_held, sink);
	thread->n_held = 0;
}

/* Replaces syscall by stat and wchan. Files become unreadable when a program changes its credentials, or when
 * the process runs a program that its user may not read. */
static void lose_syscall(struct sampler_thread *thread)
{
	thread->known &= (uint16_t)~SAMPLE_KNOWN_SYSCALL;
	if (thread->stat_fd < 0)
		thread->stat_fd = open_file(thread->root, thread->tgid, thread->tid, "stat");
	if (thread->wchan_fd < 0)
		thread->wchan_fd = open_file(thread->root, thread->tgid, thread->tid, "wchan");
}

/* Reads the thread's present state, wait and inode. */
static int read_state(struct sampler_thread *thread, const struct proc_stat *stat)
{
	char text[TEXT_BYTES];
	struct proc_syscall call;
	int r;

	thread->state = stat->state ? stat->state : 'R';
	thread->wait = PROC_WAIT_NONE;
	thread->inode = 0;
	if (thread->known & SAMPLE_KNOWN_SYSCALL) {
		r = read_text(thread->syscall_fd, text);
		if (r == 0)
			r = proc_syscall_parse(text, &call);
		if (r == -EPERM || r == -EACCES || r == -EBADMSG) {
			lose_syscall(thread); /* affects the samples after this one */
			thread->wait = stat->state == 'R' ? PROC_WAIT_NONE : PROC_WAIT_UNKNOWN;
			thread->state = stat->state ? stat->state : 'S';
			return 0;
		}
		if (r < 0 || call.ended)
			return r < 0 ? r : -ESRCH;
		if (call.running)
			return 0;
		if (!stat->state)
			thread->state = 'S';
		thread->wait = (uint8_t)sampler_wait(thread->root, thread->tgid, &call, &thread->inode);
		return 0;
	}
	if (thread->state == 'Z' || thread->state == 'X')
		return -ESRCH;
	if (thread->state != 'S' && thread->state != 'D')
		return 0;
	if (thread->wchan_fd < 0 || read_text(thread->wchan_fd, text))
		text[0] = '\0';
	if (text[0] && strcmp(text, "0") != 0)
		thread->known |= SAMPLE_KNOWN_WCHAN;
	thread->wait = (uint8_t)proc_wchan_wait(text, thread->state == 'D');
	return 0;
}

/* Returns true if the thread is still in the same sleep: it was asleep, and has used no CPU time or time
 * slice since. */
static bool slept_on(const struct sampler_thread *thread, const struct thread_counters *now)
{
	bool process_alone = thread->tid == thread->tgid && (thread->known & SAMPLE_KNOWN_PROCESS);

	if (!thread->looked || thread->wait == PROC_WAIT_NONE)
		return false;
	if (thread->known & SAMPLE_KNOWN_SCHEDSTAT)
		return now->n_slices == thread->last.n_slices && now->exec_ns == thread->last.exec_ns;
	return process_alone && now->process_ns == thread->last.process_ns;
}

static int read_io(struct sampler_thread *thread, struct proc_io *io)
{
	char text[TEXT_BYTES];
	int r;

	if (!(thread->known & SAMPLE_KNOWN_IO))
		return 0;
	r = read_text(thread->io_fd, text);
	if (r == 0)
		r = proc_io_parse(text, io);
	if (r != -EACCES && r != -EPERM)
		return r;
	thread->known &= (uint16_t)~SAMPLE_KNOWN_IO;
	return 0;
}

/* Samples the thread once. place: the place reader of its process, for the main thread; NULL: none.
 * -ESRCH: the thread has ended; samples that were held back are emitted. */
static int thread_sample(struct sampler_thread *thread, struct sampler_place *place, uint64_t now_ns,
			 const struct collector_sink *sink)
{
	struct proc_stat stat;
	struct thread_counters now;
	uint64_t process_ns;
	int r;

	/* The cheapest test comes first: a process that used no CPU time is still asleep. */
	if (thread->looked && thread->wait != PROC_WAIT_NONE && (thread->known & SAMPLE_KNOWN_PROCESS) &&
	    !proc_cpu_ns(thread->tgid, &process_ns) &&
	    process_ns == (thread->n_held ? thread->held : thread->last).process_ns)
		now = thread->n_held ? thread->held : thread->last;
	else if ((r = read_counters(thread, &now, &stat)))
		goto ended;
	if (slept_on(thread, &now)) {
		thread->held = now;
		thread->held_ns = now_ns;
		if (++thread->n_held == HOLD_SAMPLES || now_ns - thread->last_ns >= HOLD_NS)
			thread_flush(thread, sink);
		return 0;
	}
	thread_flush(thread, sink);
	thread->place = place ? (uint8_t)sampler_place_sample(place, now_ns) : SAMPLE_PLACE_UNKNOWN;
	r = read_state(thread, &stat);
	if (r == 0)
		r = read_io(thread, &now.io);
	if (r < 0)
		goto ended;
	if (thread->looked) {
		hand_on(thread, now_ns, &now, 1, sink);
	} else {
		thread->looked = true;
		thread->last = now;
		thread->last_ns = now_ns;
	}
	return 0;
ended:
	thread_flush(thread, sink);
	return r == -ENOMEM ? r : -ESRCH;
}

/* Returns the total over the thread's life, as far as known; for a main thread, that of its process. */
static uint64_t thread_exec_ns(const struct sampler_thread *thread)
{
	return thread->known & SAMPLE_KNOWN_PROCESS ? thread->last.process_ns : thread->last.exec_ns;
}

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

/* parent: NULL for the first one; used during the call only. -ESRCH, -ENOENT: the process ended. */
static int process_new(const char *root, pid_t pid, const struct sampler_process *parent,
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
	r = thread_open(root, pid, pid, clock_monotonic_ns(), &process->threads[0]);
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

static void process_free(struct sampler_process *process)
{
	for (size_t i = 0; i < process->n_threads; i++)
		thread_close(process->threads[i]);
	sampler_place_close(process->place);
	free(process->candidates);
	free(process);
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

/* Emits EVENT_ALIVE and EVENT_SAMPLE_PROCESS if their contents are new or changed. */
static void process_introduce(struct sampler_process *process, uint64_t now_ns,
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
		if (process->threads[i]->tid == tid)
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
		    !thread_open(process->root, process->pid, tids[i], now_ns,
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

/* Searches for threads worth sampling, and adds at most `space` of them. -ESRCH: the process ended, or
 * another process has its PID. */
static int process_scan(struct sampler_process *process, size_t space, uint64_t now_ns,
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

/* Samples the process's threads once. -ESRCH: the process ended. */
static int process_sample(struct sampler_process *process, uint64_t now_ns, const struct collector_sink *sink)
{
	if (thread_sample(process->threads[0], process->place, now_ns, sink))
		return -ESRCH;
	for (size_t i = 1; i < process->n_threads;) {
		if (!thread_sample(process->threads[i], NULL, now_ns, sink)) {
			i++;
			continue;
		}
		thread_close(process->threads[i]);
		process->threads[i] = process->threads[--process->n_threads];
	}
	return 0;
}

/* Passes the samples that were held back to the sink, followed by an EVENT_EXIT or EVENT_TOTALS (`type`). */
static void process_end(struct sampler_process *process, uint16_t type, uint64_t now_ns,
			const struct collector_sink *sink)
{
	struct event event = {.start_ns = now_ns,
			      .end_ns = now_ns,
			      .tid = (uint32_t)process->pid,
			      .tgid = (uint32_t)process->pid,
			      .type = type};

	for (size_t i = 0; i < process->n_threads; i++)
		thread_flush(process->threads[i], sink);
	event.exit.exec_ns = thread_exec_ns(process->threads[0]);
	event.exit.queue_ns = process->threads[0]->last.queue_ns;
	sink->event(sink->user, &event);
}

/*
 * The processes of a sampled job. They are found through /proc, and forgotten when they end; the start time
 * distinguishes a process from a later one with the same PID. The main thread of each process is sampled
 * every time. In processes that are not workers, threads that read files or wait at pipes are sampled, too.
 *
 * Bounded: processes beyond SAMPLER_PROCESSES_MAX at once and threads beyond SAMPLER_THREADS_MAX are not
 * sampled, but counted as left out.
 */

#define SAMPLER_PROCESSES_MAX 256
#define SAMPLER_THREADS_MAX   128 /* three descriptors each: 1,024 is the usual limit */

/* 200 samples per second while they are cheap; 20 still distinguish a step of half a second from a wait. */
#define INTERVAL_MIN_NS    (5 * NS_PER_MS)
#define INTERVAL_MAX_NS    (50 * NS_PER_MS)
#define INTERVAL_SELDOM_NS (200 * NS_PER_MS)
#define ADAPT_EVERY_NS     (500 * NS_PER_MS)
#define COST_TARGET        (SAMPLER_COST_MAX * 0.8)

/* Most processes start with the job, and a search for them is expensive in a job with many threads. */
#define SCAN_MIN_NS     (100 * NS_PER_MS)
#define SCAN_COST_RATIO 200

struct sampler {
	const char *root;
	struct sampler_process *processes[SAMPLER_PROCESSES_MAX];
	size_t n, n_threads;
	uint64_t n_left_out;
	bool no_children;
	bool knows_children; /* the kernel has /proc/PID/task/TID/children */
	int timer_fd;
	bool seldom;
	uint64_t interval_ns, next_scan_ns;
	uint64_t adapt_ns, adapt_cpu_ns;
	uint64_t start_ns, start_cpu_ns;
	uint64_t events[COLLECTOR_EVENT_TYPES];
	uint32_t random;
	const struct collector_sink *sink; /* sink of the poll in progress */
};

static struct sampler_process *find(const struct sampler *sampler, pid_t pid)
{
	for (size_t i = 0; i < sampler->n; i++)
		if (sampler->processes[i]->pid == pid)
			return sampler->processes[i];
	return NULL;
}

/* Adds a process. Returns 0 also if it is known already, has ended, or exceeds the limit. */
static int add(struct sampler *sampler, pid_t pid, const struct sampler_process *parent)
{
	struct sampler_process *process;
	int r;

	if (find(sampler, pid))
		return 0;
	if (sampler->n == SAMPLER_PROCESSES_MAX || sampler->n_threads == SAMPLER_THREADS_MAX) {
		sampler->n_left_out++;
		return 0;
	}
	r = process_new(sampler->root, pid, parent, &process);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return parent ? 0 : r;
	sampler->processes[sampler->n++] = process;
	sampler->n_threads++;
	return 0;
}

/* For kernels that do not list children: adds processes whose parent is known. Processes are visited by PID,
 * and most children have a higher PID than their parents; the others are found at the next scan. */
static int add_by_parent(struct sampler *sampler, pid_t own)
{
	_cleanup_(freep) pid_t *pids = NULL;
	size_t n = 0;
	int r = proc_processes(sampler->root, &pids, &n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct sampler_process *parent;
		struct proc_stat stat;

		if (pids[i] == own || find(sampler, pids[i]) || proc_stat_read(sampler->root, pids[i], &stat))
			continue;
		parent = find(sampler, stat.parent);
		if (parent)
			r = add(sampler, pids[i], parent);
	}
	return r;
}

static int add_children(struct sampler *sampler, pid_t own)
{
	/* The list grows in this loop, so children of children are found in the same pass. */
	for (size_t i = 0; i < sampler->n; i++) {
		_cleanup_(freep) pid_t *pids = NULL;
		size_t n = 0;
		int r = proc_children(sampler->root, sampler->processes[i]->pid, &pids, &n);

		if (r == -ENOMEM)
			return r;
		for (size_t k = 0; r == 0 && k < n; k++)
			if (pids[k] != own && (r = add(sampler, pids[k], sampler->processes[i])))
				return r;
	}
	return 0;
}

static void drop(struct sampler *sampler, size_t i, uint64_t now_ns, const struct collector_sink *sink)
{
	struct sampler_process *process = sampler->processes[i];

	sampler->n_threads -= process->n_threads;
	process_end(process, EVENT_EXIT, now_ns, sink);
	process_free(process);
	sampler->processes[i] = sampler->processes[--sampler->n];
}

/* Searches for new processes, and for threads worth sampling. own: a process that is not part of the job. */
static int scan(struct sampler *sampler, pid_t own, uint64_t now_ns, const struct collector_sink *sink)
{
	int r;

	for (size_t i = 0; i < sampler->n;) {
		size_t space = SAMPLER_THREADS_MAX - sampler->n_threads, before;

		before = sampler->processes[i]->n_threads;
		r = process_scan(sampler->processes[i], space, now_ns, sink);
		sampler->n_threads += sampler->processes[i]->n_threads - before;
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			drop(sampler, i, now_ns, sink);
		else
			i++;
	}
	r = sampler->no_children      ? 0
	    : sampler->knows_children ? add_children(sampler, own)
				      : add_by_parent(sampler, own);
	for (size_t i = 0; i < sampler->n; i++)
		process_introduce(sampler->processes[i], now_ns, sink);
	return r;
}

/* Samples every thread once. Reports processes that ended to the sink, and removes them. */
static void sample(struct sampler *sampler, uint64_t now_ns, const struct collector_sink *sink)
{
	for (size_t i = 0; i < sampler->n;) {
		size_t before = sampler->processes[i]->n_threads;
		int r = process_sample(sampler->processes[i], now_ns, sink);

		sampler->n_threads -= before - sampler->processes[i]->n_threads;
		if (r < 0)
			drop(sampler, i, now_ns, sink);
		else
			i++;
	}
}

/* Sets the timer for the next sample. The interval varies, because a fixed one can beat with the job's
 * steps. */
static void arm(struct sampler *sampler)
{
	uint64_t ns;
	struct itimerspec when = {0};

	sampler->random = sampler->random * 1664525 + 1013904223; /* Numerical Recipes' generator */
	ns = sampler->seldom ? INTERVAL_SELDOM_NS : sampler->interval_ns;
	ns = ns / 2 + ns * (sampler->random >> 16) / 65536;
	when.it_value.tv_sec = (time_t)(ns / NS_PER_S);
	when.it_value.tv_nsec = (long)(ns % NS_PER_S);
	timerfd_settime(sampler->timer_fd, 0, &when, NULL);
}

static void sampler_close(struct sampler *sampler)
{
	if (!sampler)
		return;
	closep(&sampler->timer_fd);
	for (size_t i = 0; i < sampler->n; i++)
		process_free(sampler->processes[i]);
	free(sampler);
}

/* -ENOENT: root is not a /proc. */
static int sampler_open(const char *root, bool no_children, struct sampler **ret_sampler, struct error *err)
{
	struct sampler *sampler;
	char path[4200];
	int r;

	snprintf(path, sizeof(path), "%s/self/stat", root);
	if (access(path, R_OK))
		return error_errno(err, -errno, "cannot sample any job, because %s cannot be read", path);
	sampler = calloc(1, sizeof(*sampler));
	if (!sampler)
		return error_set(err, -ENOMEM, "not enough memory to start recording");
	sampler->root = root;
	sampler->no_children = no_children;
	snprintf(path, sizeof(path), "%s/thread-self/children", root);
	sampler->knows_children = access(path, R_OK) == 0;
	sampler->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (sampler->timer_fd < 0) {
		r = -errno;
		sampler_close(sampler);
		return error_errno(err, r, "cannot open /proc");
	}
	sampler->start_ns = sampler->adapt_ns = clock_monotonic_ns();
	sampler->start_cpu_ns = sampler->adapt_cpu_ns = clock_process_ns();
	sampler->interval_ns = INTERVAL_MIN_NS;
	sampler->random = (uint32_t)sampler->start_ns;
	*ret_sampler = sampler;
	return 0;
}

static int attach(void *user, pid_t tgid, struct error *err)
{
	struct sampler *sampler = user;
	int r;

	if (tgid == getpid())
		return error_set(err, -EINVAL, "process %d is diesel-analyze itself", (int)tgid);
	r = add(sampler, tgid, NULL);
	if (r == -ESRCH || r == -ENOENT)
		return error_set(err, -ESRCH, "there is no process %d that this user can see", (int)tgid);
	if (r < 0)
		return error_errno(err, r, "cannot observe process %d", (int)tgid);
	arm(sampler);
	return 0;
}

/* Passes an event to the caller's sink, and counts it. */
static void pass_on(void *user, const struct event *event)
{
	struct sampler *sampler = user;

	sampler->events[event->type]++;
	sampler->sink->event(sampler->sink->user, event);
}

static uint64_t n_events(const struct sampler *sampler)
{
	uint64_t n = 0;

	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++)
		n += sampler->events[i];
	return n;
}

/* Samples less often if the cost is too high, more often if it is low enough. */
static void adapt(struct sampler *sampler, uint64_t now_ns)
{
	uint64_t cpu_ns = clock_process_ns();
	double cost = (double)(cpu_ns - sampler->adapt_cpu_ns) / (double)(now_ns - sampler->adapt_ns);

	if (cost > COST_TARGET)
		sampler->interval_ns =
		    (uint64_t)((double)sampler->interval_ns * (cost > 2 * COST_TARGET ? 2 : 1.25));
	else if (cost < COST_TARGET / 2)
		sampler->interval_ns = (uint64_t)((double)sampler->interval_ns * 0.8);
	if (sampler->interval_ns < INTERVAL_MIN_NS)
		sampler->interval_ns = INTERVAL_MIN_NS;
	if (sampler->interval_ns > INTERVAL_MAX_NS)
		sampler->interval_ns = INTERVAL_MAX_NS;
	sampler->adapt_ns = now_ns;
	sampler->adapt_cpu_ns = cpu_ns;
}

/* Takes the samples that are due. Returns the number of events, or -errno. */
static int sampler_poll(struct sampler *sampler, const struct collector_sink *sink)
{
	struct collector_sink counting = {pass_on, sink->metadata, sampler};
	uint64_t before = n_events(sampler), expirations, now_ns = clock_monotonic_ns();
	int r = 0;

	if (read(sampler->timer_fd, &expirations, sizeof(expirations)) != sizeof(expirations))
		return 0;
	sampler->sink = sink;
	if (now_ns >= sampler->next_scan_ns) {
		uint64_t cpu_ns = clock_process_ns();

		r = scan(sampler, getpid(), now_ns, &counting);
		cpu_ns = clock_process_ns() - cpu_ns;
		sampler->next_scan_ns =
		    now_ns +
		    (cpu_ns * SCAN_COST_RATIO > SCAN_MIN_NS ? cpu_ns * SCAN_COST_RATIO : SCAN_MIN_NS);
	}
	sample(sampler, clock_monotonic_ns(), &counting);
	if (now_ns - sampler->adapt_ns >= ADAPT_EVERY_NS)
		adapt(sampler, now_ns);
	arm(sampler);
	sampler->sink = NULL;
	return r < 0 ? r : (int)(n_events(sampler) - before);
}

static int sampler_stop(struct sampler *sampler, const struct collector_sink *sink)
{
	struct collector_sink counting = {pass_on, sink->metadata, sampler};

	sampler->sink = sink;
	sample(sampler, clock_monotonic_ns(), &counting);
	for (size_t i = 0; i < sampler->n; i++)
		process_end(sampler->processes[i], EVENT_TOTALS, clock_monotonic_ns(), &counting);
	sampler->sink = NULL;
	return 0;
}

static void sampler_stats_get(struct sampler *sampler, struct collector_stats *ret_stats)
{
	struct collector_stats stats = {
	    .storage_failures = sampler->n_left_out,
	    .own_cpu_ns = clock_process_ns() - sampler->start_cpu_ns,
	    .elapsed_ns = clock_monotonic_ns() - sampler->start_ns,
	    .clock_start = sampler->start_ns,
	};

	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++)
		stats.events[i] = sampler->events[i];
	*ret_stats = stats;
}

/* Exactly one of the two is set. */
struct source {
	struct collector *collector;
	struct sampler *sampler;
};

int source_open(enum source_choice choice, const struct collector_options *options,
		struct source **ret_source, struct error *err)
{
	struct source *source = calloc(1, sizeof(*source));
	int r;

	if (!source)
		return error_set(err, -ENOMEM, "not enough memory to start recording");
	if (choice == SOURCE_COLLECTOR)
		r = collector_open(options, &source->collector, err);
	else
		r = sampler_open(options->proc_path ? options->proc_path : "/proc", options->no_children,
				 &source->sampler, err);
	if (r < 0)
		free(source);
	else
		*ret_source = source;
	return r;
}

bool source_is_sampled(const struct source *source)
{
	return source->sampler != NULL;
}

int source_launch(struct source *source, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		  struct error *err)
{
	return source->sampler ? launch_watched(argv, signals, attach, source->sampler, ret_pid, err)
			       : collector_launch(source->collector, argv, signals, ret_pid, err);
}

int source_attach(struct source *source, pid_t tgid, struct error *err)
{
	return source->sampler ? attach(source->sampler, tgid, err)
			       : collector_attach(source->collector, tgid, err);
}

bool source_has(const struct source *source, pid_t tgid)
{
	return source->sampler ? find(source->sampler, tgid) != NULL : collector_has(source->collector, tgid);
}

int source_poll(struct source *source, int timeout_ms, const struct collector_sink *sink)
{
	return source->sampler ? sampler_poll(source->sampler, sink)
			       : collector_poll(source->collector, timeout_ms, sink);
}

int source_fd(const struct source *source)
{
	return source->sampler ? source->sampler->timer_fd : collector_fd(source->collector);
}

uint64_t source_detail(struct source *source, bool on)
{
	if (!source->sampler)
		return collector_detail(source->collector, on);
	source->sampler->seldom = !on;
	return clock_monotonic_ns();
}

uint64_t source_alive(const struct source *source)
{
	return source->sampler ? source->sampler->n : collector_alive(source->collector);
}

int source_stop(struct source *source, const struct collector_sink *sink, struct error *err)
{
	return source->sampler ? sampler_stop(source->sampler, sink)
			       : collector_stop(source->collector, sink, err);
}

void source_stats_get(struct source *source, struct collector_stats *ret_stats)
{
	if (source->sampler)
		sampler_stats_get(source->sampler, ret_stats);
	else
		collector_stats_get(source->collector, ret_stats);
}

void source_close(struct source *source)
{
	if (!source)
		return;
	collector_close(source->collector);
	sampler_close(source->sampler);
	free(source);
}
