/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log.h"
#include "lib/units.h"
#include "render_formats.h"
#include "analyzer/record/record.h"
#include "reports/report.h"
#include "analyzer/truth/truth.h"
#include "analyzer/truth/truth_result.h"
#include "what_if.h"

static const char usage_text[] =
    "Usage: diesel-analyze [-o RECORDING] [-d TIME] (-- COMMAND [ARG ...] | -p PID[,PID ...] |\n"
    "           --cgroup PATH)\n"
    "       diesel-analyze record [-o RECORDING] [-d TIME] (-- COMMAND [ARG ...] | -p PID[,PID ...] |\n"
    "           --cgroup PATH)\n"
    "       diesel-analyze report RECORDING [--format FORMAT] [-o FILE]\n"
    "       diesel-analyze diff RECORDING RECORDING [--json]\n"
    "       diesel-analyze what-if RECORDING [--cache SHARE] [--workers N] [--storage-mbps X]\n"
    "           [--storage-speed Y] [--device-speed Y] [--sample-size Z] [--native]\n"
    "           [--forms SHARE] [--nodes N] [--json]\n"
    "       diesel-analyze check [--json]\n"
    "       diesel-analyze dump RECORDING\n"
    "       diesel-analyze truth [--max-steps N] [--rounds N] [--data DIR] [--json] -- COMMAND [ARG ...]\n"
    "\n"
    "Shows where a training job waits: for storage, for preprocessing, for checkpoints or for a core.\n"
    "The job is not changed and needs no preparation.\n"
    "\n"
    "  (no verb)  record, then print a report on standard error; with -o the recording is kept\n"
    "  record     run COMMAND, or watch process PID and its descendants, and write a recording\n"
    "  report     say what a recording shows\n"
    "  diff       say what changed from one recording to another, and whether it is more than noise\n"
    "  what-if    predict the job's speed with something changed; without options, of each at many values\n"
    "  check      say what this kernel lets us measure, and what to do about the rest\n"
    "  dump       write a recording's events as raw records of 64 bytes (bpf/event.h)\n"
    "  truth      run a PyTorch job with its files cached, evicted, and replaced by batches from memory:\n"
    "             the differential that the report is held against\n"
    "\n"
    "  -o FILE        recording to write (record: diesel.db; an older one becomes diesel.db.old),\n"
    "                 or file for the report (standard output)\n"
    "  -d TIME        stop recording after TIME: 30s, 5m, 1h (until the job ends); the job goes on\n"
    "  -p PID         process to watch, until it ends, Ctrl-C or -d; several of one job: -p 12,34\n"
    "  --cgroup PATH  watch all processes in this control group and those that join it\n"
    "  --unprivileged sample /proc, as is done where BPF is refused: approximate, needs no root\n"
    "  --no-children  leave out processes that the job makes; its threads are in\n"
    "  --checkpoint-overhead PERCENT  what checkpoints may cost, for advice on their interval (5%)\n"
    "  --trainer TID  the thread that trains (found by what it does)\n"
    "  --format F     text, json, html, perfetto or openmetrics (by the extension of -o: .txt, .json,\n"
    "                 .html, .pftrace, .prom; else text)\n"
    "  --steps        report: in JSON, a table of all steps too\n"
    "  --json-schema  print the schema of the JSON report\n"
    "  --cache SHARE  what-if: share of the dataset in memory, like 50%\n"
    "  --workers N    what-if: worker processes; 0: the trainer loads by itself\n"
    "  --storage-mbps X, --storage-speed Y, --device-speed Y, --sample-size Z\n"
    "                 what-if: storage bandwidth in MB/s; factors on it, on the device's speed, and on the\n"
    "                 bytes and the computing of a sample\n"
    "  --native       what-if: JPEG, PNG and WebP images decoded and transformed by dieseld instead of "
    "Python\n"
    "  --forms SHARE  what-if: the same, and so many samples out of decoded forms in its cache, like 50%\n"
    "  --nodes N      what-if: so many nodes with as much memory each, of which dieseld has each read and\n"
    "                 keep its own lanes, from storage as fast for each as recorded\n"
    "  --json         diff, check, truth, what-if: print JSON\n"
    "  --max-steps N  truth: end each run after N steps (100)\n"
    "  --rounds N     truth: measure N times and say how far the results differ (1)\n"
    "  --data DIR     truth: the folder of the job's files (learnt in a first run)\n"
    "  --detail SIZE  to write per minute, e.g. 4M, or all (1M): a long recording has detail in slices\n"
    "  --ring SIZE    kernel buffer, e.g. 64M (8M)\n"
    "  --profile-hz N stack samples per second per CPU, of what preparing does (99)\n"
    "  --no-profile   take no stack samples\n"
    "  --btf FILE     kernel type information (/sys/kernel/btf/vmlinux)\n"
    "  -v             tell more, on standard error\n"
    "  --help, --version\n"
    "\n"
    "Exit status: that of COMMAND; else 0, 1 failure, 2 usage, 3 too little data for a report.\n";

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
	log_error("%s; diesel-analyze --help shows how to call it", text);
	return USAGE_ERROR;
}

