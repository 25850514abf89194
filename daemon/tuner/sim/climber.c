/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer that every autotuner has to beat: a hill climber on the same knobs. It turns one knob per step,
 * and takes three seconds to see the effect. If the rate rose by 2 %, the step is kept and repeated;
 * otherwise it is taken back and the next one tried, first up, then down.
 */
#include "run.h"

#include <math.h>

#define N_CLIMBED 4 /* number of knobs that it turns: its jobs have no decoded copies */
#define STEP_S    3
#define BETTER    1.02

static uint64_t step_of(const struct sim_run *run, uint32_t knob)
{
	return knob == TUNER_CACHE_BYTES ? (uint64_t)(run->scenario->memory_bytes / 10) : 1;
}

static bool move(const struct sim_run *run, uint32_t index, struct tuner_knobs *knobs, uint32_t knob,
		 int direction)
{
	const struct sim_truth *t = sim_truth_now(run, index);
	uint64_t step = step_of(run, knob), now = knobs->value[knob];
	double least = knob == TUNER_CACHE_BYTES ? sim_need_bytes(t) : knob == TUNER_DAEMON_WORKERS ? 1 : 0;
	double most = knob == TUNER_CACHE_BYTES       ? run->scenario->memory_bytes
		      : knob == TUNER_PREFETCH_CHUNKS ? 64
						      : run->scenario->cores;
	double to = (double)now + direction * (double)step;

	if (knob == TUNER_CLIENT_WORKERS && t->client_cpu_s <= 0)
		return false;
	if (to < least || to > most)
		return false;
	knobs->value[knob] = (uint64_t)to;
	return true;
}

void sim_climb(struct sim_run *run, uint32_t index)
{
	struct sim_live *job = &run->jobs[index];
	double measured = job->rates.rate * exp(run->scenario->noise * sim_normal(&run->random));

	job->measured += measured / STEP_S;
	if (++job->wait_s < STEP_S)
		return;
	if (job->direction == 0) {
		job->direction = 1; /* the first interval: nothing was changed */
	} else if (job->measured > job->before * BETTER) {
		job->last = job->ordered; /* continues in the same direction */
	} else {
		job->ordered = job->last;
		if (job->direction > 0) {
			job->direction = -1;
		} else {
			job->direction = 1;
			job->knob = (job->knob + 1) % N_CLIMBED;
		}
		job->measured = fmax(job->before, job->measured);
	}
	job->before = job->measured;
	job->measured = 0;
	job->wait_s = 0;
	job->last = job->ordered;
	for (int i = 0; i < 2 * N_CLIMBED; i++) {
		if (move(run, index, &job->ordered, job->knob, job->direction))
			return;
		if (job->direction > 0) {
			job->direction = -1;
		} else {
			job->direction = 1;
			job->knob = (job->knob + 1) % N_CLIMBED;
		}
	}
}
