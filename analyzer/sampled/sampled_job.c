/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_job.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/proc_task.h"
#include "lib/sorted.h"

#define LOADER_BYTES (256 << 10) /* minimum bytes read by a loader thread */

static int compare_processes(const void *left, const void *right)
{
	const struct event *a = *(const struct event *const *)left, *b = *(const struct event *const *)right;

	if (a->tgid != b->tgid)
		return a->tgid < b->tgid ? -1 : 1;
	return a->end_ns < b->end_ns ? -1 : a->end_ns > b->end_ns;
}

static int compare_threads(const void *left, const void *right)
{
	const struct event *a = *(const struct event *const *)left, *b = *(const struct event *const *)right;

	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->end_ns < b->end_ns ? -1 : a->end_ns > b->end_ns;
}

static bool is_ours(const struct event *event)
{
	switch ((enum event_type)event->type) {
	case EVENT_SAMPLE: return event->start_ns < event->end_ns;
	case EVENT_SAMPLE_PROCESS:
	case EVENT_LIBRARY:
	case EVENT_EXIT: return event->tid == event->tgid;
	default: return false;
	}
}

/* Fills a process from its events; afterwards only its samples remain in the array, by thread. */
static size_t process_fill(struct sampled_process *process, const struct event **events, size_t n)
{
	size_t n_samples = 0;

	process->tgid = events[0]->tgid;
	process->first_ns = events[0]->start_ns;
	process->last_ns = events[n - 1]->end_ns;
	for (size_t i = 0; i < n; i++) {
		const struct event *event = events[i];

		if (event->start_ns < process->first_ns)
			process->first_ns = event->start_ns;
		if (event->type == EVENT_SAMPLE_PROCESS) {
			process->parent_tgid = event->process.parent_tgid;
			process->flags = event->process.flags;
		} else if (event->type == EVENT_LIBRARY) {
			process->framework_ns = event->end_ns;
		} else if (event->type == EVENT_SAMPLE) {
			process->process_ns += event->tid == event->tgid ? event->sample.process_ns : 0;
			events[n_samples++] = event;
		}
	}
	qsort(events, n_samples, sizeof(*events), compare_threads);
	return n_samples;
}

/* Fills in the threads. Overlapping samples contradict each other: the later one is dropped. */
static void threads_fill(struct sampled_process *process, const struct event **samples, size_t n)
{
	for (size_t i = 0; i < n;) {
		struct sampled_thread *thread = &process->threads[process->n_threads++];
		size_t k = i;

		*thread = (struct sampled_thread){.tid = samples[i]->tid, .samples = &samples[i]};
		for (; k < n && samples[k]->tid == thread->tid; k++)
			if (!thread->n || samples[k]->start_ns >= thread->samples[thread->n - 1]->end_ns)
				thread->samples[thread->n++] = samples[k];
		i = k;
	}
	for (size_t i = 0; i < process->n_threads; i++)
		if (process->threads[i].tid == process->tgid)
			process->main = &process->threads[i];
}

static int processes_find(struct sampled_job *job, size_t n)
{
	struct sampled_thread *threads;
	size_t n_processes = 0, n_samples = 0;

	for (size_t i = 0; i < n; i++) {
		n_processes += !i || job->events[i]->tgid != job->events[i - 1]->tgid ||
			       job->events[i - 1]->type == EVENT_EXIT;
		n_samples += job->events[i]->type == EVENT_SAMPLE;
	}
	job->processes = calloc(n_processes + 1, sizeof(*job->processes));
	/* At most one thread per sample; usually there are thousands of samples per thread. */
	job->thread_array = threads = calloc(n_samples + 1, sizeof(*threads));
	if (!job->processes || !threads)
		return -ENOMEM;
	for (size_t i = 0, end; i < n; i = end) {
		struct sampled_process *process = &job->processes[job->n_processes++];

		for (end = i + 1; end < n && job->events[end]->tgid == job->events[i]->tgid &&
				  job->events[end - 1]->type != EVENT_EXIT;
		     end++)
			;
		process->threads = threads;
		threads_fill(process, &job->events[i], process_fill(process, &job->events[i], end - i));
		threads += process->n_threads;
	}
	return 0;
}

static bool looks_like_worker(const struct sampled_process *process)
{
	return (process->flags & (SAMPLE_PROCESS_SHARES_PIPE | SAMPLE_PROCESS_HIDDEN)) &&
	       (process->flags & (SAMPLE_PROCESS_COPY | SAMPLE_PROCESS_SPAWNED));
}

static bool is_child(const struct sampled_process *child, const struct sampled_process *parent)
{
	return child->parent_tgid == parent->tgid && child->first_ns >= parent->first_ns &&
	       child->first_ns <= parent->last_ns;
}

/* Returns true if the process is a worker. A worker's parent is the trainer, or the fork server that the
 * trainer spawned. */
static bool is_worker_of(const struct sampled_job *job, const struct sampled_process *process,
			 const struct sampled_process *trainer)
{
	if (!process->main || process == trainer || !looks_like_worker(process))
		return false;
	if (is_child(process, trainer))
		return true;
	for (size_t i = 0; i < job->n_processes; i++) {
		const struct sampled_process *server = &job->processes[i];

		if ((server->flags & SAMPLE_PROCESS_SPAWNED) && is_child(process, server) &&
		    is_child(server, trainer))
			return true;
	}
	return false;
}