struct option_row {
	const char *name;
	int letter; /* 0: it has none */
	bool has_value;
	int (*set)(struct options *options, const struct option_row *row, const char *text);
	size_t field;                 /* set_text, set_flag, set_count: where in struct options */
	int64_t max;                  /* set_count */
	enum what_if_option question; /* set_what_if */
};

static int set_text(struct options *options, const struct option_row *row, const char *text)
{
	*(const char **)((char *)options + row->field) = text;
	return 0;
}

static int set_flag(struct options *options, const struct option_row *row, const char *text)
{
	*(bool *)((char *)options + row->field) = true;
	return 0;
}

static int set_count(struct options *options, const struct option_row *row, const char *text)
{
	int64_t value;

	if (units_parse_integer(text, 1, row->max, &value))
		return usage_error("--%s %s: not a number from 1 to %" PRId64, row->name, text, row->max);
	*(uint64_t *)((char *)options + row->field) = (uint64_t)value;
	return 0;
}

/* PID[,PID ...]; may be given more than once. */
static int set_pids(struct options *options, const struct option_row *row, const char *text)
{
	while (true) {
		size_t length = strcspn(text, ",");
		char word[16];
		int64_t value;

		snprintf(word, sizeof(word), "%.*s", length < sizeof(word) ? (int)length : 0, text);
		if (units_parse_integer(word, 1, PID_MAX, &value))
			return usage_error("-p %.*s: not a process ID", (int)length, text);
		if (options->n_tgids == OPTIONS_PIDS_MAX)
			return usage_error("-p: more than %d processes", OPTIONS_PIDS_MAX);
		options->tgids[options->n_tgids++] = (pid_t)value;
		if (!text[length])
			return 0;
		text += length + 1;
	}
}

static int set_trainer(struct options *options, const struct option_row *row, const char *text)
{
	int64_t value;

	if (units_parse_integer(text, 1, PID_MAX, &value))
		return usage_error("--trainer %s: not a thread ID", text);
	options->trainer_tid = (uint32_t)value;
	return 0;
}

static int set_duration(struct options *options, const struct option_row *row, const char *text)
{
	if (units_parse_duration(text, &options->duration_ns) || !options->duration_ns)
		return usage_error("-d %s: not a time like 30s, 5m or 1h", text);
	return 0;
}

static int set_ring(struct options *options, const struct option_row *row, const char *text)
{
	if (units_parse_bytes(text, &options->ring_bytes) || !options->ring_bytes)
		return usage_error("--ring %s: not a size like 64M", text);
	return 0;
}

