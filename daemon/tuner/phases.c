/* SPDX-License-Identifier: Apache-2.0 */
/* Updates the phase of a job: new, jumping to the model's knobs, settled, idle, or blind. */
#include "round.h"

#include <math.h>
#include <string.h>

/* No sample for this long is more than a hiccup of the sensor. */
#define BLIND_NS (5 * SECOND_NS)
/* A job that takes no samples for this long releases the resources that it can get again at once. */
#define IDLE_NS (30 * SECOND_NS)
/* Consecutive different samples that count as a new phase: one may be a hiccup, two a checkpoint. */
#define DIFFERS_MIN 3
/* Seconds over which the mean deviation of waiting is taken, so that one second changes it little. */
#define STRAY_SAMPLES 8
/* Time after the start of a jump in which no other phase is detected, because the jump itself changes
 * figures. */
#define SETTLED_MIN_NS (4 * SECOND_NS)
/* If two changes of phase lie within this time, the cause is not the job but its surroundings (such as a
 * neighbour's bursts). */
#define UNSTEADY_NS (90 * SECOND_NS)
/* Bandwidth that differs by less than this ratio is that of the same storage. */
#define SAME_STORAGE 1.3

static const struct job_figures *newest(const struct tuner_job *job)
{
	return &job->seen[(job->n_seen - 1) % SEEN_MAX];
}

static bool is_unsteady(const struct tuner_job *job, uint64_t now_ns)
{
	return job->flips_ns[0] && now_ns < job->flips_ns[0] + UNSTEADY_NS;
}

static void start_jump(struct tuner_job *job, uint64_t from_ns, uint64_t now_ns)
{
	job->phase = TUNER_PHASE_JUMPING;
	job->phase_ns = from_ns;
	job->jump_ns = now_ns;
	job->n_jumps = 0;
	job->n_differs = 0;
	job->wait_stray = 0;
	job->stall_ns = job->surplus_ns = 0;
}

/* Returns true if the storage is the same, though the job changed, so that its learnt depth is still
 * valid. */
static bool is_same_storage(const struct tuner_job *job)
{
	double now = newest(job)->bandwidth, then = job->settled.bandwidth;

	return now > then / SAME_STORAGE && now < then * SAME_STORAGE;
}

static void change_phase(struct tuner_round *round, struct tuner_job *job)
{
	uint64_t now_ns = round->now_ns;
	bool steady = !is_unsteady(job, now_ns);

	job->flips_ns[2] = job->flips_ns[1];
	job->flips_ns[1] = job->flips_ns[0];
	job->flips_ns[0] = now_ns;
	job->n_differs = 0;
	for (int k = 0; k < TUNER_N_KNOBS; k++)
		round_verdict(round, job, (enum tuner_knob)k, TUNER_UNCLEAR, NULL, "the job itself changed");
	if (!steady) {
		/* The surroundings vary: the job is sized for the worst case (job_envelope), one knob at a
		 * time. */
		job->settled = *newest(job);
		return;
	}
	memset(job->lessons, 0,
	       sizeof(job->lessons)); /* lessons of the old phase are not valid in the new one */
	if (!is_same_storage(job))
		job->full_bandwidth = 0;
	job_envelope_clear(job);
	/* The first second that differed belongs partly to the phase before. */
	start_jump(job, now_ns - (DIFFERS_MIN - 1) * SECOND_NS - SECOND_NS / 2, now_ns);
}

static void watch(struct tuner_round *round, struct tuner_job *job)
{
	struct job_figures now;
	double unreachable;

	/* While decoded copies are made, everything is slower; afterwards it is faster. */
	if (job->changes[TUNER_DECODED_BYTES].open)
		return;
	if (newest(job)->from_ns < job->changed_ns || newest(job)->from_ns < job->settled.at_ns)
		return;
	if (newest(job)->wait < job->settled.wait)
		job->settled.wait += (newest(job)->wait - job->settled.wait) / 4;
	/* A change we made is not a new phase: it becomes the baseline. */
	if (job->settled.at_ns < job->changed_ns) {
		if (job_estimate(job, job->changed_ns, &now) < 2)
			return;
		job->settled.wait = now.wait; /* demand and storage do not change because of a knob */
		job->settled.at_ns = now.at_ns;
		return;
	}
	job->n_differs = job_differs(job, newest(job)) ? job->n_differs + 1 : 0;
	unreachable = fabs(newest(job)->wait - job->settled.wait);
	if (unreachable >= 0)
		job->wait_stray += (unreachable - job->wait_stray) / STRAY_SAMPLES;
	if (job->n_differs >= DIFFERS_MIN && round->now_ns > job->jump_ns + SETTLED_MIN_NS)
		change_phase(round, job);
}

static void watch_idle(struct tuner_round *round, struct tuner_job *job)
{
	if (newest(job)->rate > 0) {
		job->idle_ns = 0;
		if (job->phase == TUNER_PHASE_IDLE)
			start_jump(job, newest(job)->from_ns, round->now_ns);
		return;
	}
	if (!job->idle_ns)
		job->idle_ns = round->now_ns;
	if (round->now_ns >= job->idle_ns + IDLE_NS)
		job->phase = TUNER_PHASE_IDLE;
}

void round_update_phase(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	if (!job->n_seen || round->now_ns > newest(job)->at_ns + BLIND_NS) {
		if (job->phase != TUNER_PHASE_NEW)
			job->phase = TUNER_PHASE_BLIND;
		return;
	}
	if (job->phase == TUNER_PHASE_BLIND)
		start_jump(job, newest(job)->from_ns, round->now_ns);
	watch_idle(round, job);
	if (job->phase == TUNER_PHASE_IDLE)
		return;
	if (job->phase == TUNER_PHASE_NEW && newest(job)->rate > 0)
		start_jump(job, newest(job)->from_ns, round->now_ns);
	if (job->phase == TUNER_PHASE_SETTLED && newest(job)->at_ns + SECOND_NS / 2 > round->now_ns)
		watch(round, job);
}
