/* SPDX-License-Identifier: Apache-2.0 */
/* JOBS, WHY and SET. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/node/admin.h"
#include "control_private.h"
#include "lib/clock.h"
#include "lib/log.h"

struct control_viewer control_viewer_of(uint32_t uid)
{
	return (struct control_viewer){.uid = uid, .all = admin_is(uid)};
}

static char *dump(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;

	json_decref(root);
	return text;
}

char *control_jobs(struct control *c, const struct control_viewer *viewer)
{
	return dump(json_pack("{s:s, s:s, s:o, s:o, s:o}", "schema", "diesel.jobs/1", "socket", c->socket,
			      "tune", control_tune_json(c), "jobs", control_jobs_json(c, viewer), "assist",
			      control_assist_json(c, viewer)));
}

static bool may_see(const struct control_viewer *viewer, uint32_t uid)
{
	return viewer->all || viewer->uid == uid;
}

static int no_job(uint64_t id, struct error *err)
{
	return error_set(err, -ENOENT, "there is no job %llu: run `dieselctl jobs` to list the jobs",
			 (unsigned long long)id);
}

int control_why(struct control *c, const struct control_viewer *viewer, const struct wire_why *m,
		char **ret_text, struct error *err)
{
	const struct job *job = m->job ? jobs_find(&c->serving->jobs, m->job) : NULL;
	json_t *decisions = json_array();
	const struct control_log_entry *entry;
	bool found = !m->job || (job && may_see(viewer, job->uid));
	char *text;

	/* A job that has ended is known as long as any of its decisions is. */
	for (uint64_t i = 0; (entry = control_log_newest(&c->log, i)); i++) {
		if ((m->job && entry->entry.decision.job != m->job) || !may_see(viewer, entry->entry.uid))
			continue;
		found = true;
		if (json_array_size(decisions) < m->max)
			json_array_append_new(decisions, control_entry_json(entry));
	}
	if (!found) {
		json_decref(decisions);
		return no_job(m->job, err);
	}
	text =
	    dump(json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "schema", "diesel.why/1", "socket",
			   c->socket, "job", (json_int_t)m->job, "tune", control_tune_json(c), "jobs",
			   control_jobs_json(c, viewer), "decisions", decisions, "assist",
			   control_assist_json(c, viewer), "reads", control_reads_json(&c->serving->cache)));
	if (!text)
		return error_errno(err, -ENOMEM, "cannot build the reply");
	*ret_text = text;
	return 0;
}

/* Refuses to set a knob whose value the client has fixed. */
static int check_tunable(const struct control *c, const struct wire_set *m, struct error *err)
{
	const struct control_job *known = control_find_job(c, m->job);

	for (uint32_t i = 0; i < m->n_settings; i++) {
		enum wire_setting_key key = (enum wire_setting_key)m->settings[i].key;
		enum tuner_knob knob;

		if (tuner_knob_of_key(key, &knob) < 0 || m->settings[i].flags == WIRE_SETTING_AUTO ||
		    !known || !known->has_sample || known->sample.tunable & 1u << knob)
			continue;
		if (knob == TUNER_CLIENT_WORKERS)
			return error_set(err, -EOPNOTSUPP,
					 "cannot set client-workers of job %llu: its loader keeps "
					 "their number. Leave out num_workers=N, or write \"auto\"",
					 (unsigned long long)m->job);
		return error_set(err, -EOPNOTSUPP,
				 "cannot set %s of job %llu: dieseld decodes no images for this job",
				 settings_name(key), (unsigned long long)m->job);
	}
	return 0;
}

static void forget_all(struct control *c)
{
	for (const struct control_job *j = c->jobs; j; j = j->next)
		control_forget(c, j->id);
}

static void log_settings(const struct control_viewer *viewer, const struct wire_set *m)
{
	for (uint32_t i = 0; i < m->n_settings; i++) {
		const struct wire_setting *w = &m->settings[i];
		char value[24] = "auto", job[32] = "";

		if (w->flags != WIRE_SETTING_AUTO)
			snprintf(value, sizeof(value), "%llu", (unsigned long long)w->value);
		if (m->job)
			snprintf(job, sizeof(job), " of job %llu", (unsigned long long)m->job);
		log_info("uid %u set %s%s to %s%s", viewer->uid, settings_name((enum wire_setting_key)w->key),
			 job, value, w->flags == WIRE_SETTING_UNTIL_RESTART ? " until restart" : "");
	}
}

/* Returns true if the message has any of the job's own settings. */
static bool set_job(struct control *c, const struct wire_set *m)
{
	struct job *job = jobs_find(&c->serving->jobs, m->job);
	struct control_job *known = control_find_job(c, m->job);
	bool any = false;

	for (uint32_t i = 0; job && i < m->n_settings; i++) {
		const struct wire_setting *w = &m->settings[i];

		if (w->key != WIRE_SET_READ_WEIGHT)
			continue;
		job->read_weight = w->flags & WIRE_SETTING_AUTO ? TURN_WEIGHT : (uint32_t)w->value;
		if (known)
			known->read_weight = job->read_weight;
		any = true;
	}
	return any;
}

int control_set(struct control *c, const struct control_viewer *viewer, const struct wire_set *m,
		char **ret_text, struct error *err)
{
	uint64_t mode = settings_get(&c->settings, WIRE_SET_TUNE);
	char *text;
	int r;

	if (!viewer->all)
		return admin_refuse(err);
	if (m->job && !jobs_find(&c->serving->jobs, m->job))
		return no_job(m->job, err);
	r = check_tunable(c, m, err);
	c->settings.by = (struct settings_by){.uid = viewer->uid, .at_s = clock_realtime_ns() / NS_PER_S};
	if (r == 0)
		r = settings_apply(&c->settings, m, err);
	c->settings.by = (struct settings_by){0};
	if (r < 0)
		return r;
	/* Data that the tuner learnt while no decision was carried out is useless once decisions are carried
	 * out, and vice versa. */
	if (settings_get(&c->settings, WIRE_SET_TUNE) != mode)
		forget_all(c);
	if (set_job(c, m))
		control_save_state(c);
	control_apply_limits(c);
	control_save_settings(c);
	log_settings(viewer, m);
	text = dump(json_pack("{s:s, s:s, s:o, s:o}", "schema", "diesel.set/1", "socket", c->socket, "tune",
			      control_tune_json(c), "jobs", control_jobs_json(c, viewer)));
	if (!text)
		return error_errno(err, -ENOMEM, "cannot build the reply");
	*ret_text = text;
	return 0;
}
