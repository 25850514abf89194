/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/array.h"
#include "lib/clock.h"
#include "lib/proc_task.h"
#include "sampled_charge.h"

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
static uint64_t take(double ns, uint64_t *left_ns)
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

	trainer->wait_ns = take(wait_ns, &left_ns);
	trainer->starved_ns = take(starved_ns, &left_ns);
	trainer->other_ns = take(other_ns, &left_ns);
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
