/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_charge.h"

#include "lib/proc_task.h"

#define HELPERS_RATIO 0.3 /* of a CPU, above which other threads are computing */

/* Returns true if other threads of the trainer's process computed during this look. known_ns: their CPU time
 * for other work. */
static bool helpers_compute(const struct event *look, uint64_t known_ns)
{
	double others = (double)look->sample.process_ns - (double)look->sample.exec_ns - (double)known_ns;

	return (look->sample.known & SAMPLE_KNOWN_PROCESS) &&
	       others > HELPERS_RATIO * (double)(look->end_ns - look->start_ns);
}

/* Returns true if a thread that loads for the trainer is loading now: it reads or computes. */
static bool is_loading(const struct event *look)
{
	return look && (look->sample.wait == PROC_WAIT_FILE_READ || look->sample.n_reads ||
			(uint64_t)look->sample.exec_ns * 2 > look->end_ns - look->start_ns);
}

/* In a futex the trainer waits for a thread of its own process: for the one that fetches batches from workers
 * or loads them itself, or for those that compute with it. */
static enum charge charge_of_futex(const struct sampled_job *job, const struct event *look)
{
	const struct event *others;

	if (job->reader) {
		others = sampled_look_at(job->reader, look->end_ns - 1);
		return helpers_compute(look, others ? others->sample.exec_ns : 0) ? CHARGE_DEVICE
										  : CHARGE_DATA;
	}
	if (job->loader && is_loading(sampled_look_at(job->loader, look->end_ns - 1)))
		return CHARGE_DATA;
	return helpers_compute(look, 0) ? CHARGE_DEVICE : CHARGE_OTHER;
}

/* Python waits for its lock with a timeout; who computes for the trainer is waited for without one. A queue
 * is waited for in a next() or a get(), which its stack shows. */
static enum charge charge_of_timed_lock(const struct sampled_job *job, const struct event *look)
{
	enum charge charge = charge_of_futex(job, look);

	return charge == CHARGE_DEVICE && look->sample.place != SAMPLE_PLACE_UNKNOWN ? CHARGE_LOCK : charge;
}

enum charge sampled_charge(const struct sampled_job *job, enum analysis_loader loader,
			   const struct event *look)
{
	bool workers = loader == LOADER_WORKERS;

	if (!workers && sampled_inside(look) && look->sample.wait != PROC_WAIT_FILE_READ)
		return CHARGE_DATA;
	switch ((enum proc_wait)look->sample.wait) {
	case PROC_WAIT_PIPE:
	case PROC_WAIT_SOCKET: return workers ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_FILE_READ: return CHARGE_FETCH;
	case PROC_WAIT_POLL: return workers && !helpers_compute(look, 0) ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_UNKNOWN:
		if (helpers_compute(look, 0))
			return CHARGE_DEVICE;
		return workers ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_FUTEX: return charge_of_futex(job, look);
	case PROC_WAIT_TIMED_LOCK: return charge_of_timed_lock(job, look);
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

bool sampled_asleep(const struct event *look)
{
	return look && look->sample.wait != PROC_WAIT_NONE;
}
