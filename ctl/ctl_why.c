/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl why: the tuner's decisions, with the figures behind them and their effects. */
#include "ctl_daemon.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/json_read.h"
#include "lib/text.h"
#include "lib/units.h"

static const char *clock_text(char text[24], double unix_s)
{
	time_t t = (time_t)unix_s, now = time(NULL);
	struct tm tm, today;

	localtime_r(&t, &tm);
	localtime_r(&now, &today);
	strftime(text, 24,
		 tm.tm_yday == today.tm_yday && tm.tm_year == today.tm_year ? "%H:%M:%S" : "%m-%d %H:%M:%S",
		 &tm);
	return text;
}

/* Prints, for instance, "812 samples/s, 31 % of the time waiting for data", without unknown values. */
static void print_speed(double rate, double wait)
{
	char text[24], percent[8];

	if (isfinite(rate))
		printf("%s samples/s", ctl_rate(text, rate));
	if (isfinite(rate) && isfinite(wait))
		printf(", ");
	if (isfinite(wait))
		printf("%s of the time waiting for data", ctl_percent(percent, wait));
	if (!isfinite(rate) && !isfinite(wait))
		printf("nothing known");
}

static void print_measured(const json_t *d)
{
	const json_t *sample = json_object_get(d, "sample"), *shares = json_object_get(sample, "shares");
	double fetch = json_number_of(shares, "fetch_stall"), prep = json_number_of(shares, "prep_stall");
	char text[8];

	printf("          measured: ");
	print_speed(json_number_of(d, "rate_before"), json_number_of(d, "wait_before"));
	if (isfinite(fetch) && isfinite(prep)) {
		printf(" (in the last second: storage %s, ", ctl_percent(text, fetch));
		printf("preparing %s)", ctl_percent(text, prep));
	}
	putchar('\n');
}

static void print_effect(const json_t *d)
{
	const json_t *effect = json_object_get(d, "effect");
	char text[200], outcome[200], after[24];
	double seconds = json_number_of(effect, "time") - json_number_of(d, "time");

	if (isfinite(json_number_of(d, "rate_expected")) || isfinite(json_number_of(d, "wait_expected"))) {
		printf("          expected: ");
		print_speed(json_number_of(d, "rate_expected"), json_number_of(d, "wait_expected"));
		putchar('\n');
	}
	if (!json_is_object(effect))
		return;
	printf("          %s after %s: ", ctl_string(effect, "outcome", outcome),
	       units_format_duration(after, sizeof(after), seconds > 0 ? (uint64_t)(seconds * 1e9) : 0));
	if (*ctl_string(effect, "text", text))
		puts(text);
	else {
		print_speed(json_number_of(effect, "rate_after"), json_number_of(effect, "wait_after"));
		putchar('\n');
	}
}

static void print_decision(const json_t *d, bool with_job)
{
	char when[24], knob[200], from[24], to[24], rule[200], text[400];
	const json_t *reason = json_object_get(d, "reason");

	printf("%s  ", clock_text(when, json_number_of(d, "time")));
	if (with_job)
		printf("job %llu  ", ctl_number(d, "job"));
	ctl_string(d, "knob", knob);
	printf("%s %s -> %s (%s)%s\n", knob, ctl_knob(from, knob, json_number_of(d, "from")),
	       ctl_knob(to, knob, json_number_of(d, "to")), ctl_string(d, "rule", rule),
	       json_is_true(json_object_get(d, "applied")) ? "" : ", not done: dry run");
	text_printable(text, sizeof(text), json_is_string(reason) ? json_string_value(reason) : "",
		       json_is_string(reason) ? json_string_length(reason) : 0);
	printf("          why: %s\n", text);
	print_measured(d);
	print_effect(d);
}

static void print_shared(const json_t *job)
{
	unsigned long long shared = ctl_number(job, "shared_batches"), from = ctl_number(job, "shared_from");

	if (shared == 0)
		return;
	printf("\n"
	       "          shared: %llu of its %llu batches were decoded for another session, most recently ",
	       shared, ctl_number(job, "batches"));
	if (from == ctl_number(job, "id"))
		printf("one of its own");
	else
		printf("one of job %llu", from);
}