static int set_detail(struct options *options, const struct option_row *row, const char *text)
{
	uint64_t bytes = 0;

	if (strcmp(text, "all") && (units_parse_bytes(text, &bytes) || !bytes))
		return usage_error("--detail %s: neither a size like 4M nor all", text);
	options->detail_bytes_per_minute = bytes;
	return 0;
}

static int set_no_profile(struct options *options, const struct option_row *row, const char *text)
{
	options->profile_hz = 0;
	return 0;
}

/* "5%" or "0.05". */
static int set_checkpoint_overhead(struct options *options, const struct option_row *row, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end != text && !strcmp(end, "%")) {
		value /= 100;
		end++;
	}
	if (end == text || *end || !(value > 0) || value > 1)
		return usage_error("--checkpoint-overhead %s: not a share of the time like 5%%", text);
	options->checkpoint_overhead_max = value;
	return 0;
}

static int set_native(struct options *options, const struct option_row *row, const char *text)
{
	options->what_if.native = options->what_if_asked = true;
	return 0;
}

static int set_what_if(struct options *options, const struct option_row *row, const char *text)
{
	const char *wrong = what_if_set(&options->what_if, row->question, text);

	if (wrong)
		return usage_error("--%s %s: %s", row->name, text, wrong);
	options->what_if_asked = true;
	return 0;
}

static int print_schema(struct options *options, const struct option_row *row, const char *text)
{
	report_json_schema(stdout);
	return DONE;
}

static int print_help(struct options *options, const struct option_row *row, const char *text)
{
	fputs(usage_text, stdout);
	return DONE;
}

static int print_version(struct options *options, const struct option_row *row, const char *text)
{
	puts("diesel-analyze " DIESEL_VERSION);
	return DONE;
}

#define FIELD(name) .field = offsetof(struct options, name)

static const struct option_row rows[] = {
    {"btf", 0, true, .set = set_text, FIELD(btf_path)},
    {"cache", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_CACHE},
    {"cgroup", 0, true, .set = set_text, FIELD(cgroup)},
    {"checkpoint-overhead", 0, true, .set = set_checkpoint_overhead},
    {"data", 0, true, .set = set_text, FIELD(data)},
    {"detail", 0, true, .set = set_detail},
    {"device-speed", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_DEVICE_SPEED},
    {"duration", 'd', true, .set = set_duration},
    {"format", 0, true, .set = set_text, FIELD(format)},
    {"forms", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_FORMS},
    {"help", 'h', false, .set = print_help},
    {"json", 0, false, .set = set_flag, FIELD(json)},
    {"json-schema", 0, false, .set = print_schema},
    {"max-steps", 0, true, .set = set_count, FIELD(n_steps), .max = INT32_MAX},
    {"native", 0, false, .set = set_native},
    {"no-children", 0, false, .set = set_flag, FIELD(no_children)},
    {"no-profile", 0, false, .set = set_no_profile},
    {"nodes", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_NODES},
    {"output", 'o', true, .set = set_text, FIELD(output)},
    {"pid", 'p', true, .set = set_pids},
    {"profile-hz", 0, true, .set = set_count, FIELD(profile_hz), .max = PROFILE_HZ_MAX},
    {"ring", 0, true, .set = set_ring},
    {"rounds", 0, true, .set = set_count, FIELD(n_rounds), .max = TRUTH_ROUNDS_MAX},
    {"sample-size", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_SAMPLE_SIZE},
    {"steps", 0, false, .set = set_flag, FIELD(steps)},
    {"storage-mbps", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_STORAGE_MBPS},
    {"storage-speed", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_STORAGE_SPEED},
    {"trainer", 0, true, .set = set_trainer},
    {"unprivileged", 0, false, .set = set_flag, FIELD(unprivileged)},
    {"verbose", 'v', false, .set = set_flag, FIELD(verbose)},
    {"version", 0, false, .set = print_version},
    {"workers", 0, true, .set = set_what_if, .question = WHAT_IF_OPTION_WORKERS},
};

