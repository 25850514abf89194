/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/model.h"
#include "lib/log.h"
#include "lib/options.h"
#include "lib/units.h"
#include "render.h"
#include "analyzer/record/record.h"
#include "reports/report.h"
#include "analyzer/truth/truth.h"
#include "what_if.h"

/* Not a round rate, so that samples do not fall in step with the job. */
#define PROFILE_HZ     99
#define PROFILE_HZ_MAX 1000

#define PID_MAX (1 << 22) /* Linux's own limit */

#define DONE        1
#define USAGE_ERROR (EXIT_USAGE + 1)

static const struct option_verb verbs[VERB_COUNT];

__attribute__((format(printf, 2, 3))) static int usage_error(const struct options *options,
							     const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_error("%s. Try 'diesel-analyze %s%s--help' for more information.", text,
		  options->verb == VERB_RUN ? "" : verbs[options->verb].name,
		  options->verb == VERB_RUN ? "" : " ");
	return USAGE_ERROR;
}

static int set_count(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	int64_t value;

	if (units_parse_integer(text, 1, (int64_t)row->most, &value))
		return error_set(err, -EINVAL, "--%s %s: must be a number from 1 to %" PRIu64, row->name,
				 text, row->most);
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
		if (options->record.n_tgids == OPTIONS_PIDS_MAX)
			return error_set(err, -EINVAL, "-p: more than %d processes", OPTIONS_PIDS_MAX);
		options->tgids[options->record.n_tgids++] = (pid_t)value;
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
		return error_set(err, -EINVAL, "--detail %s: must be a size such as 4M, or all", text);
	options->record.detail_bytes_per_minute = bytes;
	return 0;
}

static int set_no_profile(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	options->record.profile_hz = 0;
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
		return error_set(err, -EINVAL,
				 "--checkpoint-overhead %s: must be a share of the time, such as 5%%", text);
	options->checkpoint_overhead_max = value;
	return 0;
}

static int set_native(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	options->what_if.native = options->what_if_asked = true;
	return 0;
}

#define WHAT_IF_NODES_MAX 10000
#define JOBS_USUAL        5000
#define JOBS_PER_HOUR     9
#define MEMORY_LEAST      0x1p26 /* for each accelerator; below this a unit is missing */

enum what_if_option {
	WHAT_IF_OPTION_CACHE,   /* 50% or 0.5 */
	WHAT_IF_OPTION_WORKERS, /* 0 to 256 */
	WHAT_IF_OPTION_CORES,   /* MODEL_CORES_MIN to MODEL_CORES_MAX */
	WHAT_IF_OPTION_STORAGE_MBPS,
	WHAT_IF_OPTION_STORAGE_SPEED,
	WHAT_IF_OPTION_DEVICE_SPEED, /* 2 or 2x */
	WHAT_IF_OPTION_SAMPLE_SIZE,  /* 0.5 or 0.5x */
	WHAT_IF_OPTION_NODES,        /* 1 to WHAT_IF_NODES_MAX */
	WHAT_IF_OPTION_DECODED,      /* 50% or 0.5; implies decoding by dieseld */
};

/* Parses a number and the suffix after it, regardless of the locale: "0.5" is the same everywhere. */
static bool factor_parse(const char *text, const char *suffix, double *ret_value)
{
	locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	char *end;
	double value;

	if (!plain)
		return false;
	value = strtod_l(text, &end, plain);
	freelocale(plain);
	if (end == text || !isfinite(value) || (*end && strcmp(end, suffix) != 0))
		return false;
	*ret_value = value;
	return true;
}

static bool share(const char *text, double *ret_value)
{
	double value;

	if (!factor_parse(text, "%", &value))
		return false;
	if (strchr(text, '%'))
		value /= 100;
	if (value < 0 || value > 1)
		return false;
	*ret_value = value;
	return true;
}

static bool factor(const char *text, const char *suffix, double low, double high, double *ret_value)
{
	double value;

	if (!factor_parse(text, suffix, &value) || value < low || value > high)
		return false;
	*ret_value = value;
	return true;
}