static void print_held(const json_t *held)
{
	char seconds[24];

	if (!json_is_object(held))
		return;
	printf("\n"
	       "          prefetch %s held back %llu time%s, %s in total, while job %llu wrote a "
	       "checkpoint to the same file system",
	       json_is_true(json_object_get(held, "now")) ? "is" : "was", ctl_number(held, "times"),
	       units_plural(ctl_number(held, "times")),
	       units_format_duration(seconds, sizeof(seconds),
				     (uint64_t)(json_number_of(held, "seconds") * 1e9)),
	       ctl_number(held, "writer"));
}

/* Prints, for instance, ", snapshot 4.1 ms", without unknown values. */
static void print_time(const char *name, double seconds)
{
	char text[24];

	if (isfinite(seconds) && seconds >= 0)
		printf(", %s %s", name, units_format_duration(text, sizeof(text), (uint64_t)(seconds * 1e9)));
}

/* Prints what the job's Checkpointer has measured and chosen. */
static void print_checkpoints(const json_t *c)
{
	uint64_t begun = ctl_number(c, "begun"), failed = ctl_number(c, "failed"),
		 interval = ctl_number(c, "interval_steps");
	double overhead = json_number_of(c, "overhead"), age_s = json_number_of(c, "newest_age_s");
	char text[24];

	if (!json_is_object(c))
		return;
	printf("\n"
	       "          checkpoints: %llu begun, %llu failed",
	       (unsigned long long)begun, (unsigned long long)failed);
	if (interval == 1)
		printf(", one every step");
	else if (interval)
		printf(", one every %llu steps", (unsigned long long)interval);
	if (isfinite(overhead))
		printf(", %.1f%% of the time", 100 * overhead);
	print_time("snapshot", json_number_of(c, "snapshot_s"));
	print_time("slower steps", json_number_of(c, "slowdown_s"));
	print_time("on disk after", json_number_of(c, "written_s"));
	if (isfinite(age_s))
		printf("; the newest on disk is %s old",
		       units_format_duration(text, sizeof(text), (uint64_t)(age_s * 1e9)));
}

/* Prints the nodes that need the same chunks because their ranks take samples of the same lanes. */
static void print_lanes(const json_t *nodes, uint64_t world)
{
	uint64_t lanes = ctl_number(nodes, "lanes"), here = ctl_number(nodes, "lanes_here"),
		 shared = ctl_number(nodes, "lanes_shared"), n = ctl_number(nodes, "reachable");

	if (lanes <= 1 && n > 1)
		printf("\n"
		       "          lanes: the order has one lane, so each node needs all chunks; to give each "
		       "node its own, set order=Order(lanes=%llu) on all ranks (one lane per node)",
		       (unsigned long long)n);
	if (lanes <= 1)
		return;
	printf("\n"
	       "          lanes: ranks on this node read %llu of %llu lanes",
	       (unsigned long long)here, (unsigned long long)lanes);
	if (shared)
		printf("; other nodes read %llu of these, too", (unsigned long long)shared);
	if (shared && lanes != world)
		printf("; to separate the ranks, set order=Order(lanes=%llu) on all of them (one lane "
		       "per rank)",
		       (unsigned long long)world);
}

/* Prints the chunks that other nodes of the job delivered, which saved reads of storage. */
static void print_nodes(const json_t *nodes, uint64_t world, uint64_t read_bytes)
{
	char bytes[24], read[24], mean[24], name[200];
	double mean_s = json_number_of(nodes, "mean_s");

	if (!json_is_object(nodes))
		return;
	printf(
	    "\n          nodes: %llu of job %s connected; %s in %llu chunk%s came from them, %s from storage",
	    ctl_number(nodes, "reachable"), ctl_string(nodes, "name", name),
	    units_format_bytes(bytes, sizeof(bytes), ctl_number(nodes, "bytes")), ctl_number(nodes, "chunks"),
	    units_plural(ctl_number(nodes, "chunks")), units_format_bytes(read, sizeof(read), read_bytes));
	if (isfinite(mean_s))
		printf("; a chunk in %s",
		       units_format_duration(mean, sizeof(mean), (uint64_t)(mean_s * 1e9)));
	if (ctl_number(nodes, "failed"))
		printf("; %llu failed", ctl_number(nodes, "failed"));
	print_lanes(nodes, world);
}

