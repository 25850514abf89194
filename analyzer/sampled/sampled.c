/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/explain/lanes_find.h"
#include "analyzer/lanes.h"
#include "analyzer/result/advice.h"
#include "analyzer/shares/study.h"
#include "lib/clock.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "sampled_charge.h"
#include "sampled_job.h"
#include "sampled_trainer.h"

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

/* Fills *job; the caller frees it with sampled_job_free() in every case. -ENOMEM. */
static int sampled_job_find(const struct event *events, size_t n_events, uint32_t trainer_tid,
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

static void sampled_job_free(struct sampled_job *job)
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

/*
 * Splits the sampled data wait into fetch and prep, and estimates the errors.
 *
 * With worker processes: if reading cost nothing, the window would last as long as the longest of three
 * times. These are the trainer's own work, the workers' work without reading, and all CPU work on the
 * available cores. fetch_stall is the time saved in this way, at most the wait: the quick answer of the stall
 * model. Half-widths are 95 %: for the sampled sleep they follow from the number of samples, for the split
 * from the model's errors in three runs.
 */

/* Samples a few ms apart see the same sleep, so this many count as one. */
#define SAMPLES_CORRELATED 4

/* Half-widths of errors other than the sampling error, as shares. */
#define ERROR_FLOOR  0.025 /* edges of the window, CPU time of the hand-over itself */
#define ERROR_SPLIT  0.25  /* model error with workers, as part of the smaller of fetch and prep */
#define ERROR_QUEUE  0.1   /* part of cpu_starved: unknown share of queueing during waits */
#define ERROR_INLINE 0.05  /* boundary between loading and computing */
#define ERROR_SOURCE 0.05  /* error for each unreadable source of /proc */

struct worker_sums {
	double wall_ns, exec_ns, queue_ns, sure_fetch_ns, sure_idle_ns, sure_blocked_ns;
	double fetch, idle, blocked; /* weights of the sleep whose charge is uncertain */
};

static double *slot(struct worker_sums *sums, const struct event *sample, bool sure)
{
	switch ((enum proc_wait)sample->sample.wait) {
	case PROC_WAIT_FILE_READ:
	case PROC_WAIT_SOCKET: return sure ? &sums->sure_fetch_ns : &sums->fetch;
	case PROC_WAIT_PIPE:
	case PROC_WAIT_POLL:
	case PROC_WAIT_UNKNOWN: return sure ? &sums->sure_idle_ns : &sums->idle;
	default: return sure ? &sums->sure_blocked_ns : &sums->blocked;
	}
}

static void worker_add(const struct sampled_process *worker, uint64_t begin_ns, uint64_t end_ns,
		       struct analysis_workers *workers, uint64_t *process_ns)
{
	struct worker_sums sums = {0};
	const struct event *before = NULL;
	double rest, weights;

	for (size_t i = 0; i < worker->main->n; before = worker->main->samples[i++]) {
		const struct event *sample = worker->main->samples[i];
		bool sleeps = sample->sample.wait != PROC_WAIT_NONE;
		bool slept = before && before->sample.wait != PROC_WAIT_NONE;
		double sleep_ns = (double)sampled_sleep_ns(sample);

		if (sample->end_ns <= begin_ns || sample->start_ns >= end_ns)
			continue;
		*process_ns += sample->sample.process_ns;
		sums.wall_ns += (double)(sample->end_ns - sample->start_ns);
		sums.exec_ns += sample->sample.exec_ns;
		sums.queue_ns += sample->sample.queue_ns;
		if (sampled_is_sure(sample)) {
			*slot(&sums, sample, true) += sleep_ns;
			continue;
		}
		if (sleeps)
			*slot(&sums, sample, false) += sleep_ns;
		if (slept)
			*slot(&sums, before, false) += sleep_ns;
		workers->n_batches += sample->sample.n_reads > 0;
	}
	rest = sums.wall_ns - sums.exec_ns - sums.queue_ns - sums.sure_fetch_ns - sums.sure_idle_ns -
	       sums.sure_blocked_ns;
	weights = sums.fetch + sums.idle + sums.blocked;
	rest = rest > 0 && weights > 0 ? rest / weights : 0;
	workers->fetch_ns += (uint64_t)(sums.sure_fetch_ns + rest * sums.fetch);
	workers->idle_ns += (uint64_t)(sums.sure_idle_ns + rest * sums.idle);
	workers->blocked_ns += (uint64_t)(sums.sure_blocked_ns + rest * sums.blocked);
	workers->cpu_ns += (uint64_t)sums.exec_ns;
	workers->queue_ns += (uint64_t)sums.queue_ns;
}

/* Fills in the workers' times in the window. */
static void sampled_workers_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
				 struct analysis *analysis, uint64_t *ret_process_ns)
{
	struct analysis_workers *workers = &analysis->workers;
	uint64_t alive_ns = 0, window_ns = trainer->end_ns - trainer->begin_ns;

