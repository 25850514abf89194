/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/live.h"
#include "analyzer/nvml.h"
#include "analyzer/source.h"
#include "bpf/collector.h"
#include "budget.h"
#include "census.h"
#include "devices.h"
#include "job_fill.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/proc.h"
#include "lib/proc_task.h"
#include "lib/psi.h"
#include "ui/state/sample.h"

/* values at the last sample, for rates; zeros before the first */
struct host {
	uint64_t busy_ticks, at_ns;
};

struct gpus {
	struct nvml *nvml; /* NULL: not opened yet, or cannot be opened (see `problem`) */
	bool is_tried;
	char problem[160];
};

struct node_job {
	pid_t root;
	uint64_t start_ticks;
	char id[48], name[160], user[32];
	struct analysis *analysis; /* the newest analysis; NULL: none yet */
	uint64_t analysed_ns;
	uint64_t cost_ns;  /* CPU time of the newest analysis */
	char problem[160]; /* why the job cannot be analysed; "": it can */
};

struct node {
	struct feed feed;
	struct source *source;
	bool sampled;
	char how[SAMPLE_ERROR_BYTES]; /* text for the header: the method in use, and the reason if it is not
					 the best one */
	struct live *live;
	struct census census;
	struct node_job *jobs;
	size_t n_jobs;
	struct host host;
	struct devices devices;
	struct gpus gpus;
	struct node_task *tasks,
	    *tasks_new; /* the jobs' processes at the last sample and at this one, sorted by pid */
	size_t n_tasks, n_tasks_new;
	uint64_t tasks_sampled_ns;
	struct budget poll_budget, scan_budget;
	uint64_t analysis_ns; /* CPU time spent on analysis so far */
	double tokens_ns;     /* CPU time available for analysis; negative: analysis has to wait */
	uint64_t sampled_ns;  /* time of the last sample; 0: none */
	/* totals at the last sample, for rates */
	struct {
		uint64_t cpu_ns, bpf_ns, events, poll_ns, scan_ns, analysis_ns;
	} before;
};

#define GPUS_MAX 64

/* Adds a name to a list such as "train.py, eval.py": each name once, as many as fit. */
static void add_name(char *names, size_t size, const char *name)
{
	size_t n = strlen(names), length = strlen(name);

	for (const char *at = names; (at = strstr(at, name)); at += length)
		if ((at == names || at[-1] == ' ') && (at[length] == ',' || !at[length]))
			return;
	if (n + length + 3 <= size)
		snprintf(names + n, size - n, "%s%s", n ? ", " : "", name);
}

/* Returns the job that the process belongs to, or NULL. */
static const struct node_job *job_of(const struct node *node, const struct census_process *process)
{
	for (size_t i = 0; process && process->root && i < node->n_jobs; i++)
		if (node->jobs[i].root == process->root)
			return &node->jobs[i];
	return NULL;
}

static int add_gpu(const struct node *node, const struct nvml_gpu *gpu, size_t index,
		   struct top_sample *sample)
{
	struct gpu_sample_row *to = sample_add(sample, SAMPLE_GPUS);

	if (!to)
		return -ENOMEM;
	snprintf(to->name, sizeof(to->name), "%.47s", gpu->name);
	to->index = index;
	to->busy_ratio = gpu->busy_ratio;
	to->memory_used_bytes = gpu->memory_used_bytes;
	to->memory_bytes = gpu->memory_bytes;
	to->power_w = gpu->power_w;
	to->n_processes = gpu->n_pids;
	for (size_t i = 0; i < gpu->n_pids; i++) {
		const struct node_job *job = job_of(node, census_find(&node->census, gpu->pids[i]));

		if (job)
			add_name(to->jobs, sizeof(to->jobs), job->name);
	}
	return 0;
}

/* Adds the GPUs, and which jobs compute on them. Without NVML no GPU is added, and sample->host.gpus says
 * why. Opens NVML once; if that fails, it is not tried again. -ENOMEM. */
