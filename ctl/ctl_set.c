/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl set: pins, limits and the mode of the tuner. */
#include "ctl_daemon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"
#include "lib/units.h"

static const struct {
	const char *name;
	enum wire_setting_key key;
	bool bytes;
} limits[] = {
    {"cache-max", WIRE_SET_CACHE_MAX, true},
    {"cache-min", WIRE_SET_CACHE_MIN, true},
    {"workers-max", WIRE_SET_WORKERS_MAX, false},
    {"client-workers-max", WIRE_SET_CLIENT_WORKERS_MAX, false},
    {"prefetch-max", WIRE_SET_PREFETCH_MAX, false},
    {"forms-max", WIRE_SET_FORMS_MAX, true},
    {"read-limit", WIRE_SET_READ_LIMIT, true},
    {"read-ops-limit", WIRE_SET_READ_OPS_LIMIT, false},
};

#define N_LIMITS (sizeof(limits) / sizeof(limits[0]))

/* What the left side of an assignment names. */
struct name {
	const char *name;
	enum wire_setting_key key;
	bool limit, bytes;
};

struct set_request {
	struct ctl_daemon_options daemon;
	uint64_t job;
	struct wire_setting settings[WIRE_SETTINGS_MAX];
	uint32_t n;
};

/* If a setting were given twice, nobody would know which of the two counts. */
static int add(const struct ctl_verb *verb, struct set_request *q, const char *name,
	       struct wire_setting setting)
{
	for (uint32_t i = 0; i < q->n; i++)
		if (q->settings[i].key == setting.key)
			return ctl_usage(verb, "%s is given twice", name);
	q->settings[q->n++] = setting;
	return CTL_OK;
}

static int parse_value(const struct ctl_verb *verb, const char *value, bool bytes, struct wire_setting *s,
		       const char *argument)
{
	int64_t number;

	if (!strcmp(value, "auto")) {
		s->flags = WIRE_SETTING_AUTO;
		return CTL_OK;
	}
	if (bytes && units_parse_bytes(value, &s->value) < 0)
		return ctl_usage(verb, "%s: a number of bytes is needed, such as 4G, or auto", argument);
	if (!bytes && units_parse_integer(value, 0, 65536, &number) < 0)
		return ctl_usage(verb, "%s: a whole number is needed, or auto", argument);
	if (!bytes)
		s->value = (uint64_t)number;
	return CTL_OK;
}

static bool is_called(const char *text, size_t length, const char *name)
{
	return strlen(name) == length && strncmp(name, text, length) == 0;
}

static bool find_name(const char *text, size_t length, struct name *ret)
{
	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		const struct tuner_knob_info *knob = &tuner_knob_table[i];

		if (is_called(text, length, knob->setting) || is_called(text, length, knob->name)) {
			*ret = (struct name){.name = knob->setting, .key = knob->key, .bytes = knob->bytes};
			return true;
		}
	}
	if (is_called(text, length, "read-weight")) {
		*ret = (struct name){.name = "read-weight", .key = WIRE_SET_READ_WEIGHT};
		return true;
	}
	for (size_t i = 0; i < N_LIMITS; i++) {
		if (is_called(text, length, limits[i].name)) {
			*ret = (struct name){limits[i].name, limits[i].key, true, limits[i].bytes};
			return true;
		}
	}
	return false;
}

/* Adds knob=value from an argument, or limit=value from --limit. */
static int add_assignment(const struct ctl_verb *verb, struct set_request *q, const char *argument,
			  bool limit)
{
	const char *equals = strchr(argument, '=');
	struct wire_setting setting = {0};
	struct name name;
	int r;

	if (!equals || !find_name(argument, (size_t)(equals - argument), &name))
		return limit
			   ? ctl_usage(verb,
				       "--limit %s: it must be cache-max, cache-min, workers-max, "
				       "client-workers-max, prefetch-max, forms-max, read-limit or "
				       "read-ops-limit, with =VALUE",
				       argument)
			   : ctl_usage(verb,
				       "'%s': it must be cache, prefetch, workers, client-workers, forms or "
				       "read-weight, with =VALUE",
				       argument);
	if (name.limit != limit)
		return limit ? ctl_usage(verb, "%s is a knob: write it without --limit", name.name)
			     : ctl_usage(verb, "%s is a limit: write --limit %s", name.name, argument);
	setting.key = name.key;
	r = parse_value(verb, equals + 1, name.bytes, &setting, argument);
	return r == CTL_OK ? add(verb, q, name.name, setting) : r;
}