	*ret_process_ns = 0;
	for (size_t i = 0; i < job->n_processes; i++) {
		const struct sampled_process *process = &job->processes[i];
		uint64_t begin_ns, end_ns;

		if (!process->is_worker || process->last_ns <= trainer->begin_ns ||
		    process->first_ns >= trainer->end_ns)
			continue;
		begin_ns = process->first_ns > trainer->begin_ns ? process->first_ns : trainer->begin_ns;
		end_ns = process->last_ns < trainer->end_ns ? process->last_ns : trainer->end_ns;
		alive_ns += end_ns - begin_ns;
		workers->n++;
		worker_add(process, trainer->begin_ns, trainer->end_ns, workers, ret_process_ns);
		for (size_t k = 0; k < process->n_threads; k++)
			for (size_t l = 0; l < process->threads[k].n; l++)
				if (process->threads[k].samples[l]->start_ns >= trainer->begin_ns)
					analysis->window.read_bytes +=
					    process->threads[k].samples[l]->sample.read_bytes;
	}
	workers->n_batches = 0;
	if (window_ns)
		workers->n_at_once = (uint32_t)((alive_ns + window_ns / 2) / window_ns);
	if (workers->n && !workers->n_at_once)
		workers->n_at_once = 1;
}

static double largest(double a, double b, double c)
{
	double most = a > b ? a : b;

	return most > c ? most : c;
}

/* Returns how much of the wait would be saved if reading took no time, in ns. */
static double fetch_saved(const struct sampled_trainer *trainer, const struct analysis *analysis,
			  double workers_process_ns)
{
	const struct analysis_workers *from = &analysis->workers;
	double wall = (double)(trainer->end_ns - trainer->begin_ns) - (double)trainer->checkpoint_ns -
		      (double)trainer->compiling_ns;
	double n = from->n_at_once, wait = (double)trainer->wait_ns, alone = wall - wait;
	/* Without reading, workers would lack a core as often as now: other users of the cores remain. */
	double serial = (double)from->cpu_ns + (double)from->blocked_ns + (double)from->queue_ns;
	double cores = analysis->job.n_cpus
			   ? ((double)trainer->process_ns + workers_process_ns) / analysis->job.n_cpus
			   : 0;
	double now, without, saved;

	if (!n)
		return 0;
	now = largest(alone, (serial + (double)from->fetch_ns) / n, cores);
	without = largest(alone, serial / n, cores);
	saved = now > without ? wall * (1 - without / now) : 0;
	return saved < wait ? saved : wait;
}

static unsigned int n_sources_missing(const struct sampled_job *job)
{
	bool has_wait = job->known & (SAMPLE_KNOWN_SYSCALL | SAMPLE_KNOWN_WCHAN);

	return (unsigned int)(!(job->known & SAMPLE_KNOWN_SCHEDSTAT)) + !(job->known & SAMPLE_KNOWN_IO) +
	       2 * !has_wait + (has_wait && !(job->known & SAMPLE_KNOWN_SYSCALL));
}

static double both(double a, double b)
{
	return sqrt(a * a + b * b);
}

/* Fills in the 95 % half-widths, as shares of the window. */
static void errors_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
			struct analysis *analysis)
{
	double wall = (double)(trainer->end_ns - trainer->begin_ns);
	double uncertain = (double)trainer->uncertain_ns / wall;
	double n = (double)trainer->n_samples / SAMPLES_CORRELATED;
	/* In the worst case, the uncertain part is divided in half. */
	double sampled = 1.96 * uncertain * sqrt(0.25 / (n > 1 ? n : 1));
	double missing = ERROR_SOURCE * n_sources_missing(job);
	double edges = trainer->placed                    ? 1.96 * trainer->edge_error_ns / wall
		       : trainer->loader == LOADER_INLINE ? ERROR_INLINE
							  : 0;
	double wait = both(both(ERROR_FLOOR, sampled), both(missing, edges));
	double fetch = analysis_share_ratio(analysis, SHARE_FETCH_STALL);
	double prep = analysis_share_ratio(analysis, SHARE_PREP_STALL);
	double own = (double)trainer->own_prep_ns / wall;
	double split =
	    trainer->loader == LOADER_WORKERS  ? ERROR_SPLIT * (fetch < prep ? fetch : prep) + ERROR_FLOOR
	    : trainer->loader == LOADER_DIESEL ? fetch + prep - own /* only dieseld tells them apart */
					       : 0;