/* Sets the option's value in the question. Returns NULL, or static text that describes a valid value. */
static const char *what_if_set(struct what_if_question *question, enum what_if_option option,
			       const char *text)
{
	int64_t n;

	switch (option) {
	case WHAT_IF_OPTION_CACHE:
		return share(text, &question->cache_ratio)
			   ? NULL
			   : "must be a share of the dataset, such as 50% or 0.5";
	case WHAT_IF_OPTION_WORKERS:
		if (units_parse_integer(text, 0, MODEL_WORKERS_MAX, &n))
			return "must be a number of workers from 0 to 256";
		question->n_workers = (double)n;
		return NULL;
	case WHAT_IF_OPTION_CORES:
		return factor(text, "", MODEL_CORES_MIN, MODEL_CORES_MAX, &question->n_cores)
			   ? NULL
			   : "must be a number of cores from 0.05 to 4096";
	case WHAT_IF_OPTION_STORAGE_MBPS:
		if (!factor(text, "MB/s", 0.001, 1e6, &question->storage_bytes_per_s))
			return "must be a bandwidth in MB/s, such as 200 (0.001 to 1000000)";
		question->storage_bytes_per_s *= 1e6;
		return NULL;
	case WHAT_IF_OPTION_STORAGE_SPEED:
		return factor(text, "x", 0.01, 1000, &question->storage_factor)
			   ? NULL
			   : "must be a multiple of the recorded storage bandwidth, such as 2 (0.01 to 1000)";
	case WHAT_IF_OPTION_DEVICE_SPEED:
		return factor(text, "x", 0.01, 1000, &question->device_factor)
			   ? NULL
			   : "must be a multiple of the recorded device speed, such as 2 (0.01 to 1000)";
	case WHAT_IF_OPTION_SAMPLE_SIZE:
		return factor(text, "x", 0.01, 1000, &question->sample_factor)
			   ? NULL
			   : "must be a multiple of the recorded sample size, such as 0.5 (0.01 to 1000)";
	case WHAT_IF_OPTION_NODES:
		if (units_parse_integer(text, 1, WHAT_IF_NODES_MAX, &n))
			return "must be a number of nodes from 1 to 10000";
		question->n_nodes = (double)n;
		return NULL;
	case WHAT_IF_OPTION_DECODED:
		question->native = true;
		return share(text, &question->decoded_ratio)
			   ? NULL
			   : "must be a share of the samples, such as 50% or 0.5";
	}
	return "unknown";
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

/* Adds nodes given as [Nx]ACCELERATORS,CORES,MEMORY. -EINVAL. */
static int plan_add_nodes(struct plan_arguments *options, const char *text, struct error *err)
{
	unsigned n = 1, accelerators; /* of at most 9 characters: sscanf wraps larger ones */
	char memory[32], size[16], rest;
	uint64_t bytes = 0;
	double cores;

	if (sscanf(text, "%9ux%9u,%lf,%31s%c", &n, &accelerators, &cores, memory, &rest) != 4 &&
	    (n = 1, sscanf(text, "%9u,%lf,%31s%c", &accelerators, &cores, memory, &rest) != 3))
		accelerators = 0;
	if (!accelerators || !n || accelerators > 1024 || n > 10000 || !(cores > 0 && cores <= 4096) ||
	    units_parse_bytes(memory, &bytes) || !bytes)
		return error_set(
		    err, -EINVAL,
		    "--cluster %s: must be [Nx]ACCELERATORS,CORES,MEMORY, such as 16x8,24,500G: at "
		    "most 10000 nodes, 1 to 1024 accelerators (or slots) and more than 0 to 4096 "
		    "cores",
		    text);
	if ((double)bytes < MEMORY_LEAST * accelerators)
		return error_set(
		    err, -EINVAL,
		    "--cluster %s: %s is less than 64 MiB of memory for each accelerator: give a "
		    "unit, such as --cluster %.*s%.*sG",
		    text, units_format_bytes(size, sizeof(size), bytes), (int)(strrchr(text, ',') + 1 - text),
		    text, (int)strspn(memory, "0123456789"), memory);
	if (options->n_kinds == PLAN_KINDS_MAX)
		return error_set(err, -EINVAL, "--cluster: more than %d kinds of nodes", PLAN_KINDS_MAX);
	options->kinds[options->n_kinds++] = (struct plan_nodes){n, accelerators, cores, (double)bytes};
	return 0;
}

static int set_nodes(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;

	return plan_add_nodes(&options->plan, text, err);
}

static int set_real(void *user, const struct option_row *row, const char *text, struct error *err)
{
	struct options *options = user;
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0) || value > (double)row->most)
		return option_wrong(row, text, err);
	*(double *)((char *)options + row->at) = value;
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

