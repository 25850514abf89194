/* SPDX-License-Identifier: Apache-2.0 */
/* Where the values come from that `dieselctl set` can set: a default, the file, an option, or somebody. */
#include <stdio.h>
#include <time.h>

#include "control_private.h"
#include "json_text.h"
#include "lib/log.h"
#include "lib/units.h"

static json_t *value_json(enum wire_setting_key key, uint64_t value)
{
	return key == WIRE_SET_TUNE ? json_string(settings_tune_name((enum wire_tune)value))
				    : json_u64(value);
}

/* "default", "option" or "file", with file and line. */
static void put_source(json_t *object, const struct settings_source *source)
{
	json_object_set_new(object, "from",
			    json_string(!source->given ? "default"
					: source->file ? "file"
						       : "option"));
	if (!source->file)
		return;
	json_object_set_new(object, "file", json_text(source->file));
	json_object_set_new(object, "line", json_integer(source->line));
}

/* A value that was set, by whom, and what holds without it. A knob that is not configured has no value. */
static json_t *set_json(const struct settings *s, enum wire_setting_key key, uint64_t value,
			const struct settings_by *by)
{
	bool has_value = s->is_configured[key] || !settings_is_knob(key);
	json_t *configured = json_object();

	json_object_set_new(configured, "value",
			    has_value ? value_json(key, settings_configured(s, key)) : json_null());
	put_source(configured, settings_source_of(s, key));
	return json_pack("{s:o, s:s, s:o, s:o, s:b, s:o}", "value", value_json(key, value), "from", "set",
			 "uid", by->at_s ? json_u64(by->uid) : json_null(), "at",
			 by->at_s ? json_u64(by->at_s) : json_null(), "until_restart", by->until_restart,
			 "configured", configured);
}

static void append(json_t *all, json_t *one, enum wire_setting_key key, uint64_t job)
{
	json_object_set_new(one, "name", json_string(settings_name(key)));
	json_object_set_new(one, "job", json_u64(job));
	json_array_append_new(all, one);
}

json_t *control_settings_json(const struct control *c)
{
	const struct settings *s = &c->settings;
	json_t *all = json_array();

	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++) {
		json_t *one;

		if (settings_is_of_job(key) || (settings_is_knob(key) && !s->is_configured[key]))
			continue;
		if (s->is_set[key]) {
			one = set_json(s, key, s->set[key], &s->set_by[key]);
		} else {
			one = json_pack("{s:o}", "value", value_json(key, settings_get(s, key)));
			put_source(one, settings_source_of(s, key));
		}
		append(all, one, key, 0);
	}
	for (uint32_t i = 0; i < s->n_pins; i++) {
		enum wire_setting_key key = tuner_knob_table[s->pins[i].knob].key;

		append(all, set_json(s, key, s->pins[i].value, &s->pin_by[i]), key, s->pins[i].job);
	}
	return all;
}

static void format_value(char text[32], enum wire_setting_key key, uint64_t value)
{
	if (key == WIRE_SET_TUNE)
		snprintf(text, 32, "%s", settings_tune_name((enum wire_tune)value));
	else if (settings_is_bytes(key))
		units_format_bytes(text, 32, value);
	else
		snprintf(text, 32, "%llu", (unsigned long long)value);
}

static void log_override(const struct settings *s, enum wire_setting_key key, uint64_t job, uint64_t value,
			 const struct settings_by *by)
{
	const struct settings_source *source = settings_source_of(s, key);
	char is[32], was[32], who[80] = "", of[32] = "", job_word[24] = "", where[300], at[32];
	struct tm tm;
	time_t time = (time_t)by->at_s;

	format_value(is, key, value);
	format_value(was, key, settings_configured(s, key));
	if (by->at_s && localtime_r(&time, &tm) && strftime(at, sizeof(at), "%F %T", &tm) > 0)
		snprintf(who, sizeof(who), " by uid %u at %s", by->uid, at);
	if (job)
		snprintf(job_word, sizeof(job_word), "%llu ", (unsigned long long)job);
	if (job)
		snprintf(of, sizeof(of), " of job %llu", (unsigned long long)job);
	if (source->file)
		snprintf(where, sizeof(where), "%s:%d (%s)", source->file, source->line, was);
	else if (source->given)
		snprintf(where, sizeof(where), "the command line (%s)", was);
	else if (settings_is_knob(key))
		snprintf(where, sizeof(where), "the tuner");
	else
		snprintf(where, sizeof(where), "the default (%s)", was);
	log_write(source->given ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
		  "%s=%s%s, which was set%s, overrides %s: `dieselctl set %s--unset %s` takes it back",
		  settings_name(key), is, of, who, where, job_word, settings_name(key));
}

void control_log_overrides(const struct control *c)
{
	const struct settings *s = &c->settings;

	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++)
		if (s->is_set[key])
			log_override(s, key, 0, s->set[key], &s->set_by[key]);
	for (uint32_t i = 0; i < s->n_pins; i++)
		log_override(s, tuner_knob_table[s->pins[i].knob].key, s->pins[i].job, s->pins[i].value,
			     &s->pin_by[i]);
}
