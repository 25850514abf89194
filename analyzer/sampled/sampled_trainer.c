/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/base/times.h"
#include "analyzer/waits/rhythm.h"
#include "lib/array.h"
#include "lib/clock.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "sampled_charge.h"

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

/* Finds the loader, window and n_steps. With workers, the window ends with the last batch that arrived.
 * -ENOMEM. */
static int sampled_window_find(const struct sampled_job *job, struct sampled_trainer *trainer)
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

/*
 * Checkpoints. Bytes count when a write call returns, and serialising continues between two calls. So a
 * checkpoint begins before the first sample that saw a large write, or found the trainer writing or syncing:
 * at the first write of some size after the last read. Reads are for the data of the steps before and after.
 */

#define CHECKPOINT_BYTES UINT64_C(65536)
#define FIRST_BYTES      4096             /* log lines and requests to workers are smaller */
#define GAP_NS           (50 * NS_PER_MS) /* maximum time between two large writes */
#define SLEEP_NS         (20 * NS_PER_MS) /* a sync of this length counts without bytes */
#define BACK_NS          (UINT64_C(30) * NS_PER_S)

/* Returns true if the sample's bytes may be a compiler's, whose files are no checkpoint: the bytes may come
 * from the sample before. */
static bool of_compiler(const struct sampled_thread *thread, size_t i)
{
	return thread->samples[i]->sample.place == SAMPLE_PLACE_COMPILING ||
	       (i && thread->samples[i - 1]->sample.place == SAMPLE_PLACE_COMPILING);
}

static bool writes(const struct sampled_thread *thread, size_t i)
{
	const struct event *sample = thread->samples[i];

	return !of_compiler(thread, i) && (sample->sample.written_bytes >= CHECKPOINT_BYTES ||
					   sample->sample.wait == PROC_WAIT_FILE_WRITE);
}

static uint64_t first_write_ns(const struct sampled_thread *thread, size_t i)
{
	uint64_t end_ns = thread->samples[i]->end_ns, begin_ns = thread->samples[i]->start_ns;

	while (i-- > 0) {
		const struct event *sample = thread->samples[i];

		if (sample->sample.n_reads || end_ns - sample->start_ns > BACK_NS || of_compiler(thread, i))
			break;
		if (sample->sample.written_bytes >= FIRST_BYTES)
			begin_ns = sample->start_ns;
	}
	return begin_ns;
}

/* Returns the index after the large writes and syncs that begin with sample i; i: they are no checkpoint. */
static size_t writes_end(const struct sampled_thread *thread, size_t i)
{
	uint64_t bytes = 0, sleep_ns = 0;
	size_t last = i;

	for (size_t k = i; k < thread->n; k++) {
		const struct event *sample = thread->samples[k];

		if (writes(thread, k)) {
			last = k;
			bytes += sample->sample.written_bytes;
			sleep_ns +=
			    sample->sample.wait == PROC_WAIT_FILE_WRITE ? sampled_sleep_ns(sample) : 0;
		} else if (sample->end_ns - thread->samples[last]->end_ns > GAP_NS) {
			break;
		}
	}
	return bytes >= CHECKPOINT_BYTES || sleep_ns >= SLEEP_NS ? last + 1 : i;
}

/* Finds the checkpoints, sorted and without overlaps; they begin and end with samples. The caller frees them.
 * -ENOMEM. */
static int sampled_checkpoints_find(const struct sampled_thread *thread,
				    struct sampled_interval **ret_intervals, size_t *ret_n)
{
	struct sampled_interval *intervals = NULL;
	size_t n = 0, n_allocated = 0;

	for (size_t i = 0; i < thread->n;) {
		size_t end = writes(thread, i) ? writes_end(thread, i) : i;

		if (end == i) {
			i++;
			continue;
		}
		if (array_reserve(intervals, n, n_allocated) < 0) {
			free(intervals);
			return -ENOMEM;
		}
		intervals[n] =
		    (struct sampled_interval){first_write_ns(thread, i), thread->samples[end - 1]->end_ns};
		if (n && intervals[n].begin_ns < intervals[n - 1].end_ns)
			intervals[n - 1].end_ns = intervals[n].end_ns;
		else
			n++;
		i = end;
	}
	*ret_intervals = intervals;
	*ret_n = n;
	return 0;
}

