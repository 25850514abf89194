/* SPDX-License-Identifier: Apache-2.0 */
/* One round per second: takes samples, makes decisions, and records both. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control_private.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/units.h"

/* Returns the sum of all other jobs' caches. */
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

/* Enforces the operator's minimum for all caches together, even under memory pressure. */
static uint64_t hold_cache(const struct control *c, const struct job *job, uint64_t value)
{
	uint64_t least = settings_get(&c->settings, WIRE_SET_CACHE_MIN),
		 others = others_cache_bytes(c, job->id);

	return others < least && value < least - others ? least - others : value;
}

/* Sets a job's knob, but a cache never below cache-min and the job's need. Returns the value in force. */
static uint64_t apply_knob(struct control *c, struct job *job, enum tuner_knob knob, uint64_t value)
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
	/* Threads without work only sleep: tuning changes each job's own number. */
	if (tuned || knobs.workers > workers_max)
		knobs.workers = workers_max;
	read_turns_limit(c->serving->cache.turns, settings_get(&c->settings, WIRE_SET_READ_LIMIT),
			 settings_get(&c->settings, WIRE_SET_READ_OPS_LIMIT));
	control_leave_cores(c);
	serving_touch(c->serving);
	if (serving_apply_knobs(c->serving, &knobs, &note) > 0)
		log_warning("%s", note.text);
}

/* ---- the newest decisions ---- */

static uint64_t held(const struct control_log *log)
{
	return log->n_added < WIRE_WHY_MAX ? log->n_added : WIRE_WHY_MAX;
}

void control_log_free(struct control_log *log)
{
	for (uint64_t i = 0; i < held(log); i++)
		free(log->entries[i].entry.sample);
	free(log->entries);
	*log = (struct control_log){0};
}

int control_log_add(struct control_log *log, const struct control_log_entry *entry)
{
	struct control_log_entry *place;

	if (!log->entries)
		log->entries = calloc(WIRE_WHY_MAX, sizeof(*log->entries));
	if (!log->entries) {
		free(entry->entry.sample);
		return -ENOMEM;
	}
	place = &log->entries[log->n_added++ % WIRE_WHY_MAX];
	free(place->entry.sample);
	*place = *entry;
	return 0;
}

const struct control_log_entry *control_log_newest(const struct control_log *log, uint64_t i)
{
	return i < held(log) ? &log->entries[(log->n_added - 1 - i) % WIRE_WHY_MAX] : NULL;
}

/* Returns the entry with this decision; NULL: no longer stored. */
static struct control_log_entry *control_log_find(struct control_log *log, uint64_t decision)
{
	for (uint64_t i = 0; i < held(log); i++) {
		struct control_log_entry *entry = &log->entries[(log->n_added - 1 - i) % WIRE_WHY_MAX];

		if (entry->entry.decision.id == decision)
			return entry;
	}
	return NULL;
}

/* ---- rounds ---- */

#define SAVE_EVERY_ROUNDS 30
#define COVERED_MAX_S     3600.0
#define EMPTY_ROUNDS      70 /* the tuner forgets a job without samples sooner */

/* Logs one line when writing begins to fail, and one when it works again. */
static void watch_history(struct control *c)
{
	struct history_status status;

	if (!c->history)
		return;
	history_status_get(c->history, &status);
	if (strcmp(status.aside, c->history_aside) != 0) {
		log_warning("%s", status.aside);
		memcpy(c->history_aside, status.aside, sizeof(c->history_aside));
	}
	if (strcmp(status.error, c->history_problem) == 0)
		return;
	if (status.error[0])
		log_warning("%s: decisions are not saved to disk until this is fixed", status.error);
	else
		log_info("the history is being written again; %llu record%s lost",
			 (unsigned long long)status.n_dropped, units_plural(status.n_dropped));
	memcpy(c->history_problem, status.error, sizeof(c->history_problem));
}

/* Returns true if a decision should be carried out: without tuning, only the operator's pins and limits
 * are. */
static bool obeyed(const struct control *c, enum tuner_rule rule)
{
	return settings_get(&c->settings, WIRE_SET_TUNE) == WIRE_TUNE_ON || rule == TUNER_RULE_PIN ||
	       rule == TUNER_RULE_LIMIT;
}

static void store_decision(struct control *c, const struct control_log_entry *e)
{
	json_t *sample = e->has_sample ? control_sample_json(&e->sample, &e->node) : NULL;
	_cleanup_(freep) char *text = sample ? json_dumps(sample, JSON_COMPACT) : NULL;
	struct history_entry entry = e->entry;

	json_decref(sample);
	entry.sample = text; /* copied */
	history_add_entry(c->history, &entry);
}

static void record_decision(struct control *c, const struct tuner_decision *d, const struct job *job,
			    bool applied, uint64_t at_ms)
{
	const struct control_job *known = control_find_job(c, d->job);
	struct control_log_entry e = {.entry = {.at_ms = at_ms, .applied = applied, .decision = *d}};

	if (job) {
		snprintf(e.entry.job_name, sizeof(e.entry.job_name), "%s", job->name);
		e.entry.uid = job->uid;
	}
	if (known && known->has_sample) {
		e.has_sample = true;
		e.sample = known->sample;
		e.node = c->node;
	}
	if (c->history)
		store_decision(c, &e);
	(void)control_log_add(&c->log, &e);
	log_debug("job %llu: %s %llu -> %llu (%s)%s: %s", (unsigned long long)d->job,
		  tuner_knob_name(d->knob), (unsigned long long)d->old_value,
		  (unsigned long long)d->new_value, tuner_rule_name(d->rule), applied ? "" : ", not done",
		  d->reason);
}

