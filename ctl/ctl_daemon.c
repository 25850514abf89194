/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_daemon.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/diesel.h"
#include "lib/text.h"
#include "lib/units.h"

int ctl_daemon_option(const struct ctl_verb *verb, int option, struct ctl_daemon_options *o)
{
	switch (option) {
	case 's': o->socket = optarg; return CTL_OK;
	case 'J': o->json = true; return CTL_OK;
	case 'T': return ctl_timeout(verb, &o->timeout_s);
	}
	return -1;
}

json_t *ctl_parse(const struct ctl_verb *verb, const char *text, const char *schema)
{
	json_t *root = json_loads(text, 0, NULL);
	const char *found = json_string_value(json_object_get(root, "schema"));

	if (found && !strcmp(found, schema))
		return root;
	json_decref(root);
	ctl_warn(verb, "dieseld's answer has an unexpected form: is it another version?");
	return NULL;
}

void ctl_print_where(const json_t *root)
{
	char socket[200];

	if (*ctl_string(root, "socket", socket) && strcmp(socket, DIESEL_DEFAULT_SOCKET) != 0)
		printf("dieseld at %s\n", socket);
}

uint64_t ctl_number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

double ctl_real(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
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
	return strncmp(name, "cache", 5) == 0 || !strcmp(name, "forms-max") || !strcmp(name, "read-limit");
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
