/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "control_private.h"
#include "json_text.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"

#define HISTORY_MAX_AGE_S (UINT64_C(7) * 86400)

#define BOOT_ID_BYTES 36

struct saved_tuner {
	char boot_id[BOOT_ID_BYTES + 4];
	uint64_t state_bytes, sample_bytes;
};

static uint64_t get_u64(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

static void save_json(struct control *c, const char *key, json_t *value)
{
	_cleanup_(freep) char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	if (text)
		history_set_state(c->history, key, text, strlen(text));
}

static json_t *by_json(const struct settings_by *by)
{
	return json_pack("{s:o, s:o}", "uid", json_u64(by->uid), "at", json_u64(by->at_s));
}

static struct settings_by saved_by(const json_t *by)
{
	return (struct settings_by){.uid = (uint32_t)get_u64(by, "uid"), .at_s = get_u64(by, "at")};
}

static bool is_known(const char *name)
{
	for (enum wire_setting_key key = WIRE_SET_TUNE; key < WIRE_N_SETTINGS; key++)
		if (!settings_is_knob(key) && strcmp(name, settings_name(key)) == 0)
			return true;
	return false;
}

static void put_foreign(const struct control *c, json_t *set, json_t *by, json_t *pins)
{
	json_object_update_missing(set, json_object_get(c->foreign, "set"));
	json_object_update_missing(by, json_object_get(c->foreign, "by"));
	json_array_extend(pins, json_object_get(c->foreign, "pins"));
}

void control_save_settings(struct control *c)
{
	const struct settings *s = &c->settings;
	json_t *set = json_object(), *by = json_object(), *pins = json_array();

	if (!c->history) {
		json_decref(set);
		json_decref(by);
		json_decref(pins);
		return;
	}
	for (enum wire_setting_key key = WIRE_SET_TUNE; key < WIRE_N_SETTINGS; key++)
		if (!settings_is_knob(key) && s->is_set[key] && !s->set_by[key].until_restart) {
			json_object_set_new(set, settings_name(key), json_u64(s->set[key]));
			json_object_set_new(by, settings_name(key), by_json(&s->set_by[key]));
		}
	for (uint32_t i = 0; i < s->n_pins; i++)
		if (!s->pin_by[i].until_restart)
			json_array_append_new(
			    pins, json_pack("{s:o, s:s, s:o, s:o}", "job", json_u64(s->pins[i].job), "knob",
					    tuner_knob_name(s->pins[i].knob), "value",
					    json_u64(s->pins[i].value), "by", by_json(&s->pin_by[i])));
	put_foreign(c, set, by, pins);
	save_json(c, "settings", json_pack("{s:o, s:o, s:o}", "set", set, "by", by, "pins", pins));
}

static void read_boot_id(char id[BOOT_ID_BYTES + 4])
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	memset(id, 0, BOOT_ID_BYTES + 4);
	if (!f || fread(id, 1, BOOT_ID_BYTES, f) != BOOT_ID_BYTES)
		memset(id, 0, BOOT_ID_BYTES + 4);
}

/* Returns true if the trainer's process is alive, so that its job can reconnect. */
static bool trainer_lives(const json_t *job)
{
	struct proc_stat stat;

	return proc_stat_read("/proc", (pid_t)get_u64(job, "pid"), &stat) == 0 &&
	       stat.start_ticks == get_u64(job, "start");
}

