/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log.h"
#include "lib/options.h"
#include "lib/units.h"
#include "render.h"
#include "analyzer/record/record.h"
#include "reports/report.h"
#include "analyzer/truth/truth.h"
#include "analyzer/truth/truth_result.h"
#include "what_if.h"

/* Not a round rate, so that samples do not fall in step with the job. */
#define PROFILE_HZ     99
#define PROFILE_HZ_MAX 1000

#define PID_MAX (1 << 22) /* Linux's own limit */

#define DONE        1
#define USAGE_ERROR (EXIT_USAGE + 1)

__attribute__((format(printf, 1, 2))) static int usage_error(const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_error("%s. Try 'diesel-analyze --help' for more information.", text);
	return USAGE_ERROR;
}

static int set_count(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	int64_t value;

	if (units_parse_integer(text, 1, (int64_t)row->most, &value))
		return error_set(err, -EINVAL, "--%s %s: not a number from 1 to %" PRIu64, row->name, text,
				 row->most);
	*(uint64_t *)((char *)options + row->at) = (uint64_t)value;
	return 0;
}

/* PID[,PID ...]; the option may be repeated. */
static int set_pids(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	while (true) {
		size_t length = strcspn(text, ",");
		char word[16];
		int64_t value;

		snprintf(word, sizeof(word), "%.*s", length < sizeof(word) ? (int)length : 0, text);
		if (units_parse_integer(word, 1, PID_MAX, &value))
			return error_set(err, -EINVAL, "-p %.*s: not a process ID", (int)length, text);
		if (options->n_tgids == OPTIONS_PIDS_MAX)
			return error_set(err, -EINVAL, "-p: more than %d processes", OPTIONS_PIDS_MAX);
		options->tgids[options->n_tgids++] = (pid_t)value;
		if (!text[length])
			return 0;
		text += length + 1;
	}
}

static int set_trainer(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	int64_t value;

	if (units_parse_integer(text, 1, PID_MAX, &value))
		return error_set(err, -EINVAL, "--trainer %s: not a thread ID", text);
	options->trainer_tid = (uint32_t)value;
	return 0;
}

static int set_detail(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	uint64_t bytes = 0;

	if (strcmp(text, "all") && (units_parse_bytes(text, &bytes) || !bytes))
		return error_set(err, -EINVAL, "--detail %s: neither a size like 4M nor all", text);
	options->detail_bytes_per_minute = bytes;
	return 0;
}

static int set_no_profile(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	options->profile_hz = 0;
	return 0;
}

/* "5%" or "0.05". */
static int set_checkpoint_overhead(void *user, const struct option_row *row, const char *text,
				   struct error *err)
{
	struct options *options = user;
	char *end;
	double value = strtod(text, &end);

	if (end != text && !strcmp(end, "%")) {
		value /= 100;
		end++;
	}
	if (end == text || *end || !(value > 0) || value > 1)
		return error_set(err, -EINVAL, "--checkpoint-overhead %s: not a share of the time like 5%%",
				 text);
	options->checkpoint_overhead_max = value;
	return 0;
}

static int set_native(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	options->what_if.native = options->what_if_asked = true;
	return 0;
}

static int set_what_if(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	const char *wrong = what_if_set(&options->what_if, (enum what_if_option)row->key, text);

	if (wrong)
		return error_set(err, -EINVAL, "--%s %s: %s", row->name, text, wrong);
	options->what_if_asked = true;
	return 0;
}

static int print_schema(void *user, const struct option_row *row, const char *text, struct error *err)
{
	report_json_schema(stdout);
	return DONE;
}

static int set_help(void *user, const struct option_row *row, const char *text, struct error *err);

static int print_version(void *user, const struct option_row *row, const char *text, struct error *err)
{
	puts("diesel-analyze " DIESEL_VERSION);
	return DONE;
}

#define FIELD(name) .at = offsetof(struct options, name)
#define OF(verb)    (1u << VERB_##verb)
#define RECORDING   (OF(RUN) | OF(RECORD))