static int add_gpus(struct node *node, struct top_sample *sample)
{
	struct gpus *gpus = &node->gpus;
	_cleanup_(freep) struct nvml_gpu *found = NULL;
	struct error err = ERROR_INIT;
	size_t n;

	if (!gpus->is_tried && nvml_open(&gpus->nvml, &err))
		snprintf(gpus->problem, sizeof(gpus->problem), "%.159s", err.text);
	gpus->is_tried = true;
	if (!gpus->nvml) {
		snprintf(sample->host.gpus, sizeof(sample->host.gpus), "%s", gpus->problem);
		return 0;
	}
	found = calloc(GPUS_MAX, sizeof(*found));
	if (!found)
		return -ENOMEM;
	n = nvml_gpus(gpus->nvml, found, GPUS_MAX);
	if (!n)
		snprintf(sample->host.gpus, sizeof(sample->host.gpus), "NVML knows no GPU");
	for (size_t i = 0; i < n; i++)
		if (add_gpu(node, &found[i], i, sample))
			return -ENOMEM;
	return 0;
}

/* Budget of CPU time for analysing all jobs: share of one core, and seconds for which unused time
 * accumulates. */
#define ANALYSIS_RATIO   0.004
#define ANALYSIS_SAVED_S 5

#define NS_TO_S 1e-9

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

static void node_poll(struct node *node, uint64_t now_ns);

static int job_add(struct node *node, const struct census_process *process)
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
	/* The process may be a descendant of a watched job, and become a job of its own as its parent died.
	 */
	live_remove(node->live, (uint32_t)job->root);
	r = live_add(node->live, (uint32_t)job->root);
	if (r == -ENOMEM)
		return r;
	if (r == -EEXIST)
		snprintf(job->problem, sizeof(job->problem), "the job's processes belong to another job");
	if (r == 0 && source_attach(node->source, job->root, &err))
		snprintf(job->problem, sizeof(job->problem), "cannot be observed: %.120s", err.text);
	/* The analysis assigns unknown threads to the job that was added last, so read the existing ones now.
	 */
	if (r == 0)
		node_poll(node, clock_monotonic_ns());
	node->n_jobs++;
	return 0;
}

static bool is_still_job(const struct node *node, const struct node_job *job)
{
	const struct census_process *process = census_find(&node->census, job->root);

	return process && process->start_ticks == job->start_ticks && process->root == job->root;
}

static bool is_known(const struct node *node, const struct census_process *process)
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

static void node_job_free(struct node_job *job);

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

