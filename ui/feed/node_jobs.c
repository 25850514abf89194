/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analyzer/analysis.h"
#include "analyzer/live.h"
#include "analyzer/source.h"
#include "job_fill.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/proc.h"
#include "lib/proc_task.h"
#include "sample.h"

/* The part of one core that analysing may take over all jobs, and how many seconds of it may be saved up. */
#define ANALYSIS_RATIO   0.004
#define ANALYSIS_SAVED_S 5

/* Fills in the job's id, name and user. */
static void introduce(struct node_job *job)
{
	char command[4096] = "", path[64];
	struct stat st;
	const struct passwd *user;

	snprintf(job->id, sizeof(job->id), "%d.%llu", (int)job->root, (unsigned long long)job->start_ticks);
	if (proc_cmdline_read("/proc", job->root, command, sizeof(command)) || !command[0])
		proc_comm_read("/proc", job->root, command, sizeof(command));
	process_name(command, job->name, sizeof(job->name));
	snprintf(path, sizeof(path), "/proc/%d", (int)job->root);
	if (stat(path, &st))
		return;
	user = getpwuid(st.st_uid);
	if (user)
		snprintf(job->user, sizeof(job->user), "%s", user->pw_name);
	else
		snprintf(job->user, sizeof(job->user), "%u", (unsigned int)st.st_uid);
}

static int job_add(struct node *node, const struct process *process)
{
	struct node_job *jobs = reallocarray(node->jobs, node->n_jobs + 1, sizeof(*jobs));
	struct node_job *job;
	struct error err = ERROR_INIT;
	int r;

	if (!jobs)
		return -ENOMEM;
	node->jobs = jobs;
	job = &jobs[node->n_jobs];
	*job = (struct node_job){.root = process->pid, .start_ticks = process->start_ticks};
	introduce(job);
	/* A descendant of a watched job may have become a job of its own when its parent died. */
	live_remove(node->live, (uint32_t)job->root);
	r = live_add(node->live, (uint32_t)job->root);
	if (r == -ENOMEM)
		return r;
	if (r == -EEXIST)
		snprintf(job->problem, sizeof(job->problem), "its processes are another job's");
	if (r == 0 && source_attach(node->source, job->root, &err))
		snprintf(job->problem, sizeof(job->problem), "cannot be looked at: %.120s", err.text);
	/* Unknown threads count as the job's that was added last, so take in now those that exist already. */
	if (r == 0)
		node_poll(node, clock_monotonic_ns());
	node->n_jobs++;
	return 0;
}

static bool is_still_job(const struct node *node, const struct node_job *job)
{
	const struct process *process = census_find(node->census, job->root);

	return process && process->start_ticks == job->start_ticks && process->root == job->root;
}

static bool is_known(const struct node *node, const struct process *process)
{
	for (size_t i = 0; i < node->n_jobs; i++)
		if (node->jobs[i].root == process->pid && node->jobs[i].start_ticks == process->start_ticks)
			return true;
	return false;
}

static bool is_running(const struct node *node, const struct node_job *job)
{
	struct proc_stat stat;

	return proc_stat_read("/proc", job->root, &stat) == 0 && stat.start_ticks == job->start_ticks;
}

static void keep_jobs(struct node *node, bool (*keep)(const struct node *node, const struct node_job *job))
{
	size_t n_kept = 0;

	for (size_t i = 0; i < node->n_jobs; i++) {
		if (keep(node, &node->jobs[i])) {
			node->jobs[n_kept++] = node->jobs[i];
			continue;
		}
		live_remove(node->live, (uint32_t)node->jobs[i].root);
		node_job_free(&node->jobs[i]);
	}
	node->n_jobs = n_kept;
}

int node_jobs_update(struct node *node)
{
	const struct process *list;
	size_t n;

	keep_jobs(node, is_still_job);
	list = census_list(node->census, &n);
	for (size_t i = 0; i < n; i++) {
		if (list[i].root != list[i].pid || is_known(node, &list[i]))
			continue;
		if (job_add(node, &list[i]))
			return -ENOMEM;
	}
	return 0;
}

/* Counts the job's processes and adds up their CPU time. */
static void add_resources(struct node *node, const struct node_job *job, uint64_t now_ns,
			  struct job_sample *to)
{
	double s = node->sampled_ns ? (double)(now_ns - node->sampled_ns) / 1e9 : 0;
	uint64_t used_ns = 0;
	bool any = false;
	struct process *list;
	size_t n;

