/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl set: pins, limits and the mode of the tuner. */
#include "ctl_daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/json_read.h"
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
    {"decoded-cache-max", WIRE_SET_DECODED_CACHE_MAX, true},
    {"read-limit", WIRE_SET_READ_LIMIT, true},
    {"read-ops-limit", WIRE_SET_READ_OPS_LIMIT, false},
};

#define N_LIMITS (sizeof(limits) / sizeof(limits[0]))

/* The name on the left side of an assignment. */
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
	bool until_restart;
};

/* A setting given twice is refused, because its value would be ambiguous. */
static int add(struct set_request *q, const char *name, struct wire_setting setting, struct error *err)
{
	for (uint32_t i = 0; i < q->n; i++)
		if (q->settings[i].key == setting.key)
			return error_set(err, -EINVAL, "%s is given twice", name);
	q->settings[q->n++] = setting;
	return 0;
}

static int parse_value(const char *value, bool bytes, struct wire_setting *s, const char *argument,
		       struct error *err)
{
	int64_t number;

	if (!strcmp(value, "auto")) {
		s->flags = WIRE_SETTING_AUTO;
		return 0;
	}
	if ((s->key == WIRE_SET_READ_LIMIT || s->key == WIRE_SET_READ_OPS_LIMIT) &&
	    strcmp(value, "none") == 0) { /* as it is shown */
		s->value = 0;
		return 0;
	}
	if (bytes && units_parse_bytes(value, &s->value) < 0)
		return error_set(err, -EINVAL, "%s: must be a number of bytes, such as 4G, or auto",
				 argument);
	if (!bytes && units_parse_integer(value, 0, 65536, &number) < 0)
		return error_set(err, -EINVAL, "%s: must be a whole number, or auto", argument);
	if (!bytes)
		s->value = (uint64_t)number;
	return 0;
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
static int add_assignment(struct set_request *q, const char *argument, bool limit, struct error *err)
{
	const char *equals = strchr(argument, '=');
	struct wire_setting setting = {0};
	struct name name;
	int r;

	if (!equals || !find_name(argument, (size_t)(equals - argument), &name))
		return limit
			   ? error_set(
				 err, -EINVAL,
				 "--limit %s: must be cache-max, cache-min, workers-max, client-workers-max, "
				 "prefetch-max, decoded-cache-max, read-limit or read-ops-limit, with =VALUE",
				 argument)
			   : error_set(err, -EINVAL,
				       "'%s': must be cache, prefetch, workers, client-workers, "
				       "decoded-cache or read-weight, with =VALUE",
				       argument);
	if (name.limit != limit)
		return limit
			   ? error_set(err, -EINVAL, "%s is a knob: write it without --limit", name.name)
			   : error_set(err, -EINVAL, "%s is a limit: write --limit %s", name.name, argument);
	setting.key = name.key;
	r = parse_value(equals + 1, name.bytes, &setting, argument, err);
	return r == 0 ? add(q, name.name, setting, err) : r;
}

/* Handles --unset NAME, where NAME is a knob, a limit or `tune`. */
static int set_unset(void *options, const struct option_row *row, const char *text, struct error *err)
{
	struct wire_setting setting = {.key = WIRE_SET_TUNE, .flags = WIRE_SETTING_AUTO};
	struct name name = {.name = "tune"};

	if (strcmp(text, "tune") != 0) {
		if (!find_name(text, strlen(text), &name))
			return error_set(err, -EINVAL,
					 "--unset %s: must be tune, a knob or a limit, as in the output of "
					 "`dieselctl status`",
					 text);
		setting.key = name.key;
	}
	return add(options, name.name, setting, err);
}

/* Applies --until-restart to all settings of the command. */
static int add_until_restart(struct set_request *q, struct error *err)
{
	bool any = false;

	for (uint32_t i = 0; i < q->n; i++) {
		if (q->settings[i].flags == WIRE_SETTING_AUTO)
			continue;
		q->settings[i].flags = WIRE_SETTING_UNTIL_RESTART;
		any = true;
	}
	return any ? 0 : error_set(err, -EINVAL, "--until-restart: no value to set");
}

/* Handles --tune and --dry-run. The index of the word in the row is the mode; the index after the last mode
 * means "as configured". */
static int set_mode(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);
	struct wire_setting s = {.key = WIRE_SET_TUNE};

	if (place < 0)
		return option_wrong(row, value, err);
	if (place == WIRE_N_TUNES)
		s.flags = WIRE_SETTING_AUTO;
	else
		s.value = (uint64_t)place + row->least;
	return add(options, "the mode", s, err);
}

static int set_limit(void *options, const struct option_row *row, const char *value, struct error *err)
{
	return add_assignment(options, value, true, err);
}

static void print_pins(const json_t *tune)
{
	const json_t *pins = json_object_get(tune, "pins");
	char knob[200], value[24], left[80];

	for (size_t i = 0; i < json_array_size(pins); i++) {
		const json_t *pin = json_array_get(pins, i);
		double in_force = json_number_of(pin, "in_force");

		ctl_string(pin, "knob", knob);
		left[0] = '\0';
		if (in_force < json_number_of(pin, "value"))
			snprintf(left, sizeof(left), ", but the limit reduces it to %s",
				 ctl_knob(value, knob, in_force));
		ctl_knob(value, knob, json_number_of(pin, "value"));
		if (ctl_number(pin, "job"))
			printf("pinned: %s of job %llu to %s%s\n", knob, ctl_number(pin, "job"), value, left);
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
			printf("read-weight of job %llu: %llu\n", ctl_number(job, "id"),
			       (unsigned long long)weight);
	}
}

