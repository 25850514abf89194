/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "sampled_charge.h"
#include "sampled_trainer.h"

/* Finds the batches that came: reads come in bursts of about one size, one burst per batch. Returns the look
 * of the last one. */
static int bursts_find(const struct sampled_thread *reader, uint64_t begin_ns,
		       struct sampled_trainer *trainer, uint64_t *ret_last_ns)
{
	uint32_t *counts = calloc(reader->n + 1, sizeof(*counts)), total = 0, median;
	size_t n = 0;
	bool in_burst = false;

	if (!counts)
		return -ENOMEM;
	for (size_t i = 0; i < reader->n; i++) {
		const struct event *look = reader->looks[i];

		if (look->end_ns <= begin_ns || !look->sample.n_reads) {
			in_burst = false;
			continue;
		}
		if (!in_burst)
			n++;
		in_burst = true;
		counts[n - 1] += look->sample.n_reads;
		total += look->sample.n_reads;
	}
	if (n) {
		qsort(counts, n, sizeof(*counts), compare_u32);
		median = counts[n / 2];
		trainer->n_steps = (total + median / 2) / median;
	}
	free(counts);
	for (size_t i = reader->n; n && i-- > 0;)
		if (reader->looks[i]->sample.n_reads && reader->looks[i]->start_ns >= begin_ns) {
			*ret_last_ns = reader->looks[i]->end_ns;
			break;
		}
	return 0;
}

static enum sample_place place_at(const struct sampled_thread *thread, size_t i)
{
	return i < thread->n ? (enum sample_place)thread->looks[i]->sample.place : SAMPLE_PLACE_UNKNOWN;
}

/* Time before the first look in the model is start-up; without one, the imports are. A module that is
 * imported may have the model's name. */
static void begin_after_imports(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	uint64_t imported_ns = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *look = thread->looks[i];

		if (place_at(thread, i) == SAMPLE_PLACE_COMPUTING &&
		    place_at(thread, i + 1) != SAMPLE_PLACE_IMPORTING) {
			if (look->start_ns > trainer->begin_ns)
				trainer->begin_ns = look->start_ns;
			return;
		}
		if (place_at(thread, i) == SAMPLE_PLACE_IMPORTING)
			imported_ns = look->end_ns;
	}
	if (imported_ns > trainer->begin_ns)
		trainer->begin_ns = imported_ns < trainer->end_ns ? imported_ns : trainer->end_ns;
}

/* From the first wait at the result pipe to the last batch; the computing after it is added when it is known.
 */
static int window_of_workers(const struct sampled_job *job, struct sampled_trainer *trainer)
{
	const struct sampled_thread *reader = job->reader ? job->reader : job->trainer;
	uint64_t first_worker_ns = UINT64_MAX, last_worker_ns = 0;

	for (size_t i = 0; i < job->n_processes; i++) {
		const struct sampled_process *process = &job->processes[i];

		if (!process->is_worker)
			continue;
		if (process->first_ns < first_worker_ns)
			first_worker_ns = process->first_ns;
		if (process->last_ns > last_worker_ns)
			last_worker_ns = process->last_ns;
	}
	for (size_t i = 0; i < reader->n; i++) {
		const struct event *look = reader->looks[i];

		/* A worker may be found up to a second after it was made, when the trainer already waits for
		 * it. */
		if (sampled_asleep(look) && sampled_charge(job, LOADER_WORKERS, look) == CHARGE_DATA &&
		    look->end_ns + NS_PER_S >= first_worker_ns) {
			trainer->begin_ns = look->end_ns - sampled_sleep_ns(look);
			break;
		}
	}
	if (!trainer->begin_ns)
		trainer->begin_ns = first_worker_ns;
	trainer->end_ns = last_worker_ns < trainer->begin_ns ? trainer->begin_ns : last_worker_ns;
	/* A thread that takes batches over waits for them from its birth on, as multiprocessing.Pool's does.
	 */
	if (job->reader)
		begin_after_imports(job->trainer, trainer);
	return bursts_find(reader, trainer->begin_ns, trainer, &trainer->end_ns);
}

static bool reads_files(const struct sampled_thread *thread)
{
	uint64_t sleep_ns = 0, n_reads = 0;

	for (size_t i = thread->n / 2; i < thread->n; i++) {
		n_reads += thread->looks[i]->sample.n_reads;
		sleep_ns += thread->looks[i]->sample.wait == PROC_WAIT_FILE_READ
				? sampled_sleep_ns(thread->looks[i])
				: 0;
	}
	return n_reads > 8 || sleep_ns > 20 * NS_PER_MS;
}

/* Is it mostly elsewhere than at a pipe while it is within a next()? Then those who look like workers do
 * something else, or feed a thread that feeds it. A DataLoader's next() with workers also computes. */
static bool waits_elsewhere(const struct sampled_thread *thread, enum sample_place place)
{
	size_t n = 0, n_pipes = 0, n_locks = 0;

	for (size_t i = 0; i < thread->n; i++) {
		enum proc_wait wait = (enum proc_wait)thread->looks[i]->sample.wait;

		if (!sampled_inside(thread->looks[i]))
			continue;
		n++;
		n_pipes += wait == PROC_WAIT_PIPE || wait == PROC_WAIT_POLL;
		n_locks += wait == PROC_WAIT_FUTEX || wait == PROC_WAIT_TIMED_LOCK || wait == PROC_WAIT_TIMER;
	}
	return place == SAMPLE_PLACE_ITERATOR ? 2 * n_pipes < n : 2 * n_locks > n;
}

int sampled_window_find(const struct sampled_job *job, struct sampled_trainer *trainer)
{
	enum sample_place place;
	int r;

	if (!job->trainer->n)
		return 0;
	place = sampled_place(job->trainer);
	if (place == SAMPLE_PLACE_DIESEL) {
		trainer->loader = LOADER_DIESEL;
		return sampled_places_find(job->trainer, trainer);
	}
	if (job->n_workers && !waits_elsewhere(job->trainer, place)) {
		trainer->loader = LOADER_WORKERS;
		return window_of_workers(job, trainer);
	}
	if (place == SAMPLE_PLACE_NEXT || place == SAMPLE_PLACE_ITERATOR) {
		trainer->guessed = place == SAMPLE_PLACE_ITERATOR;
		trainer->loader = job->loader ? LOADER_THREADS : LOADER_INLINE;
		return sampled_places_find(job->trainer, trainer);
	}
	trainer->begin_ns = job->trainer->looks[0]->start_ns;
	trainer->end_ns = job->trainer->looks[job->trainer->n - 1]->end_ns;
	if (job->trainer_process->framework_ns > trainer->begin_ns)
		trainer->begin_ns = job->trainer_process->framework_ns;
	begin_after_imports(job->trainer, trainer);
	if (job->loader) {
		trainer->loader = LOADER_THREADS;
		if (job->loader->looks[0]->start_ns > trainer->begin_ns)
			trainer->begin_ns = job->loader->looks[0]->start_ns;
		return 0;
	}
	if (!reads_files(job->trainer))
		return 0;
	r = sampled_inline_find(job->trainer, trainer);
	if (r == 0 && trainer->n_steps)
		trainer->loader = LOADER_INLINE;
	return r;
}