static void save_jobs(struct control *c)
{
	json_t *jobs = json_array(), *absent;
	size_t k;

	for (const struct control_job *j = c->jobs; j; j = j->next) {
		json_t *job;

		if (!j->start_ticks)
			continue;
		job = json_pack("{s:o, s:o, s:o, s:i, s:i}", "id", json_u64(j->id), "pid",
				json_u64((uint64_t)j->pid), "start", json_u64(j->start_ticks), "rank",
				(int)j->rank, "world", (int)j->world);
		if (j->read_weight != TURN_WEIGHT)
			json_object_set_new(job, "read_weight", json_u64(j->read_weight));
		for (int i = 0; i < TUNER_N_KNOBS; i++) /* a free cache is saved as -1 */
			json_object_set_new(job, tuner_knob_table[i].saved, json_u64(j->knobs.value[i]));
		json_array_append_new(jobs, job);
	}
	json_array_foreach(json_object_get(c->remembered, "jobs"), k, absent)
	{
		if (trainer_lives(absent))
			json_array_append(jobs, absent);
	}
	save_json(c, "jobs", json_pack("{s:o, s:o}", "last", json_u64(c->last_job), "jobs", jobs));
}

static void save_tuner(struct control *c)
{
	size_t size = sizeof(struct saved_tuner) + tuner_state_bytes();
	struct saved_tuner *saved = calloc(1, size);

	if (!saved)
		return;
	read_boot_id(saved->boot_id);
	saved->state_bytes = tuner_state_bytes();
	saved->sample_bytes = sizeof(struct stall_sample);
	memcpy(saved + 1, c->state, tuner_state_bytes());
	history_set_state(c->history, "tuner", saved, size);
	free(saved);
}

void control_save_state(struct control *c)
{
	c->saved_round = c->n_rounds;
	if (!c->history)
		return;
	save_jobs(c);
	if (c->state)
		save_tuner(c);
}

static json_t *load_json(struct control *c, const char *key)
{
	_cleanup_(freep) void *text = NULL;
	struct error err = ERROR_INIT;
	size_t size;
	int r = history_load_state(c->history, key, &text, &size, &err);

	if (r < 0 && r != -ENOENT)
		log_warning("%s", err.text);
	return r < 0 ? NULL : json_loadb(text, size, 0, NULL);
}

/* Restores a setting through the path of a client's request, so that only valid settings are restored. */
static void restore_one(struct control *c, uint64_t job, const struct wire_setting *setting)
{
	const struct wire_set message = {.job = job, .n_settings = 1, .settings = {*setting}};
	struct error err = ERROR_INIT;

	if (settings_apply(&c->settings, &message, &err) < 0)
		log_warning("a setting from before the restart is no longer valid: %s", err.text);
}

/* Restores all limits in one message, because one limit may be valid only together with another. A limit
 * that is no longer valid must not prevent the restoration of others. */
static void restore_limits(struct control *c, const json_t *set, const json_t *by)
{
	struct wire_set all = {0};
	struct settings *s = &c->settings;

	_Static_assert(WIRE_N_SETTINGS <= WIRE_SETTINGS_MAX, "one message holds all settings");
	for (enum wire_setting_key key = WIRE_SET_TUNE; key < WIRE_N_SETTINGS; key++) {
		const json_t *value = json_object_get(set, settings_name(key));

		if (json_is_integer(value) && json_integer_value(value) >= 0)
			all.settings[all.n_settings++] =
			    (struct wire_setting){.key = key, .value = (uint64_t)json_integer_value(value)};
	}
	if (settings_apply(s, &all, NULL) < 0)
		for (uint32_t i = 0; i < all.n_settings; i++)
			restore_one(c, 0, &all.settings[i]);
	for (enum wire_setting_key key = WIRE_SET_TUNE; key < WIRE_N_SETTINGS; key++)
		s->set_by[key] = saved_by(json_object_get(by, settings_name(key)));
}

static const char *knob_of(const json_t *pin)
{
	const char *name = json_string_value(json_object_get(pin, "knob"));

	return name ? name : "";
}

/* Appends the name to a list that is shown. */
static void list_name(char *list, size_t size, const char *name)
{
	size_t used = strlen(list);

	snprintf(list + used, size - used, "%s%s", used ? ", " : "", name);
}