static size_t n_workers_of(const struct sampled_job *job, const struct sampled_process *process)
{
	size_t n = 0;

	for (size_t i = 0; i < job->n_processes; i++)
		n += job->processes[i].main && looks_like_worker(&job->processes[i]) &&
		     is_child(&job->processes[i], process);
	return n;
}

static void trainer_find(struct sampled_job *job)
{
	const struct sampled_process *best = NULL;
	bool best_has_workers = false;

	for (size_t i = 0; i < job->n_processes; i++) {
		const struct sampled_process *process = &job->processes[i];
		bool has_workers = process->main && n_workers_of(job, process) > 0;

		if (!process->main || (looks_like_worker(process) && !has_workers))
			continue;
		if (best && (has_workers != best_has_workers ? !has_workers
							     : process->process_ns <= best->process_ns))
			continue;
		best = process;
		best_has_workers = has_workers;
	}
	job->trainer_process = best;
	job->trainer = best ? best->main : NULL;
}

static void trainer_override(struct sampled_job *job, uint32_t tid)
{
	for (size_t i = 0; i < job->n_processes; i++)
		for (size_t k = 0; k < job->processes[i].n_threads; k++)
			if (job->processes[i].threads[k].tid == tid) {
				job->trainer_process = &job->processes[i];
				job->trainer = &job->processes[i].threads[k];
			}
}

static void helpers_find(struct sampled_job *job)
{
	const struct sampled_process *process = job->trainer_process;
	size_t most_pipes = 0;
	uint64_t most_bytes = LOADER_BYTES;

	for (size_t i = 0; i < process->n_threads; i++) {
		const struct sampled_thread *thread = &process->threads[i];
		size_t n_pipes = 0;
		uint64_t bytes = 0;

		if (thread == job->trainer)
			continue;
		for (size_t k = 0; k < thread->n; k++) {
			n_pipes += thread->samples[k]->sample.wait == PROC_WAIT_PIPE;
			bytes += thread->samples[k]->sample.read_bytes;
		}
		if (job->n_workers && n_pipes > most_pipes) {
			most_pipes = n_pipes;
			job->reader = thread;
		}
		if (!job->n_workers && bytes > most_bytes) {
			most_bytes = bytes;
			job->loader = thread;
		}
	}
}

static void roles_set(struct sampled_job *job)
{
	for (size_t i = 0; i < job->n_processes; i++) {
		struct sampled_process *process = &job->processes[i];

		/* A process that has workers itself is a fork server. */
		process->is_worker =
		    is_worker_of(job, process, job->trainer_process) && !n_workers_of(job, process);
		job->n_workers += process->is_worker;
	}
	helpers_find(job);
	job->n_samples = job->trainer->n;
	job->known = job->trainer->n ? UINT16_MAX : 0;
	for (size_t i = 0; i < job->trainer->n; i++)
		job->known &= job->trainer->samples[i]->sample.known;
}

int sampled_job_find(const struct event *events, size_t n_events, uint32_t trainer_tid,
		     struct sampled_job *job)
{
	size_t n = 0;
	int r;

	*job = (struct sampled_job){.events = calloc(n_events + 1, sizeof(*job->events)),
				    .begin_ns = UINT64_MAX};
	if (!job->events)
		return -ENOMEM;
	for (size_t i = 0; i < n_events; i++) {
		if (!is_ours(&events[i]))
			continue;
		job->events[n++] = &events[i];
		if (events[i].start_ns < job->begin_ns)
			job->begin_ns = events[i].start_ns;
		if (events[i].end_ns > job->end_ns)
			job->end_ns = events[i].end_ns;
	}
	if (n)
		qsort(job->events, n, sizeof(*job->events), compare_processes);
	r = processes_find(job, n);
	if (r < 0)
		return r;
	trainer_find(job);
	if (trainer_tid)
		trainer_override(job, trainer_tid);
	if (job->trainer)
		roles_set(job);
	return 0;
}

void sampled_job_free(struct sampled_job *job)
{
	free(job->events);
	free(job->thread_array);
	free(job->processes);
	*job = (struct sampled_job){0};
}

const struct event *sampled_at(const struct sampled_thread *thread, uint64_t at_ns)
{
	size_t at = sorted_count(thread->n, i, thread->samples[i]->end_ns <= at_ns);

	return at < thread->n && thread->samples[at]->start_ns <= at_ns ? thread->samples[at] : NULL;
}

bool sampled_inside(const struct event *sample)
{
	return sample->sample.place == SAMPLE_PLACE_NEXT || sample->sample.place == SAMPLE_PLACE_DIESEL ||
	       sample->sample.place == SAMPLE_PLACE_ITERATOR;
}

bool sampled_is_sure(const struct event *sample)
{
	return sample->sample.wait != PROC_WAIT_NONE && !sample->sample.exec_ns && !sample->sample.queue_ns;
}

uint64_t sampled_sleep_ns(const struct event *sample)
{
	uint64_t awake_ns = (uint64_t)sample->sample.exec_ns + sample->sample.queue_ns;
	uint64_t wall_ns = sample->end_ns - sample->start_ns;

	return awake_ns < wall_ns ? wall_ns - awake_ns : 0;
}