static void print_result(const json_t *root, const void *what)
{
	json_t *tune = json_object_get(root, "tune"), *limit;
	const char *name, *separator = "";
	char mode[200], value[24];

	(void)what;
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
		printf("lost at the next restart: %s\n", mode);
}

static int ask(struct admin_client *admin, const void *what, char **ret_json, struct error *err)
{
	const struct set_request *q = what;

	return admin_set(admin, q->job, q->settings, q->n, ret_json, err);
}

static int parse_job(struct set_request *q, const char *text, struct error *err)
{
	int64_t id;

	if (!strcmp(text, "all"))
		return 0;
	if (units_parse_integer(text, 1, INT64_MAX, &id) < 0)
		return error_set(err, -EINVAL, "'%s' is neither a job number, nor all, nor knob=value", text);
	q->job = (uint64_t)id;
	return 0;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	static const struct ctl_question question = {"diesel.set/1", ask, print_result};
	struct set_request q = {.daemon = CTL_DAEMON_OPTIONS_INIT};
	struct error err = ERROR_INIT;
	int status, r = 0;

	if (!ctl_options(verb, argc, argv, &q, &status))
		return status;
	if (optind < argc && !strchr(argv[optind], '='))
		r = parse_job(&q, argv[optind++], &err);
	for (; r == 0 && optind < argc; optind++)
		r = add_assignment(&q, argv[optind], false, &err);
	if (r == 0 && q.n == 0)
		r = error_set(&err, -EINVAL, "no value to set");
	if (r == 0 && q.until_restart)
		r = add_until_restart(&q, &err);
	return r < 0 ? ctl_usage(verb, "%s", err.text) : ctl_ask(verb, &q.daemon, &question, &q);
}

#define AT(member) .at = offsetof(struct set_request, member)

static const struct option_row set_rows[] = {
    {"limit", set_limit,
     .words = "cache-max=|cache-min=|workers-max=|client-workers-max=|prefetch-max=|decoded-cache-max=|read-"
	      "limit=|"
	      "read-ops-limit=",
     .value = "NAME=VALUE", .repeats = true,
     .help = "set a limit of the node. 0 means no limit for read-limit (bytes per second of all storages) "
	     "and read-ops-limit (requests per second); auto means as configured.",
     .about = "Sets `cache-max`, `cache-min`, `workers-max`, `client-workers-max`, `prefetch-max`, "
	      "`decoded-cache-max`, `read-limit` or `read-ops-limit`. The last two hold for all storages "
	      "together, per second; 0 means no limit. `auto` means as configured. Limits override pins."},
    {"dry-run", set_mode, .least = WIRE_TUNE_ON, .says = "must be on or off", .words = "off|on",
     .value = "MODE", .help = "decide and record, but change no knobs"},
    {"tune", set_mode, .says = "must be on, off, dry-run or auto", .words = "off|on|dry-run|auto",
     .value = "MODE", .help = "auto: as configured"},
    {"unset", set_unset,
     .words = "tune|cache|prefetch|workers|client-workers|decoded-cache|read-weight|cache-max|cache-min|"
	      "workers-max|"
	      "client-workers-max|prefetch-max|decoded-cache-max|read-limit|read-ops-limit",
     .value = "NAME", .repeats = true, .help = "return tune, a knob or a limit to its configured value",
     .about = "Returns `tune`, a knob or a limit to its configured value. The option can be repeated."},
    {"until-restart", option_set_flag, AT(until_restart),
     .help = "the values of this command apply until dieseld ends",
     .about = "The values that this command sets apply until dieseld ends. They replace earlier values."},
    CTL_DAEMON_ROWS(AT(daemon.json), AT(daemon.socket), AT(daemon.timeout_s)),
};

#undef AT

const struct option_verb ctl_set = {
    .name = "set",
    .arguments = "[JOB|all] [KNOB=VALUE|KNOB=auto ...]",
    .summary = "Pin knobs of one job or of all jobs, set limits, or stop the tuner",
    .help =
	"Knobs: cache (bytes), prefetch (chunks), workers (threads of dieseld), client-workers (processes),\n"
	"decoded-cache (bytes: the most for decoded images).\n"
	"read-weight, of a job: 1 to 10000, default 100. It is the job's share of a storage's bandwidth.\n"
	"An integer means exactly that; auto returns the knob to the tuner. A value takes effect within a "
	"second.\n"
	"It overrides the configuration until it is unset, also when dieseld is started again. set prints "
	"the\n"
	"source of each value.\n",
    .about = "Pins a knob to exactly that value. The value `auto` returns it to the tuner. Knobs: `cache` "
	     "(bytes, as 4G: the memory that the job claims; more may be in memory, borrowed while nobody "
	     "needs it), `prefetch` (chunks), `workers` (threads of dieseld), `client-workers` (processes of "
	     "the job, 0 included), `decoded-cache` (bytes: the most for decoded images). A job also has a "
	     "`read-weight`, 1 to 10000, default 100: its share of a storage's bandwidth if other jobs read "
	     "from it as well. A user's jobs together weigh as much as the heaviest of them.\n"
	     "All of the settings take effect, or none. Only root, the user of dieseld, and users that "
	     "`--admin-user` of `dieseld`(8) names may set values.\n"
	     "`set` and `status` print a line for each value, with its source: a default, the command line, "
	     "the file and its line, or who set it and when. In the JSON they are `settings` in `tune`. A "
	     "value that is set overrides the configuration until it is unset, also when dieseld is started "
	     "again or reloads. The log then names each such value, and the one that it overrides.",
    OPTION_ROWS(set_rows),
    .takes = OPTION_JOB,
    .words = "cache=|prefetch=|workers=|client-workers=|decoded-cache=|read-weight=",
    .run = run,
};
