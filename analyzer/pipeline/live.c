/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/live.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "analyzer/trace/recording_metadata.h"
#include "bpf/event.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/sorted.h"

/* The stored events of one job: lives of its threads, and their recent activity. */

struct live_list {
	struct event *items;
	size_t n, n_allocated;
};

struct live_events {
	struct live_list lives, recent;
	size_t n_lives_tidied; /* lives left after they were last tidied */
	uint64_t begin_ns;     /* events that ended before this time are gone */
	uint64_t n_dropped;    /* events lost for lack of memory since the last analysis */
};

#define LIVES_MIN 1024 /* with fewer lives, tidying is not worth its cost */

static void live_events_free(struct live_events *events)
{
	free(events->lives.items);
	free(events->recent.items);
	*events = (struct live_events){0};
}

static int list_add(struct live_list *list, const struct event *event)
{
	if (array_reserve(list->items, list->n, list->n_allocated) < 0)
		return -ENOMEM;
	list->items[list->n++] = *event;
	return 0;
}

/* Returns true for an event that identifies a thread, and that must be kept during the thread's life. */
static bool is_life(const struct event *event)
{
	switch ((enum event_type)event->type) {
	case EVENT_FORK:
	case EVENT_EXEC:
	case EVENT_EXIT:
	case EVENT_NAME:
	case EVENT_ALIVE: return true;
	default: return false;
	}
}

struct exit_at {
	uint32_t tid;
	uint64_t at_ns;
};

