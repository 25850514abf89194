/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_detail.h"

#include <math.h>
#include <stddef.h>

/* The analyses of all jobs together may take 1/COST_PAUSE of one core. */
#define COST_PAUSE 200

/* A job without a step for longer than this makes no progress. */
#define IDLE_NS UINT64_C(10000000000)

static bool moves(const struct detail_job *job)
{
	return job->last_step_age_ns < IDLE_NS;
}

/* Returns true if the job asks for a slice. A job that makes no steps asks for none. */
static bool detail_asks(const struct detail_job *job)
{
	if (!moves(job))
		return false;
	return !job->seen || (isfinite(job->wait) && fabs(job->wait - job->seen_wait) > DETAIL_WAIT_DELTA);
}

static bool is_enough(const struct detail_job *jobs, uint32_t n_jobs)
{
	for (uint32_t i = 0; i < n_jobs; i++)
		if (moves(&jobs[i]) && jobs[i].slice_steps < DETAIL_STEPS)
			return false;
	return true;
}

static bool is_wanted(const struct detail_plan *plan, const struct detail_job *jobs, uint32_t n_jobs,
		      uint64_t now_ns)
{
	bool any = false;

	for (uint32_t i = 0; i < n_jobs; i++) {
		if (detail_asks(&jobs[i]))
			return true;
		any |= moves(&jobs[i]);
	}
	return any && now_ns - plan->end_ns >= DETAIL_PERIOD_NS;
}

static uint64_t pause_ns(uint64_t slice_ns, uint64_t cost_ns)
{
	uint64_t rest = slice_ns * DETAIL_REST, paid = cost_ns * COST_PAUSE;

	return rest > paid ? rest : paid;
}

enum detail_change detail_step(struct detail_plan *plan, const struct detail_job *jobs, uint32_t n_jobs,
			       uint64_t cost_ns, uint64_t now_ns)
{
	if (plan->on) {
		uint64_t age_ns = now_ns - plan->begin_ns;

		if (n_jobs &&
		    (age_ns < DETAIL_MIN_NS || (age_ns < DETAIL_MAX_NS && !is_enough(jobs, n_jobs))))
			return DETAIL_AS_BEFORE;
		plan->on = false;
		plan->end_ns = now_ns;
		plan->not_before_ns = now_ns + pause_ns(age_ns, 0);
		return DETAIL_END;
	}
	/* The cost is known only after the analyses that follow a slice. */
	if (now_ns < plan->not_before_ns || now_ns < plan->end_ns + pause_ns(0, cost_ns) ||
	    !is_wanted(plan, jobs, n_jobs, now_ns))
		return DETAIL_AS_BEFORE;
	plan->on = true;
	plan->begin_ns = now_ns;
	return DETAIL_BEGIN;
}

void detail_shares(const struct stall_shares *slice, double wait, struct stall_shares *ret)
{
	double rest = 1 - wait, slice_wait, slice_rest;

	if (slice && !isfinite(wait)) {
		*ret = *slice;
		return;
	}
	*ret = (struct stall_shares){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
	slice_wait = slice ? slice->fetch_stall + slice->prep_stall : 0;
	slice_rest = slice ? slice->device + slice->checkpoint_stall + slice->cpu_starved + slice->other : 0;
	if (slice_wait > 0 || wait <= 0) {
		ret->fetch_stall = slice_wait > 0 ? wait * slice->fetch_stall / slice_wait : 0;
		ret->prep_stall = slice_wait > 0 ? wait * slice->prep_stall / slice_wait : 0;
	}
	if (slice_rest <= 0) {
		ret->device = rest;
		return;
	}
	ret->device = rest * slice->device / slice_rest;
	ret->gpu_wait = rest * slice->gpu_wait / slice_rest;
	ret->checkpoint_stall = rest * slice->checkpoint_stall / slice_rest;
	ret->cpu_starved = rest * slice->cpu_starved / slice_rest;
	ret->other = rest * slice->other / slice_rest;
}