static const struct option_row rows[] = {
    {"output", option_set_string, .letter = 'o', .verbs = RECORDING | OF(REPORT) | OF(DIFF), FIELD(output),
     .group = "Recording", .value = "FILE", .takes = OPTION_FILE,
     .help = "the recording to write (record: diesel.db; an older one becomes diesel.db.old), or the file of "
	     "the report (default: standard output)",
     .about = "For `record`, the recording: by default diesel.db, where an older one becomes diesel.db.old; "
	      "an existing FILE is replaced only if it is a recording. For `report`, the file of the report, "
	      "which appears whole or not at all."},
    {"duration", option_set_duration, .letter = 'd', .verbs = RECORDING, FIELD(duration_ns), .least = 1,
     .value = "TIME", .says = "not a time like 30s, 5m or 1h",
     .help = "stop recording after this time: 30s, 5m, 1h (default: when the job ends); the job goes on",
     .about = "Record for TIME, such as 30s, 5m or 1h. A command that runs longer goes on without being "
	      "recorded, and is waited for."},
    {"pid", set_pids, .letter = 'p', .verbs = RECORDING, .value = "PID", .takes = OPTION_PROCESS,
     .repeats = true, .help = "process to watch, until it ends, Ctrl-C or -d; several of one job: -p 12,34",
     .about = "The process to record, by its host PID. Several make one recording and one report: ranks that "
	      "were started apart."},
    {"cgroup", option_set_string, .verbs = RECORDING, FIELD(cgroup), .value = "PATH", .takes = OPTION_FOLDER,
     .help = "watch all processes in this control group and those that join it",
     .about = "Record every process that is in a control group of version 1 or 2, in one below it, or that "
	      "joins it meanwhile. PATH is its folder, or what /proc/PID/cgroup says. The recording ends "
	      "when the group is empty."},
    {"unprivileged", option_set_flag, .verbs = RECORDING, FIELD(unprivileged),
     .help = "sample /proc, as is done where BPF is refused: approximate, needs no root"},
    {"no-children", option_set_flag, .verbs = RECORDING, FIELD(no_children),
     .help = "leave out processes that the job makes; its threads are in"},
    {"detail", set_detail, .verbs = RECORDING, .value = "SIZE", .usual = "1M",
     .help = "to write per minute, e.g. 4M, or all: a long recording has detail in slices",
     .about = "How much to write a minute, compressed; by default 1M. For the first minute of the training "
	      "steps there is 16 times as much, which is enough to record all of it unless the job is very "
	      "busy, and before the first step 8 times as much. Later on what is left is saved up, at most "
	      "24 seconds' worth. A job that makes more is recorded in detail in slices of 5 seconds and "
	      "more, at most 32 MiB in all, spread over the whole recording; steps, threads' lives and "
	      "totals are recorded all the time. The shares are then those of the steps that were seen "
	      "whole; recorder and report say how much that is."},
    {"ring", option_set_bytes, .verbs = RECORDING, FIELD(ring_bytes), .least = 1, .value = "SIZE",
     .usual = "8M", .says = "not a size like 64M", .help = "kernel buffer, e.g. 64M",
     .about = "The kernel buffer between job and recorder, rounded up to a power of two; by default 8M. A "
	      "report that shows lost events calls for more."},
    {"profile-hz", set_count, .verbs = RECORDING, FIELD(profile_hz), .most = PROFILE_HZ_MAX, .value = "N",
     .usual = "99", .help = "stack samples per second per CPU, of what preparing does",
     .about = "Stack samples per second per CPU that show what preparing spends its time on, 1 to 1000; by "
	      "default 99."},
    {"no-profile", set_no_profile, .verbs = RECORDING, .help = "take no stack samples",
     .about = "Take no stack samples. Compiling is then not seen, and its share is not known."},
    {"btf", option_set_string, .verbs = RECORDING | OF(CHECK), FIELD(btf_path), .value = "FILE",
     .usual = "/sys/kernel/btf/vmlinux", .takes = OPTION_FILE, .help = "kernel type information"},
    {"format", option_set_string, .verbs = OF(RUN) | OF(REPORT) | OF(DIFF), FIELD(format),
     .group = "Reporting", .value = "FORMAT", .words = "text|json|html|perfetto|openmetrics",
     .help =
	 "of the report (default: by the extension of -o: .txt, .json, .html, .pftrace, .prom; else text)",
     .about = "By default by the extension of `-o`: .txt, .json, .html, .pftrace, .prom; else text. The JSON "
	      "has `\"schema\"`:` \"diesel.report/1\"`; `--json-schema` prints its schema."},
    {"steps", option_set_flag, .verbs = OF(RUN) | OF(REPORT), FIELD(steps),
     .help = "in JSON, a table of all steps too"},
    {"json-schema", print_schema, .verbs = OF(RUN) | OF(REPORT),
     .help = "print the schema of the JSON report"},
    {"trainer", set_trainer, .verbs = RECORDING | OF(REPORT), .value = "TID",
     .help = "the thread that trains (default: found by what it does)",
     .about = "The thread whose time is reported; without it, it is found by what it does. With `record` it "
	      "is kept with the recording; with `report` it overrides that."},
    {"checkpoint-overhead", set_checkpoint_overhead, .verbs = RECORDING | OF(REPORT), .value = "PERCENT",
     .usual = "5%", .help = "what checkpoints may cost, for advice on their interval",
     .about = "What checkpoints may cost, for the advice on their interval; by default 5%."},
    {"cache", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_CACHE, .group = "Predicting",
     .value = "SHARE", .help = "share of the dataset in memory, like 50%"},
    {"workers", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_WORKERS, .value = "N",
     .help = "worker processes; 0: the trainer loads by itself"},
    {"storage-mbps", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_STORAGE_MBPS, .value = "X",
     .help = "storage bandwidth in MB/s",
     .about = "Storage bandwidth in MB/s, instead of what the recording's reads were served with."},
    {"storage-speed", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_STORAGE_SPEED, .value = "Y",
     .help = "factor on the storage's bandwidth"},
    {"device-speed", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_DEVICE_SPEED, .value = "Y",
     .help = "factor on the device's speed"},
    {"sample-size", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_SAMPLE_SIZE, .value = "Z",
     .help = "factor on the bytes and the computing of a sample"},
    {"native", set_native, .verbs = OF(WHAT_IF),
     .help = "JPEG, PNG and WebP images decoded and transformed by dieseld instead of Python",
     .about = "JPEG, PNG and WebP images decoded and transformed by `dieseld`(8) instead of Python, on all "
	      "cores; of preparing, the part that stack samples show to be that. A recording that shows none "
	      "is refused (exit status 3)."},
    {"decoded-cache", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_DECODED, .value = "SHARE",
     .help = "the same, and so many samples out of decoded copies in its cache, like 50%",
     .about = "The same, and so many samples, such as 50% or 0.5, come out of decoded copies that `dieseld` "
	      "keeps in its cache. Forms of all samples take some three times the bytes of the files; those "
	      "of large photographs serve some crops, not all."},
    {"nodes", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_NODES, .value = "N",
     .help = "so many nodes with as much memory each, of which dieseld has each read and keep its own lanes, "
	     "from storage as fast for each as recorded",
     .about = "So many nodes with as much memory each, through `dieseld`: each reads and keeps its own "
	      "lanes, 1/N of the dataset, of which its memory holds N times as large a share. Storage is "
	      "taken to be as fast for each of them."},
    {"max-steps", set_count, .verbs = OF(TRUTH), FIELD(n_steps), .most = INT32_MAX,
     .group = "The three-run truth", .value = "N", .usual = "100", .help = "end each run after N steps"},
    {"rounds", set_count, .verbs = OF(TRUTH), FIELD(n_rounds), .most = TRUTH_ROUNDS_MAX, .value = "N",
     .usual = "1", .help = "measure N times and say how far the results differ"},
    {"data", option_set_string, .verbs = OF(TRUTH), FIELD(data), .value = "DIR", .takes = OPTION_FOLDER,
     .help = "the folder of the job's files (default: learnt in a first run)",
     .about = "The folder of the job's files; without it they are learnt in a first run."},
    {"json", option_set_flag, .verbs = OF(DIFF) | OF(CHECK) | OF(TRUTH) | OF(WHAT_IF), FIELD(json),
     .group = "Any verb", .help = "print JSON"},
    {"verbose", option_set_flag, .letter = 'v', FIELD(verbose), .help = "tell more, on standard error"},
    {"help", set_help, .letter = 'h', .help = "print this; behind a verb, what is said of it"},
    {"version", print_version, .letter = 'V', .help = "print the version"},
};

