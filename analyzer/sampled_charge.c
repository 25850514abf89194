/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_charge.h"

#include "lib/proc_task.h"

#define HELPERS_RATIO 0.3 /* of a CPU, above which other threads are computing */

static bool helpers_compute(const struct event *look)
{
	double others = (double)look->sample.process_ns - (double)look->sample.exec_ns;

	return (look->sample.known & SAMPLE_KNOWN_PROCESS) &&
	       others > HELPERS_RATIO * (double)(look->end_ns - look->start_ns);
}

static enum charge charge_of_futex(const struct sampled_job *job, const struct event *look)
{
	const struct sampled_thread *other = job->reader ? job->reader : job->loader;
	const struct event *others;

	if (job->loader) {
		others = sampled_look_at(job->loader, look->end_ns - 1);
		/* It loads: it reads, or computes and nobody else does. */
		if (others && (others->sample.wait == PROC_WAIT_FILE_READ || others->sample.n_reads ||
			       (uint64_t)others->sample.exec_ns * 2 > others->end_ns - others->start_ns))
			return CHARGE_DATA;
	}
	if (helpers_compute(look))
		return CHARGE_DEVICE;
	others = other ? sampled_look_at(other, look->end_ns - 1) : NULL;
	if (job->reader && others && others->sample.wait == PROC_WAIT_PIPE)
		return CHARGE_DATA;
	return CHARGE_OTHER;
}

enum charge sampled_charge(const struct sampled_job *job, enum analysis_loader loader,
			   const struct event *look)
{
	bool workers = loader == LOADER_WORKERS;

	switch ((enum proc_wait)look->sample.wait) {
	case PROC_WAIT_PIPE:
	case PROC_WAIT_SOCKET: return workers ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_FILE_READ: return CHARGE_FETCH;
	case PROC_WAIT_POLL: return workers && !helpers_compute(look) ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_UNKNOWN:
		if (helpers_compute(look))
			return CHARGE_DEVICE;
		return workers ? CHARGE_DATA : CHARGE_OTHER;
	case PROC_WAIT_FUTEX: return charge_of_futex(job, look);
	case PROC_WAIT_DEVICE: return CHARGE_DEVICE;
	case PROC_WAIT_NONE:
	case PROC_WAIT_FILE_WRITE:
	case PROC_WAIT_TIMER:
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
