/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control_private.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"

#define HISTORY_MAX_AGE_S (UINT64_C(7) * 86400)

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

void control_reconfigure(struct control *c, const struct settings *configured,
			 const struct serving_knobs *knobs)
{
	c->knobs = *knobs;
	settings_reconfigure(&c->settings, configured);
	control_log_overrides(c);
	control_apply_limits(c);
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
