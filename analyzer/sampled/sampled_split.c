/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_split.h"

#include <math.h>

#include "lib/proc_task.h"

/* Looks a few ms apart see the same sleep, so this many count as one. */
#define LOOKS_CORRELATED 4

/* Half-widths of what sampling does not explain, as shares. */
#define ERROR_FLOOR  0.025 /* edges of the window, CPU time of the hand-over itself */
#define ERROR_SPLIT  0.25  /* of the smaller of fetch and prep, with workers: the model's */
#define ERROR_QUEUE  0.1   /* of cpu_starved: which of the queueing was in a wait */
#define ERROR_INLINE 0.05  /* where loading ends and computing begins */
#define ERROR_SOURCE 0.05  /* for each source of /proc that was not readable */

struct worker_sums {
	double wall_ns, exec_ns, queue_ns, sure_fetch_ns, sure_idle_ns, sure_blocked_ns;
	double fetch, idle, blocked; /* weights of the sleep whose charge is uncertain */
};

static double *slot(struct worker_sums *sums, const struct event *look, bool sure)
{
	switch ((enum proc_wait)look->sample.wait) {
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

	for (size_t i = 0; i < worker->main->n; before = worker->main->looks[i++]) {
		const struct event *look = worker->main->looks[i];
		bool sleeps = look->sample.wait != PROC_WAIT_NONE;
		bool slept = before && before->sample.wait != PROC_WAIT_NONE;
		double sleep_ns = (double)sampled_sleep_ns(look);

		if (look->end_ns <= begin_ns || look->start_ns >= end_ns)
			continue;
		*process_ns += look->sample.process_ns;
		sums.wall_ns += (double)(look->end_ns - look->start_ns);
		sums.exec_ns += look->sample.exec_ns;
		sums.queue_ns += look->sample.queue_ns;
		if (sampled_is_sure(look)) {
			*slot(&sums, look, true) += sleep_ns;
			continue;
		}
		if (sleeps)
			*slot(&sums, look, false) += sleep_ns;
		if (slept)
			*slot(&sums, before, false) += sleep_ns;
		workers->n_batches += look->sample.n_reads > 0;
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

void sampled_workers_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
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
				if (process->threads[k].looks[l]->start_ns >= trainer->begin_ns)
					analysis->read_bytes +=
					    process->threads[k].looks[l]->sample.read_bytes;
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

/* How much of the wait would be saved if reading took no time, in ns. */
static double fetch_saved(const struct sampled_trainer *trainer, const struct analysis *analysis,
			  double workers_process_ns)
{
	const struct analysis_workers *from = &analysis->workers;
	double wall = (double)(trainer->end_ns - trainer->begin_ns) - (double)trainer->checkpoint_ns -
		      (double)trainer->compiling_ns;
	double n = from->n_at_once, wait = (double)trainer->wait_ns, alone = wall - wait;
	/* They would lack a core as often as now: whoever has the cores is still there. */
	double serial = (double)from->cpu_ns + (double)from->blocked_ns + (double)from->queue_ns;
	double cores =
	    analysis->n_cpus ? ((double)trainer->process_ns + workers_process_ns) / analysis->n_cpus : 0;
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

/* 95 % half-widths, as shares of the window. */
static void errors_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
			struct analysis *analysis)
{
	double wall = (double)(trainer->end_ns - trainer->begin_ns);
	double uncertain = (double)trainer->uncertain_ns / wall;
	double n = (double)trainer->n_looks / LOOKS_CORRELATED;
	/* At worst, half of the uncertain part is one thing and half is another. */
	double sampled = 1.96 * uncertain * sqrt(0.25 / (n > 1 ? n : 1));
	double missing = ERROR_SOURCE * n_sources_missing(job);
	double edges = trainer->placed                    ? 1.96 * trainer->edge_error_ns / wall
		       : trainer->loader == LOADER_INLINE ? ERROR_INLINE
							  : 0;
	double wait = both(both(ERROR_FLOOR, sampled), both(missing, edges));
	double fetch = analysis_share_ratio(analysis, SHARE_FETCH_STALL);
	double prep = analysis_share_ratio(analysis, SHARE_PREP_STALL);
	double own = (double)trainer->own_prep_ns / wall;
	double split = trainer->loader == LOADER_WORKERS
			   ? ERROR_SPLIT * (fetch < prep ? fetch : prep) + ERROR_FLOOR
		       : trainer->loader == LOADER_DIESEL ? fetch + prep - own /* only dieseld knows */
							  : 0;

	analysis->share_error[SHARE_FETCH_STALL] = both(wait, split);
	analysis->share_error[SHARE_PREP_STALL] = both(wait, split);
	analysis->share_error[SHARE_CHECKPOINT_STALL] =
	    trainer->checkpoint_ns ? both(both(ERROR_FLOOR, sampled), missing) : missing;
	analysis->share_error[SHARE_CPU_STARVED] =
	    both(both(ERROR_FLOOR, ERROR_QUEUE * analysis_share_ratio(analysis, SHARE_CPU_STARVED)), missing);
	analysis->share_error[SHARE_OTHER] = both(both(ERROR_FLOOR, sampled), missing);
	analysis->share_error[SHARE_DEVICE] = wait;
	if (trainer->compiling_known)
		analysis->share_error[SHARE_COMPILING] =
		    trainer->compiling_ns ? both(both(ERROR_FLOOR, sampled), missing) : missing;
}

void sampled_split(const struct sampled_job *job, const struct sampled_trainer *trainer,
		   uint64_t workers_process_ns, struct analysis *analysis)
{
	uint64_t fetch_ns = trainer->fetch_ns;

	if (trainer->loader == LOADER_WORKERS)
		fetch_ns = (uint64_t)fetch_saved(trainer, analysis, (double)workers_process_ns);
	if (fetch_ns > trainer->wait_ns)
		fetch_ns = trainer->wait_ns;
	analysis->share_ns[SHARE_FETCH_STALL] = fetch_ns;
	analysis->share_ns[SHARE_PREP_STALL] = trainer->wait_ns - fetch_ns;
	analysis->own_prep_ns = trainer->own_prep_ns;
	analysis->share_ns[SHARE_CHECKPOINT_STALL] = trainer->checkpoint_ns;
	analysis->share_ns[SHARE_CPU_STARVED] = trainer->starved_ns;
	analysis->share_ns[SHARE_OTHER] = trainer->other_ns;
	analysis->share_ns[SHARE_DEVICE] = trainer->device_ns;
	analysis->share_ns[SHARE_COMPILING] = trainer->compiling_ns;
	errors_find(job, trainer, analysis);
}
