/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log.h"
#include "lib/options.h"
#include "lib/units.h"
#include "ui/view/model.h"

#define USAGE (TOP_USAGE + 1)

static int set_pids(void *user, const struct option_row *row, const char *value, struct error *err)
{
	struct top_options *options = user;
	const char *text = value;

	while (options->n_pids < OPTIONS_PIDS_MAX) {
		char *end;
		long pid = strtol(text, &end, 10);

		if (end == text || pid < 1 || pid > INT_MAX || (*end && *end != ','))
			break;
		options->pids[options->n_pids++] = (pid_t)pid;
		if (!*end)
			return 0;
		text = end + 1;
	}
	return error_set(err, -EINVAL,
			 "-p %s: must be a list of at most %d process numbers, such as 1234,1250", text,
			 OPTIONS_PIDS_MAX);
}

static int set_delay(void *user, const struct option_row *row, const char *value, struct error *err)
{
	struct top_options *options = user;
	uint64_t ns;

	if (units_parse_duration(value, &ns) || ns < (uint64_t)(MODEL_INTERVAL_MIN * 1e9) ||
	    ns > (uint64_t)(MODEL_INTERVAL_MAX * 1e9))
		return error_set(err, -EINVAL, "-d %s: must be a time from 0.1 to 60 seconds", value);
	options->interval_s = (double)ns / 1e9;
	options->interval_given = true;
	return 0;
}

static int set_samples(void *user, const struct option_row *row, const char *value, struct error *err)
{
	struct top_options *options = user;
	int64_t n;

	if (units_parse_integer(value, 1, LONG_MAX, &n))
		return error_set(err, -EINVAL, "-n %s: must be a number of samples, at least 1", value);
	options->n_samples = (long)n;
	return 0;
}

static int set_source(void *user, const struct option_row *row, const char *value, struct error *err)
{
	struct top_options *options = user;

	options->source = (enum options_source)row->least;
	if (row->value)
		options->redis = value;
	return 0;
}

static int print_help(void *user, const struct option_row *row, const char *value, struct error *err);

static int print_version(void *user, const struct option_row *row, const char *value, struct error *err)
{
	printf("diesel-top %s\n", DIESEL_VERSION);
	return 1;
}

#define AT(member) .at = offsetof(struct top_options, member)

static const struct option_row rows[] = {
    {"delay", set_delay, .letter = 'd', .value = "SEC", .usual = "1",
     .help = "seconds between two samples, 0.1 to 60"},
    {"pid", set_pids, .letter = 'p', .value = "PID,...", .takes = OPTION_PROCESS,
     .help = "show only these jobs (a job is a process with all its descendants)"},
    {"sort", option_set_string, .letter = 's', AT(sort), .value = "COLUMN",
     .words = "pid|user|job|stall|fetch|prep|checkpoint|starved|device|steps|p50|p95|cpu|workers|read|hit|"
	      "cache|prefetch|dworkers|ready|age|verdict|method|decision|node|waited|samples|state|dataset",
     .help = "sort by this column",
     .about =
	 "Sort by a column, e.g. stall (default), fetch, steps, p95, cpu; an unknown name lists all columns"},
    {"filter", option_set_string, .letter = 'F', AT(filter), .value = "TEXT",
     .help = "show only jobs with this text in their name, user or verdict"},
    {"tree", option_set_flag, .letter = 't', AT(tree), .help = "begin with the process tree"},
    {"no-color", option_set_flag, .letter = 'C', AT(no_colour),
     .help = "use no colours (NO_COLOR has the same effect)"},
    {"no-colour", option_set_flag, AT(no_colour)},
    {"no-unicode", option_set_flag, .letter = 'U', AT(ascii), .help = "only ASCII"},
    {"batch", option_set_flag, .letter = 'b', AT(batch), .help = "print tables instead of a screen"},
    {"samples", set_samples, .letter = 'n', .value = "N", .help = "number of tables to print"},
    {"once", option_set_flag, AT(once), .help = "print one sample of -d seconds (default 3) as JSON",
     .about = "Prints one sample as JSON (\"schema\": \"diesel.top/1\"). The sample covers `-d` seconds, by "
	      "default 3. Unknown figures are left out."},
    {"write", option_set_string, .letter = 'w', AT(write_path), .value = "FILE", .takes = OPTION_FILE,
     .help = "record every sample, in addition to the output",
     .about = "Records every sample, with all views. diesel-top appends to an existing recording of its own, "
	      "and refuses any other file."},
    {"read", option_set_string, .letter = 'r', AT(read_path), .value = "FILE", .takes = OPTION_FILE,
     .help = "show a recording",
     .about = "Show a recording. Damaged and torn records are skipped and counted (SKIPPED)."},
    {"begin", option_set_string, AT(begin), .value = "TIME",
     .help = "with -r, time to begin at: HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS]",
     .about = "With `-r`: the time to begin at. HH:MM[:SS] on the day that the recording begins, "
	      "YYYY-MM-DDTHH:MM[:SS], or +SECONDS from its start."},
    {"end", option_set_string, .letter = 'e', AT(end), .value = "TIME", .help = "with -r, time to end at"},
    {"daemon", set_source, .least = OPTIONS_DAEMON, .help = "ask only dieseld"},
    {"node", set_source, .least = OPTIONS_NODE,
     .help = "observe only this machine's processes, without dieseld"},
    {"nodes", set_source, .least = OPTIONS_NODES, .value = "REDIS_URL",
     .help = "show the jobs of all nodes whose dieseld --cluster names this server",
     .about = "Shows the jobs of all nodes whose `dieseld --cluster` names this Redis server, from any "
	      "machine that reaches it. Each daemon reports on its jobs every 2 seconds: process, user, "
	      "dataset, speed, the shares of the trainer's time, and how long the job has waited for data "
	      "since it began (`WAITED`). The jobs are sorted by that time, the longest first. A node "
	      "without a report for 10 seconds is `silent`, and so are its jobs, which stay for 10 minutes "
	      "more; the first line names such nodes. Password and certificates come from `DIESEL_REDIS`, "
	      "`DIESEL_REDIS_FILE`, `DIESEL_REDIS_CA`, `DIESEL_REDIS_CERT` and `DIESEL_REDIS_KEY`, as for "
	      "`dieselctl`(1). With `--once`, the JSON has the nodes as well. diesel-top shows the entries "
	      "on that server without checking them."},
    {"socket", option_set_string, AT(socket), .value = "PATH", .takes = OPTION_FILE,
     .help = "socket of dieseld (default $DIESEL_SOCKET, else the node's, else your own)",
     .about = "The socket of dieseld; default: DIESEL_SOCKET, else /run/diesel/dieseld.sock, else that of "
	      "the user's own daemon that `diesel_loader`(3) started, as the header shows. Root finds only "
	      "root's own daemon"},
    {"unprivileged", option_set_flag, AT(unprivileged), .help = "sample /proc even where BPF is permitted"},
    {"help", print_help, .letter = 'h', .help = "print this"},
    {"version", print_version, .letter = 'V', .help = "print the version"},
};