	analysis->sampled.error[SHARE_FETCH_STALL] = both(wait, split);
	analysis->sampled.error[SHARE_PREP_STALL] = both(wait, split);
	analysis->sampled.error[SHARE_CHECKPOINT_STALL] =
	    trainer->checkpoint_ns ? both(both(ERROR_FLOOR, sampled), missing) : missing;
	analysis->sampled.error[SHARE_CPU_STARVED] =
	    both(both(ERROR_FLOOR, ERROR_QUEUE * analysis_share_ratio(analysis, SHARE_CPU_STARVED)), missing);
	analysis->sampled.error[SHARE_OTHER] = both(both(ERROR_FLOOR, sampled), missing);
	analysis->sampled.error[SHARE_DEVICE] = wait;
	if (trainer->compiling_known)
		analysis->sampled.error[SHARE_COMPILING] =
		    trainer->compiling_ns ? both(both(ERROR_FLOOR, sampled), missing) : missing;
}

/* Fills shares and their errors; analysis->workers and n_cpus are set already. */
static void sampled_split(const struct sampled_job *job, const struct sampled_trainer *trainer,
			  uint64_t workers_process_ns, struct analysis *analysis)
{
	uint64_t fetch_ns = trainer->fetch_ns;

	if (trainer->loader == LOADER_WORKERS)
		fetch_ns = (uint64_t)fetch_saved(trainer, analysis, (double)workers_process_ns);
	if (fetch_ns > trainer->wait_ns)
		fetch_ns = trainer->wait_ns;
	analysis->share_ns[SHARE_FETCH_STALL] = fetch_ns;
	analysis->share_ns[SHARE_PREP_STALL] = trainer->wait_ns - fetch_ns;
	analysis->parts.own_prep_ns = trainer->own_prep_ns;
	analysis->share_ns[SHARE_CHECKPOINT_STALL] = trainer->checkpoint_ns;
	analysis->share_ns[SHARE_CPU_STARVED] = trainer->starved_ns;
	analysis->share_ns[SHARE_OTHER] = trainer->other_ns;
	analysis->share_ns[SHARE_DEVICE] = trainer->device_ns;
	analysis->share_ns[SHARE_COMPILING] = trainer->compiling_ns;
	errors_find(job, trainer, analysis);
}

/* The states of trainer and workers of a sampled recording, for drawing: one for each sample, the state that
 * lasted longest in it. Waits are fetch where a worker was found reading at the time, else prep. */

struct drawing {
	const struct sampled_job *job;
	const struct sampled_trainer *trainer;
	struct lanes *lanes;
	struct interval_list exact; /* always empty */
	uint64_t cell_ns;
};

static bool within(const struct sampled_interval *intervals, size_t n, uint64_t at_ns)
{
	size_t at = sorted_count(n, i, intervals[i].end_ns <= at_ns);

	return at < n && intervals[at].begin_ns <= at_ns;
}

static bool a_worker_reads(const struct sampled_job *job, uint64_t at_ns)
{
	for (size_t i = 0; i < job->n_processes; i++) {
		const struct sampled_process *process = &job->processes[i];
		const struct event *sample = NULL;

		if (process->is_worker && process->first_ns <= at_ns && at_ns < process->last_ns)
			sample = sampled_at(process->main, at_ns);
		if (sample && sample->sample.wait == PROC_WAIT_FILE_READ)
			return true;
	}
	return false;
}

static enum lane_state state_of_trainer(const struct drawing *drawing, const struct event *sample)
{
	const struct sampled_trainer *trainer = drawing->trainer;
	uint64_t middle_ns = sample->start_ns + (sample->end_ns - sample->start_ns) / 2;
	bool loads = trainer->computing && !within(trainer->computing, trainer->n_computing, middle_ns);

