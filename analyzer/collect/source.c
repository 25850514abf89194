/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/source.h"

#include <errno.h>
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
#include "sampler_process.h"

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
 * The processes of a sampled job. They are found through /proc, and forgotten when they end; the start time
 * distinguishes a process from a later one with the same PID. The main thread of each process is sampled
 * every time. In processes that are not workers, threads that read files or wait at pipes are sampled, too.
 *
 * Bounded: processes beyond SAMPLER_PROCESSES_MAX at once and threads beyond SAMPLER_THREADS_MAX are not
 * sampled, but counted as left out.
 */

#define SAMPLER_PROCESSES_MAX 256
#define SAMPLER_THREADS_MAX   128 /* three descriptors each: 1,024 is the usual limit */

struct sampler_job {
	const char *root;
	struct sampler_process *processes[SAMPLER_PROCESSES_MAX];
	size_t n, n_threads;
	uint64_t n_left_out;
	bool no_children;
	bool knows_children; /* the kernel has /proc/PID/task/TID/children */
};

static int sampler_job_new(const char *root, bool no_children, struct sampler_job **ret_job)
{
	struct sampler_job *job = calloc(1, sizeof(*job));
	char path[4200];

	if (!job)
		return -ENOMEM;
	job->root = root;
	job->no_children = no_children;
	snprintf(path, sizeof(path), "%s/thread-self/children", root);
	job->knows_children = access(path, R_OK) == 0;
	*ret_job = job;
	return 0;
}

/* NULL is fine. */
static void sampler_job_free(struct sampler_job *job)
{
	if (!job)
		return;
	for (size_t i = 0; i < job->n; i++)
		sampler_process_free(job->processes[i]);
	free(job);
}

static struct sampler_process *find(const struct sampler_job *job, pid_t pid)
{
	for (size_t i = 0; i < job->n; i++)
		if (sampler_process_pid(job->processes[i]) == pid)
			return job->processes[i];
	return NULL;
}

/* Adds a process. Returns 0 also if it is known already, has ended, or exceeds the limit. */
static int add(struct sampler_job *job, pid_t pid, const struct sampler_process *parent)
{
	struct sampler_process *process;
	int r;

	if (find(job, pid))
		return 0;
	if (job->n == SAMPLER_PROCESSES_MAX || job->n_threads == SAMPLER_THREADS_MAX) {
		job->n_left_out++;
		return 0;
	}
	r = sampler_process_new(job->root, pid, parent, &process);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return parent ? 0 : r;
	job->processes[job->n++] = process;
	job->n_threads++;
	return 0;
}

/* Adds a root process. -ESRCH: no process has that ID. */
static int sampler_job_add(struct sampler_job *job, pid_t tgid)
{
	return add(job, tgid, NULL);
}

/* For kernels that do not list children: adds processes whose parent is known. Processes are visited by PID,
 * and most children have a higher PID than their parents; the others are found at the next scan. */
static int add_by_parent(struct sampler_job *job, pid_t own)
{
	_cleanup_(freep) pid_t *pids = NULL;
	size_t n = 0;
	int r = proc_processes(job->root, &pids, &n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct sampler_process *parent;
		struct proc_stat stat;

		if (pids[i] == own || find(job, pids[i]) || proc_stat_read(job->root, pids[i], &stat))
			continue;
		parent = find(job, stat.parent);
		if (parent)
			r = add(job, pids[i], parent);
	}
	return r;
}

static int add_children(struct sampler_job *job, pid_t own)
{
	/* The list grows in this loop, so children of children are found in the same pass. */
	for (size_t i = 0; i < job->n; i++) {
		_cleanup_(freep) pid_t *pids = NULL;
		size_t n = 0;
		int r = proc_children(job->root, sampler_process_pid(job->processes[i]), &pids, &n);

		if (r == -ENOMEM)
			return r;
		for (size_t k = 0; r == 0 && k < n; k++)
			if (pids[k] != own && (r = add(job, pids[k], job->processes[i])))
				return r;
	}
	return 0;
}

static void drop(struct sampler_job *job, size_t i, uint64_t now_ns, const struct collector_sink *sink)
{
	struct sampler_process *process = job->processes[i];

	job->n_threads -= sampler_process_n_threads(process);
	sampler_process_end(process, EVENT_EXIT, now_ns, sink);
	sampler_process_free(process);
	job->processes[i] = job->processes[--job->n];
}

/* Searches for new processes, and for threads worth sampling. own: a process that is not part of the job. */
static int sampler_job_scan(struct sampler_job *job, pid_t own, uint64_t now_ns,
			    const struct collector_sink *sink)
{
	int r;

	for (size_t i = 0; i < job->n;) {
		size_t space = SAMPLER_THREADS_MAX - job->n_threads, before;

		before = sampler_process_n_threads(job->processes[i]);
		r = sampler_process_scan(job->processes[i], space, now_ns, sink);
		job->n_threads += sampler_process_n_threads(job->processes[i]) - before;
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			drop(job, i, now_ns, sink);
		else
			i++;
	}
	r = job->no_children ? 0 : job->knows_children ? add_children(job, own) : add_by_parent(job, own);
	for (size_t i = 0; i < job->n; i++)
		sampler_process_introduce(job->processes[i], now_ns, sink);
	return r;
}

