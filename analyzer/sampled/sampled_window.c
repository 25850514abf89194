/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "analyzer/waits/rhythm.h"
#include "sampled_charge.h"
#include "sampled_trainer.h"
#include "analyzer/base/times.h"

/*
 * For a trainer whose Python stack was read at each sample: the data wait is the time within a loader's
 * next(), whatever the trainer does there. The trainer entered or left next() at some time between two
 * samples, on average in the middle.
 */

#define KNOWN_RATIO    0.5      /* minimum share of samples with a readable stack */
#define ITERATOR_RATIO 50       /* an iterator in less than 1/50 of the samples is not a loader */
#define START_UP_NS    NS_PER_S /* start-up: longer than this and START_UP_STEPS steps, outside iterators */
#define START_UP_STEPS 10
#define RUN_SAMPLES    3      /* minimum samples of each next() and each computing, to miss none */
#define UNIFORM_SIGMA  0.2887 /* standard deviation of a uniform distribution of width 1 */

/* Consecutive samples that found the trainer at the same place. */
struct look_run {
	uint64_t begin_ns, end_ns;
	bool inside;
};

struct runs {
	struct look_run *items;
	size_t n;
	size_t n_samples;
	double edge_variance; /* variance of all borders between runs, in ns^2 */
};

enum sample_place sampled_place(const struct sampled_thread *thread)
{
	size_t n_known = 0, n_inside = 0, n_diesel = 0, n_iterator = 0;

	for (size_t i = 0; i < thread->n; i++) {
		n_known += thread->samples[i]->sample.place != SAMPLE_PLACE_UNKNOWN;
		n_inside += sampled_inside(thread->samples[i]);
		n_diesel += thread->samples[i]->sample.place == SAMPLE_PLACE_DIESEL;
		n_iterator += thread->samples[i]->sample.place == SAMPLE_PLACE_ITERATOR;
	}
	if ((double)n_known < KNOWN_RATIO * (double)thread->n || !n_known)
		return SAMPLE_PLACE_UNKNOWN;
	if (!n_inside)
		return SAMPLE_PLACE_OUTSIDE;
	if (2 * n_iterator > n_inside)
		return ITERATOR_RATIO * n_iterator < n_known ? SAMPLE_PLACE_OUTSIDE : SAMPLE_PLACE_ITERATOR;
	return 2 * n_diesel > n_inside ? SAMPLE_PLACE_DIESEL : SAMPLE_PLACE_NEXT;
}

static int runs_find(const struct sampled_thread *thread, bool guessed, struct runs *runs)
{
	uint64_t last_ns = 0; /* end of the last sample with a known place */

	runs->items = calloc(thread->n + 1, sizeof(*runs->items));
	if (!runs->items)
		return -ENOMEM;
	for (size_t i = 0; i < thread->n; i++) {
		const struct event *sample = thread->samples[i];
		struct look_run *last = runs->n ? &runs->items[runs->n - 1] : NULL;
		uint64_t begin_ns = sample->end_ns;
		/* If there is a loader, other iterators do not count as loaders. */
		bool inside =
		    sampled_inside(sample) && (guessed || sample->sample.place != SAMPLE_PLACE_ITERATOR);

		if (sample->sample.place == SAMPLE_PLACE_UNKNOWN)
			continue;
		runs->n_samples += sample->sample.n;
		if (last && last->inside == inside) {
			last->end_ns = sample->end_ns;
		} else {
			/* A sample records the place at its end. */
			if (last) {
				double width = (double)(sample->end_ns - last_ns);

				begin_ns = last_ns + (sample->end_ns - last_ns) / 2;
				last->end_ns = begin_ns;
				runs->edge_variance += width * width * UNIFORM_SIGMA * UNIFORM_SIGMA;
			}
			runs->items[runs->n++] = (struct look_run){begin_ns, sample->end_ns, inside};
		}
		last_ns = sample->end_ns;
	}
	return 0;
}