static const struct option_verb verbs[VERB_COUNT] = {
    [VERB_RUN] =
	{.name = "diesel-analyze",
	 .arguments = "(-- COMMAND [ARG ...] | -p PID[,PID ...] | --cgroup PATH)",
	 .summary = "Shows where a training job waits: for storage, for preprocessing, for checkpoints or "
		    "for a core.\n"
		    "The job is not changed and needs no preparation. Without a verb: record, then print a "
		    "report on\n"
		    "standard error; with -o the recording is kept.",
	 .help =
	     "Exit status: that of COMMAND; else 0, 1 failure, 2 usage, 3 too little data for a report.\n",
	 OPTION_ROWS(rows),
	 .bit = OF(RUN),
	 .command = true},
    [VERB_RECORD] = {.name = "record",
		     .arguments = "(-- COMMAND [ARG ...] | -p PID[,PID ...] | --cgroup PATH)",
		     .summary =
			 "Run COMMAND, or watch process PID and its descendants, and write a recording",
		     .about = "Writes a recording, to be reported on as often as wanted. With `--`, COMMAND "
			      "is run and recorded from its first instruction until it ends. With `-p`, a "
			      "running process and its descendants are recorded until it ends, for `-d` "
			      "TIME, or until SIGINT, SIGTERM, SIGHUP or SIGQUIT.",
		     OPTION_ROWS(rows),
		     .bit = OF(RECORD),
		     .command = true},
    [VERB_REPORT] =
	{.name = "report",
	 .arguments = "RECORDING",
	 .summary = "Say what a recording shows",
	 .about =
	     "Says what a recording shows: the verdict, the shares of time, what held the trainer up and "
	     "why, at most three actions with the speed-up that the stall model predicts. The verdict is "
	     "`fetch-bound`, `prep-bound`, `checkpoint-bound`, `device-bound`, `cpu-starved` (no core), "
	     "`lock-bound` (the interpreter lock), `unclear` (what was seen does not tell; the note says "
	     "what would), or `insufficient data`. Verdict, actions and predictions are of the steps that "
	     "come again: without warm-up, validation passes and compiling (torch.compile, JAX), which is "
	     "paid once and has a share of its own. `html` is one file with the same, pictures of every step "
	     "and every worker, what-if curves and a flame graph of preparing; it needs no network. "
	     "`perfetto` is a trace for ui.perfetto.dev, `openmetrics` figures for a monitoring system. A "
	     "recording that was cut off is reported on as far as it can be read, with a warning.",
	 OPTION_ROWS(rows),
	 .bit = OF(REPORT),
	 .takes = OPTION_RECORDING},
    [VERB_DIFF] =
	{.name = "diff",
	 .arguments = "RECORDING RECORDING",
	 .summary = "Say what changed from one recording to another, and whether it is more than noise",
	 .about = "Compares two recordings: each share and the speed with an interval, and whether the "
		  "difference is more than noise. Compiling is compared by itself, as its share of all time.",
	 OPTION_ROWS(rows),
	 .bit = OF(DIFF),
	 .takes = OPTION_RECORDING},
    [VERB_WHAT_IF] =
	{.name = "what-if",
	 .arguments = "RECORDING",
	 .summary = "Predict the job's speed with something changed; without options, of each at many values",
	 .about = "Predicts the job's speed with something changed: the recorded batches and steps are run "
		  "once more through a simulated loader. Without options: a table of each change at many "
		  "values, and the least that ends the data wait.",
	 OPTION_ROWS(rows),
	 .bit = OF(WHAT_IF),
	 .takes = OPTION_RECORDING},
    [VERB_CHECK] =
	{
	    .name = "check",
	    .arguments = NULL,
	    .summary = "Say what this kernel lets us measure, and what to do about the rest",
	    .about = "Says for each requirement and each kernel hook whether it is there, what is lost "
		     "without it, and what to do.",
	    OPTION_ROWS(rows),
	    .bit = OF(CHECK),
	},
    [VERB_DUMP] = {.name = "dump",
		   .arguments = "RECORDING",
		   .summary = "Write a recording's events as raw records of 64 bytes (bpf/event.h)",
		   .about =
		       "Writes the events of a recording to standard output as records of 64 bytes, by time.",
		   OPTION_ROWS(rows),
		   .bit = OF(DUMP),
		   .takes = OPTION_RECORDING},
    [VERB_TRUTH] =
	{.name = "truth",
	 .arguments = "-- COMMAND [ARG ...]",
	 .summary = "Run a PyTorch job with its files cached, evicted, and replaced by batches from memory",
	 .about = "Is the slow way to the same figures, as a check of the others. It runs a PyTorch command "
		  "with the files that it reads in the page cache, then evicted from it, then with the "
		  "loader replaced by one that hands out random batches from memory. It is the only verb "
		  "that changes the job, by a module that is put in front of the job's own.",
	 OPTION_ROWS(rows),
	 .bit = OF(TRUTH),
	 .command = true},
};

