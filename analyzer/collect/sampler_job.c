/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_job.h"

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
#include "sampler_process.h"

struct sampler_job {
	const char *root;
	struct sampler_process *processes[SAMPLER_PROCESSES_MAX];
	size_t n, n_threads;
	uint64_t n_left_out;
	bool no_children;
	bool knows_children; /* the kernel has /proc/PID/task/TID/children */
};

int sampler_job_new(const char *root, bool no_children, struct sampler_job **ret_job)
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

void sampler_job_free(struct sampler_job *job)
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

int sampler_job_add(struct sampler_job *job, pid_t tgid)
{
	return add(job, tgid, NULL);
}

/* For kernels that do not list children: adds processes whose parent is known. They are visited by number,
 * and children mostly have higher ones than their parents; others are found at the next scan. */
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

int sampler_job_scan(struct sampler_job *job, pid_t own, uint64_t now_ns, const struct collector_sink *sink)
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

void sampler_job_look(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink)
{
	for (size_t i = 0; i < job->n;) {
		size_t before = sampler_process_n_threads(job->processes[i]);
		int r = sampler_process_look(job->processes[i], now_ns, sink);

		job->n_threads -= before - sampler_process_n_threads(job->processes[i]);
		if (r < 0)
			drop(job, i, now_ns, sink);
		else
			i++;
	}
}

void sampler_job_flush(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink)
{
	for (size_t i = 0; i < job->n; i++)
		sampler_process_end(job->processes[i], EVENT_TOTALS, now_ns, sink);
}

bool sampler_job_has(const struct sampler_job *job, pid_t tgid)
{
	return find(job, tgid) != NULL;
}

uint64_t sampler_job_alive(const struct sampler_job *job)
{
	return job->n;
}

uint64_t sampler_job_left_out(const struct sampler_job *job)
{
	return job->n_left_out;
}