static const struct option_verb self = {
    .name = "diesel-top",
    .summary = "Shows where this machine's training jobs wait. For the keys, press F1 or h",
    OPTION_ROWS(rows),
};

static const struct option_program program = {.self = &self};

static int print_help(void *user, const struct option_row *row, const char *value, struct error *err)
{
	option_print_help(stdout, &program, &self);
	return 1;
}

int options_print(const char *form)
{
	return option_print(stdout, &program, form) < 0 ? TOP_USAGE : 0;
}

/* Checks that the options can be combined. */
static int check(const struct top_options *options)
{
	const char *why = NULL;

	if (options->read_path && options->write_path)
		why = "-r shows a recording and -w makes one: give only one of them";
	else if (options->read_path && (options->n_pids || options->source != OPTIONS_AUTO ||
					options->socket || options->unprivileged))
		why = "-p, --daemon, --node, --nodes, --socket and --unprivileged do not apply to -r, which "
		      "shows a recording";
	else if ((options->begin || options->end) && !options->read_path)
		why = "--begin and -e choose a part of a recording: give -r FILE, too";
	else if (options->source == OPTIONS_NODES &&
		 (options->n_pids || options->socket || options->unprivileged))
		why = "-p, --socket and --unprivileged do not apply to --nodes, which asks a Redis server";
	else if (options->once && options->batch)
		why = "--once and --batch exclude each other: give only one of them";
	else if (options->n_samples && !options->batch)
		why = "-n applies only to --batch (-b)";
	else if (options->source == OPTIONS_DAEMON && (options->n_pids || options->unprivileged))
		why = "-p and --unprivileged do not apply to --daemon, which asks dieseld";
	else if (options->source == OPTIONS_NODE && options->socket)
		why = "--socket does not apply to --node, which does not ask dieseld";
	if (!why)
		return 0;
	log_error("%s", why);
	return USAGE;
}

int options_parse(int argc, char **argv, struct top_options *ret_options)
{
	struct top_options options = {.interval_s = 1};
	struct error err = ERROR_INIT;
	int r = option_parse(&self, argc, argv, &options, &err);

	if (r > 0)
		return 1;
	if (r < 0) {
		log_error("%s. Try 'diesel-top --help' for more information.", err.text);
		return USAGE;
	}
	if (optind < argc) {
		log_error("%s: diesel-top takes no arguments; name a job with -p PID", argv[optind]);
		return USAGE;
	}
	r = check(&options);
	if (r == 0)
		*ret_options = options;
	return r;
}
