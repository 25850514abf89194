/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "control_private.h"
#include "lib/cleanup.h"
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

static bool is_first_of_user(const struct control *c, const struct job *job)
{
	const struct job *j = c->serving->jobs.first;

	while (j != job && j->uid != job->uid)
		j = j->next;
	return j == job;
}

static bool has_pinned_workers(const struct control *c, uint32_t uid)
{
	uint64_t value;

	for (const struct job *j = c->serving->jobs.first; j; j = j->next)
		if (j->uid == uid && settings_find_pin(&c->settings, j->id, TUNER_DAEMON_WORKERS, &value))
			return true;
	return false;
}

void control_leave_cores(struct control *c)
{
	bool is_default = !c->settings.is_set[WIRE_SET_WORKERS_MAX] &&
			  !c->settings.is_configured[WIRE_SET_WORKERS_MAX] &&
			  !c->settings.is_configured[WIRE_SET_WORKERS];
	_cleanup_(freep) struct user_cores *users = NULL;
	cpu_set_t daemon;
	size_t n = 0;

	for (const struct job *j = c->serving->jobs.first; j; j = j->next)
		n++;
	users = calloc(n + 1, sizeof(*users));
	if (!users || sched_getaffinity(0, sizeof(daemon), &daemon) < 0)
		return;
	n = 0;
	for (const struct job *j = c->serving->jobs.first; j; j = j->next)
		users[n++] = (struct user_cores){.uid = j->uid, .cores = &j->cores};
	for (const struct job *j = c->serving->jobs.first; j; j = j->next) {
		uint32_t limit = UINT32_MAX;

		if (!is_first_of_user(c, j))
			continue;
		if (is_default && !has_pinned_workers(c, j->uid))
			limit = job_cores_left(users, n, j->uid, &daemon,
					       (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
		for (struct job *own = c->serving->jobs.first; own; own = own->next)
			if (own->uid == j->uid)
				pool_lane_limit_user(c->serving->cache.pool, &own->lane, limit);
	}
}

void control_apply_limits(struct control *c)
{
	bool tuned = settings_get(&c->settings, WIRE_SET_TUNE) == WIRE_TUNE_ON;
	uint32_t workers_max = (uint32_t)settings_get(&c->settings, WIRE_SET_WORKERS_MAX);
	struct serving_knobs knobs = c->knobs;
	struct error note = ERROR_INIT;

	knobs.cache_bytes = settings_get(&c->settings, WIRE_SET_CACHE_MAX);
	c->serving->cache.node.least_bytes = settings_get(&c->settings, WIRE_SET_CACHE_MIN);
	/* Threads that no job may use only sleep: what is tuned is each job's own number. */
	if (tuned || knobs.workers > workers_max)
		knobs.workers = workers_max;
	read_turns_limit(c->serving->cache.turns, settings_get(&c->settings, WIRE_SET_READ_LIMIT),
			 settings_get(&c->settings, WIRE_SET_READ_OPS_LIMIT));
	control_leave_cores(c);
	serving_touch(c->serving);
	if (serving_apply_knobs(c->serving, &knobs, &note) > 0)
		log_warning("%s", note.text);
}
