/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app.h"
#include "ui/view/columns.h"
#include "ui/feed/feed.h"
#include "lib/error.h"
#include "lib/log.h"
#include "options.h"
#include "ui/replay/top_recording.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "ui/state/sample_json.h"
#include "ui/view/format.h"
#include "ui/view/model.h"
#include "ui/view/views.h"
#include "lib/options.h"
#include "lib/units.h"

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

/* Prints a form of option_print() on standard output, for the build. Returns the exit status. */
static int options_print(const char *form)
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

/* Returns 0 to continue, else the exit status plus 1. The status is 0 after --help and --version, and
 * TOP_USAGE after an error, which is printed. */
static int options_parse(int argc, char **argv, struct top_options *ret_options)
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

/* Runs diesel-top without a screen: writes one sample as JSON, or a table for each sample, to standard
 * output. */

#define ONCE_S    3.0 /* time of a --once sample in seconds; in less, most jobs have too few steps */
#define COLS_PIPE 160

static void wait_until(struct feed *feed, uint64_t until_ns)
{
	for (;;) {
		uint64_t now_ns = clock_monotonic_ns(), next_ns = until_ns;

		if (now_ns >= until_ns)
			return;
		feed->ops->work(feed, now_ns, &next_ns);
		next_ns = next_ns < until_ns ? next_ns : until_ns;
		now_ns = clock_monotonic_ns();
		if (next_ns > now_ns)
			poll(NULL, 0, (int)((next_ns - now_ns) / NS_PER_MS) + 1);
	}
}

static void sample_freep(struct top_sample **sample)
{
	sample_free(*sample);
}

static int take(struct feed *feed, struct top_recording_writer *recording, unsigned int wanted,
		struct top_sample **ret_sample, struct error *err)
{
	_cleanup_(sample_freep) struct top_sample *sample = NULL;
	int r = feed->ops->sample(feed, wanted, clock_monotonic_ns(), &sample, err);

	if (r == 0 && recording)
		r = top_recording_write(recording, sample, err);
	if (r == 0)
		*ret_sample = steal_pointer(sample);
	return r;
}

/* Flushes the output, and reports a full disk or a closed pipe as a failure. */
static int flush(struct error *err)
{
	return fflush(stdout) || ferror(stdout)
		   ? error_errno(err, errno ? -errno : -EIO, "cannot write the output")
		   : 0;
}

static int batch_once(struct feed *feed, const struct top_options *options,
		      struct top_recording_writer *recording, struct error *err)
{
	double s = options->interval_given ? options->interval_s : ONCE_S;
	struct top_sample *sample = NULL;
	_cleanup_(freep) char *json = NULL;
	int r = feed->ops->sample(feed, FEED_WANT_ALL, clock_monotonic_ns(), &sample, err);

	if (r < 0)
		return r;
	if (!feed->ops->seek) {
		sample_free(sample);
		wait_until(feed, clock_monotonic_ns() + (uint64_t)(s * 1e9));
		r = take(feed, recording, FEED_WANT_ALL, &sample, err);
		if (r < 0)
			return r;
	}
	json = sample_to_json(sample, true);
	sample_free(sample);
	if (!json)
		return error_set(err, -ENOMEM, "no memory for the output");
	text_put_json(stdout, json);
	return flush(err);
}

static int columns_of_output(void)
{
	struct winsize size;

	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= 40 ? size.ws_col : COLS_PIPE;
}

/* Prints why a named daemon gives no data, because a table without its jobs looks like a daemon without jobs.
 */
static void print_problem(const struct daemon_sample *daemon, const struct top_options *options)
{
	char text[sizeof(daemon->problem)];

	if ((options->source == OPTIONS_DAEMON || options->source == OPTIONS_NODES || options->socket) &&
	    daemon->problem[0])
		puts(text_line(text, sizeof(text), daemon->problem));
}

/* Prints the time, and the table of jobs as on a screen with `cols` columns. */
static int print_table(struct model *model, const struct top_options *options, int cols, struct error *err)
{
	struct screen *screen = screen_new((int)model->sample->n_jobs + 2, cols, model->charset);
	const char *place = view_daemon_place(&model->sample->daemon);
	char time[FORMAT_BYTES], lost[FORMAT_BYTES], text[sizeof(model->sample->daemon.socket)];

	if (!screen)
		return error_set(err, -ENOMEM, "no memory for the output");
	printf("diesel-top %s  %s  %s  LOST %s%s%s%s\n", format_time(time, model->sample->time_s),
	       model->sample->host.name, model->sample->self.source,
	       format_count(lost, model->sample->self.n_lost), model->is_replay ? "  REPLAY" : "",
	       *place ? "  dieseld at " : "", text_line(text, sizeof(text), place));
	print_problem(&model->sample->daemon, options);
	model->cursor[VIEW_JOBS] = 0;
	view_table(model, screen, 0, screen->rows, "no training job");
	for (int y = 0; y < screen->rows; y++) {
		_cleanup_(freep) char *line = screen_line(screen, y);

		if (line && (line[0] || y + 1 < screen->rows))
			puts(line);
	}
	putchar('\n');
	screen_free(screen);
	return flush(err);
}