/* Samples every thread once. Reports processes that ended to the sink, and removes them. */
static void sampler_job_sample(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink)
{
	for (size_t i = 0; i < job->n;) {
		size_t before = sampler_process_n_threads(job->processes[i]);
		int r = sampler_process_sample(job->processes[i], now_ns, sink);

		job->n_threads -= before - sampler_process_n_threads(job->processes[i]);
		if (r < 0)
			drop(job, i, now_ns, sink);
		else
			i++;
	}
}

/* Passes the samples that were held back, and the totals, to the sink. */
static void sampler_job_flush(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink)
{
	for (size_t i = 0; i < job->n; i++)
		sampler_process_end(job->processes[i], EVENT_TOTALS, now_ns, sink);
}

static bool sampler_job_has(const struct sampler_job *job, pid_t tgid)
{
	return find(job, tgid) != NULL;
}

static uint64_t sampler_job_left_out(const struct sampler_job *job)
{
	return job->n_left_out;
}

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
	struct sampler_job *job;
	int timer_fd;
	bool seldom;
	uint64_t interval_ns, next_scan_ns;
	uint64_t adapt_ns, adapt_cpu_ns;
	uint64_t start_ns, start_cpu_ns;
	uint64_t events[COLLECTOR_EVENT_TYPES];
	uint32_t random;
	const struct collector_sink *sink; /* sink of the poll in progress */
};

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
	sampler_job_free(sampler->job);
	free(sampler);
}

/* root: "/proc". -ENOENT: root is not a /proc. */
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
	sampler->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	r = sampler->timer_fd < 0 ? -errno : sampler_job_new(root, no_children, &sampler->job);
	if (r < 0) {
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

static int sampler_attach(struct sampler *sampler, pid_t tgid, struct error *err)
{
	int r;

	if (tgid == getpid())
		return error_set(err, -EINVAL, "process %d is diesel-analyze itself", (int)tgid);
	r = sampler_job_add(sampler->job, tgid);
	if (r == -ESRCH || r == -ENOENT)
		return error_set(err, -ESRCH, "there is no process %d that this user can see", (int)tgid);
	if (r < 0)
		return error_errno(err, r, "cannot observe process %d", (int)tgid);
	arm(sampler);
	return 0;
}

static int attach(void *user, pid_t pid, struct error *err)
{
	return sampler_attach(user, pid, err);
}

static int sampler_launch(struct sampler *sampler, char *const argv[], const sigset_t *signals,
			  pid_t *ret_pid, struct error *err)
{
	return launch_watched(argv, signals, attach, sampler, ret_pid, err);
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

		r = sampler_job_scan(sampler->job, getpid(), now_ns, &counting);
		cpu_ns = clock_process_ns() - cpu_ns;
		sampler->next_scan_ns =
		    now_ns +
		    (cpu_ns * SCAN_COST_RATIO > SCAN_MIN_NS ? cpu_ns * SCAN_COST_RATIO : SCAN_MIN_NS);
	}
	sampler_job_sample(sampler->job, clock_monotonic_ns(), &counting);
	if (now_ns - sampler->adapt_ns >= ADAPT_EVERY_NS)
		adapt(sampler, now_ns);
	arm(sampler);
	sampler->sink = NULL;
	return r < 0 ? r : (int)(n_events(sampler) - before);
}

/* Switches detail on or off. off: samples only five times per second, to keep the recording small. Returns
 * the CLOCK_MONOTONIC ns of the change. */
static uint64_t sampler_detail(struct sampler *sampler, bool on)
{
	sampler->seldom = !on;
	return clock_monotonic_ns();
}

static bool sampler_has(const struct sampler *sampler, pid_t tgid)
{
	return sampler_job_has(sampler->job, tgid);
}

static int sampler_stop(struct sampler *sampler, const struct collector_sink *sink)
{
	struct collector_sink counting = {pass_on, sink->metadata, sampler};

	sampler->sink = sink;
	sampler_job_sample(sampler->job, clock_monotonic_ns(), &counting);
	sampler_job_flush(sampler->job, clock_monotonic_ns(), &counting);
	sampler->sink = NULL;
	return 0;
}

static void sampler_stats_get(struct sampler *sampler, struct collector_stats *ret_stats)
{
	struct collector_stats stats = {
	    .storage_failures = sampler_job_left_out(sampler->job),
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
		r = sampler_open("/proc", options->no_children, &source->sampler, err);
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
	return source->sampler ? sampler_launch(source->sampler, argv, signals, ret_pid, err)
			       : collector_launch(source->collector, argv, signals, ret_pid, err);
}

int source_attach(struct source *source, pid_t tgid, struct error *err)
{
	return source->sampler ? sampler_attach(source->sampler, tgid, err)
			       : collector_attach(source->collector, tgid, err);
}

bool source_has(const struct source *source, pid_t tgid)
{
	return source->sampler ? sampler_has(source->sampler, tgid) : collector_has(source->collector, tgid);
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
	return source->sampler ? sampler_detail(source->sampler, on)
			       : collector_detail(source->collector, on);
}

uint64_t source_alive(const struct source *source)
{
	return source->sampler ? source->sampler->job->n : collector_alive(source->collector);
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