#define PLACES_MIN 20 /* minimum number of samples with a known place */

/* The time of one thread between two points, as far as it is known. */
struct account {
	uint64_t wall_ns, exec_ns, queue_ns;
	uint64_t queue_data_ns; /* part of queue_ns: next to or in a data wait */
	uint64_t sure_ns[CHARGE_COUNT];
	double likely_ns[CHARGE_COUNT]; /* charged by the samples on either side */
	double unseen_ns;               /* sleeps that are too short for a sample */
	uint64_t process_ns, read_bytes;
	size_t n_samples;
};

/* Returns true if the thread was runnable, and not on a CPU yet. That time is counted when the thread gets a
 * CPU. */
static bool is_queued(const struct event *sample)
{
	return !sampled_asleep(sample) && !sample->sample.exec_ns && !sample->sample.queue_ns;
}

/* Adds a sample. before: the last sample before the thread became runnable, or else the previous sample;
 * NULL: not known. */
static void account_add(struct account *account, const struct sampled_job *job, enum analysis_loader loader,
			const struct event *before, const struct event *sample)
{
	uint64_t sleep_ns = sampled_sleep_ns(sample);
	enum charge at_begin = sampled_asleep(before) ? sampled_charge(job, loader, before) : CHARGE_OTHER;
	enum charge at_end = sampled_asleep(sample) ? sampled_charge(job, loader, sample) : CHARGE_OTHER;

	account->wall_ns += sample->end_ns - sample->start_ns;
	account->exec_ns += sample->sample.exec_ns;
	account->queue_ns += sample->sample.queue_ns;
	account->process_ns += sample->sample.process_ns;
	account->read_bytes += sample->sample.read_bytes;
	account->n_samples += sample->sample.n;
	if ((sampled_asleep(before) && at_begin <= CHARGE_FETCH) ||
	    (sampled_asleep(sample) && at_end <= CHARGE_FETCH))
		account->queue_data_ns += sample->sample.queue_ns;
	else if (loader == LOADER_WORKERS && sample->sample.n_reads)
		account->queue_data_ns +=
		    sample->sample.queue_ns / 2; /* a batch arrived: part of the time was the hand-over */
	if (is_queued(sample))
		return;
	if (sampled_is_sure(sample))
		account->sure_ns[at_end] += sleep_ns;
	else if (sampled_asleep(before) && sampled_asleep(sample)) {
		account->likely_ns[at_begin] += (double)sleep_ns / 2;
		account->likely_ns[at_end] += (double)sleep_ns / 2;
	} else if (sampled_asleep(before) || sampled_asleep(sample))
		account->likely_ns[sampled_asleep(sample) ? at_end : at_begin] += (double)sleep_ns;
	else
		account->unseen_ns += (double)sleep_ns;
}

/* Divides the sleep of an account among the charges. Time in the queue is known only when the thread gets its
 * CPU, and looks like sleep until then: that is corrected here, where the sums are right. */
static void account_close(const struct account *account, double sleep_ns[CHARGE_COUNT],
			  double *ret_uncertain_ns)
{
	double awake = (double)account->exec_ns + (double)account->queue_ns;
	double rest = (double)account->wall_ns - awake, likely = 0;

	for (size_t i = 0; i < CHARGE_COUNT; i++) {
		rest -= (double)account->sure_ns[i];
		likely += account->likely_ns[i];
	}
	if (rest < 0)
		rest = 0;
	*ret_uncertain_ns = rest;
	for (size_t i = 0; i < CHARGE_COUNT; i++) {
		sleep_ns[i] = (double)account->sure_ns[i];
		if (likely > 0)
			sleep_ns[i] += rest * account->likely_ns[i] / likely;
	}
	if (likely <= 0)
		sleep_ns[CHARGE_OTHER] += rest;
}