static void keep_foreign(struct control *c, const json_t *root)
{
	json_t *set = json_object(), *by = json_object(), *pins = json_array(), *value;
	char names[256] = "";
	enum tuner_knob knob;
	const char *name;
	size_t i;

	json_object_foreach(json_object_get(root, "set"), name, value)
	{
		if (is_known(name))
			continue;
		json_object_set(set, name, value);
		json_object_set(by, name, json_object_get(json_object_get(root, "by"), name));
		list_name(names, sizeof(names), name);
	}
	json_array_foreach(json_object_get(root, "pins"), i, value)
	{
		if (tuner_knob_parse(knob_of(value), &knob) == 0)
			continue;
		json_array_append(pins, value);
		list_name(names, sizeof(names), knob_of(value));
	}
	c->foreign = json_pack("{s:o, s:o, s:o}", "set", set, "by", by, "pins", pins);
	if (names[0])
		log_warning("%s: settings of another version of dieseld that this version does not know: "
			    "kept for that version, without effect now",
			    names);
}

static void restore_settings(struct control *c)
{
	json_t *root = load_json(c, "settings"), *pin;
	size_t i;

	keep_foreign(c, root);
	restore_limits(c, json_object_get(root, "set"), json_object_get(root, "by"));
	json_array_foreach(json_object_get(root, "pins"), i, pin)
	{
		struct tuner_pin saved = {.job = get_u64(pin, "job"), .value = get_u64(pin, "value")};
		struct error err = ERROR_INIT;

		if (tuner_knob_parse(knob_of(pin), &saved.knob) < 0)
			continue;
		c->settings.by = saved_by(json_object_get(pin, "by"));
		if (settings_restore_pin(&c->settings, &saved, &err) < 0)
			log_warning("a setting from before the restart is no longer valid: %s", err.text);
	}
	c->settings.by = (struct settings_by){0};
	json_decref(root);
}

static void restore_tuner(struct control *c)
{
	_cleanup_(freep) struct saved_tuner *saved = NULL;
	char boot_id[BOOT_ID_BYTES + 4];
	size_t size;

	if (history_load_state(c->history, "tuner", (void **)&saved, &size, NULL) < 0)
		return;
	read_boot_id(boot_id);
	/* After a reboot the clock starts from zero, and all jobs are gone. */
	if (size != sizeof(*saved) + tuner_state_bytes() || saved->state_bytes != tuner_state_bytes() ||
	    saved->sample_bytes != sizeof(struct stall_sample) ||
	    memcmp(saved->boot_id, boot_id, sizeof(boot_id)))
		return;
	c->state = malloc(tuner_state_bytes());
	if (c->state)
		memcpy(c->state, saved + 1, tuner_state_bytes());
	if (c->state && !tuner_state_is_sane(c->state))
		memset(c->state, 0, tuner_state_bytes());
}

static void on_entry(void *user, struct history_entry *entry)
{
	struct control *c = user;
	const struct control_log_entry restored = {.entry = *entry};

	(void)control_log_add(&c->log, &restored);
}

/* Returns true if the job may reconnect. Job 0 stands for all jobs. */
static bool may_come_back(const struct control *c, uint64_t job)
{
	const json_t *jobs = json_object_get(c->remembered, "jobs");
	bool found = job == 0;

	for (size_t k = 0; k < json_array_size(jobs); k++)
		found |= get_u64(json_array_get(jobs, k), "id") == job;
	return found;
}

/* Drops the pins of jobs that cannot reconnect. */
static void forget_strangers(struct control *c)
{
	json_t *pins = json_object_get(c->foreign, "pins");

	for (uint32_t i = 0; i < c->settings.n_pins;) {
		uint64_t job = c->settings.pins[i].job;

		if (may_come_back(c, job))
			i++;
		else
			settings_forget_job(&c->settings, job);
	}
	for (size_t i = 0; i < json_array_size(pins);) {
		if (may_come_back(c, get_u64(json_array_get(pins, i), "job")))
			i++;
		else
			json_array_remove(pins, i);
	}
}

