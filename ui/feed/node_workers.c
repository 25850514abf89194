/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "lib/proc.h"
#include "lib/proc_task.h"
#include "sample.h"

#define TASKS_MAX 4096 /* over all jobs; more are left out */

/* The last look at a task, for rates. */
struct node_task {
	pid_t pid;
	uint64_t start_ticks, exec_ns, queue_ns, read_bytes;
};

static int compare_task(const void *left, const void *right)
{
	pid_t a = ((const struct node_task *)left)->pid, b = ((const struct node_task *)right)->pid;

	return (a > b) - (a < b);
}

static char *read_task_file(pid_t pid, pid_t tid, const char *name, size_t max)
{
	char path[96], *text = NULL;
	size_t length;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
	return proc_read_file(path, max, &text, &length) ? NULL : text;
}

static void read_counters(pid_t pid, pid_t tid, struct node_task *task)
{
	_cleanup_(freep) char *sched = read_task_file(pid, tid, "schedstat", 128);
	_cleanup_(freep) char *io = read_task_file(pid, tid, "io", 512);
	struct proc_schedstat schedstat;
	struct proc_io counters;

	if (sched && !proc_schedstat_parse(sched, &schedstat)) {
		task->exec_ns = schedstat.exec_ns;
		task->queue_ns = schedstat.queue_ns;
	}
	if (io && !proc_io_parse(io, &counters))
		task->read_bytes = counters.read_chars;
}

static void fill_rates(const struct node_task *before, const struct node_task *now, double s,
		       struct worker_sample *to)
{
	if (!before || before->start_ticks != now->start_ticks || s <= 0)
		return;
	if (now->exec_ns >= before->exec_ns)
		to->cpu_ratio = (double)(now->exec_ns - before->exec_ns) / 1e9 / s;
	if (now->queue_ns >= before->queue_ns)
		to->queue_ratio = (double)(now->queue_ns - before->queue_ns) / 1e9 / s;
	if (now->read_bytes >= before->read_bytes)
		to->read_bytes_per_s = (double)(now->read_bytes - before->read_bytes) / s;
}

static const char *role_of_process(const struct node_job *job, const struct process *process)
{
	const struct analysis *analysis = job->analysis;

	if (analysis && analysis->trainer_tgid == (uint32_t)process->pid)
		return "trainer";
	for (size_t i = 0; analysis && i < analysis->n_ranks; i++)
		if (analysis->ranks[i].tgid == (uint32_t)process->pid)
			return "rank";
	if (process->pid == job->root)
		return analysis && analysis->trainer_tgid ? "launcher" : "trainer";
	return process->has_library ? "worker" : "helper";
}

static int add_task(struct node *node, const struct node_job *job, const struct process *process, pid_t tid,
		    double s, struct sample *sample)
{
	_cleanup_(freep) char *stat_text = read_task_file(process->pid, tid, "stat", 1024);
	_cleanup_(freep) char *wchan = NULL;
	struct node_task task = {.pid = tid}, *before;
	struct worker_sample *to;
	struct proc_stat stat;

	if (!stat_text || proc_stat_parse(stat_text, &stat) || node->n_tasks_new == TASKS_MAX)
		return 0;
	to = sample_add(sample, SAMPLE_WORKERS);
	if (!to)
		return -ENOMEM;
	task.start_ticks = stat.start_ticks;
	read_counters(process->pid, tid, &task);
	before =
	    node->n_tasks ? bsearch(&task, node->tasks, node->n_tasks, sizeof(task), compare_task) : NULL;
	fill_rates(before, &task, s, to);
	node->tasks_new[node->n_tasks_new++] = task;
	memcpy(to->job, job->id, sizeof(to->job));
	snprintf(to->job_name, sizeof(to->job_name), "%s", job->name);
	snprintf(to->name, sizeof(to->name), "%s", stat.comm);
	snprintf(to->role, sizeof(to->role), "%s",
		 tid == process->pid ? role_of_process(job, process) : "thread");
	to->state[0] = stat.state;
	to->pid = (uint64_t)tid;
	to->parent_pid = (uint64_t)(tid == process->pid ? process->parent : process->pid);
	if (tid == process->pid)
		to->memory_bytes = (double)stat.resident_pages * (double)sysconf(_SC_PAGESIZE);
	if (stat.state == 'R')
		return 0;
	wchan = read_task_file(process->pid, tid, "wchan", 64);
	if (wchan && strcmp(wchan, "0") != 0)
		snprintf(to->wait, sizeof(to->wait), "%s", wchan);
	return 0;
}

static int add_process(struct node *node, const struct node_job *job, const struct process *process,
		       bool threads, double s, struct sample *sample)
{
	_cleanup_(freep) pid_t *tids = NULL;
	size_t n = 0;
	int r = add_task(node, job, process, process->pid, s, sample);

	if (r < 0 || !threads || proc_threads("/proc", process->pid, &tids, &n))
		return r;
	for (size_t i = 0; r == 0 && i < n; i++)
		if (tids[i] != process->pid)
			r = add_task(node, job, process, tids[i], s, sample);
	return r;
}

static const struct node_job *job_of(const struct node *node, const struct process *process)
{
	for (size_t i = 0; process->root && i < node->n_jobs; i++)
		if (node->jobs[i].root == process->root)
			return &node->jobs[i];
	return NULL;
}

int node_workers_sample(struct node *node, unsigned int wanted, uint64_t now_ns, struct sample *sample)
{
	double s = node->looked_ns ? (double)(now_ns - node->looked_ns) / 1e9 : 0;
	const struct process *list;
	struct node_task *old;
	size_t n;
	int r = 0;

	if (!(wanted & FEED_WANT_WORKERS))
		return 0;
	node->tasks_new = calloc(TASKS_MAX, sizeof(*node->tasks_new));
	if (!node->tasks_new)
		return -ENOMEM;
	node->n_tasks_new = 0;
	list = census_list(node->census, &n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct node_job *job = job_of(node, &list[i]);

		if (job)
			r = add_process(node, job, &list[i], wanted & FEED_WANT_THREADS, s, sample);
	}
	qsort(node->tasks_new, node->n_tasks_new, sizeof(*node->tasks_new), compare_task);
	old = node->tasks;
	node->tasks = steal_pointer(node->tasks_new);
	node->n_tasks = node->n_tasks_new;
	node->looked_ns = now_ns;
	free(old);
	return r;
}