/* --unset NAME: a knob, a limit or the mode, of whichever the name is. */
static int add_unset(const struct ctl_verb *verb, struct set_request *q, const char *text)
{
	struct wire_setting setting = {.key = WIRE_SET_TUNE, .flags = WIRE_SETTING_AUTO};
	struct name name = {.name = "tune"};

	if (strcmp(text, "tune") != 0) {
		if (!find_name(text, strlen(text), &name))
			return ctl_usage(verb,
					 "--unset %s: it must be tune, a knob or a limit, as `dieselctl "
					 "status` names them",
					 text);
		setting.key = name.key;
	}
	return add(verb, q, name.name, setting);
}

/* --until-restart, for all that the command sets. */
static int add_until_restart(const struct ctl_verb *verb, struct set_request *q)
{
	bool any = false;

	for (uint32_t i = 0; i < q->n; i++) {
		if (q->settings[i].flags == WIRE_SETTING_AUTO)
			continue;
		q->settings[i].flags = WIRE_SETTING_UNTIL_RESTART;
		any = true;
	}
	return any ? CTL_OK : ctl_usage(verb, "--until-restart: there is nothing to set");
}

static int add_mode(const struct ctl_verb *verb, struct set_request *q, const char *option, const char *value)
{
	static const char *const modes[WIRE_N_TUNES] = {"off", "on", "dry-run"};
	struct wire_setting s = {.key = WIRE_SET_TUNE};

	if (!strcmp(option, "--dry-run")) {
		if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
			return ctl_usage(verb, "--dry-run %s: it must be on or off", value);
		s.value = strcmp(value, "on") ? WIRE_TUNE_ON : WIRE_TUNE_DRY_RUN;
		return add(verb, q, "the mode", s);
	}
	if (!strcmp(value, "auto")) {
		s.flags = WIRE_SETTING_AUTO;
		return add(verb, q, "the mode", s);
	}
	for (uint32_t i = 0; i < WIRE_N_TUNES; i++) {
		if (strcmp(value, modes[i]) != 0)
			continue;
		s.value = i;
		return add(verb, q, "the mode", s);
	}
	return ctl_usage(verb, "--tune %s: it must be on, off, dry-run or auto", value);
}

static void print_pins(const json_t *tune)
{
	const json_t *pins = json_object_get(tune, "pins");
	char knob[200], value[24], left[80];

	for (size_t i = 0; i < json_array_size(pins); i++) {
		const json_t *pin = json_array_get(pins, i);
		double in_force = ctl_real(pin, "in_force");

		ctl_string(pin, "knob", knob);
		left[0] = '\0';
		if (in_force < ctl_real(pin, "value"))
			snprintf(left, sizeof(left), ", of which the limit leaves %s",
				 ctl_knob(value, knob, in_force));
		ctl_knob(value, knob, ctl_real(pin, "value"));
		if (ctl_number(pin, "job"))
			printf("pinned: %s of job %llu to %s%s\n", knob,
			       (unsigned long long)ctl_number(pin, "job"), value, left);
		else
			printf("pinned: %s of every job to %s%s\n", knob, value, left);
	}
	if (json_array_size(pins) == 0)
		puts("pinned: nothing");
}

static void print_weights(const json_t *jobs)
{
	for (size_t i = 0; i < json_array_size(jobs); i++) {
		const json_t *job = json_array_get(jobs, i);
		uint64_t weight = ctl_number(job, "read_weight");

		if (weight != WIRE_READ_WEIGHT)
			printf("read-weight of job %llu: %llu\n", (unsigned long long)ctl_number(job, "id"),
			       (unsigned long long)weight);
	}
}

static int print_result(const struct ctl_verb *verb, const char *text)
{
	json_t *root = ctl_parse(verb, text, "diesel.set/1"), *tune = json_object_get(root, "tune"), *limit;
	const char *name, *separator = "";
	char mode[200], value[24];

	if (!root)
		return CTL_FAILED;
	ctl_print_where(root);
	printf("tuning: %s\nlimits: ", ctl_string(tune, "mode", mode));
	json_object_foreach(json_object_get(tune, "limits"), name, limit)
	{
		bool none = !strncmp(name, "read-", 5) && json_number_value(limit) <= 0;

		printf("%s%s %s", separator, name,
		       none ? "none" : ctl_knob(value, name, json_number_value(limit)));
		separator = ", ";
	}
	putchar('\n');
	print_pins(tune);
	print_weights(json_object_get(root, "jobs"));
	ctl_print_settings(tune);
	if (*ctl_string(json_object_get(tune, "history"), "problem", mode))
		printf("not kept over a restart: %s\n", mode);
	json_decref(root);
	return ctl_finish(verb);
}