static void control_restore(struct control *c)
{
	struct error err = ERROR_INIT;

	restore_settings(c);
	restore_tuner(c);
	c->remembered = load_json(c, "jobs");
	c->last_job = get_u64(c->remembered, "last");
	forget_strangers(c);
	if (history_load_entries(c->history, WIRE_WHY_MAX, on_entry, c, &err) < 0)
		log_warning("%s", err.text);
}

/* A knob that was not saved, because it is newer than the file, is free. */
static struct tuner_knobs saved_knobs(const json_t *saved)
{
	struct tuner_knobs knobs = tuner_knobs_free();

	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		const json_t *value = json_object_get(saved, tuner_knob_table[i].saved);

		if (value && json_integer_value(value) >= 0 &&
		    (uint64_t)json_integer_value(value) < knobs.value[i])
			knobs.value[i] = (uint64_t)json_integer_value(value);
	}
	return knobs;
}

static uint32_t saved_weight(const json_t *saved)
{
	uint64_t weight = get_u64(saved, "read_weight");

	return weight >= 1 && weight <= TURN_WEIGHT_MOST ? (uint32_t)weight : TURN_WEIGHT;
}

/* Restores the job's number and knobs from before the restart. */
static void control_restore_job(struct control *c, struct job *job, struct control_job *known)
{
	json_t *jobs = json_object_get(c->remembered, "jobs"), *saved;
	size_t i;

	json_array_foreach(jobs, i, saved)
	{
		struct tuner_knobs knobs = saved_knobs(saved);

		if (!known->start_ticks || get_u64(saved, "pid") != (uint64_t)job->pid ||
		    get_u64(saved, "start") != known->start_ticks || get_u64(saved, "rank") != job->rank ||
		    get_u64(saved, "world") != job->world)
			continue;
		if (get_u64(saved, "id") && !jobs_find(job->owner, get_u64(saved, "id")))
			job->id = get_u64(saved, "id");
		(void)serving_set_job(c->serving, job->id, &knobs, NULL);
		job->read_weight = saved_weight(saved);
		log_info("job %llu (%s) is back", (unsigned long long)job->id, job->name);
		json_array_remove(jobs, i);
		return;
	}
}

struct control_job *control_find_job(const struct control *c, uint64_t id)
{
	struct control_job *j = c->jobs;

	while (j && j->id != id)
		j = j->next;
	return j;
}

void control_forget(struct control *c, uint64_t id)
{
	if (c->state)
		tuner_forget(c->state, id);
	if (c->history)
		history_add_end(c->history, clock_realtime_ns() / NS_PER_MS, id);
}

static void on_begin(void *user, struct job *job)
{
	struct control *c = user;
	struct control_job *known = calloc(1, sizeof(*known));
	struct proc_stat stat;

	if (job->id > c->last_job)
		c->last_job = job->id;
	if (known) {
		if (job->pid > 0 && proc_stat_read("/proc", (pid_t)job->pid, &stat) == 0)
			known->start_ticks = stat.start_ticks;
		control_restore_job(c, job, known);
		known->id = job->id;
		known->uid = job->uid;
		known->pid = job->pid;
		known->rank = job->rank;
		known->world = job->world;
		known->knobs = job->knobs;
		known->read_weight = job->read_weight;
		known->next = c->jobs;
		c->jobs = known;
	}
	job_cores_read("", (pid_t)job->pid, &job->cores);
	control_leave_cores(c);
	if (c->sensor)
		sensor_wake(c->sensor);
}

static void on_end(void *user, struct job *job)
{
	struct control *c = user;
	struct control_job **link = &c->jobs, *gone;

	if (c->serving->jobs.closing) /* the jobs continue, and reconnect after dieseld restarts */
		return;
	control_leave_cores(c);
	control_forget(c, job->id);
	settings_forget_job(&c->settings, job->id);
	while (*link && (*link)->id != job->id)
		link = &(*link)->next;
	gone = *link;
	if (!gone)
		return;
	*link = gone->next;
	free(gone);
	control_save_settings(c);
}