static void apply_order(struct control *c, uint64_t at_ms)
{
	bool off = settings_get(&c->settings, WIRE_SET_TUNE) == WIRE_TUNE_OFF;

	for (size_t i = 0; i < c->result->n_decisions; i++) {
		struct tuner_decision *d = &c->result->decisions[i];
		struct job *job = jobs_find(&c->serving->jobs, d->job);
		bool applied = job && obeyed(c, d->rule);

		if (off && !applied)
			continue;
		if (applied) {
			uint64_t got = apply_knob(c, job, d->knob, d->new_value);

			if (got != d->new_value) {
				size_t n = strlen(d->reason);

				snprintf(d->reason + n, sizeof(d->reason) - n, "; held at %llu",
					 (unsigned long long)got);
				d->new_value = got;
			}
		}
		if (applied && (unsigned)d->rule < CONTROL_N_RULES)
			c->n_applied[d->rule]++;
		record_decision(c, d, job, applied, at_ms);
	}
	for (size_t i = 0; i < c->result->n_verdicts; i++) {
		const struct tuner_verdict *v = &c->result->verdicts[i];
		struct control_log_entry *found = control_log_find(&c->log, v->decision);

		if (!found)
			continue;
		found->entry.has_verdict = true;
		found->entry.verdict_ms = at_ms;
		found->entry.verdict = *v;
		if (c->history)
			history_add_verdict(c->history, at_ms, v);
	}
	for (size_t i = 0; i < c->result->n_views; i++) {
		struct control_job *known = control_find_job(c, c->result->views[i].job);

		if (!known)
			continue;
		known->view = c->result->views[i];
		known->has_view = true;
	}
}

uint64_t control_n_applied(const struct control *c, enum tuner_rule rule)
{
	return c->n_applied[rule];
}

static void add(struct control_mean *mean, double value)
{
	if (isnan(value))
		return;
	mean->sum += value;
	mean->n++;
}

static double mean_of(const struct control_mean *mean)
{
	return mean->n ? mean->sum / mean->n : NAN;
}

/* Adds means over HISTORY_GRAIN_S to the history, for plots. */
static void sum_up(struct control *c, struct control_job *known, uint64_t at_ms)
{
	const struct stall_sample *s = &known->sample;

	known->sums.seconds += s->covered_s;
	add(&known->sums.rate, s->samples_per_s);
	add(&known->sums.wait, s->shares.fetch_stall + s->shares.prep_stall);
	add(&known->sums.fetch_stall, s->shares.fetch_stall);
	add(&known->sums.prep_stall, s->shares.prep_stall);
	add(&known->sums.device, s->shares.device);
	if (++known->sums.n < HISTORY_GRAIN_S)
		return;
	history_add_point(c->history,
			  &(struct history_point){.at_ms = at_ms,
						  .job = known->id,
						  .seconds = known->sums.seconds,
						  .rate = mean_of(&known->sums.rate),
						  .wait = mean_of(&known->sums.wait),
						  .fetch_stall = mean_of(&known->sums.fetch_stall),
						  .prep_stall = mean_of(&known->sums.prep_stall),
						  .device = mean_of(&known->sums.device),
						  .knobs = s->knobs});
	memset(&known->sums, 0, sizeof(known->sums));
}

static void add_stall(struct control_job *known)
{
	const struct stall_sample *s = &known->sample;
	double share = s->shares.fetch_stall + s->shares.prep_stall;

	if (!(share >= 0 && share <= 1) || !(s->covered_s > 0 && s->covered_s <= COVERED_MAX_S))
		return; /* not known, or out of range */
	known->stall_s += share * s->covered_s;
	known->measured_s += s->covered_s;
}

static void keep_samples(struct control *c, const struct stall_node *node, const struct stall_sample *samples,
			 size_t n, uint64_t now_ns, uint64_t at_ms)
{
	const struct history_round round = {.at_ms = at_ms,
					    .now_ns = now_ns,
					    .config = &c->config,
					    .node = node,
					    .samples = samples,
					    .n_samples = n < TUNER_MAX_JOBS ? n : TUNER_MAX_JOBS};

	c->node = *node;
	for (size_t i = 0; i < n; i++) {
		struct control_job *known = control_find_job(c, samples[i].job);

		if (!known)
			continue;
		known->sample = samples[i];
		known->has_sample = true;
		add_stall(known);
		if (c->history)
			sum_up(c, known, at_ms);
	}
	/* Rounds without samples are recorded, too: they decide on earlier samples. */
	c->n_empty = n ? 0 : c->n_empty + 1;
	if (c->history && c->n_empty < EMPTY_ROUNDS)
		history_add_round(c->history, &round);
}

static bool have_memory(struct control *c)
{
	if (!c->state)
		c->state = calloc(1, tuner_state_bytes());
	if (!c->result)
		c->result = calloc(1, sizeof(*c->result));
	return c->state && c->result;
}

/* Called when the sensor has measured another second. */
static void tune_second(void *user, const struct stall_node *node, const struct stall_sample *samples,
			size_t n, uint64_t now_ns)
{
	struct control *c = user;
	uint64_t at_ms = clock_realtime_ns() / NS_PER_MS;

	if (!c->serving || !have_memory(c))
		return;
	settings_fill(&c->settings, &c->config);
	keep_samples(c, node, samples, n, now_ns, at_ms);
	tuner_decide(&c->config, c->state, node, samples, n, now_ns, c->result);
	c->n_rounds++;
	c->n_refused += c->result->n_samples_refused;
	apply_order(c, at_ms);
	if (c->result->n_decisions > 0 || c->n_rounds - c->saved_round >= SAVE_EVERY_ROUNDS)
		control_save_state(c);
	watch_history(c);
}

struct sensor_handler control_handler(struct control *c)
{
	return (struct sensor_handler){.second = tune_second, .user = c};
}