static uint64_t median_length(const struct look_run *runs, size_t n, bool inside, uint64_t *scratch)
{
	size_t n_scratch = 0;

	for (size_t i = 0; i < n; i++)
		if (runs[i].inside == inside)
			scratch[n_scratch++] = runs[i].end_ns - runs[i].begin_ns;
	qsort(scratch, n_scratch, sizeof(*scratch), compare_u64);
	return n_scratch ? scratch[n_scratch / 2] : 0;
}

/* Sets the window to the runs [first, last] from the first to the last next(), and the computing after it. */
static int window_set(const struct runs *runs, size_t first, size_t last, struct sampled_trainer *trainer)
{
	const struct look_run *run = runs->items;
	uint64_t *scratch = calloc(runs->n + 1, sizeof(*scratch));
	uint64_t look_ns =
	    (run[runs->n - 1].end_ns - run[0].begin_ns) / (runs->n_samples ? runs->n_samples : 1);
	uint64_t inside_ns, outside_ns;

	trainer->computing = calloc(runs->n + 1, sizeof(*trainer->computing));
	if (!scratch || !trainer->computing) {
		free(scratch);
		return -ENOMEM;
	}
	inside_ns = median_length(run + first, last - first + 1, true, scratch);
	outside_ns = median_length(run + first, last - first + 1, false, scratch);
	free(scratch);
	trainer->begin_ns = run[first].begin_ns;
	trainer->end_ns = run[last].end_ns;
	for (size_t i = first; i <= last; i++) {
		if (!run[i].inside)
			trainer->computing[trainer->n_computing++] =
			    (struct sampled_interval){run[i].begin_ns, run[i].end_ns};
		else
			trainer->n_steps++;
	}
	/* The end of the job does not belong to the last step. */
	if (last + 1 < runs->n) {
		uint64_t rest_ns = run[last + 1].end_ns - run[last + 1].begin_ns;

		trainer->end_ns += min_ns(rest_ns, outside_ns);
		trainer->computing[trainer->n_computing++] =
		    (struct sampled_interval){run[last].end_ns, trainer->end_ns};
	}
	/* Some next() or computing was too short to be seen, so the number of steps is unknown. */
	if (min_ns(inside_ns, outside_ns) < RUN_SAMPLES * look_ns)
		trainer->n_steps = 0;
	trainer->placed = true;
	trainer->edge_error_ns = sqrt(runs->edge_variance);
	return 0;
}

/* Finds the first step. Many things use iterators: an iterator that is followed by far more than a step's
 * time was not the loader yet. */
static int first_step_find(const struct runs *runs, size_t *first)
{
	uint64_t *scratch = calloc(runs->n + 1, sizeof(*scratch)), outside_ns;

	if (!scratch)
		return -ENOMEM;
	outside_ns = median_length(runs->items, runs->n, false, scratch);
	free(scratch);
	for (size_t i = *first; i + 2 < runs->n; i++) {
		uint64_t ns = runs->items[i].end_ns - runs->items[i].begin_ns;

		if (!runs->items[i].inside && ns > START_UP_NS && ns > START_UP_STEPS * outside_ns &&
		    2 * i < runs->n)
			*first = i + 1;
	}
	return 0;
}

/* Finds computing intervals, window and n_steps of a trainer that was seen in a loader's next(). -ENOMEM. */
static int sampled_places_find(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	struct runs runs = {0};
	size_t first = 0, last;
	int r = runs_find(thread, trainer->guessed, &runs);

	while (first < runs.n && !runs.items[first].inside)
		first++;
	if (r == 0 && trainer->guessed)
		r = first_step_find(&runs, &first);
	last = runs.n;
	while (last > first && !runs.items[last - 1].inside)
		last--;
	if (r == 0 && last > first)
		r = window_set(&runs, first, last - 1, trainer);
	free(runs.items);
	return r;
}

#define PAUSE_WEIGHT 0.1 /* sampling blurs pauses more than counts */
#define FILE_READS   2   /* minimum reads per file: its content, and its end */