/* Prints, for instance, ", other nodes 45% (4.1 ms a chunk; 310 MiB/s)", without unknown values. */
static void print_tier(const char *name, double part, const json_t *flow)
{
	char percent[8], mean[24], bytes[24];
	double mean_s = json_number_of(flow, "latency_s"), bytes_per_s = json_number_of(flow, "bytes_per_s");

	printf(", %s %s", name, ctl_percent(percent, part));
	if (isfinite(mean_s) && isfinite(bytes_per_s))
		printf(" (%s per chunk; %s/s)",
		       units_format_duration(mean, sizeof(mean), (uint64_t)(mean_s * 1e9)),
		       units_format_bytes(bytes, sizeof(bytes), (uint64_t)bytes_per_s));
}

/* For a job on several nodes: prints the sources of its chunks. */
static void print_tiers(const json_t *now)
{
	const json_t *tiers = json_object_get(now, "tiers");
	double memory = json_number_of(now, "memory_hit_ratio"),
	       peers = json_number_of(now, "peer_hit_ratio");
	char percent[8];

	if (!isfinite(memory) || !isfinite(peers))
		return;
	printf("\n          tiers: memory %s", ctl_percent(percent, memory));
	print_tier("other nodes", peers, json_object_get(tiers, "nodes"));
	print_tier("storage", fmax(1 - memory - peers, 0), json_object_get(tiers, "storage"));
}

static void print_job(const json_t *job)
{
	const json_t *tuner = json_object_get(job, "tuner"), *view = json_object_get(tuner, "text");
	const json_t *memory = json_object_get(job, "memory");
	char name[200], phase[200], text[400], claimed[24], borrowed[24];

	printf("job %llu (%s)", ctl_number(job, "id"), ctl_string(job, "name", name));
	if (*ctl_string(tuner, "phase", phase))
		printf(" is %s", phase);
	if (json_is_string(view) && json_string_length(view))
		printf(": %s",
		       text_printable(text, sizeof(text), json_string_value(view), json_string_length(view)));
	if (json_is_object(memory))
		printf("\n          memory: %s claimed, %s borrowed",
		       units_format_bytes(claimed, sizeof(claimed), ctl_number(memory, "claimed_bytes")),
		       units_format_bytes(borrowed, sizeof(borrowed), ctl_number(memory, "borrowed_bytes")));
	print_shared(job);
	print_held(json_object_get(job, "held"));
	print_checkpoints(json_object_get(job, "checkpoints"));
	print_nodes(json_object_get(job, "nodes"), ctl_number(job, "world"), ctl_number(job, "read_bytes"));
	print_tiers(json_object_get(job, "now"));
	putchar('\n');
}

static void print_assisted(const json_t *job)
{
	char name[200], why[200], state[200], bytes[16];

	printf("process %llu (%s), outside dieseld: prefetch %s", ctl_number(job, "pid"),
	       ctl_string(job, "name", name), ctl_string(job, "state", state));
	if (*ctl_string(job, "why", why))
		printf(": %s", why);
	printf("\n"
	       "          %llu samples known, %llu files (%s) prefetched, %llu of %llu predictions wrong",
	       ctl_number(job, "known_samples"), ctl_number(job, "files_read_ahead"),
	       units_format_bytes(bytes, sizeof(bytes), ctl_number(job, "bytes_read_ahead")),
	       ctl_number(job, "misses"),
	       (unsigned long long)(ctl_number(job, "hits") + ctl_number(job, "misses")));
	if (ctl_number(job, "lost_records"))
		printf(", %llu batch records lost", ctl_number(job, "lost_records"));
	putchar('\n');
}

/* Prints jobs that do not use dieseld (dieseld --assist). */
static void print_assist(const json_t *assist)
{
	const json_t *jobs = json_object_get(assist, "jobs");
	char problem[200];

	if (*ctl_string(assist, "problem", problem))
		printf("no prefetch for jobs outside dieseld: %s\n", problem);
	for (size_t i = 0; i < json_array_size(jobs); i++)
		print_assisted(json_array_get(jobs, i));
}

