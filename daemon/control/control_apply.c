/* SPDX-License-Identifier: Apache-2.0 */
#include "control_private.h"
#include "lib/log.h"

/* The sum of all other jobs' caches. */
static uint64_t others_cache_bytes(const struct control *c, uint64_t job)
{
	uint64_t sum = 0;

	for (const struct job *j = c->serving->jobs.first; j; j = j->next) {
		struct tuner_knobs knobs;

		if (j->id == job)
			continue;
		serving_job_knobs(c->serving, j, &knobs);
		sum += knobs.value[TUNER_CACHE_BYTES];
	}
	return sum;
}

/* The operator's least for all caches together holds even under pressure. */
static uint64_t hold_cache(const struct control *c, const struct job *job, uint64_t value)
{
	uint64_t least = settings_get(&c->settings, WIRE_SET_CACHE_MIN),
		 others = others_cache_bytes(c, job->id);

	return others < least && value < least - others ? least - others : value;
}

uint64_t control_apply(struct control *c, struct job *job, enum tuner_knob knob, uint64_t value)
{
	struct control_job *known = control_find_job(c, job->id);
	struct tuner_knobs knobs = job->knobs, got;
	uint64_t most = tuner_knob_table[knob].free - 1;
	struct error note = ERROR_INIT;

	if (knob == TUNER_CACHE_BYTES)
		value = hold_cache(c, job, value);
	knobs.value[knob] = value < most ? value : most;
	(void)serving_set_job(c->serving, job->id, &knobs, &note);
	if (known)
		known->knobs = knobs;
	serving_job_knobs(c->serving, job, &got);
	return knob == TUNER_CACHE_BYTES ? got.value[knob] : value;
}

void control_apply_limits(struct control *c)
{
	bool tuned = settings_get(&c->settings, WIRE_SET_TUNE) == WIRE_TUNE_ON;
	uint32_t workers_max = (uint32_t)settings_get(&c->settings, WIRE_SET_WORKERS_MAX);
	struct serving_knobs knobs = c->knobs;
	struct error note = ERROR_INIT;

	knobs.cache_bytes = settings_get(&c->settings, WIRE_SET_CACHE_MAX);
	/* Threads that no job may use only sleep: what is tuned is each job's own number. */
	if (tuned || knobs.workers > workers_max)
		knobs.workers = workers_max;
	read_turns_limit(c->serving->cache.turns, settings_get(&c->settings, WIRE_SET_READ_LIMIT),
			 settings_get(&c->settings, WIRE_SET_READ_OPS_LIMIT));
	serving_touch(c->serving);
	if (serving_apply_knobs(c->serving, &knobs, &note) > 0)
		log_warning("%s", note.text);
}
