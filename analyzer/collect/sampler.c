/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/launch.h"
#include "sampler_job.h"

/* 200 samples per second while they are cheap; 20 still distinguish a step of half a second from a wait. */
#define INTERVAL_MIN_NS    (5 * NS_PER_MS)
#define INTERVAL_MAX_NS    (50 * NS_PER_MS)
#define INTERVAL_SELDOM_NS (200 * NS_PER_MS)
#define ADAPT_EVERY_NS     (500 * NS_PER_MS)
#define LOOK_COST          (SAMPLER_COST_MAX * 0.8)

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

static uint64_t own_cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
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

int sampler_open(const char *root, bool no_children, struct sampler **ret_sampler, struct error *err)
{
	struct sampler *sampler;
	char path[4200];
	int r;

	snprintf(path, sizeof(path), "%s/self/stat", root);
	if (access(path, R_OK))
		return error_errno(err, -errno,
				   "cannot read %s: without BPF and without /proc nothing can be seen", path);
	sampler = calloc(1, sizeof(*sampler));
	if (!sampler)
		return error_set(err, -ENOMEM, "not enough memory to begin");
	sampler->root = root;
	sampler->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	r = sampler->timer_fd < 0 ? -errno : sampler_job_new(root, no_children, &sampler->job);
	if (r < 0) {
		sampler_close(sampler);
		return error_errno(err, r, "cannot begin to look at /proc");
	}
	sampler->start_ns = sampler->adapt_ns = clock_monotonic_ns();
	sampler->start_cpu_ns = sampler->adapt_cpu_ns = own_cpu_ns();
	sampler->interval_ns = INTERVAL_MIN_NS;
	sampler->random = (uint32_t)sampler->start_ns;
	*ret_sampler = sampler;
	return 0;
}

void sampler_close(struct sampler *sampler)
{
	if (!sampler)
		return;
	closep(&sampler->timer_fd);
	sampler_job_free(sampler->job);
	free(sampler);
}

static int attach(void *user, pid_t pid, struct error *err)
{
	return sampler_attach(user, pid, err);
}

int sampler_launch(struct sampler *sampler, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		   struct error *err)
{
	return launch_watched(argv, signals, attach, sampler, ret_pid, err);
}

int sampler_attach(struct sampler *sampler, pid_t tgid, struct error *err)
{
	int r;

	if (tgid == getpid())
		return error_set(err, -EINVAL, "process %d is diesel-analyze itself", (int)tgid);
	r = sampler_job_add(sampler->job, tgid);
	if (r == -ESRCH || r == -ENOENT)
		return error_set(err, -ESRCH, "there is no process %d that this user can see", (int)tgid);
	if (r < 0)
		return error_errno(err, r, "cannot look at process %d", (int)tgid);
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
	uint64_t cpu_ns = own_cpu_ns();
	double cost = (double)(cpu_ns - sampler->adapt_cpu_ns) / (double)(now_ns - sampler->adapt_ns);

	if (cost > LOOK_COST)
		sampler->interval_ns =
		    (uint64_t)((double)sampler->interval_ns * (cost > 2 * LOOK_COST ? 2 : 1.25));
	else if (cost < LOOK_COST / 2)
		sampler->interval_ns = (uint64_t)((double)sampler->interval_ns * 0.8);
	if (sampler->interval_ns < INTERVAL_MIN_NS)
		sampler->interval_ns = INTERVAL_MIN_NS;
	if (sampler->interval_ns > INTERVAL_MAX_NS)
		sampler->interval_ns = INTERVAL_MAX_NS;
	sampler->adapt_ns = now_ns;
	sampler->adapt_cpu_ns = cpu_ns;
}

int sampler_poll(struct sampler *sampler, const struct collector_sink *sink)
{
	struct collector_sink counting = {pass_on, sink->metadata, sampler};
	uint64_t before = n_events(sampler), expirations, now_ns = clock_monotonic_ns();
	int r = 0;

	if (read(sampler->timer_fd, &expirations, sizeof(expirations)) != sizeof(expirations))
		return 0;
	sampler->sink = sink;
	if (now_ns >= sampler->next_scan_ns) {
		uint64_t cpu_ns = own_cpu_ns();

		r = sampler_job_scan(sampler->job, getpid(), now_ns, &counting);
		cpu_ns = own_cpu_ns() - cpu_ns;
		sampler->next_scan_ns =
		    now_ns +
		    (cpu_ns * SCAN_COST_RATIO > SCAN_MIN_NS ? cpu_ns * SCAN_COST_RATIO : SCAN_MIN_NS);
	}
	sampler_job_look(sampler->job, clock_monotonic_ns(), &counting);
	if (now_ns - sampler->adapt_ns >= ADAPT_EVERY_NS)
		adapt(sampler, now_ns);
	arm(sampler);
	sampler->sink = NULL;
	return r < 0 ? r : (int)(n_events(sampler) - before);
}

int sampler_fd(const struct sampler *sampler)
{
	return sampler->timer_fd;
}

uint64_t sampler_alive(const struct sampler *sampler)
{
	return sampler_job_alive(sampler->job);
}

uint64_t sampler_detail(struct sampler *sampler, bool on)
{
	sampler->seldom = !on;
	return clock_monotonic_ns();
}

bool sampler_has(const struct sampler *sampler, pid_t tgid)
{
	return sampler_job_has(sampler->job, tgid);
}

int sampler_stop(struct sampler *sampler, const struct collector_sink *sink)
{
	struct collector_sink counting = {pass_on, sink->metadata, sampler};

	sampler->sink = sink;
	sampler_job_look(sampler->job, clock_monotonic_ns(), &counting);
	sampler_job_flush(sampler->job, clock_monotonic_ns(), &counting);
	sampler->sink = NULL;
	return 0;
}

void sampler_stats_get(struct sampler *sampler, struct collector_stats *ret_stats)
{
	struct collector_stats stats = {
	    .storage_failures = sampler_job_left_out(sampler->job),
	    .own_cpu_ns = own_cpu_ns() - sampler->start_cpu_ns,
	    .elapsed_ns = clock_monotonic_ns() - sampler->start_ns,
	    .clock_start = sampler->start_ns,
	};

	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++)
		stats.events[i] = sampler->events[i];
	*ret_stats = stats;
}
