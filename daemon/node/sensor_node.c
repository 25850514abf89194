/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_node.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc_task.h"
#include "lib/psi.h"

#define STALE_NS (60 * NS_PER_S)

void node_watch_init(struct node_watch *watch, const char *root)
{
	*watch = (struct node_watch){.root = root};
	if (limits_pressure_path(root, "memory", watch->memory_pressure, sizeof(watch->memory_pressure)) < 0)
		watch->memory_pressure[0] = '\0';
	if (limits_pressure_path(root, "cpu", watch->cpu_pressure, sizeof(watch->cpu_pressure)) < 0)
		watch->cpu_pressure[0] = '\0';
	if (limits_pressure_path(root, "io", watch->io_pressure, sizeof(watch->io_pressure)) < 0)
		watch->io_pressure[0] = '\0';
}

/* Reads the kernel's pressure figures, in percent. Returns the total time in which some task waited; 0:
 * not known. */
static uint64_t pressure(const char *path, double *ret_some, double *ret_full)
{
	struct psi psi;

	if (!path[0] || psi_read(path, &psi) < 0)
		return 0;
	*ret_some = psi.some.avg10_ratio * 100;
	if (ret_full && psi.has_full)
		*ret_full = psi.full.avg10_ratio * 100;
	return psi.some.total_ns;
}

/* Fills in the memory pressure of the last interval. The kernel updates its ten-second mean every other
 * second, which is too late to act within two. */
static void memory_fill(const struct node_watch *was, const struct node_watch *is, struct stall_node *node)
{
	if (!was->at_ns || is->at_ns <= was->at_ns || is->at_ns - was->at_ns > STALE_NS ||
	    !was->memory_some_ns || is->memory_some_ns < was->memory_some_ns)
		return;
	node->memory_some_now = fmin(
	    100 * (double)(is->memory_some_ns - was->memory_some_ns) / (double)(is->at_ns - was->at_ns), 100);
}

static double cores_allowed(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
							    : (double)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Returns how many of the machine's cores were idle in the interval. Time stolen by the host is not idle
 * time. */
static double machine_idle(const struct proc_cpu_ticks *before, const struct proc_cpu_ticks *now,
			   double covered_s)
{
	uint64_t was = before->idle + before->iowait, is = now->idle + now->iowait;

	return is > was ? (double)(is - was) / (double)sysconf(_SC_CLK_TCK) / covered_s : 0;
}

static void cores_fill(const struct node_watch *was, const struct node_watch *is, struct stall_node *node)
{
	double covered_s = (double)(is->at_ns - was->at_ns) / (double)NS_PER_S;

	node->cores = fmin(cores_allowed(), is->limits.cpu_quota_cores);
	if (!was->at_ns || is->at_ns <= was->at_ns || is->at_ns - was->at_ns > STALE_NS)
		return;
	node->cores_idle = fmin(node->cores, machine_idle(&was->ticks, &is->ticks, covered_s));
	if (isfinite(is->limits.cpu_quota_cores) && is->limits.cpu_used_ns >= was->limits.cpu_used_ns) {
		double used =
		    (double)(is->limits.cpu_used_ns - was->limits.cpu_used_ns) / (double)NS_PER_S / covered_s;

		node->cores_idle = fmax(0, fmin(node->cores_idle, is->limits.cpu_quota_cores - used));
	}
	if (is->limits.oom_kills >= was->limits.oom_kills)
		node->oom_kills = (double)(is->limits.oom_kills - was->limits.oom_kills);
}

struct stall_node node_watch_sample(struct node_watch *watch, uint64_t now_ns)
{
	const struct node_watch was = *watch;
	struct stall_node node = stall_node_unknown();
	char path[PATH_MAX];

	watch->at_ns = now_ns;
	snprintf(path, sizeof(path), "%s/proc", watch->root);
	if (proc_cpu_ticks_read(path, &watch->ticks) < 0)
		watch->ticks = was.ticks;
	limits_read(watch->root, &watch->limits);
	watch->memory_some_ns =
	    pressure(watch->memory_pressure, &node.memory_some_avg10, &node.memory_full_avg10);
	(void)pressure(watch->cpu_pressure, &node.cpu_some_avg10, NULL);
	(void)pressure(watch->io_pressure, &node.io_some_avg10, &node.io_full_avg10);
	memory_fill(&was, watch, &node);
	if (watch->limits.memory_limit_bytes) {
		node.memory_limit_bytes = (double)watch->limits.memory_limit_bytes;
		node.memory_headroom_bytes = (double)watch->limits.memory_headroom_bytes;
		node.memory_free_bytes = (double)watch->limits.memory_free_bytes;
	}
	cores_fill(&was, watch, &node);
	return node;
}

/* ---- waiting for a core -------------------------------------------------------------------------------- */

static size_t threads_add(const char *proc, pid_t pid, size_t n_left, uint64_t *sum_ns)
{
	_cleanup_(freep) pid_t *tids = NULL;
	size_t n = 0;

	if (proc_threads(proc, pid, &tids, &n) < 0)
		return 0;
	if (n > n_left)
		n = n_left;
	for (size_t i = 0; i < n; i++) {
		_cleanup_(freep) char *text = NULL;
		struct proc_schedstat stat;
		char path[PATH_MAX];

		snprintf(path, sizeof(path), "%s/%d/task/%d/schedstat", proc, (int)pid, (int)tids[i]);
		if (proc_read_file(path, 256, &text, NULL) == 0 && proc_schedstat_parse(text, &stat) == 0)
			*sum_ns += stat.queue_ns;
	}
	return n;
}

int node_queue_ns(const char *root, int64_t pid, uint64_t *ret_queue_ns)
{
	_cleanup_(freep) pid_t *children = NULL;
	size_t n_children = 0, n;
	uint64_t sum_ns = 0;
	char proc[PATH_MAX];

	snprintf(proc, sizeof(proc), "%s/proc", root);
	n = threads_add(proc, (pid_t)pid, QUEUE_THREADS_MAX, &sum_ns);
	if (!n)
		return -ESRCH;
	(void)proc_children(proc, (pid_t)pid, &children, &n_children);
	for (size_t i = 0; i < n_children && n < QUEUE_THREADS_MAX; i++)
		n += threads_add(proc, children[i], QUEUE_THREADS_MAX - n, &sum_ns);
	*ret_queue_ns = sum_ns;
	return 0;
}