/* Returns the part of a sample that lies in intervals of computing. */
static double computing_ratio(const struct sampled_trainer *trainer, const struct event *sample)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < trainer->n_computing; i++) {
		const struct sampled_interval *interval = &trainer->computing[i];
		uint64_t begin =
		    interval->begin_ns > sample->start_ns ? interval->begin_ns : sample->start_ns;
		uint64_t end = interval->end_ns < sample->end_ns ? interval->end_ns : sample->end_ns;

		if (interval->begin_ns >= sample->end_ns)
			break;
		ns += end > begin ? end - begin : 0;
	}
	return (double)ns / (double)(sample->end_ns - sample->start_ns);
}

/* Subtracts ns, but at most *left_ns, from *left_ns. Returns the subtracted amount. */
static uint64_t take_part(double ns, uint64_t *left_ns)
{
	uint64_t taken = ns > 0 ? (uint64_t)(ns + 0.5) : 0;

	if (taken > *left_ns)
		taken = *left_ns;
	*left_ns -= taken;
	return taken;
}

/* Fills in the shares. Device gets the rest, so that the shares sum to the window. */
static void shares_fill(struct sampled_trainer *trainer, double wait_ns, double starved_ns, double other_ns)
{
	uint64_t left_ns =
	    trainer->end_ns - trainer->begin_ns - trainer->checkpoint_ns - trainer->compiling_ns;

	trainer->wait_ns = take_part(wait_ns, &left_ns);
	trainer->starved_ns = take_part(starved_ns, &left_ns);
	trainer->other_ns = take_part(other_ns, &left_ns);
	trainer->device_ns = left_ns;
	if (trainer->fetch_ns > trainer->wait_ns)
		trainer->fetch_ns = trainer->wait_ns;
}

/* Returns true if the sample is within compiling or a checkpoint, which have shares of their own. *at: the
 * first checkpoint that may not be over. */
static bool is_excluded(struct sampled_trainer *trainer, const struct event *sample, size_t *at)
{
	uint64_t length_ns = sample->end_ns - sample->start_ns;

	if (sample->sample.place == SAMPLE_PLACE_COMPILING) {
		trainer->compiling_ns += length_ns;
		return true;
	}
	while (*at < trainer->n_checkpoints && trainer->checkpoints[*at].end_ns <= sample->start_ns)
		++*at;
	if (*at == trainer->n_checkpoints || trainer->checkpoints[*at].begin_ns > sample->start_ns)
		return false;
	trainer->checkpoint_ns += length_ns;
	return true;
}

/* Sums over samples while the trainer loaded data by itself. */
struct loading {
	double wall_ns, exec_ns, queue_ns;
};

static struct account samples_add(const struct sampled_job *job, struct sampled_trainer *trainer,
				  struct loading *loading)
{
	const struct sampled_thread *thread = job->trainer;
	struct account account = {0};
	const struct event *before = NULL;
	size_t checkpoint = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *sample = thread->samples[i];
		double share;

		if (sample->start_ns < trainer->begin_ns || sample->end_ns > trainer->end_ns)
			continue;
		if (is_excluded(trainer, sample, &checkpoint)) {
			before = NULL;
			continue;
		}
		account_add(&account, job, trainer->loader, before, sample);
		share = trainer->computing ? 1 - computing_ratio(trainer, sample) : 0;
		loading->wall_ns += share * (double)(sample->end_ns - sample->start_ns);
		loading->exec_ns += share * sample->sample.exec_ns;
		loading->queue_ns += share * sample->sample.queue_ns;
		if (!is_queued(sample))
			before = sample;
	}
	return account;
}

/* Returns the part of CPU time in which the trainer computed, from samples with a known place outside next().
 * NAN: too few. */
static double computing_part(const struct sampled_trainer *trainer, const struct sampled_thread *thread)
{
	double sum_ns = 0, computing_ns = 0;
	size_t n = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *sample = thread->samples[i];

		if (sample->start_ns < trainer->begin_ns || sample->end_ns > trainer->end_ns ||
		    sample->sample.place == SAMPLE_PLACE_UNKNOWN || sampled_inside(sample))
			continue;
		n++;
		sum_ns += sample->sample.exec_ns;
		if (sample->sample.place == SAMPLE_PLACE_COMPUTING ||
		    sample->sample.place == SAMPLE_PLACE_COMPILING)
			computing_ns += sample->sample.exec_ns;
	}
	return n >= PLACES_MIN && sum_ns > 0 ? computing_ns / sum_ns : NAN;
}