	if (within(trainer->checkpoints, trainer->n_checkpoints, middle_ns))
		return LANE_CHECKPOINT;
	if (sample->sample.place == SAMPLE_PLACE_COMPILING)
		return LANE_COMPILING;
	if (!sampled_asleep(sample)) {
		if (loads)
			return LANE_PREP_STALL;
		return sample->sample.queue_ns > sample->sample.exec_ns ? LANE_STARVED : LANE_DEVICE;
	}
	switch (sampled_charge(drawing->job, trainer->loader, sample)) {
	case CHARGE_DATA: return a_worker_reads(drawing->job, middle_ns) ? LANE_FETCH_STALL : LANE_PREP_STALL;
	case CHARGE_FETCH: return LANE_FETCH_STALL;
	case CHARGE_DEVICE: return LANE_DEVICE;
	case CHARGE_LOCK: return LANE_STARVED;
	case CHARGE_NAP:
	case CHARGE_OTHER:
	case CHARGE_COUNT: break;
	}
	return loads ? LANE_PREP_STALL : LANE_OTHER;
}

static enum lane_state state_of_worker(const struct event *sample)
{
	switch ((enum proc_wait)sample->sample.wait) {
	case PROC_WAIT_NONE: return sample->sample.queue_ns > sample->sample.exec_ns ? LANE_QUEUE : LANE_CPU;
	case PROC_WAIT_FILE_READ:
	case PROC_WAIT_SOCKET: return LANE_FETCH;
	case PROC_WAIT_PIPE:
	case PROC_WAIT_POLL:
	case PROC_WAIT_UNKNOWN: return LANE_IDLE;
	default: return LANE_BLOCKED;
	}
}

static int draw(struct drawing *drawing, const struct sampled_thread *thread, uint32_t tgid,
		enum lane_role role)
{
	struct lane *lane = &drawing->lanes->items[drawing->lanes->n_items++];
	struct lane_builder builder = {.lane = lane, .cell_ns = drawing->cell_ns, .exact = &drawing->exact};
	int r = 0;

	lane->role = role;
	lane->tid = thread->tid;
	lane->tgid = tgid;
	if (role == LANE_TRAINER)
		snprintf(lane->name, sizeof(lane->name), "trainer");
	else
		snprintf(lane->name, sizeof(lane->name), "worker %zu", drawing->lanes->n_items - 1);
	for (size_t i = 0; r == 0 && i < thread->n; i++) {
		const struct event *sample = thread->samples[i];

		if (sample->start_ns < drawing->trainer->begin_ns ||
		    sample->end_ns > drawing->trainer->end_ns)
			continue;
		r = lane_builder_add(&builder, sample->start_ns, sample->end_ns,
				     role == LANE_TRAINER ? state_of_trainer(drawing, sample)
							  : state_of_worker(sample));
	}
	return r < 0 ? r : lane_builder_finish(&builder);
}

/* Finds the lanes to draw. n_segments_max: limit over all lanes. -ENOMEM. */
static int sampled_lanes_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
			      size_t n_segments_max, struct lanes **ret_lanes)
{
	struct drawing drawing = {.job = job, .trainer = trainer, .lanes = calloc(1, sizeof(*drawing.lanes))};
	size_t n_samples = job->trainer->n;
	int r = -ENOMEM;

	for (size_t i = 0; i < job->n_processes; i++)
		n_samples += job->processes[i].is_worker ? job->processes[i].main->n : 0;
	if (n_samples > n_segments_max)
		drawing.cell_ns =
		    (trainer->end_ns - trainer->begin_ns) / n_segments_max * (job->n_workers + 1) + NS_PER_US;
	if (drawing.lanes)
		drawing.lanes->items = calloc(job->n_workers + 1, sizeof(*drawing.lanes->items));
	if (drawing.lanes && drawing.lanes->items) {
		drawing.lanes->cell_ns = drawing.cell_ns;
		r = draw(&drawing, job->trainer, job->trainer_process->tgid, LANE_TRAINER);
	}
	for (size_t i = 0; r == 0 && i < job->n_processes; i++)
		if (job->processes[i].is_worker)
			r = draw(&drawing, job->processes[i].main, job->processes[i].tgid, LANE_WORKER);
	if (r < 0)
		lanes_free(drawing.lanes);
	else
		*ret_lanes = drawing.lanes;
	return r;
}