static const struct option_verb *const listed[] = {
    &verbs[VERB_RECORD], &verbs[VERB_REPORT], &verbs[VERB_DIFF],  &verbs[VERB_WHAT_IF],
    &verbs[VERB_CHECK],  &verbs[VERB_DUMP],   &verbs[VERB_TRUTH],
};

static const struct option_program program = {
    .self = &verbs[VERB_RUN], .verbs = listed, .n_verbs = sizeof(listed) / sizeof(listed[0])};

static int set_help(void *user, const struct option_row *row, const char *text, struct error *err)
{
	const struct options *options = user;

	option_print_help(stdout, &program, &verbs[options->verb]);
	return DONE;
}

int options_print(const char *form)
{
	return option_print(stdout, &program, form) < 0 ? EXIT_USAGE : 0;
}

/* Recordings that the verb needs. */
static size_t n_recordings(enum verb verb)
{
	return verb == VERB_DIFF ? 2 : verbs[verb].takes == OPTION_RECORDING;
}

/* Handles a word among the options: the verb, or a recording. Returns false if it is neither; err then
 * suggests a verb. */
static bool take_word(struct options *options, const char *word, struct error *err)
{
	const struct option_verb *verb;

	if (options->n_recordings < n_recordings(options->verb)) {
		options->recordings[options->n_recordings++] = word;
		return true;
	}
	if (options->verb != VERB_RUN)
		return false;
	verb = option_find_verb(&program, word, err);
	if (verb)
		options->verb = (enum verb)(verb - verbs);
	return verb != NULL;
}