static int send_request(const struct ctl_verb *verb, const struct set_request *q)
{
	_cleanup_(freep) char *text = NULL;
	struct admin_client *admin = NULL;
	struct error err = ERROR_INIT;
	int r = admin_open(q->daemon.socket, q->daemon.timeout_s, &admin, &err);

	if (r == 0)
		r = admin_set(admin, q->job, q->settings, q->n, &text, &err);
	admin_close(admin);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (!q->daemon.json)
		return print_result(verb, text);
	text_put_json(stdout, text);
	return ctl_finish(verb);
}

static int parse_job(const struct ctl_verb *verb, struct set_request *q, const char *text)
{
	int64_t id;

	if (!strcmp(text, "all"))
		return CTL_OK;
	if (units_parse_integer(text, 1, INT64_MAX, &id) < 0)
		return ctl_usage(verb, "'%s' is neither a job's number, nor all, nor knob=value", text);
	q->job = (uint64_t)id;
	return CTL_OK;
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {CTL_DAEMON_OPTIONS,
						     {"limit", required_argument, NULL, 'l'},
						     {"dry-run", required_argument, NULL, 'd'},
						     {"tune", required_argument, NULL, 't'},
						     {"unset", required_argument, NULL, 'u'},
						     {"until-restart", no_argument, NULL, 'r'},
						     {0}};
	struct set_request q = {.daemon = CTL_DAEMON_OPTIONS_INIT};
	bool until_restart = false;
	int option, r = CTL_OK;

	while (r == CTL_OK && (option = getopt_long(argc, argv, ":hs:", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		switch (option) {
		case 'l': r = add_assignment(verb, &q, optarg, true); break;
		case 'd': r = add_mode(verb, &q, "--dry-run", optarg); break;
		case 't': r = add_mode(verb, &q, "--tune", optarg); break;
		case 'u': r = add_unset(verb, &q, optarg); break;
		case 'r': until_restart = true; break;
		default: r = ctl_daemon_option(verb, option, &q.daemon); break;
		}
	}
	if (r == CTL_OK && optind < argc && !strchr(argv[optind], '='))
		r = parse_job(verb, &q, argv[optind++]);
	for (; r == CTL_OK && optind < argc; optind++)
		r = add_assignment(verb, &q, argv[optind], false);
	if (r == CTL_OK && q.n == 0)
		r = ctl_usage(verb, "there is nothing to set");
	if (r == CTL_OK && until_restart)
		r = add_until_restart(verb, &q);
	if (r != CTL_OK)
		return r;
	return send_request(verb, &q);
}

const struct ctl_verb ctl_set = {
    .name = "set",
    .arguments =
	"[JOB|all] [KNOB=VALUE|KNOB=auto ...] [--limit NAME=VALUE] [--dry-run on|off] [--unset NAME]",
    .summary = "Pin knobs of a job or of all, set limits, or only watch",
    .help =
	"Knobs: cache (bytes), prefetch (chunks), workers (threads of dieseld), client-workers (processes),\n"
	"forms (bytes: what may be kept of decoded images).\n"
	"read-weight, of a job: 1 to 10000, 100 unless set: its part of a storage's bytes beside other "
	"jobs'.\n"
	"An integer means exactly that; auto gives the knob back to the tuner. Takes effect within a second, "
	"and\n"
	"goes before the configuration, also when dieseld is started again, until it is unset. Prints where "
	"each "
	"value\n"
	"comes from.\n\n"
	"      --limit NAME=VALUE  cache-max, cache-min, workers-max, client-workers-max, prefetch-max, "
	"forms-max,\n"
	"                          read-limit (bytes a second of all storages together; 0: none),\n"
	"                          read-ops-limit (requests); auto: as configured\n"
	"      --dry-run on|off    decide and record, but change nothing\n"
	"      --tune MODE         on, off, dry-run, or auto: as configured\n"
	"      --unset NAME        take back what was set: tune, a knob or a limit; then it is as "
	"configured\n"
	"      --until-restart     what this command sets ends when dieseld does\n" CTL_DAEMON_HELP,
    .run = run,
};
