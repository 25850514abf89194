/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_daemon.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/diesel.h"
#include "lib/cleanup.h"
#include "lib/json_read.h"
#include "lib/text.h"
#include "lib/units.h"

/* Parses the text as a JSON object of this schema. Returns NULL after printing a message if it is not one. */
static json_t *parse(const struct option_verb *verb, const char *text, const char *schema)
{
	json_t *root = json_loads(text, 0, NULL);

	if (strcmp(json_string_of(root, "schema"), schema) == 0)
		return root;
	json_decref(root);
	ctl_warn(verb, "cannot read dieseld's answer: client and daemon may have different versions");
	return NULL;
}

int ctl_ask(const struct option_verb *verb, const struct ctl_daemon_options *o,
	    const struct ctl_question *question, const void *what)
{
	_cleanup_(json_freep) json_t *root = NULL;
	_cleanup_(freep) char *text = NULL;
	struct admin_client *admin = NULL;
	struct error err = ERROR_INIT;
	int r = admin_open(o->socket, o->timeout_s, &admin, &err);

	if (r == 0)
		r = question->ask(admin, what, &text, &err);
	admin_close(admin);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (o->json) {
		text_put_json(stdout, text);
		return ctl_finish(verb);
	}
	root = parse(verb, text, question->schema);
	if (!root)
		return CTL_FAILED;
	question->print(root, what);
	return ctl_finish(verb);
}

int ctl_run_question(const struct option_verb *verb, int argc, char **argv,
		     const struct ctl_question *question)
{
	struct ctl_daemon_options o = CTL_DAEMON_OPTIONS_INIT;
	int status;

	if (!ctl_options(verb, argc, argv, &o, &status))
		return status;
	return optind != argc ? ctl_usage(verb, "expected no arguments") : ctl_ask(verb, &o, question, NULL);
}

void ctl_print_where(const json_t *root)
{
	char socket[200];

	if (*ctl_string(root, "socket", socket) && strcmp(socket, DIESEL_DEFAULT_SOCKET) != 0)
		printf("dieseld at %s\n", socket);
}

unsigned long long ctl_number(const json_t *object, const char *key)
{
	return (unsigned long long)json_integer_value(json_object_get(object, key));
}

json_t *ctl_known(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

const char *ctl_string(const json_t *object, const char *key, char text[200])
{
	const json_t *value = json_object_get(object, key);

	return text_printable(text, 200, json_is_string(value) ? json_string_value(value) : "",
			      json_is_string(value) ? json_string_length(value) : 0);
}

const char *ctl_percent(char text[8], double ratio)
{
	if (isfinite(ratio) && fabs(ratio) < 100)
		snprintf(text, 8, "%.0f %%", ratio * 100);
	else
		snprintf(text, 8, "-");
	return text;
}

const char *ctl_rate(char text[24], double rate)
{
	if (isfinite(rate))
		snprintf(text, 24, rate < 10 ? "%.2f" : "%.0f", rate);
	else
		snprintf(text, 24, "-");
	return text;
}

static bool is_bytes(const char *name)
{
	enum tuner_knob knob;

	if (tuner_knob_parse(name, &knob) == 0)
		return tuner_knob_table[knob].bytes;
	/* limits */
	return strncmp(name, "cache", 5) == 0 || !strcmp(name, "decoded-cache-max") ||
	       !strcmp(name, "read-limit");
}

const char *ctl_knob(char text[24], const char *knob, double value)
{
	if (!isfinite(value) || value < 0)
		snprintf(text, 24, "-");
	else if (is_bytes(knob))
		units_format_bytes(text, 24, (uint64_t)value);
	else
		snprintf(text, 24, "%.0f", value);
	return text;
}

static const char *setting_value(char text[32], const char *name, const json_t *value)
{
	bool none = !strncmp(name, "read-", 5) && json_number_value(value) <= 0;

	if (json_is_string(value))
		snprintf(text, 32, "%s", json_string_value(value));
	else if (none || json_is_null(value))
		snprintf(text, 32, none && !json_is_null(value) ? "none" : "free");
	else
		ctl_knob(text, name, json_number_value(value));
	return text;
}

/* "default", "the command line", or "FILE:LINE". */
static const char *source_of(char text[240], const json_t *object)
{
	char from[200], file[200];

	ctl_string(object, "from", from);
	if (!strcmp(from, "file"))
		snprintf(text, 240, "%s:%llu", ctl_string(object, "file", file), ctl_number(object, "line"));
	else
		snprintf(text, 240, "%s", strcmp(from, "option") ? from : "the command line");
	return text;
}

static void print_setter(const json_t *one, const char *name)
{
	const json_t *configured = json_object_get(one, "configured");
	time_t at = (time_t)ctl_number(one, "at");
	char text[240], value[32], time[32];
	struct tm tm;

	printf("set");
	if (at && localtime_r(&at, &tm) && strftime(time, sizeof(time), "%F %T", &tm) > 0)
		printf(" by uid %llu at %s", ctl_number(one, "uid"), time);
	printf("%s; otherwise %s (%s)\n",
	       json_is_true(json_object_get(one, "until_restart")) ? " until restart" : "",
	       setting_value(value, name, json_object_get(configured, "value")), source_of(text, configured));
}

void ctl_print_settings(const json_t *tune)
{
	const json_t *all = json_object_get(tune, "settings");

	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *one = json_array_get(all, i);
		char name[200], of[32] = "", text[240], value[32];

		ctl_string(one, "name", name);
		if (ctl_number(one, "job"))
			snprintf(of, sizeof(of), " of job %llu", ctl_number(one, "job"));
		printf("setting   %s%s: %s, ", name, of,
		       setting_value(value, name, json_object_get(one, "value")));
		if (json_object_get(one, "configured"))
			print_setter(one, name);
		else
			printf("%s\n", source_of(text, one));
	}
}