/* Attaches to new jobs, and drops jobs that have ended. -ENOMEM. */
static int node_jobs_update(struct node *node)
{
	keep_jobs(node, is_still_job);
	for (size_t i = 0; i < node->census.n; i++) {
		const struct census_process *process = &node->census.items[i];

		if (process->root == process->pid && !is_known(node, process) && job_add(node, process))
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

	to->n_processes = 0;
	for (size_t i = 0; i < node->census.n; i++) {
		struct census_process *process = &node->census.items[i];
		uint64_t cpu_ns;

		if (process->root != job->root)
			continue;
		to->n_processes++;
		if (proc_cpu_ns(process->pid, &cpu_ns))
			continue;
		if (process->cpu_ns && cpu_ns >= process->cpu_ns) {
			used_ns += cpu_ns - process->cpu_ns;
			any = true;
		}
		process->cpu_ns = cpu_ns;
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

/* Analyses the due jobs within the budget: a job with many events is expensive to analyse. */
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

static int add_place(const struct page_cache_place *place, const char *job, double window_s,
		     struct top_sample *sample)
{
	struct place_sample *to;

	if (!place->used_bytes && !place->cold_bytes)
		return 0;
	to = sample_add(sample, SAMPLE_PLACES);
	if (!to)
		return -ENOMEM;
	snprintf(to->job, sizeof(to->job), "%s", job);
	snprintf(to->path, sizeof(to->path), "%s", place->path);
	to->used_bytes_per_s = (double)place->used_bytes / window_s;
	to->cold_bytes_per_s = (double)place->cold_bytes / window_s;
	to->hit_ratio = page_cache_hit_ratio(place->accessed_pages, place->missed_pages);
	return 0;
}

/* Adds the files and folders that the job read most. 0 or -ENOMEM. */
static int job_fill_places(const struct analysis *analysis, const char *job, struct top_sample *sample)
{
	const struct page_cache *cache = analysis->page_cache;
	double window_s = (double)(analysis->window.end_ns - analysis->window.begin_ns) * NS_TO_S;
	int r = 0;

	if (!cache || window_s <= 0)
		return 0;
	for (size_t i = 0; r == 0 && i < cache->n_folders; i++)
		r = add_place(&cache->folders[i], job, window_s, sample);
	for (size_t i = 0; r == 0 && i < cache->n_files; i++)
		r = add_place(&cache->files[i], job, window_s, sample);
	return r;
}

/* Adds the wake-up chain of the last slow step. 0 or -ENOMEM. */
static int job_fill_hops(const struct analysis *analysis, const char *job, struct top_sample *sample)
{
	const struct wait_chain *chain = analysis->chain;

	for (size_t i = 0; chain && i < chain->n; i++) {
		const struct wait_piece *piece = &chain->pieces[i];
		const struct wait_piece *next = i + 1 < chain->n ? &chain->pieces[i + 1] : NULL;
		struct hop_sample *to = sample_add(sample, SAMPLE_HOPS);

		if (!to)
			return -ENOMEM;
		snprintf(to->job, sizeof(to->job), "%s", job);
		snprintf(to->role, sizeof(to->role), "%s", piece->role);
		snprintf(to->name, sizeof(to->name), "%s", piece->name);
		snprintf(to->what, sizeof(to->what), "%s", piece->what);
		if (next && next->tid != piece->tid)
			snprintf(to->edge, sizeof(to->edge), "woken by %u", next->tid);
		to->tid = piece->tid;
		to->begin_s = (double)(piece->begin_ns - chain->wait_begin_ns) * NS_TO_S;
		to->length_s = (double)(piece->end_ns - piece->begin_ns) * NS_TO_S;
		to->fetch = piece->fetch;
	}
	return 0;
}

static int job_sample(struct node *node, struct node_job *job, unsigned int wanted, uint64_t now_ns,
		      struct top_sample *sample)
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

/* Analyses the jobs that are due, and fills in jobs (and places). -ENOMEM. */
static int node_jobs_sample(struct node *node, unsigned int wanted, uint64_t now_ns,
			    struct top_sample *sample)
{
	int r = 0;

	/* Drops jobs that have ended. The next scan would find them too, but may be a minute away, because a
	 * scan is expensive on a node with many processes. */
	keep_jobs(node, is_running);
	analyse_due(node, now_ns);
	for (size_t i = 0; r == 0 && i < node->n_jobs; i++)
		r = job_sample(node, &node->jobs[i], wanted, now_ns, sample);
	return r;
}

#define TASKS_MAX 4096 /* maximum over all jobs; more are left out */

/* Counters of a task at the last sample, for rates. */
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

static const char *role_of_process(const struct node_job *job, const struct census_process *process)
{
	const struct analysis *analysis = job->analysis;

	if (analysis && analysis->job.trainer_tgid == (uint32_t)process->pid)
		return "trainer";
	for (size_t i = 0; analysis && i < analysis->n_ranks; i++)
		if (analysis->ranks[i].tgid == (uint32_t)process->pid)
			return "rank";
	if (process->pid == job->root)
		return analysis && analysis->job.trainer_tgid ? "launcher" : "trainer";
	return process->has_library ? "worker" : "helper";
}

static int add_task(struct node *node, const struct node_job *job, const struct census_process *process,
		    pid_t tid, double s, struct top_sample *sample)
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

static int add_process(struct node *node, const struct node_job *job, const struct census_process *process,
		       bool threads, double s, struct top_sample *sample)
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

/* Adds the jobs' processes, if they are wanted. -ENOMEM. */
static int node_workers_sample(struct node *node, unsigned int wanted, uint64_t now_ns,
			       struct top_sample *sample)
{
	double s = node->tasks_sampled_ns ? (double)(now_ns - node->tasks_sampled_ns) / 1e9 : 0;
	struct node_task *old;
	int r = 0;

	if (!(wanted & FEED_WANT_WORKERS))
		return 0;
	node->tasks_new = calloc(TASKS_MAX, sizeof(*node->tasks_new));
	if (!node->tasks_new)
		return -ENOMEM;
	node->n_tasks_new = 0;
	for (size_t i = 0; r == 0 && i < node->census.n; i++) {
		const struct census_process *process = &node->census.items[i];
		const struct node_job *job = job_of(node, process);

		if (job)
			r = add_process(node, job, process, wanted & FEED_WANT_THREADS, s, sample);
	}
	qsort(node->tasks_new, node->n_tasks_new, sizeof(*node->tasks_new), compare_task);
	old = node->tasks;
	node->tasks = steal_pointer(node->tasks_new);
	node->n_tasks = node->n_tasks_new;
	node->tasks_sampled_ns = now_ns;
	free(old);
	return r;
}

static double rate(uint64_t now, uint64_t before, double s)
{
	return now >= before ? (double)(now - before) / 1e9 / s : 0;
}

/* Fills in diesel-top's own cost. */
static void node_self_sample(struct node *node, uint64_t now_ns, struct top_sample *sample)
{
	struct self_sample *to = &sample->self;
	struct collector_stats stats;
	struct proc_stat own;
	uint64_t n_events = 0, n_lost = 0, cpu_ns = clock_process_ns(), longest_ns = 0;
	double s = (double)(now_ns - node->sampled_ns) / 1e9;

	source_stats_get(node->source, &stats);
	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++) {
		n_events += stats.events[i];
		n_lost += stats.lost[i];
	}
	for (size_t i = 0; i < node->n_jobs; i++)
		if (node->jobs[i].analysed_ns && now_ns - node->jobs[i].analysed_ns > longest_ns)
			longest_ns = now_ns - node->jobs[i].analysed_ns;
	snprintf(to->source, sizeof(to->source), "%s", node->how);
	to->n_lost = n_lost;
	to->n_tasks = source_alive(node->source);
	to->oldest_s = (double)longest_ns / 1e9;
	if (!proc_stat_read("/proc", getpid(), &own))
		to->memory_bytes = (double)own.resident_pages * (double)sysconf(_SC_PAGESIZE);
	if (node->sampled_ns && s > 0) {
		to->cpu_ratio = rate(cpu_ns, node->before.cpu_ns, s);
		to->poll_ratio = rate(node->poll_budget.spent_ns, node->before.poll_ns, s);
		to->scan_ratio = rate(node->scan_budget.spent_ns, node->before.scan_ns, s);
		to->analysis_ratio = rate(node->analysis_ns, node->before.analysis_ns, s);
		to->events_per_s = rate(n_events, node->before.events, s) * 1e9;
		if (stats.sampled_ns)
			to->bpf_ratio = rate(stats.bpf_run_ns, node->before.bpf_ns, s);
	}
	node->before.cpu_ns = cpu_ns;
	node->before.poll_ns = node->poll_budget.spent_ns;
	node->before.scan_ns = node->scan_budget.spent_ns;
	node->before.analysis_ns = node->analysis_ns;
	node->before.events = n_events;
	node->before.bpf_ns = stats.bpf_run_ns;
}

static void read_pressure(const char *root, const char *name, double *ret_ratio)
{
	char path[4200];
	struct psi psi;

	snprintf(path, sizeof(path), "%s/pressure/%s", root, name);
	if (!psi_read(path, &psi))
		*ret_ratio = psi.some.avg10_ratio;
}

static void read_load(const char *root, double *ret_load)
{
	_cleanup_(freep) char *text = NULL;
	char path[4200], *end;
	size_t length;
	double load;

	snprintf(path, sizeof(path), "%s/loadavg", root);
	if (proc_read_file(path, 256, &text, &length))
		return;
	load = strtod(text, &end);
	if (end != text)
		*ret_load = load;
}

/* root is "/proc". Figures that cannot be read stay unknown. */
static void host_read(struct host *host, const char *root, uint64_t now_ns, struct host_sample *ret_sample)
{
	long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct proc_cpu_ticks ticks;
	struct proc_meminfo memory;

	if (gethostname(ret_sample->name, sizeof(ret_sample->name)))
		ret_sample->name[0] = '\0';
	ret_sample->name[sizeof(ret_sample->name) - 1] = '\0';
	if (n_cpus > 0)
		ret_sample->n_cpus = (uint64_t)n_cpus;
	if (!proc_cpu_ticks_read(root, &ticks)) {
		uint64_t busy = ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq;
		double s = (double)(now_ns - host->at_ns) / 1e9;

		if (host->at_ns && s > 0 && busy >= host->busy_ticks)
			ret_sample->cpu_ratio =
			    (double)(busy - host->busy_ticks) / (double)sysconf(_SC_CLK_TCK) / s;
		host->busy_ticks = busy;
		host->at_ns = now_ns;
	}
	if (!proc_meminfo_read(root, &memory)) {
		ret_sample->memory_bytes = (double)memory.total_bytes;
		ret_sample->available_bytes = (double)memory.available_bytes;
	}
	read_load(root, &ret_sample->load1);
	read_pressure(root, "cpu", &ret_sample->psi_cpu);
	read_pressure(root, "io", &ret_sample->psi_io);
	read_pressure(root, "memory", &ret_sample->psi_memory);
}

/* Budgets as shares of one core. All of them and drawing stay below a hundredth. */
#define POLL_RATIO 0.004
#define SCAN_RATIO 0.002

#define POLL_NS (100 * NS_PER_MS) /* maximum time between two calls of collector_poll() */
#define SCAN_NS (2 * NS_PER_S)

#define WINDOW_NS (12 * NS_PER_S)
/* Window for sampled jobs: the hundreds of samples that significance needs take a while within the budget. */
#define WINDOW_SAMPLED_NS  (30 * NS_PER_S)
#define POLL_SAMPLED_RATIO 0.006
#define N_EVENTS_MAX       (1 << 16) /* maximum events per job; more would cost too much to analyse often */

static void on_event(void *user, const struct event *event)
{
	struct node *node = user;

	/* The sampler finds descendants by itself, without fork events. Only their records tell which job
	 * they belong to. */
	if (node->sampled && event->type == EVENT_ALIVE && event->name.parent_tgid > 1) {
		struct event fork = {.type = EVENT_FORK,
				     .start_ns = event->start_ns,
				     .end_ns = event->end_ns,
				     .tid = event->name.parent_tgid,
				     .tgid = event->name.parent_tgid};

		fork.fork.child_tid = fork.fork.child_tgid = event->tgid;
		live_event(node->live, &fork);
	}
	live_event(node->live, event);
}

static void on_metadata(void *user, const char *kind, uint64_t key, const void *data, size_t size)
{
	live_note(((struct node *)user)->live, kind, data, size);
}

static void node_job_free(struct node_job *job)
{
	analysis_free(job->analysis);
}

/* Reads the events that the source has collected. */
static void node_poll(struct node *node, uint64_t now_ns)
{
	const struct collector_sink sink = {on_event, on_metadata, node};
	uint64_t cpu_ns = budget_cpu_ns();

	source_poll(node->source, 0, &sink);
	budget_spend(&node->poll_budget, now_ns, budget_cpu_ns() - cpu_ns);
}

static int scan(struct node *node, uint64_t now_ns)
{
	uint64_t cpu_ns = budget_cpu_ns();
	int r = census_scan(&node->census, now_ns);

	if (r > 0)
		r = node_jobs_update(node);
	budget_spend(&node->scan_budget, now_ns, budget_cpu_ns() - cpu_ns);
	return r;
}

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct node *node = (struct node *)feed;

	if (budget_allows(&node->poll_budget, now_ns))
		node_poll(node, now_ns);
	if (budget_allows(&node->scan_budget, now_ns))
		scan(node, now_ns);
	*ret_next_ns = node->poll_budget.next_ns < node->scan_budget.next_ns ? node->poll_budget.next_ns
									     : node->scan_budget.next_ns;
}

static int take_sample(struct feed *feed, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct node *node = (struct node *)feed;
	struct top_sample *sample = sample_new();
	int r;

	if (!sample)
		return error_set(err, -ENOMEM, "no memory for a sample");
	sample->time_s = (double)clock_realtime_ns() / 1e9;
	if (node->sampled_ns)
		sample->interval_s = (double)(now_ns - node->sampled_ns) / 1e9;
	host_read(&node->host, "/proc", now_ns, &sample->host);
	r = node_jobs_sample(node, wanted, now_ns, sample);
	if (r == 0)
		r = node_workers_sample(node, wanted, now_ns, sample);
	if (r == 0 && wanted & FEED_WANT_DEVICES)
		r = devices_sample(&node->devices, "/proc", now_ns, sample);
	if (r == 0 && wanted & FEED_WANT_GPUS)
		r = add_gpus(node, sample);
	node_self_sample(node, now_ns, sample);
	node->sampled_ns = now_ns;
	if (r < 0) {
		sample_free(sample);
		return error_set(err, r, "no memory for a sample");
	}
	*ret_sample = sample;
	return 0;
}

static void node_close(struct feed *feed)
{
	struct node *node = (struct node *)feed;

	for (size_t i = 0; i < node->n_jobs; i++)
		node_job_free(&node->jobs[i]);
	free(node->jobs);
	free(node->tasks);
	devices_free(&node->devices);
	nvml_close(node->gpus.nvml);
	census_free(&node->census);
	live_free(node->live);
	source_close(node->source);
	free(node);
}

static pid_t root_of(const struct feed *feed, pid_t pid)
{
	const struct census_process *process = census_find(&((const struct node *)feed)->census, pid);

	return process ? process->root : 0;
}

static const struct feed_ops node_ops = {
    .work = work, .sample = take_sample, .job_of = root_of, .close = node_close};

/* Opens BPF, or /proc if the kernel refuses BPF; node->how names the one in use. */
static int open_source(struct node *node, bool sampled, struct error *err)
{
	const struct collector_options options = {0};
	struct error refusal = ERROR_INIT;
	int r = sampled ? -EPERM : source_open(SOURCE_COLLECTOR, &options, &node->source, &refusal);

	node->sampled = r != 0;
	if (r == 0) {
		snprintf(node->how, sizeof(node->how), "BPF");
		return 0;
	}
	if (sampled)
		snprintf(node->how, sizeof(node->how), "sampling /proc: approximate");
	else
		snprintf(node->how, sizeof(node->how), "sampling /proc: approximate (%s)", refusal.text);
	r = source_open(SOURCE_SAMPLER, &options, &node->source, err);
	return r;
}

int feed_node_open(const struct node_options *options, struct feed **ret_feed, struct error *err)
{
	struct node *node = calloc(1, sizeof(*node));
	struct live_config config = {.n_events_max = N_EVENTS_MAX,
				     .n_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN)};
	int r;

	if (!node)
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	node->feed.ops = &node_ops;
	node->poll_budget = (struct budget){.interval_ns = POLL_NS, .ratio = POLL_RATIO};
	node->scan_budget = (struct budget){.interval_ns = SCAN_NS, .ratio = SCAN_RATIO};
	node->census = (struct census){.root = "/proc", .only = options->pids, .n_only = options->n_pids};
	r = open_source(node, options->sampled, err);
	if (node->sampled)
		node->poll_budget.ratio = POLL_SAMPLED_RATIO;
	config.window_ns = node->sampled ? WINDOW_SAMPLED_NS : WINDOW_NS;
	node->live = live_new(&config);
	if (r == 0 && !node->live)
		r = error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	if (r == 0 && scan(node, clock_monotonic_ns()) < 0)
		r = error_set(err, -EIO, "cannot read /proc: is it mounted?");
	if (r < 0) {
		node_close(&node->feed);
		return r;
	}
	*ret_feed = &node->feed;
	return 0;
}