bool sampled_is(const struct analysis_input *input)
{
	for (size_t i = 0; i < input->n_events; i++)
		if (input->events[i].type == EVENT_SAMPLE)
			return true;
	return false;
}

static void evidence_add(struct analysis *analysis, const char *role, const char *what, uint64_t ns,
			 bool fetch)
{
	struct analysis_evidence *evidence = &analysis->evidence[analysis->n_evidence];

	if (!ns)
		return;
	snprintf(evidence->role, sizeof(evidence->role), "%s", role);
	snprintf(evidence->what, sizeof(evidence->what), "%s", what);
	evidence->ns = ns;
	evidence->fetch = fetch;
	analysis->n_evidence++;
}

static void evidence_find(struct analysis *analysis)
{
	const char *role = analysis->job.loader == LOADER_WORKERS ? "worker" : "trainer";

	evidence_add(analysis, role, "blocked reading files", analysis->share_ns[SHARE_FETCH_STALL], true);
	evidence_add(analysis, role, "preparing and handing over batches",
		     analysis->share_ns[SHARE_PREP_STALL], false);
}

static void life_find(const struct sampled_job *job, struct analysis *analysis)
{
	uint64_t first_ns = job->trainer_process->first_ns, last_ns = job->trainer_process->last_ns;

	analysis->job.trainer_tid = job->trainer->tid;
	analysis->job.trainer_tgid = job->trainer_process->tgid;
	analysis->job.n_trainers = 1;
	if (analysis->window.begin_ns > first_ns)
		analysis->window.startup_ns = analysis->window.begin_ns - first_ns;
	if (analysis->window.end_ns < last_ns)
		analysis->window.teardown_ns = last_ns - analysis->window.end_ns;
}

/* Fills in the compiling figures. There are no steps, so everything except compiling counts as steady. */
static void compiling_fill(const struct sampled_job *job, const struct sampled_trainer *trainer,
			   struct analysis *analysis)
{
	analysis->compiling.known = trainer->compiling_known;
	for (size_t i = 0; i < job->trainer->n; i++) {
		const struct event *sample = job->trainer->samples[i];

		if (sample->sample.place == SAMPLE_PLACE_COMPILING)
			analysis->compiling.ns += sample->end_ns - sample->start_ns;
	}
	if (!trainer->compiling_ns)
		return;
	analysis->steady.ns = analysis->window.observed_ns - trainer->compiling_ns;
	for (size_t i = 0; i < SHARE_COUNT; i++)
		analysis->steady.share_ns[i] = i == SHARE_COMPILING ? 0 : analysis->share_ns[i];
}

static void fill(const struct sampled_job *job, const struct sampled_trainer *trainer,
		 struct analysis *analysis)
{
	uint64_t workers_process_ns;

	analysis->job.loader = trainer->loader;
	analysis->job.blind =
	    trainer->loader == LOADER_NONE || (trainer->loader == LOADER_INLINE && !trainer->placed);
	analysis->parts.waits_sampled = trainer->guessed;
	analysis->job.method = METHOD_SAMPLED;
	analysis->window.begin_ns = trainer->begin_ns;
	analysis->window.end_ns = trainer->end_ns;
	analysis_cover_window(analysis);
	analysis->window.observed_ns = trainer->end_ns - trainer->begin_ns;
	analysis->parts.asleep_ns = trainer->nap_ns < trainer->other_ns ? trainer->nap_ns : trainer->other_ns;
	analysis->parts.gil_starved_ns =
	    trainer->gil_ns < trainer->starved_ns ? trainer->gil_ns : trainer->starved_ns;
	analysis->parts.computing_part = trainer->computing_part;
	analysis->sampled.n_samples = trainer->n_samples;
	analysis->sampled.n_steps_estimated = trainer->n_steps;
	analysis->recorded.coverage_ratio = 1;
	analysis->window.read_bytes_known = job->known & SAMPLE_KNOWN_IO;
	analysis->window.read_bytes = trainer->read_bytes;
	sampled_workers_find(job, trainer, analysis, &workers_process_ns);
	sampled_split(job, trainer, workers_process_ns, analysis);
	compiling_fill(job, trainer, analysis);
	if (trainer->n_steps)
		analysis->wait_mean_ns = trainer->wait_ns / trainer->n_steps;
	life_find(job, analysis);
	evidence_find(analysis);
}