/* Finds the samples that saw the trainer read or wait for a file. A read is on average in the middle of its
 * sample. */
static size_t beats_find(const struct sampled_thread *thread, struct beat *beats)
{
	uint64_t exec_ns = 0, read_bytes = 0;
	size_t n = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *sample = thread->samples[i];
		uint64_t half_ns = (sample->end_ns - sample->start_ns) / 2;

		exec_ns += sample->sample.exec_ns;
		read_bytes += sample->sample.read_bytes;
		if (!sample->sample.n_reads && sample->sample.wait != PROC_WAIT_FILE_READ)
			continue;
		beats[n] =
		    (struct beat){.begin_ns = sample->start_ns,
				  .end_ns = sample->end_ns,
				  .first_ns = sample->start_ns + (sample->sample.n_reads ? half_ns : 0),
				  .last_ns = sample->end_ns - half_ns,
				  .exec_begin_ns = exec_ns - sample->sample.exec_ns,
				  .exec_end_ns = exec_ns,
				  .read_bytes = read_bytes,
				  .n_reads = sample->sample.n_reads,
				  .n_samples = (double)sample->sample.n_reads / FILE_READS};
		beats[n].pause_ns = n ? beats[n].begin_ns - beats[n - 1].end_ns : 0;
		n++;
	}
	return n;
}

static int take(const struct rhythm *rhythm, struct sampled_trainer *trainer)
{
	trainer->computing = calloc(rhythm->n_computing + 1, sizeof(*trainer->computing));
	if (!trainer->computing)
		return -ENOMEM;
	for (size_t i = 0; i < rhythm->n_computing; i++)
		trainer->computing[i] =
		    (struct sampled_interval){rhythm->computing[i].begin_ns, rhythm->computing[i].end_ns};
	trainer->n_computing = rhythm->n_computing;
	trainer->n_steps = rhythm->n_steps;
	trainer->begin_ns = rhythm->begin_ns;
	trainer->end_ns = rhythm->end_ns;
	return 0;
}

/* Finds computing intervals, window and n_steps of a trainer that reads files itself; n_steps 0 if its
 * reading has no rhythm. -ENOMEM. */
static int sampled_inline_find(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	struct beat *beats = calloc(thread->n + 1, sizeof(*beats));
	struct rhythm rhythm = {0};
	int r = -ENOMEM;

	if (beats)
		r = rhythm_find(beats, beats_find(thread, beats), PAUSE_WEIGHT,
				thread->samples[thread->n - 1]->end_ns, &rhythm);
	if (r == 0 && rhythm.n_steps)
		r = take(&rhythm, trainer);
	rhythm_free(&rhythm);
	free(beats);
	return r;
}

/* Counts the batches that arrived: reads come in bursts of similar size, one burst per batch.
 * *ret_last_ns: end of the last burst's sample. */
static int bursts_find(const struct sampled_thread *reader, uint64_t begin_ns,
		       struct sampled_trainer *trainer, uint64_t *ret_last_ns)
{
	uint32_t *counts = calloc(reader->n + 1, sizeof(*counts)), total = 0, median;
	size_t n = 0;
	bool in_burst = false;

	if (!counts)
		return -ENOMEM;
	for (size_t i = 0; i < reader->n; i++) {
		const struct event *sample = reader->samples[i];

		if (sample->end_ns <= begin_ns || !sample->sample.n_reads) {
			in_burst = false;
			continue;
		}
		if (!in_burst)
			n++;
		in_burst = true;
		counts[n - 1] += sample->sample.n_reads;
		total += sample->sample.n_reads;
	}
	if (n) {
		qsort(counts, n, sizeof(*counts), compare_u32);
		median = counts[n / 2];
		trainer->n_steps = (total + median / 2) / median;
	}
	free(counts);
	for (size_t i = reader->n; n && i-- > 0;)
		if (reader->samples[i]->sample.n_reads && reader->samples[i]->start_ns >= begin_ns) {
			*ret_last_ns = reader->samples[i]->end_ns;
			break;
		}
	return 0;
}

