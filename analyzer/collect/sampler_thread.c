/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc.h"
#include "sampler_place.h"

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

int sampler_thread_open(const char *root, pid_t tgid, pid_t tid, uint64_t now_ns,
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

void sampler_thread_close(struct sampler_thread *thread)
{
	if (!thread)
		return;
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

void sampler_thread_flush(struct sampler_thread *thread, const struct collector_sink *sink)
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

int sampler_thread_sample(struct sampler_thread *thread, struct sampler_place *place, uint64_t now_ns,
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
			sampler_thread_flush(thread, sink);
		return 0;
	}
	sampler_thread_flush(thread, sink);
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
	sampler_thread_flush(thread, sink);
	return r == -ENOMEM ? r : -ESRCH;
}

pid_t sampler_thread_tid(const struct sampler_thread *thread)
{
	return thread->tid;
}

uint64_t sampler_thread_exec_ns(const struct sampler_thread *thread)
{
	return thread->known & SAMPLE_KNOWN_PROCESS ? thread->last.process_ns : thread->last.exec_ns;
}

uint64_t sampler_thread_queue_ns(const struct sampler_thread *thread)
{
	return thread->last.queue_ns;
}