/* Returns true if, while it was sampled, the trainer did hardly anything except importing. */
static bool only_starts(const struct sampled_job *job)
{
	size_t n_importing = 0, n = 0;

	for (size_t i = 0; i < job->trainer->n; i++) {
		enum sample_place place = (enum sample_place)job->trainer->samples[i]->sample.place;

		if (place == SAMPLE_PLACE_COMPUTING || place == SAMPLE_PLACE_COMPILING ||
		    place == SAMPLE_PLACE_NEXT || place == SAMPLE_PLACE_DIESEL)
			return false;
		n += place != SAMPLE_PLACE_UNKNOWN;
		n_importing += place == SAMPLE_PLACE_IMPORTING;
	}
	return n && 2 * n_importing > n;
}

static void judge(const struct sampled_job *job, struct analysis *analysis)
{
	if (job->trainer && !job->n_workers && only_starts(job))
		snprintf(
		    analysis->insufficient, sizeof(analysis->insufficient),
		    "no training step was seen: the job imported modules, and ran no loader and no model");
	else if (!analysis->job.trainer_tid)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no process of the job could be observed");
	else if (analysis->sampled.n_samples < SAMPLED_SAMPLES_MIN)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "the trainer was sampled only %zu times while it trained, at least %d are needed",
			 analysis->sampled.n_samples, SAMPLED_SAMPLES_MIN);
	else if (analysis->job.loader == LOADER_NONE && !(job->known & SAMPLE_KNOWN_IO))
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "the job has no workers and hides its /proc/PID/io, so preparing data looks like "
			 "computing");
	else if (analysis->job.loader == LOADER_NONE && !job->trainer_process->framework_ns)
		snprintf(analysis->insufficient, sizeof(analysis->insufficient),
			 "no loading of data was seen, and no library of PyTorch, TensorFlow, JAX or CUDA");
	if (analysis->insufficient[0]) {
		analysis->verdict = ANALYSIS_INSUFFICIENT;
		return;
	}
	advice_verdict(analysis);
	advice_actions(analysis);
	if (!(job->known & (SAMPLE_KNOWN_SYSCALL | SAMPLE_KNOWN_WCHAN)) && !analysis->note[0])
		snprintf(analysis->note, sizeof(analysis->note),
			 "the system calls in which the job's threads sleep are hidden, so every sleep of "
			 "the trainer counts as data wait");
	/* If the trainer prepares most data itself, it does not wait for dieseld. */
	if (analysis->job.loader == LOADER_DIESEL && !analysis->note[0] &&
	    2 * analysis->parts.own_prep_ns < analysis->share_ns[SHARE_PREP_STALL])
		snprintf(analysis->note, sizeof(analysis->note),
			 "without privilege, dieseld's waits for storage are hidden, so all data wait counts "
			 "as preparing");
	/* Approximate shares do not allow high confidence. */
	for (size_t i = 0; i < analysis->n_actions; i++)
		if (analysis->actions[i].confidence == CONFIDENCE_HIGH)
			analysis->actions[i].confidence = CONFIDENCE_MEDIUM;
}

int sampled_analyze(const struct analysis_input *input, struct analysis *analysis)
{
	struct sampled_job job;
	struct sampled_trainer trainer = {0};
	int r = sampled_job_find(input->events, input->n_events, input->trainer_tid, &job);

	analysis->sampled.is = true;
	if (r == 0) {
		analysis->recorded.begin_ns = input->end_ns ? input->begin_ns : job.begin_ns;
		analysis->recorded.end_ns = input->end_ns ? input->end_ns : job.end_ns;
		if (analysis->recorded.end_ns > analysis->recorded.begin_ns)
			analysis->recorded.self_cost_ratio =
			    (double)input->self_cpu_ns /
			    (double)(analysis->recorded.end_ns - analysis->recorded.begin_ns);
	}
	if (r == 0 && job.trainer)
		r = sampled_trainer_find(&job, &trainer);
	if (r == 0 && trainer.end_ns > trainer.begin_ns)
		fill(&job, &trainer, analysis);
	if (r == 0 && trainer.end_ns > trainer.begin_ns && input->n_lane_segments_max)
		r = sampled_lanes_find(&job, &trainer, input->n_lane_segments_max, &analysis->lanes);
	if (r == 0)
		judge(&job, analysis);
	sampled_trainer_free(&trainer);
	sampled_job_free(&job);
	return r;
}