static int take_job(struct options *options, int n, char **words)
{
	if (n > 0)
		options->command = words;
	n = (options->command != NULL) + (options->n_tgids > 0) + (options->cgroup != NULL);
	if (n > 1)
		return usage_error("a job is one of: a command, -p, --cgroup");
	if (!n)
		return usage_error("no job: give -p PID, --cgroup PATH, or -- and a command");
	if (options->verb == VERB_TRUTH && !options->command)
		return usage_error("truth runs a command several times: give -- and a command");
	if (options->cgroup && options->no_children)
		return usage_error("--no-children with --cgroup: children are in the group, too");
	return 0;
}

/* Handles the arguments after the options, and checks that the verb has all arguments that it needs. */
static int take_rest(struct options *options, int n, char **words, bool is_command)
{
	size_t n_needed = n_recordings(options->verb);

	if (n > 0 && !(is_command && verbs[options->verb].command))
		return usage_error("unknown word %s (a command comes after --)", words[0]);
	if (options->n_recordings < n_needed)
		return usage_error("%s needs %s", verbs[options->verb].name,
				   n_needed == 1 ? "a recording" : "two recordings");
	if (options->format && !render_format_by_name(options->format))
		return usage_error("--format %s: " RENDER_FORMAT_NAMES, options->format);
	if (!isnan(options->what_if.storage_bytes_per_s) && !isnan(options->what_if.storage_factor))
		return usage_error("--storage-mbps and --storage-speed say the same thing: give one");
	return verbs[options->verb].command ? take_job(options, n, words) : 0;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
	struct options options = {.verb = VERB_RUN,
				  .detail_bytes_per_minute = RECORD_DETAIL_DEFAULT,
				  .profile_hz = PROFILE_HZ,
				  .n_steps = TRUTH_STEPS_DEFAULT,
				  .n_rounds = TRUTH_ROUNDS_DEFAULT,
				  .what_if = what_if_question_none()};
	const struct option_row *row;
	struct error err = ERROR_INIT;
	bool is_command;
	int r;

	optind = 0;
	/* Parsing stops at each word, because the options after a command belong to it. */
	do {
		while ((r = option_next(program.self, argc, argv, &row, &err)) == 1) {
			r = row->set(&options, row, optarg, &err);
			if (r > 0)
				return r;
			if (r < 0)
				break;
		}
		if (r < 0)
			return usage_error("%s", err.text);
		is_command = optind > 1 && !strcmp(argv[optind - 1], "--");
	} while (!is_command && optind < argc && take_word(&options, argv[optind], &err) && ++optind);
	if (err.code && !is_command)
		return usage_error("%s; a command comes after --", err.text);
	r = take_rest(&options, argc - optind, argv + optind, is_command);
	if (r == 0)
		*ret_options = options;
	return r;
}