/* Prints the limits that delay reads. */
static void print_reads(const json_t *reads)
{
	double bytes = json_number_of(reads, "limit_bytes_per_s"),
	       ops = json_number_of(reads, "limit_ops_per_s");
	char text[24], held[24];

	if (!isfinite(bytes) && !isfinite(ops))
		return;
	printf("reads are limited to ");
	if (isfinite(bytes))
		printf("%s per second", units_format_bytes(text, sizeof(text), (uint64_t)bytes));
	if (isfinite(ops))
		printf("%s%.0f requests per second", isfinite(bytes) ? " and " : "", ops);
	printf(
	    ", which delayed some reads by %s in total\n",
	    units_format_duration(held, sizeof(held), (uint64_t)(json_number_of(reads, "limited_s") * 1e9)));
}

struct why_options {
	struct ctl_daemon_options daemon;
	uint64_t job; /* 0: all */
	uint32_t max;
};

static void print_why(const json_t *root, const void *what)
{
	uint64_t id = ((const struct why_options *)what)->job;
	const json_t *decisions = json_object_get(root, "decisions"), *item;
	char mode[200];

	ctl_print_where(root);
	if (strcmp(ctl_string(json_object_get(root, "tune"), "mode", mode), "on") != 0)
		printf("tuning is %s\n", mode);
	print_reads(json_object_get(root, "reads"));
	for (size_t i = 0; i < json_array_size(json_object_get(root, "jobs")); i++) {
		item = json_array_get(json_object_get(root, "jobs"), i);
		if (!id || ctl_number(item, "id") == id)
			print_job(item);
	}
	if (!id)
		print_assist(json_object_get(root, "assist"));
	if (json_array_size(decisions) == 0)
		puts("no decisions yet");
	/* Prints the oldest decision first, so that the newest is next to the prompt. */
	for (size_t i = json_array_size(decisions); i-- > 0;)
		print_decision(json_array_get(decisions, i), !id);
}

static int ask(struct admin_client *admin, const void *what, char **ret_json, struct error *err)
{
	const struct why_options *o = what;

	return admin_why(admin, o->job, o->max, ret_json, err);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	static const struct ctl_question question = {"diesel.why/1", ask, print_why};
	struct why_options o = {.daemon = CTL_DAEMON_OPTIONS_INIT, .max = 10};
	int64_t id = 0;
	int status;

	if (!ctl_options(verb, argc, argv, &o, &status))
		return status;
	if (argc - optind > 1)
		return ctl_usage(verb, "expected at most one job");
	if (argc - optind == 1 && units_parse_integer(argv[optind], 1, INT64_MAX, &id) < 0)
		return ctl_usage(verb, "'%s' is not a job's number; dieselctl jobs lists them", argv[optind]);
	o.job = (uint64_t)id;
	return ctl_ask(verb, &o.daemon, &question, &o);
}

#define AT(member) .at = offsetof(struct why_options, member)

static const struct option_row why_rows[] = {
    {"number", option_set_u32, .letter = 'n', AT(max), .least = 1, .most = WIRE_WHY_MAX,
     .says = "must be a number from 1 to 1000", .value = "N", .usual = "10",
     .help = "the newest N decisions"},
    CTL_DAEMON_ROWS(AT(daemon.json), AT(daemon.socket), AT(daemon.timeout_s)),
};

#undef AT

const struct option_verb ctl_why = {
    .name = "why",
    .arguments = "[JOB]",
    .summary = "Show the reasons for the knobs' values: decisions, figures, effects",
    .about =
	"Prints the newest N decisions (10) of the tuner, for one job or for all: the knob, its old and "
	"its new value, the measured and the expected figures, and the effect. For each job it prints "
	"the state, the memory, how many batches were decoded for another session, the job of the "
	"newest such batch, and the interval and the cost of its checkpoints. For a job on several nodes "
	"that share its dataset, it also prints the shares of "
	"chunks from memory, other nodes and storage, each with its time per chunk and its bytes per second.",
    OPTION_ROWS(why_rows),
    .takes = OPTION_JOB,
    .run = run,
};