#define FIELD(name)   .at = offsetof(struct options, name)
#define OF(verb)      (1u << VERB_##verb)
#define KEY_SIMULATES 1000 /* the row is for --simulate */
#define RECORDING     (OF(RUN) | OF(RECORD))

static const struct option_row rows[] = {
    {"output", option_set_string, .letter = 'o', .verbs = RECORDING | OF(REPORT) | OF(DIFF), FIELD(output),
     .group = "Recording", .value = "FILE", .takes = OPTION_FILE,
     .help = "recording to write (record: diesel.db by default; an older one becomes diesel.db.old), or "
	     "report to write (default: standard output)",
     .about = "For `record`, the recording to write, by default diesel.db (an older one becomes "
	      "diesel.db.old). An existing FILE is replaced only if it is a recording. For `report`, the "
	      "report to write, which appears complete or not at all."},
    {"duration", option_set_duration, .letter = 'd', .verbs = RECORDING, FIELD(record.duration_ns),
     .least = 1, .value = "TIME", .says = "must be a time such as 30s, 5m or 1h",
     .help = "stop recording after this time, such as 30s, 5m or 1h (default: when the job ends). The job "
	     "continues.",
     .about = "Records for TIME, such as 30s, 5m or 1h. A command that runs longer continues without being "
	      "recorded, and `record` waits for it."},
    {"pid", set_pids, .letter = 'p', .verbs = RECORDING, .value = "PID", .takes = OPTION_PROCESS,
     .repeats = true,
     .help = "process to record, until it ends, Ctrl-C or -d. Several processes of one job: -p 12,34",
     .about = "The process to record, by its host PID. Several PIDs make one recording and one report, for "
	      "example ranks that were started separately."},
    {"cgroup", option_set_string, .verbs = RECORDING, FIELD(record.cgroup), .value = "PATH",
     .takes = OPTION_FOLDER, .help = "record all processes that are in this control group or join it",
     .about = "Records every process in a control group (version 1 or 2) and in the groups below it, and "
	      "every process that joins them during the recording. PATH is the group's folder, or its path "
	      "in /proc/PID/cgroup. The recording ends when the group is empty."},
    {"unprivileged", option_set_flag, .verbs = RECORDING, FIELD(record.unprivileged),
     .help = "sample /proc instead of using BPF: approximate, but needs no root"},
    {"no-children", option_set_flag, .verbs = RECORDING, FIELD(record.no_children),
     .help = "leave out processes that the job starts (its threads are recorded)"},
    {"detail", set_detail, .verbs = RECORDING, .value = "SIZE", .usual = "1M",
     .help = "limit on the bytes to write per minute, such as 4M, or all. A long recording has detail only "
	     "in slices.",
     .about = "The bytes to write per minute, compressed; default 1M. The first minute of the training steps "
	      "gets 16 times as much, which is enough to record all of it unless the job is very busy. The "
	      "time before the first step gets 8 times as much. Later the recorder saves up unused bytes, at "
	      "most 24 seconds' worth. If a job produces more, the recorder writes detail only in slices of "
	      "5 seconds or longer, at most 32 MiB in total, spread over the whole recording. Steps, "
	      "threads' lives and totals are always recorded. The shares then cover only the steps with "
	      "complete detail; the recorder and the report print how many there are."},
    {"ring", option_set_bytes, .verbs = RECORDING, FIELD(record.ring_bytes), .least = 1, .value = "SIZE",
     .usual = "8M", .says = "must be a size such as 64M", .help = "kernel buffer, e.g. 64M",
     .about = "The size of the kernel buffer between job and recorder, rounded up to a power of two; default "
	      "8M. Use a larger one if a report shows lost events."},
    {"profile-hz", set_count, .verbs = RECORDING, FIELD(record.profile_hz), .most = PROFILE_HZ_MAX,
     .value = "N", .usual = "99",
     .help = "stack samples per second and CPU, to show which functions prepare the data",
     .about = "Stack samples per second and CPU, 1 to 1000, to show which functions prepare the data; "
	      "default 99."},
    {"no-profile", set_no_profile, .verbs = RECORDING, .help = "take no stack samples",
     .about = "Takes no stack samples. Compiling is then not seen, and its share is unknown."},
    {"btf", option_set_string, .verbs = RECORDING | OF(CHECK), FIELD(btf_path), .value = "FILE",
     .usual = "/sys/kernel/btf/vmlinux", .takes = OPTION_FILE, .help = "kernel type information"},
    {"format", option_set_string, .verbs = OF(RUN) | OF(REPORT) | OF(DIFF), FIELD(format),
     .group = "Reporting", .value = "FORMAT", .words = "text|json|html|perfetto|openmetrics",
     .help = "format of the report (default: from the extension of -o: .txt, .json, .html, .pftrace, .prom; "
	     "else text)",
     .about = "The format of the report, by default chosen from the extension of `-o`: .txt, .json, .html, "
	      ".pftrace, .prom; else text. The JSON has `\"schema\"`:` \"diesel.report/1\"`; `--json-schema` "
	      "prints its schema."},
    {"steps", option_set_flag, .verbs = OF(RUN) | OF(REPORT), FIELD(steps),
     .help = "add a table of all steps to the JSON"},
    {"json-schema", print_schema, .verbs = OF(RUN) | OF(REPORT),
     .help = "print the schema of the JSON report"},
    {"trainer", set_trainer, .verbs = RECORDING | OF(REPORT), .value = "TID",
     .help = "thread that trains (default: found by its activity)",
     .about = "The thread whose time is reported; by default found by its activity. `record` stores the "
	      "thread in the recording; `report` overrides it."},
    {"checkpoint-overhead", set_checkpoint_overhead, .verbs = RECORDING | OF(REPORT), .value = "PERCENT",
     .usual = "5%", .help = "highest acceptable cost of checkpoints, for advice on their interval",
     .about = "The highest acceptable cost of checkpoints, as a share of the time, for the advice on their "
	      "interval; default 5%."},
    {"cache", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_CACHE, .group = "Predicting",
     .value = "SHARE", .help = "share of the dataset in memory, such as 50%"},
    {"workers", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_WORKERS, .value = "N",
     .help = "number of worker processes; with 0 the trainer loads by itself"},
    {"cores", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_CORES, .value = "N",
     .help = "number of cores that the job may use, such as 4; or a quota, such as 1.5",
     .about = "Number of cores that the job may use. A whole number is a set of cores of its own "
	      "(Slurm's --cpus-per-task, a cpuset). Any other number is a quota of CPU time on the recorded "
	      "cores (cpu.max, Kubernetes' limits.cpu)."},
    {"storage-mbps", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_STORAGE_MBPS, .value = "X",
     .help = "storage bandwidth in MB/s",
     .about = "Storage bandwidth in MB/s, instead of the bandwidth in the recording."},
    {"storage-speed", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_STORAGE_SPEED, .value = "Y",
     .help = "multiple of the recorded storage bandwidth"},
    {"device-speed", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_DEVICE_SPEED, .value = "Y",
     .help = "multiple of the recorded device speed"},
    {"sample-size", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_SAMPLE_SIZE, .value = "Z",
     .help = "multiple of the recorded bytes and computing per sample"},
    {"native", set_native, .verbs = OF(WHAT_IF),
     .help = "let dieseld, instead of Python, decode and transform JPEG, PNG and WebP images",
     .about = "Lets `dieseld`(8), instead of Python, decode and transform JPEG, PNG and WebP images, on all "
	      "cores. The prediction covers the part of data preparation that stack samples identify as this "
	      "work. If a recording shows none, `what-if` refuses it (exit status 3)."},
    {"decoded-cache", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_DECODED, .value = "SHARE",
     .help = "implies --native; share of the samples that come from decoded copies in dieseld's cache, such "
	     "as 50%",
     .about = "Implies `--native`; this share of the samples, such as 50% or 0.5, comes from decoded copies "
	      "that `dieseld` keeps in its cache. Copies of all samples take about three times the bytes of "
	      "the files. Copies of large photographs serve some crops, not all."},
    {"nodes", set_what_if, .verbs = OF(WHAT_IF), .key = WHAT_IF_OPTION_NODES, .value = "N",
     .help = "number of nodes, each with the recorded node's memory and storage speed; dieseld on each node "
	     "reads and caches its own lanes",
     .about = "Number of nodes that share the dataset through `dieseld`, each with the recorded node's "
	      "memory. Each node reads and caches its own lanes, 1/N of the dataset, so its memory holds a "
	      "share N times as large. Storage is assumed to be as fast for each node as in the recording."},
    {"cluster", set_nodes, .verbs = OF(PLAN), .group = "Planning", .value = "[Nx]A,C,M", .repeats = true,
     .needed = true, .help = "N nodes of A accelerators, C cores and M memory, such as 16x8,24,500G",
     .about =
	 "N nodes, each with A accelerators, C cores and M of memory, such as 16x8,24,500G. Give it again "
	 "for nodes of another size. On nodes without accelerators A is a number of slots for jobs (see "
	 "`--slots`)."},
    {"core-step", set_real, .verbs = OF(PLAN), FIELD(plan.core_step), .most = 4096, .value = "N",
     .usual = "1", .says = "must be a number of cores, such as 0.5",
     .help = "shares are multiples of N cores, such as 0.5",
     .about =
	 "Shares are multiples of this number of cores; default 1, as Slurm needs it. A part of a core is "
	 "a quota of CPU time, as Kubernetes has it."},
    {"strategy", option_set_choice, .verbs = OF(PLAN), FIELD(plan.strategy), .words = "equal|greedy|tune",
     .value = "NAME", .usual = "tune", .help = "plan to print: equal, greedy or tune",
     .about =
	 "The plan to print. `equal`: each job has the part of a node's cores and memory that its "
	 "accelerators are of the node's. `greedy`: in their order, jobs get all that speeds them up, or "
	 "wait. `tune`, the default: what a job does not need speeds up others, and no job is slower than "
	 "with `equal`."},
    {"slots", option_set_flag, .verbs = OF(PLAN), FIELD(plan.slots),
     .help = "accelerators are only slots for jobs: leave GPUs out of the lines for Slurm and Kubernetes"},
    {"simulate", option_set_flag, .verbs = OF(PLAN), FIELD(plan.simulate),
     .help = "simulate arrivals of such jobs, and print completion times",
     .about =
	 "Simulates a cluster to which such jobs come, instead of a plan, and prints the mean, the median "
	 "and the 99th percentile of the times from arrival to completion. Arrivals are random; job lengths "
	 "are those of Microsoft's Philly cluster (half an hour to a week), each job's kind is drawn by "
	 "`weight`."},
    {"load", set_real, .verbs = OF(PLAN), .key = KEY_SIMULATES, FIELD(plan.jobs_per_hour), .most = 100000,
     .value = "N", .usual = "9", .says = "must be a number of jobs per hour",
     .help = "jobs that arrive per hour (with --simulate)"},
    {"jobs", set_count, .verbs = OF(PLAN), .key = KEY_SIMULATES, FIELD(plan.n_jobs), .most = 1000000,
     .value = "N", .usual = "5000", .help = "simulate N jobs, and count the last fifth (with --simulate)"},
    {"seed", set_count, .verbs = OF(PLAN), .key = KEY_SIMULATES, FIELD(plan.seed), .most = INT64_MAX,
     .value = "N", .usual = "1", .help = "the same seed gives the same arrivals (with --simulate)"},
    {"stay", option_set_flag, .verbs = OF(PLAN), .key = KEY_SIMULATES, FIELD(plan.stay),
     .help = "running jobs stay on their node (with --simulate; default: they move at no cost)"},
    {"max-steps", set_count, .verbs = OF(TRUTH), FIELD(truth.n_steps), .most = INT32_MAX,
     .group = "The three-run truth", .value = "N", .usual = "100", .help = "end each run after N steps"},
    {"rounds", set_count, .verbs = OF(TRUTH), FIELD(truth.n_rounds), .most = TRUTH_ROUNDS_MAX, .value = "N",
     .usual = "1", .help = "measure N times and print how far the results differ"},
    {"data", option_set_string, .verbs = OF(TRUTH), FIELD(truth.data), .value = "DIR", .takes = OPTION_FOLDER,
     .help = "folder of the job's files (default: found in a first run)",
     .about = "The folder of the job's files; by default a first run finds them."},
    {"json", option_set_flag,
     .verbs = OF(RUN) | OF(REPORT) | OF(DIFF) | OF(CHECK) | OF(TRUTH) | OF(WHAT_IF) | OF(PLAN), FIELD(json),
     .group = "Any verb", .help = "print JSON"},
    {"verbose", option_set_flag, .letter = 'v', FIELD(verbose), .help = "print more, on standard error"},
    {"help", set_help, .letter = 'h', .help = "print this; after a verb, the description of the verb"},
    {"version", print_version, .letter = 'V', .help = "print the version"},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct option_verb verbs[VERB_COUNT] = {
    [VERB_RUN] = {.name = "diesel-analyze",
		  .arguments = "(-- COMMAND [ARG ...] | -p PID[,PID ...] | --cgroup PATH)",
		  .summary =
		      "Shows where a training job waits: for storage, preprocessing, checkpoints or a core.\n"
		      "The job is not changed and needs no preparation. Without a verb: record, then print a "
		      "report on\n"
		      "standard error. With -o the recording is kept.",
		  .help = "Exit status: that of COMMAND. Without a command: 0 success, 1 failure, 2 usage "
			  "error, 3 too little data.\n",
		  OPTION_ROWS(rows),
		  .bit = OF(RUN),
		  .command = true},
    [VERB_RECORD] =
	{.name = "record",
	 .arguments = "(-- COMMAND [ARG ...] | -p PID[,PID ...] | --cgroup PATH)",
	 .summary = "Run COMMAND, or watch process PID and its descendants, and write a recording",
	 .about =
	     "Writes a recording, for any number of reports. With `--`, COMMAND runs, and is recorded from "
	     "its first instruction until it ends. With `-p`, a running process and its descendants are "
	     "recorded until it ends, for `-d` TIME, or until SIGINT, SIGTERM, SIGHUP or SIGQUIT.",
	 OPTION_ROWS(rows),
	 .bit = OF(RECORD),
	 .command = true},
    [VERB_REPORT] =
	{.name = "report",
	 .arguments = "RECORDING",
	 .summary = "Report where the recorded job waited",
	 .about = "Prints a report of a recording: the verdict, the shares of time, the waits of the trainer "
		  "and their reasons, and at most three actions with the speed-up that the stall model "
		  "predicts. The verdict is `fetch-bound`, `prep-bound`, `checkpoint-bound`, `device-bound`, "
		  "`cpu-starved` (no core), `lock-bound` (the interpreter lock), `unclear` (the recording "
		  "does not show the reason; the note names a way to find it), or `insufficient data`. "
		  "Verdict, actions and predictions apply to the steady steps. These leave out warm-up, "
		  "validation passes and compiling (torch.compile, JAX), which is paid once and has a share "
		  "of its own. `html` is one file with the same content, pictures of every step and every "
		  "worker, what-if curves and a flame graph of data preparation; it needs no network. "
		  "`perfetto` is a trace for ui.perfetto.dev, and `openmetrics` has figures for a monitoring "
		  "system. If a recording was cut off, the report covers the readable part, with a warning.",
	 OPTION_ROWS(rows),
	 .bit = OF(REPORT),
	 .takes = OPTION_RECORDING},
    [VERB_DIFF] =
	{.name = "diff",
	 .arguments = "RECORDING RECORDING",
	 .summary = "Compare two recordings, and tell changes from noise",
	 .about =
	     "Compares two recordings: each share and the speed with an interval, and whether the difference "
	     "is more than noise. Compiling is compared separately, as its share of all time.",
	 OPTION_ROWS(rows),
	 .bit = OF(DIFF),
	 .takes = OPTION_RECORDING},
    [VERB_WHAT_IF] =
	{.name = "what-if",
	 .arguments = "RECORDING",
	 .summary = "Predict the job's speed after a change; without options, after each of several changes",
	 .about = "Predicts the job's speed after a change: a simulated loader replays the recorded batches "
		  "and steps. Without options, it prints a table of each change at many values, and the "
		  "smallest change that ends the data wait.",
	 OPTION_ROWS(rows),
	 .bit = OF(WHAT_IF),
	 .takes = OPTION_RECORDING},
    [VERB_PLAN] =
	{.name = "plan",
	 .arguments = "JOB[,KEY=VALUE ...] ...",
	 .summary = "Plan cores and memory of several jobs on the nodes of a cluster",
	 .about =
	     "Predicts how fast each job is with other cores and memory, places the jobs on nodes, and "
	     "divides the "
	     "nodes' cores and memory: what one job does not need speeds up another. Prints what to write "
	     "for "
	     "Slurm and Kubernetes.\n"
	     "JOB is a recording, a profile (JSON with `\"schema\"`:` \"diesel.profile/1\"`) or the output "
	     "of "
	     "`dieselctl jobs --json`, for jobs that `dieseld` serves. After it may come, with commas: "
	     "`accelerators=`N, by default those of its recorded ranks; `dataset=`SIZE and `resident=`SIZE, "
	     "its files and the memory of "
	     "its own "
	     "processes, without which it keeps its proportional share of memory. Also `count=`N, jobs like "
	     "this, `weight=`N, its part of simulated arrivals, and `name=`NAME. `job=`NAME joins recordings "
	     "of "
	     "one job. A job whose figures do not suffice "
	     "keeps "
	     "its proportional share, and a line says why.\n"
	     "The optimum is an upper limit, which a linear programme finds by COIN-OR's libClp (package "
	     "coinor-libclp1), if it is installed.",
	 OPTION_ROWS(rows),
	 .bit = OF(PLAN),
	 .takes = OPTION_RECORDING},
    [VERB_CHECK] =
	{
	    .name = "check",
	    .arguments = NULL,
	    .summary = "List the data that this kernel can record, and how to get the rest",
	    .about = "For each requirement and each kernel hook, prints whether it is there, what is lost "
		     "without it, and how to get it.",
	    OPTION_ROWS(rows),
	    .bit = OF(CHECK),
	},
    [VERB_DUMP] =
	{.name = "dump",
	 .arguments = "RECORDING",
	 .summary = "Write a recording's events as raw records of 64 bytes (bpf/event.h)",
	 .about =
	     "Writes the events of a recording to standard output as records of 64 bytes, in order of time.",
	 OPTION_ROWS(rows),
	 .bit = OF(DUMP),
	 .takes = OPTION_RECORDING},
    [VERB_TRUTH] =
	{.name = "truth",
	 .arguments = "-- COMMAND [ARG ...]",
	 .summary = "Run a PyTorch job three times: files cached, files evicted, batches from memory",
	 .about = "Measures the same figures directly but slowly, as a check of the other verbs. It runs a "
		  "PyTorch command three times: with the files that it reads in the page cache, with these "
		  "files evicted, and with a loader that returns random batches from memory. Only this verb "
		  "changes the job, by a module that it puts in front of the job's own.",
	 OPTION_ROWS(rows),
	 .bit = OF(TRUTH),
	 .command = true},
};

static const struct option_verb *const listed[] = {
    &verbs[VERB_RECORD], &verbs[VERB_REPORT], &verbs[VERB_DIFF], &verbs[VERB_WHAT_IF],
    &verbs[VERB_PLAN],   &verbs[VERB_CHECK],  &verbs[VERB_DUMP], &verbs[VERB_TRUTH],
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

/* Returns the number of recordings that the verb needs. */
static size_t n_recordings(enum verb verb)
{
	if (verb == VERB_PLAN)
		return 0; /* any number: take_word() */
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
	if (options->verb == VERB_PLAN && options->plan.n_arguments < PLAN_ARGUMENTS_MAX) {
		options->plan.arguments[options->plan.n_arguments++] = word;
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
	n = (options->command != NULL) + (options->record.n_tgids > 0) + (options->record.cgroup != NULL);
	if (n > 1)
		return usage_error(options, "give only one of: -- COMMAND, -p PID, --cgroup PATH");
	if (!n)
		return usage_error(options, "no job: give -p PID, --cgroup PATH, or -- COMMAND");
	if (options->verb == VERB_TRUTH && !options->command)
		return usage_error(options, "truth runs a command several times: give -- COMMAND");
	if (options->record.cgroup && options->record.no_children)
		return usage_error(
		    options,
		    "--no-children cannot be used with --cgroup: child processes are in the group, too");
	return 0;
}

/* Writes the names of the verbs that accept the row: "what-if", or "record or no verb". */
static void takers_text(const struct option_row *row, char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (size_t i = 0; i <= VERB_COUNT && length < size; i++) {
		const struct option_verb *verb = &verbs[i % VERB_COUNT];

		/* The program without a verb comes last. */
		if ((i == VERB_RUN) || !(row->verbs & verb->bit))
			continue;
		length += (size_t)snprintf(text + length, size - length, "%s%s", length ? " or " : "",
					   i == VERB_COUNT ? "no verb" : verb->name);
	}
}

/* Refuses options that the verb would ignore. given: for each row, whether it was. */
static int refuse_ignored(const struct options *options, const bool *given)
{
	char takers[128];

	for (size_t i = 0; i < N_ROWS; i++) {
		if (!given[i])
			continue;
		takers_text(&rows[i], takers, sizeof(takers));
		if (rows[i].verbs && !(rows[i].verbs & verbs[options->verb].bit))
			return usage_error(options, "--%s is an option of %s%s%s", rows[i].name, takers,
					   options->verb == VERB_RUN ? "" : ", not of ",
					   options->verb == VERB_RUN ? "" : verbs[options->verb].name);
		if (rows[i].key == KEY_SIMULATES && !options->plan.simulate)
			return usage_error(options,
					   "--%s is for a simulation: add --simulate, or leave it out",
					   rows[i].name);
	}
	return 0;
}

/* --json is --format json where a report has several formats. */
static int take_json(struct options *options)
{
	if (!options->json || (options->verb != VERB_REPORT && options->verb != VERB_RUN))
		return 0;
	if (options->format && strcmp(options->format, "json") != 0)
		return usage_error(options, "--json and --format %s are two formats: give only one",
				   options->format);
	options->format = "json";
	return 0;
}

/* Handles the arguments after the options, and checks that the verb has all arguments that it needs. */
static int take_rest(struct options *options, int n, char **words, bool is_command)
{
	size_t n_needed = n_recordings(options->verb);

	if (n > 0 && !(is_command && verbs[options->verb].command))
		return usage_error(options, "unexpected argument '%s': put a command after --", words[0]);
	if (options->n_recordings < n_needed)
		return usage_error(options, "%s needs %s", verbs[options->verb].name,
				   n_needed == 1 ? "a recording" : "two recordings");
	if (options->format && !render_format_by_name(options->format))
		return usage_error(options, "--format %s: must be " RENDER_FORMAT_NAMES, options->format);
	if (!isnan(options->what_if.storage_bytes_per_s) && !isnan(options->what_if.storage_factor))
		return usage_error(options,
				   "--storage-mbps and --storage-speed set the same value: give only one");
	if (options->verb == VERB_PLAN && !options->plan.n_kinds)
		return usage_error(options, "plan needs --cluster, such as --cluster 16x8,24,500G");
	if (options->verb == VERB_PLAN && !options->plan.n_arguments)
		return usage_error(
		    options, "plan needs jobs: recordings, profiles, or the output of dieselctl jobs --json");
	return verbs[options->verb].command ? take_job(options, n, words) : 0;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
	struct options options = {
	    .verb = VERB_RUN,
	    .record = {.detail_bytes_per_minute = RECORD_DETAIL_DEFAULT, .profile_hz = PROFILE_HZ},
	    .truth = {.n_steps = TRUTH_STEPS_DEFAULT, .n_rounds = TRUTH_ROUNDS_DEFAULT},
	    .what_if = WHAT_IF_NOTHING,
	    .plan = (struct plan_arguments){.core_step = 1,
					    .strategy = PLAN_TUNE,
					    .jobs_per_hour = JOBS_PER_HOUR,
					    .n_jobs = JOBS_USUAL,
					    .seed = 1}};
	const struct option_row *row;
	struct error err = ERROR_INIT;
	bool is_command, given[N_ROWS] = {false};
	int r;

	optind = 0;
	/* Parsing stops at each word, because the options after a command belong to that command. */
	do {
		while ((r = option_next(program.self, argc, argv, &row, &err)) == 1) {
			given[row - rows] = true;
			r = row->set(&options, row, optarg, &err);
			if (r > 0)
				return r;
			if (r < 0)
				break;
		}
		if (r < 0)
			return usage_error(&options, "%s", err.text);
		is_command = optind > 1 && !strcmp(argv[optind - 1], "--");
	} while (!is_command && optind < argc && take_word(&options, argv[optind], &err) && ++optind);
	if (err.code && !is_command)
		return usage_error(&options, "%s; a command comes after --", err.text);
	r = refuse_ignored(&options, given);
	if (r == 0)
		r = take_json(&options);
	if (r == 0)
		r = take_rest(&options, argc - optind, argv + optind, is_command);
	if (r == 0)
		*ret_options = options;
	return r;
}
