/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_charge.h"

#include "lib/proc_task.h"

#define HELPERS_RATIO 0.3 /* share of a CPU above which other threads count as computing */

/* Returns true if other threads of the trainer's process computed during this sample. known_ns: their CPU
 * time for other work. */
static bool helpers_compute(const struct event *sample, uint64_t known_ns)
{
	double others = (double)sample->sample.process_ns - (double)sample->sample.exec_ns - (double)known_ns;

	return (sample->sample.known & SAMPLE_KNOWN_PROCESS) &&
	       others > HELPERS_RATIO * (double)(sample->end_ns - sample->start_ns);
}

/* Returns true if a thread that loads for the trainer is loading now: it reads or computes. */
static bool is_loading(const struct event *sample)
{
	return sample && (sample->sample.wait == PROC_WAIT_FILE_READ || sample->sample.n_reads ||
			  (uint64_t)sample->sample.exec_ns * 2 > sample->end_ns - sample->start_ns);
}

/* Returns the charge of a sleep in a futex. There the trainer waits for a thread of its own process: one that
 * fetches batches from workers or loads them itself, or those that compute with it. */
static enum charge charge_of_futex(const struct sampled_job *job, const struct event *sample)
{
	const struct event *others;

	if (job->reader) {
		others = sampled_at(job->reader, sample->end_ns - 1);
		return helpers_compute(sample, others ? others->sample.exec_ns : 0) ? CHARGE_DEVICE
										    : CHARGE_DATA;
	}
	if (job->loader && is_loading(sampled_at(job->loader, sample->end_ns - 1)))
		return CHARGE_DATA;
	return helpers_compute(sample, 0) ? CHARGE_DEVICE : CHARGE_OTHER;
}

/* Returns the charge of a wait with a timeout. Python waits for its lock in this way, but without a timeout
 * for threads that compute. Waiting for a queue is in a next() or a get(), which the stack shows. */
static enum charge charge_of_timed_lock(const struct sampled_job *job, const struct event *sample)
{
	enum charge charge = charge_of_futex(job, sample);

	return charge == CHARGE_DEVICE && sample->sample.place != SAMPLE_PLACE_UNKNOWN ? CHARGE_LOCK : charge;
}

enum charge sampled_charge(const struct sampled_job *job, enum analysis_loader loader,
			   const struct event *sample)
{
	bool workers = loader == LOADER_WORKERS;

	if (!workers && sampled_inside(sample) && sample->sample.wait != PROC_WAIT_FILE_READ)
		return CHARGE_DATA;
	switch ((enum proc_wait)sample->sample.wait) {
	case PROC_WAIT_PIPE:
	case PROC_WAIT_SOCKET: return workers ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_FILE_READ: return CHARGE_FETCH;
	case PROC_WAIT_POLL: return workers && !helpers_compute(sample, 0) ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_UNKNOWN:
		if (helpers_compute(sample, 0))
			return CHARGE_DEVICE;
		return workers ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_FUTEX: return charge_of_futex(job, sample);
	case PROC_WAIT_TIMED_LOCK: return charge_of_timed_lock(job, sample);
	case PROC_WAIT_TIMER: return CHARGE_NAP;
	case PROC_WAIT_DEVICE: return CHARGE_DEVICE;
	case PROC_WAIT_NONE:
	case PROC_WAIT_FILE_WRITE:
	case PROC_WAIT_CHILD:
	case PROC_WAIT_OTHER:
	case PROC_WAIT_PIPE_WRITE: break;
	}
	return CHARGE_OTHER;
}

bool sampled_asleep(const struct event *sample)
{
	return sample && sample->sample.wait != PROC_WAIT_NONE;
}
