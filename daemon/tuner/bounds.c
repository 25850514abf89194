/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the changes that cannot wait: limits, memory pressure, pins, other jobs' shares. */
#include "round.h"

#include <math.h>

#define RECOVER_MIN 0.05 /* minimum step of a recovery, as a part of the former cache */

static uint64_t bound_of(const struct tuner_round *round, const struct knob_plan *p, enum tuner_knob knob,
			 uint64_t value)
{
	double need = p->now.need_bytes, max = INFINITY;

	switch (knob) {
	case TUNER_CACHE_BYTES:
		max = fmin(p->space.cache_bytes, round->cache_total);
		/* Pressure never takes memory that sessions need; an operator's limit may. */
		if (!round->cache_hard && need > 0)
			max = fmax(max, need);
		break;
	case TUNER_PREFETCH_CHUNKS: max = round->config->prefetch_chunks_max; break;
	case TUNER_DAEMON_WORKERS: max = fmax((double)p->space.daemon_workers, 1); break;
	case TUNER_CLIENT_WORKERS: max = (double)p->space.client_workers; break;
	case TUNER_DECODED_BYTES: max = (double)round->config->decoded_bytes_max; break;
	}
	return (double)value > max ? (uint64_t)max : value;
}

static void apply_pin(struct tuner_round *round, size_t index, enum tuner_knob knob,
		      const struct tuner_pin *pin)
{
	const struct tuner_job *job = &round->state->jobs[index];
	uint64_t value = bound_of(round, &round->plans[index], knob, pin->value);

	if (value == round_value(job, knob) || round->now_ns < job->refused_until_ns[knob])
		return;
	if (value == pin->value)
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_PIN, value, NAN}, "pinned to %llu",
			     (unsigned long long)value);
	else
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_PIN, value, NAN},
			     "pinned to %llu, but limited to %llu", (unsigned long long)pin->value,
			     (unsigned long long)value);
}

static void shrink(struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value)
{
	struct tuner_job *job = &round->state->jobs[index];
	uint64_t now = round_value(job, knob);

	if (knob == TUNER_CACHE_BYTES && !round->cache_hard) {
		if (job->cache_before_pressure < now)
			job->cache_before_pressure = now;
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_PRESSURE, value, NAN},
			     "memory is tight (tasks waited %.1f%% of the last 10 s, %.1f%% of the last "
			     "second, %.0f MiB "
			     "left): all caches together at most %.0f MiB",
			     fmax(round->node.memory_some_avg10, 0), fmax(round->node.memory_some_now, 0),
			     round->node.memory_headroom_bytes / 0x1p20,
			     round->state->pressure.ceiling_bytes / 0x1p20);
	} else if (round->state->n_jobs > 1) {
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_SHARE, value, NAN},
			     "%u jobs share the node: this job's part of %s is %llu instead of %llu",
			     round->state->n_jobs, tuner_knob_name(knob), (unsigned long long)value,
			     (unsigned long long)now);
	} else {
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_LIMIT, value, NAN},
			     "the limit allows %llu instead of %llu", (unsigned long long)value,
			     (unsigned long long)now);
	}
}

void round_apply_bounds(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	if (round_bound_decoded(round, index))
		return;
	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		enum tuner_knob knob = (enum tuner_knob)k;
		const struct tuner_pin *pin = round_pin(round->config, job->job, knob);
		uint64_t now = round_value(job, knob),
			 bound = bound_of(round, &round->plans[index], knob, now);

		if (bound < now && (!job->asked[knob] || round->now_ns > job->asked_ns[knob] + SECOND_NS))
			shrink(round, index, knob, bound);
		else if (pin)
			apply_pin(round, index, knob, pin);
	}
}

/* Gives the job back the memory that pressure took, as the ceiling rises and as far as the job still needs
 * it. */
bool round_recover(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];
	uint64_t now = round_value(job, TUNER_CACHE_BYTES), before = job->cache_before_pressure;
	double to = fmin((double)before, fmin(round->plans[index].space.cache_bytes, round->cache_growth));

	if (!before)
		return false;
	if (now >= before || job->model.value[TUNER_CACHE_BYTES] < now) {
		if (!(round->state->pressure.ceiling_bytes > 0))
			job->cache_before_pressure = 0; /* the job has all that it wants */
		return false;
	}
	if (to < (double)now + RECOVER_MIN * (double)before ||
	    round->now_ns < job->changed_ns + round->config->cooldown_ns)
		return false;
	round_decide(round, index, &(struct wish){TUNER_CACHE_BYTES, TUNER_RULE_RECOVER, (uint64_t)to, NAN},
		     "memory is no longer tight (tasks waited %.1f%% of the last 10 s): the cache grows back "
		     "towards %.0f MiB",
		     round->node.memory_some_avg10, (double)before / 0x1p20);
	return true;
}