static enum sample_place place_at(const struct sampled_thread *thread, size_t i)
{
	return i < thread->n ? (enum sample_place)thread->samples[i]->sample.place : SAMPLE_PLACE_UNKNOWN;
}

/* Excludes start-up: the time before the first sample in the model, or, without one, the imports. A module
 * that is being imported may have the model's name. */
static void begin_after_imports(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	uint64_t imported_ns = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *sample = thread->samples[i];

		if (place_at(thread, i) == SAMPLE_PLACE_COMPUTING &&
		    place_at(thread, i + 1) != SAMPLE_PLACE_IMPORTING) {
			if (sample->start_ns > trainer->begin_ns)
				trainer->begin_ns = sample->start_ns;
			return;
		}
		if (place_at(thread, i) == SAMPLE_PLACE_IMPORTING)
			imported_ns = sample->end_ns;
	}
	if (imported_ns > trainer->begin_ns)
		trainer->begin_ns = imported_ns < trainer->end_ns ? imported_ns : trainer->end_ns;
}

/* Sets the window from the first wait at the result pipe to the last batch. The computing after it is added
 * when it is known. */
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
		const struct event *sample = reader->samples[i];

		/* A worker may be found up to a second after its start, when the trainer already waits for
		 * it. */
		if (sampled_asleep(sample) && sampled_charge(job, LOADER_WORKERS, sample) == CHARGE_DATA &&
		    sample->end_ns + NS_PER_S >= first_worker_ns) {
			trainer->begin_ns = sample->end_ns - sampled_sleep_ns(sample);
			break;
		}
	}
	if (!trainer->begin_ns)
		trainer->begin_ns = first_worker_ns;
	trainer->end_ns = last_worker_ns < trainer->begin_ns ? trainer->begin_ns : last_worker_ns;
	/* A thread that takes over batches waits for them from its start, as multiprocessing.Pool's does. */
	if (job->reader)
		begin_after_imports(job->trainer, trainer);
	return bursts_find(reader, trainer->begin_ns, trainer, &trainer->end_ns);
}

static bool reads_files(const struct sampled_thread *thread)
{
	uint64_t sleep_ns = 0, n_reads = 0;

	for (size_t i = thread->n / 2; i < thread->n; i++) {
		n_reads += thread->samples[i]->sample.n_reads;
		sleep_ns += thread->samples[i]->sample.wait == PROC_WAIT_FILE_READ
				? sampled_sleep_ns(thread->samples[i])
				: 0;
	}
	return n_reads > 8 || sleep_ns > 20 * NS_PER_MS;
}

/* Returns true if the thread, within a next(), is mostly not at a pipe. Then the apparent workers do
 * something else, or feed a thread that feeds this one. A DataLoader's next() with workers also computes. */
static bool waits_elsewhere(const struct sampled_thread *thread, enum sample_place place)
{
	size_t n = 0, n_pipes = 0, n_locks = 0;

	for (size_t i = 0; i < thread->n; i++) {
		enum proc_wait wait = (enum proc_wait)thread->samples[i]->sample.wait;

		if (!sampled_inside(thread->samples[i]))
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
	trainer->begin_ns = job->trainer->samples[0]->start_ns;
	trainer->end_ns = job->trainer->samples[job->trainer->n - 1]->end_ns;
	if (job->trainer_process->framework_ns > trainer->begin_ns)
		trainer->begin_ns = job->trainer_process->framework_ns;
	begin_after_imports(job->trainer, trainer);
	if (job->loader) {
		trainer->loader = LOADER_THREADS;
		if (job->loader->samples[0]->start_ns > trainer->begin_ns)
			trainer->begin_ns = job->loader->samples[0]->start_ns;
		return 0;
	}
	if (!reads_files(job->trainer))
		return 0;
	r = sampled_inline_find(job->trainer, trainer);
	if (r == 0 && trainer->n_steps)
		trainer->loader = LOADER_INLINE;
	return r;
}