static int exit_compare(const void *left, const void *right)
{
	const struct exit_at *a = left, *b = right;

	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Returns the last exit of this tid that was long enough ago; 0: none. */
static uint64_t exit_of(const struct exit_at *exits, size_t n, uint32_t tid)
{
	size_t until = sorted_count(n, i, exits[i].tid <= tid);

	return until && exits[until - 1].tid == tid ? exits[until - 1].at_ns : 0;
}

/* Removes the lives of threads that ended before begin_ns, because they are no longer needed. */
static void lives_tidy(struct live_events *events)
{
	struct live_list *lives = &events->lives;
	struct exit_at *exits;
	size_t n_exits = 0, n = 0;

	if (lives->n < LIVES_MIN || lives->n < 2 * events->n_lives_tidied)
		return;
	exits = calloc(lives->n, sizeof(*exits));
	if (!exits)
		return; /* next time */
	for (size_t i = 0; i < lives->n; i++)
		if (lives->items[i].type == EVENT_EXIT && lives->items[i].end_ns < events->begin_ns)
			exits[n_exits++] = (struct exit_at){lives->items[i].tid, lives->items[i].end_ns};
	qsort(exits, n_exits, sizeof(*exits), exit_compare);
	for (size_t i = 0; i < lives->n; i++) {
		const struct event event = lives->items[i];
		uint32_t tid = event.type == EVENT_FORK ? event.fork.child_tid : event.tid;

		if (event.end_ns > exit_of(exits, n_exits, tid))
			lives->items[n++] = event;
	}
	lives->n = events->n_lives_tidied = n;
	free(exits);
}

/* Removes events and threads that ended before begin_ns. */
static void live_events_forget(struct live_events *events, uint64_t begin_ns)
{
	struct live_list *recent = &events->recent;
	size_t n = 0;

	if (begin_ns <= events->begin_ns)
		return;
	events->begin_ns = begin_ns;
	for (size_t i = 0; i < recent->n; i++)
		if (recent->items[i].end_ns >= begin_ns)
			recent->items[n++] = recent->items[i];
	recent->n = n;
	lives_tidy(events);
}

/* Adds an event. n_max: limit of recent events; beyond it the older half is dropped. -ENOMEM. */
static int live_events_add(struct live_events *events, const struct event *event, size_t n_max)
{
	struct live_list *recent = &events->recent;
	int r;

	if (is_life(event))
		return list_add(&events->lives, event);
	if (recent->n >= n_max)
		live_events_forget(events, recent->items[recent->n / 2].end_ns);
	if (recent->n >= n_max) /* all events have the same time */
		return -ENOMEM;
	r = list_add(recent, event);
	if (r < 0)
		events->n_dropped++;
	return r;
}

/* Copies all events into one array, which the caller frees. -ENOMEM. */
static int live_events_copy(const struct live_events *events, struct event **ret_events, size_t *ret_n)
{
	size_t n = events->lives.n + events->recent.n;
	struct event *copy = calloc(n + 1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	if (events->lives.n)
		memcpy(copy, events->lives.items, events->lives.n * sizeof(*copy));
	if (events->recent.n)
		memcpy(copy + events->lives.n, events->recent.items, events->recent.n * sizeof(*copy));
	*ret_events = copy;
	*ret_n = n;
	return 0;
}

#define LIVE_PATHS_MAX                                                                                       \
	4096 /* a job has dozens of files and folders; one that makes up names must not fill memory */

struct live_job {
	uint32_t root_tgid;
	struct live_events events;
};

/* The job that a process belongs to. */
struct live_process {
	uint32_t tgid, root_tgid;
};

struct live {
	struct live_config config;
	struct live_job *jobs;
	size_t n_jobs;
	/* Root of the job that processes join if they are found alive. If it is 0 or was removed, they
	 * join no job. */
	uint32_t adopter;
	struct live_process *processes; /* sorted by tgid */
	size_t n_processes, n_processes_allocated;
	struct recording_paths paths;
};

struct live *live_new(const struct live_config *config)
{
	struct live *live = calloc(1, sizeof(*live));

	if (!live)
		return NULL;
	live->config = *config;
	if (!live->config.window_ns)
		live->config.window_ns = LIVE_WINDOW_NS;
	if (!live->config.n_events_max)
		live->config.n_events_max = LIVE_EVENTS_MAX;
	return live;
}

struct live *live_free(struct live *live)
{
	if (!live)
		return NULL;
	for (size_t i = 0; i < live->n_jobs; i++)
		live_events_free(&live->jobs[i].events);
	free(live->jobs);
	free(live->processes);
	recording_paths_free(&live->paths);
	free(live);
	return NULL;
}

static struct live_job *job_of(struct live *live, uint32_t root_tgid)
{
	for (size_t i = 0; i < live->n_jobs; i++)
		if (live->jobs[i].root_tgid == root_tgid)
			return &live->jobs[i];
	return NULL;
}

/* Returns the index of the first process whose tgid is at least this one. */
static size_t process_lower(const struct live *live, uint32_t tgid)
{
	return sorted_count(live->n_processes, i, live->processes[i].tgid < tgid);
}

static struct live_process *process_find(struct live *live, uint32_t tgid)
{
	size_t i = process_lower(live, tgid);

	return i < live->n_processes && live->processes[i].tgid == tgid ? &live->processes[i] : NULL;
}

static int process_add(struct live *live, uint32_t tgid, uint32_t root_tgid)
{
	size_t at = process_lower(live, tgid);

	if (at < live->n_processes && live->processes[at].tgid == tgid) {
		/* An earlier process with this ID has ended, and its exit event was lost. */
		if (live->processes[at].root_tgid != tgid)
			live->processes[at].root_tgid = root_tgid;
		return 0;
	}
	if (array_reserve(live->processes, live->n_processes, live->n_processes_allocated) < 0)
		return -ENOMEM;
	memmove(&live->processes[at + 1], &live->processes[at],
		(live->n_processes - at) * sizeof(*live->processes));
	live->processes[at] = (struct live_process){tgid, root_tgid};
	live->n_processes++;
	return 0;
}

static void process_remove(struct live *live, uint32_t tgid)
{
	struct live_process *process = process_find(live, tgid);

	if (!process)
		return;
	live->n_processes--;
	memmove(process, process + 1,
		(live->n_processes - (size_t)(process - live->processes)) * sizeof(*process));
}

int live_add(struct live *live, uint32_t root_tgid)
{
	struct live_job *jobs;

	if (process_find(live, root_tgid))
		return -EEXIST;
	jobs = reallocarray(live->jobs, live->n_jobs + 1, sizeof(*jobs));
	if (!jobs)
		return -ENOMEM;
	live->jobs = jobs;
	live->jobs[live->n_jobs++] = (struct live_job){.root_tgid = root_tgid};
	if (process_add(live, root_tgid, root_tgid) < 0) {
		live->n_jobs--;
		return -ENOMEM;
	}
	live->adopter = root_tgid;
	return 0;
}

void live_remove(struct live *live, uint32_t root_tgid)
{
	struct live_job *job = job_of(live, root_tgid);
	size_t at, n = 0;

	if (!job)
		return;
	at = (size_t)(job - live->jobs);
	live_events_free(&job->events);
	memmove(job, job + 1, (live->n_jobs - at - 1) * sizeof(*job));
	live->n_jobs--;
	for (size_t i = 0; i < live->n_processes; i++)
		if (live->processes[i].root_tgid != root_tgid)
			live->processes[n++] = live->processes[i];
	live->n_processes = n;
}

int live_event(struct live *live, const struct event *event)
{
	struct live_process *process = process_find(live, event->tgid);
	struct live_job *adopter = job_of(live, live->adopter), *job;
	int r = 0;

	if (!event->tid && live->n_jobs == 1)
		return live_events_add(&live->jobs[0].events, event, live->config.n_events_max);
	if (!process && event->type == EVENT_ALIVE && adopter) {
		r = process_add(live, event->tgid, adopter->root_tgid);
		process = process_find(live, event->tgid);
	}
	if (!process)
		return r;
	job = job_of(live, process->root_tgid);
	if (event->type == EVENT_FORK && event->fork.child_tgid != event->tgid)
		r = process_add(live, event->fork.child_tgid, job->root_tgid);
	if (r == 0)
		r = live_events_add(&job->events, event, live->config.n_events_max);
	if (event->type == EVENT_EXIT && event->tid == event->tgid)
		process_remove(live, event->tgid);
	return r;
}

int live_note(struct live *live, const char *kind, const void *data, size_t size)
{
	if (strcmp(kind, METADATA_PATH) != 0)
		return 0;
	return recording_paths_update(&live->paths, data, size, LIVE_PATHS_MAX);
}

uint32_t live_root_of(struct live *live, uint32_t tgid)
{
	const struct live_process *process = process_find(live, tgid);

	return process ? process->root_tgid : 0;
}

int live_analyze(struct live *live, uint32_t root_tgid, uint64_t now_ns, struct analysis **ret_analysis,
		 struct error *err)
{
	_cleanup_(freep) struct event *events = NULL;
	struct analysis_loss loss;
	struct analysis_input input = {
	    .root_tgid = root_tgid, .n_cpus = live->config.n_cpus, .attached = true, .shares_only = true};
	struct live_job *job = job_of(live, root_tgid);

	if (!job)
		return error_set(err, -ENOENT, "process %u is not a watched job", root_tgid);
	if (now_ns > live->config.window_ns)
		live_events_forget(&job->events, now_ns - live->config.window_ns);
	if (live_events_copy(&job->events, &events, &input.n_events) < 0)
		return error_set(err, -ENOMEM, "not enough memory to analyse job %u", root_tgid);
	input.events = events;
	input.paths = live->paths.items;
	input.n_paths = live->paths.n;
	input.begin_ns = job->events.begin_ns < now_ns ? job->events.begin_ns : now_ns;
	input.end_ns = now_ns;
	loss = (struct analysis_loss){input.begin_ns, now_ns, job->events.n_dropped};
	if (loss.n_events) {
		input.losses = &loss;
		input.n_losses = 1;
		job->events.n_dropped = 0;
	}
	return analysis_run(&input, ret_analysis, err);
}