static void open_history(struct control *c, const struct control_options *o)
{
	const struct history_options options = {
	    .path = o->history, .max_bytes = o->history_max_bytes, .max_age_s = HISTORY_MAX_AGE_S};
	struct error err = ERROR_INIT;
	char notice[256];
	int r = history_open(&options, &c->history, notice, &err);

	if (notice[0])
		log_warning("%s", notice);
	if (r == 0) {
		control_restore(c);
		control_log_overrides(c);
		r = history_start(c->history, &err);
	}
	/* No tuner state was restored, so the tuner starts empty. Record that it forgot all jobs, so that a
	 * replay starts empty, too. */
	if (r == 0 && !c->state)
		history_add_end(c->history, clock_realtime_ns() / NS_PER_MS, 0);
	if (r == 0)
		return;
	log_warning("%s: decisions are kept in memory only, and earlier settings are not in force", err.text);
	snprintf(c->history_problem, sizeof(c->history_problem), "%s", err.text);
	history_close(c->history);
	c->history = NULL;
}

int control_new(const struct control_options *o, struct control **ret)
{
	struct control *c = calloc(1, sizeof(*c));

	if (!c || (o->history && !(c->history_path = strdup(o->history)))) {
		free(c);
		return -ENOMEM;
	}
	c->settings = o->settings;
	c->knobs = o->knobs;
	snprintf(c->socket, sizeof(c->socket), "%s", o->socket ? o->socket : "");
	c->config = tuner_config_default();
	c->node = stall_node_unknown();
	if (o->history)
		open_history(c, o);
	*ret = c;
	return 0;
}

void control_start(struct control *c, struct serving *serving, struct sensor *sensor)
{
	c->serving = serving;
	c->sensor = sensor;
	serving->jobs.n_begun = c->last_job;
	serving->jobs.handler = (struct job_handler){.begin = on_begin, .end = on_end, .user = c};
	control_apply_limits(c);
}

/* Replaces the configured values by those of `configured`. Values set while running stay set. */
static void settings_reconfigure(struct settings *s, const struct settings *configured)
{
	s->space = configured->space;
	memcpy(s->configured, configured->configured, sizeof(s->configured));
	memcpy(s->is_configured, configured->is_configured, sizeof(s->is_configured));
	memcpy(s->source, configured->source, sizeof(s->source));
}

void control_reconfigure(struct control *c, const struct settings *configured,
			 const struct serving_knobs *knobs)
{
	c->knobs = *knobs;
	settings_reconfigure(&c->settings, configured);
	control_log_overrides(c);
	control_apply_limits(c);
}

/* Returns true if `dieselctl set` overrides the file for this setting of the whole daemon. */
static bool settings_is_overridden(const struct settings *s, enum wire_setting_key key)
{
	enum tuner_knob knob;

	if (tuner_knob_of_key(key, &knob) < 0)
		return s->is_set[key];
	for (uint32_t i = 0; i < s->n_pins; i++)
		if (s->pins[i].job == 0 && s->pins[i].knob == knob)
			return true;
	return false;
}

bool control_is_overridden(const struct control *c, enum wire_setting_key key)
{
	return settings_is_overridden(&c->settings, key);
}

bool control_history_status(const struct control *c, struct history_status *ret)
{
	*ret = (struct history_status){0};
	if (c->history)
		history_status_get(c->history, ret);
	else
		snprintf(ret->error, sizeof(ret->error), "%s", c->history_problem);
	return c->history && !ret->error[0];
}

void control_free(struct control *c)
{
	if (!c)
		return;
	if (c->history) {
		control_save_state(c);
		control_save_settings(c);
	}
	history_close(c->history);
	while (c->jobs) {
		struct control_job *next = c->jobs->next;

		free(c->jobs);
		c->jobs = next;
	}
	control_log_free(&c->log);
	json_decref(c->remembered);
	json_decref(c->foreign);
	free(c->history_path);
	free(c->state);
	free(c->result);
	free(c);
}