static void shares_find(const struct sampled_job *job, struct sampled_trainer *trainer)
{
	struct loading loading = {0};
	struct account account;
	double sleep_ns[CHARGE_COUNT], uncertain_ns, computing;

	trainer->checkpoint_ns = trainer->compiling_ns = 0;
	trainer->compiling_known = sampled_place(job->trainer) != SAMPLE_PLACE_UNKNOWN;
	account = samples_add(job, trainer, &loading);
	trainer->process_ns = account.process_ns;
	trainer->read_bytes = account.read_bytes;
	trainer->n_samples = account.n_samples;
	account_close(&account, sleep_ns, &uncertain_ns);
	trainer->uncertain_ns = (uint64_t)uncertain_ns;
	trainer->computing_part = computing_part(trainer, job->trainer);
	trainer->gil_ns = (uint64_t)sleep_ns[CHARGE_LOCK];
	trainer->nap_ns = (uint64_t)sleep_ns[CHARGE_NAP];
	sleep_ns[CHARGE_OTHER] += sleep_ns[CHARGE_NAP];
	trainer->fetch_ns = trainer->loader == LOADER_WORKERS ? 0 : (uint64_t)sleep_ns[CHARGE_FETCH];
	if (!trainer->computing) {
		shares_fill(trainer,
			    sleep_ns[CHARGE_DATA] + sleep_ns[CHARGE_FETCH] + (double)account.queue_data_ns,
			    (double)account.queue_ns - (double)account.queue_data_ns + sleep_ns[CHARGE_LOCK],
			    sleep_ns[CHARGE_OTHER]);
		return;
	}
	computing = 1 - loading.wall_ns / (double)(account.wall_ns + !account.wall_ns);
	trainer->fetch_ns = (uint64_t)sleep_ns[CHARGE_FETCH];
	shares_fill(trainer, fmax(loading.wall_ns, sleep_ns[CHARGE_FETCH]),
		    (double)account.queue_ns - loading.queue_ns + sleep_ns[CHARGE_LOCK],
		    sleep_ns[CHARGE_OTHER] * (trainer->placed ? 1 : computing));
	trainer->own_prep_ns = (uint64_t)fmin(loading.exec_ns + loading.queue_ns,
					      (double)(trainer->wait_ns - trainer->fetch_ns));
}

/* Adds the step after the last batch, which lasts as long as the others if the trainer lives that long. */
static void window_add_last_step(const struct sampled_job *job, struct sampled_trainer *trainer)
{
	const struct sampled_thread *thread = job->trainer;
	uint64_t last_ns = thread->samples[thread->n - 1]->end_ns, step_ns;
	struct sampled_trainer measured = *trainer;

	if (trainer->loader != LOADER_WORKERS || !trainer->n_steps)
		return;
	shares_find(job, &measured);
	step_ns = (measured.device_ns + measured.starved_ns + measured.other_ns) / trainer->n_steps;
	trainer->end_ns += step_ns < last_ns - trainer->end_ns ? step_ns : last_ns - trainer->end_ns;
}

int sampled_trainer_find(const struct sampled_job *job, struct sampled_trainer *ret_trainer)
{
	struct sampled_trainer trainer = {.loader = LOADER_NONE};
	int r = sampled_window_find(job, &trainer);

	if (r == 0 && job->trainer->n)
		r = sampled_checkpoints_find(job->trainer, &trainer.checkpoints, &trainer.n_checkpoints);
	if (r < 0) {
		sampled_trainer_free(&trainer);
		return r;
	}
	if (trainer.end_ns > trainer.begin_ns) {
		window_add_last_step(job, &trainer);
		shares_find(job, &trainer);
	}
	*ret_trainer = trainer;
	return 0;
}

void sampled_trainer_free(struct sampled_trainer *trainer)
{
	free(trainer->computing);
	free(trainer->checkpoints);
	*trainer = (struct sampled_trainer){0};
}