static int batch_run(struct feed *feed, const struct top_options *options,
		     struct top_recording_writer *recording, struct error *err)
{
	struct model model;
	uint64_t next_ns = clock_monotonic_ns();
	int cols = columns_of_output(), r = 0;

	model_init(&model, (struct charset){.unicode = !options->ascii && MB_CUR_MAX > 1},
		   options->interval_s);
	if (options->source == OPTIONS_NODES)
		model_set_fleet(&model);
	if (options->sort)
		model_sort_by(&model, VIEW_JOBS, options->sort);
	if (options->filter)
		snprintf(model.filter, sizeof(model.filter), "%s", options->filter);
	model.is_replay = feed->ops->seek != NULL;
	for (long n = 0; r == 0 && (!options->n_samples || n < options->n_samples); n++) {
		struct top_sample *sample;

		next_ns += (uint64_t)(options->interval_s * 1e9);
		if (!model.is_replay)
			wait_until(feed, next_ns);
		r = take(feed, recording, recording ? FEED_WANT_ALL : 0, &sample, err);
		if (r == 0)
			r = model_take(&model, sample);
		if (r == 0)
			r = print_table(&model, options, cols, err);
	}
	model_destroy(&model);
	return r == -ENODATA ? 0 : r; /* a recording ends with -ENODATA, which is no failure */
}

static int open_feed(const struct top_options *options, struct feed **ret_feed, struct error *err)
{
	const struct node_options look = {options->pids, options->n_pids, options->unprivileged};
	struct feed *node = NULL, *daemon = NULL;
	int r;

	if (options->read_path)
		return feed_replay_open(
		    &(struct replay_options){options->read_path, options->begin, options->end}, ret_feed,
		    err);
	if (options->source == OPTIONS_NODES)
		return feed_nodes_open(options->redis, ret_feed, err);
	if (options->source == OPTIONS_DAEMON)
		return feed_daemon_open(options->socket, ret_feed, err);
	if (options->source == OPTIONS_NODE)
		return feed_node_open(&look, ret_feed, err);
	r = feed_node_open(&look, &node, err);
	if (r == 0)
		r = feed_daemon_open(options->socket, &daemon, err);
	if (r == 0)
		return feed_both_open(node, daemon, ret_feed, err);
	feed_close(node);
	return r;
}

static int run(const struct top_options *options, int *ret_signal, struct error *err)
{
	struct feed *feed = NULL;
	struct top_recording_writer *recording = NULL;
	int r = open_feed(options, &feed, err);

	if (r == 0 && options->write_path)
		r = top_recording_create(options->write_path, &recording, err);
	if (r == 0 && options->once)
		r = batch_once(feed, options, recording, err);
	else if (r == 0 && options->batch)
		r = batch_run(feed, options, recording, err);
	else if (r == 0)
		r = app_run(feed, options, recording, ret_signal, err);
	feed_close(feed);
	top_recording_writer_close(recording);
	return r;
}

/* Checks the column to sort by. An unknown one is an error in the command line. */
static int check_sort(const struct top_options *options)
{
	const struct table_columns *columns =
	    options->source == OPTIONS_NODES ? &columns_fleet : &columns_jobs;

	if (!options->sort || columns_find(columns, options->sort) >= 0)
		return 0;
	fprintf(stderr, "diesel-top: no column '%s'. The columns are:", options->sort);
	for (size_t i = 0; i < columns->n; i++)
		fprintf(stderr, " %s", columns->items[i].key);
	fputc('\n', stderr);
	return TOP_USAGE;
}

/* Ends by the signal, so that the parent process sees the signal. */
static void die_by(int signal_number)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, signal_number);
	signal(signal_number, SIG_DFL);
	raise(signal_number);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

int main(int argc, char **argv)
{
	struct top_options options;
	struct error err = ERROR_INIT;
	int r, signal_number = 0;

	if (argc == 3 && strcmp(argv[1], "--print-options") == 0)
		return options_print(argv[2]);
	setlocale(LC_CTYPE, "");
	signal(SIGXFSZ, SIG_IGN); /* ignored, because write() also reports a file that gets too large */
	log_init("diesel-top", LOG_LEVEL_INFO);
	r = options_parse(argc, argv, &options);
	if (r != 0)
		return r - 1;
	r = check_sort(&options);
	if (r != 0)
		return r;
	r = run(&options, &signal_number, &err);
	if (r != 0)
		log_error("%s", err.text);
	else if (signal_number)
		die_by(signal_number);
	return r != 0 ? TOP_FAILED : 0;
}