	list = (struct process *)census_list(node->census, &n);
	to->n_processes = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t cpu_ns;

		if (list[i].root != job->root)
			continue;
		to->n_processes++;
		if (proc_cpu_ns(list[i].pid, &cpu_ns))
			continue;
		if (list[i].cpu_ns && cpu_ns >= list[i].cpu_ns) {
			used_ns += cpu_ns - list[i].cpu_ns;
			any = true;
		}
		list[i].cpu_ns = cpu_ns;
	}
	if (any && s > 0)
		to->cpu_ratio = (double)used_ns / 1e9 / s;
}

static void analyse(struct node *node, struct node_job *job, uint64_t now_ns)
{
	uint64_t cpu_ns = budget_cpu_ns();
	struct analysis *analysis;
	struct error err = ERROR_INIT;

	if (!live_analyze(node->live, (uint32_t)job->root, now_ns, &analysis, &err)) {
		analysis_free(job->analysis);
		job->analysis = analysis;
	}
	job->analysed_ns = now_ns;
	job->cost_ns = budget_cpu_ns() - cpu_ns;
	node->analysis_ns += job->cost_ns;
	node->tokens_ns -= (double)job->cost_ns;
}

/* Analyses the jobs whose turn it is, as far as the budget goes: many events are expensive to analyse. */
static void analyse_due(struct node *node, uint64_t now_ns)
{
	double s = node->sampled_ns ? (double)(now_ns - node->sampled_ns) / 1e9 : ANALYSIS_SAVED_S;

	node->tokens_ns =
	    fmin(node->tokens_ns + s * 1e9 * ANALYSIS_RATIO, ANALYSIS_SAVED_S * 1e9 * ANALYSIS_RATIO);
	while (node->tokens_ns > 0) {
		struct node_job *oldest = NULL;

		for (size_t i = 0; i < node->n_jobs; i++) {
			struct node_job *job = &node->jobs[i];

			if (!job->problem[0] && job->analysed_ns < now_ns &&
			    (!oldest || job->analysed_ns < oldest->analysed_ns))
				oldest = job;
		}
		if (!oldest)
			return;
		analyse(node, oldest, now_ns);
	}
}

static int job_sample(struct node *node, struct node_job *job, unsigned int wanted, uint64_t now_ns,
		      struct sample *sample)
{
	struct job_sample *to = sample_add(sample, SAMPLE_JOBS);

	if (!to)
		return -ENOMEM;
	memcpy(to->id, job->id, sizeof(to->id));
	memcpy(to->name, job->name, sizeof(to->name));
	memcpy(to->user, job->user, sizeof(to->user));
	snprintf(to->state, sizeof(to->state), "running");
	snprintf(to->remark, sizeof(to->remark), "%s", job->problem);
	to->pid = (uint64_t)job->root;
	add_resources(node, job, now_ns, to);
	if (!job->analysis)
		return 0;
	job_fill(job->analysis, to);
	to->age_s = (double)(now_ns - job->analysed_ns) / 1e9;
	if (wanted & FEED_WANT_HOPS && job_fill_hops(job->analysis, job->id, sample))
		return -ENOMEM;
	return wanted & FEED_WANT_DEVICES ? job_fill_places(job->analysis, job->id, sample) : 0;
}

int node_jobs_sample(struct node *node, unsigned int wanted, uint64_t now_ns, struct sample *sample)
{
	int r = 0;

	/* The next scan, which would find out too, may be a minute away: on a node with many processes one
	 * costs much. */
	keep_jobs(node, is_running);
	analyse_due(node, now_ns);
	for (size_t i = 0; r == 0 && i < node->n_jobs; i++)
		r = job_sample(node, &node->jobs[i], wanted, now_ns, sample);
	return r;
}

static const char *name_of(void *user, pid_t pid)
{
	const struct node *node = user;
	const struct process *process = census_find(node->census, pid);

	for (size_t i = 0; process && i < node->n_jobs; i++)
		if (node->jobs[i].root == process->root)
			return node->jobs[i].name;
	return NULL;
}

int node_gpus_sample(struct node *node, struct sample *sample)
{
	return gpus_look(&node->gpus, name_of, node, sample);
}