#define N_ROWS     (sizeof(rows) / sizeof(rows[0]))
#define FIRST_LONG 256 /* what getopt gives for an option without a letter: this and its row */

static int set_option(struct options *options, int found, const char *text)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (found == rows[i].letter || found == FIRST_LONG + (int)i)
			return rows[i].set(options, &rows[i], text);
	return usage_error("unknown option");
}

static const struct {
	const char *name;
	size_t n_recordings; /* that the verb needs */
	bool job;            /* -p or a command */
} verbs[VERB_COUNT] = {
    [VERB_RUN] = {"", 0, true},           [VERB_RECORD] = {"record", 0, true},
    [VERB_REPORT] = {"report", 1, false}, [VERB_CHECK] = {"check", 0, false},
    [VERB_DUMP] = {"dump", 1, false},     [VERB_DIFF] = {"diff", 2, false},
    [VERB_TRUTH] = {"truth", 0, true},    [VERB_WHAT_IF] = {"what-if", 1, false},
};

/* Takes a word among the options: the verb, or a recording. Returns false if it is neither. */
static bool take_word(struct options *options, const char *word)
{
	if (options->n_recordings < verbs[options->verb].n_recordings) {
		options->recordings[options->n_recordings++] = word;
		return true;
	}
	for (size_t i = VERB_RUN + 1; options->verb == VERB_RUN && i < VERB_COUNT; i++) {
		if (!strcmp(word, verbs[i].name)) {
			options->verb = (enum verb)i;
			return true;
		}
	}
	return false;
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

/* Takes what is left after the options, and checks that the verb has all it needs. */
static int take_rest(struct options *options, int n, char **words, bool is_command)
{
	size_t n_needed = verbs[options->verb].n_recordings;

	if (n > 0 && !(is_command && verbs[options->verb].job))
		return usage_error("unknown word %s (a command comes after --)", words[0]);
	if (options->n_recordings < n_needed)
		return usage_error("%s needs %s", verbs[options->verb].name,
				   n_needed == 1 ? "a recording" : "two recordings");
	if (options->format && !render_format_by_name(options->format))
		return usage_error("--format %s: " RENDER_FORMAT_NAMES, options->format);
	if (!isnan(options->what_if.storage_bytes_per_s) && !isnan(options->what_if.storage_factor))
		return usage_error("--storage-mbps and --storage-speed say the same thing: give one");
	return verbs[options->verb].job ? take_job(options, n, words) : 0;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
	struct option long_options[N_ROWS + 1] = {0};
	struct options options = {.verb = VERB_RUN,
				  .detail_bytes_per_minute = RECORD_DETAIL_DEFAULT,
				  .profile_hz = PROFILE_HZ,
				  .n_steps = TRUTH_STEPS_DEFAULT,
				  .n_rounds = TRUTH_ROUNDS_DEFAULT,
				  .what_if = what_if_question_none()};
	bool is_command;
	int option, r;

	for (size_t i = 0; i < N_ROWS; i++)
		long_options[i] = (struct option){rows[i].name, rows[i].has_value, NULL,
						  rows[i].letter ? rows[i].letter : FIRST_LONG + (int)i};
	opterr = 0;
	/* '+': getopt stops at the first word, because a command's options are its own. */
	do {
		while ((option = getopt_long(argc, argv, "+:o:p:d:vh", long_options, NULL)) != -1) {
			if (option == '?')
				return usage_error("unknown option %s", argv[optind - 1]);
			if (option == ':')
				return usage_error("%s: its value is missing", argv[optind - 1]);
			r = set_option(&options, option, optarg);
			if (r != 0)
				return r;
		}
		is_command = optind > 1 && !strcmp(argv[optind - 1], "--");
	} while (!is_command && optind < argc && take_word(&options, argv[optind]) && ++optind);
	r = take_rest(&options, argc - optind, argv + optind, is_command);
	if (r == 0)
		*ret_options = options;
	return r;
}
