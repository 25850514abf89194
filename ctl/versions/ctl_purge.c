/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl purge: frees the storage that no version of a dataset needs. */
#include "ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "ctl/ctl_wait.h"
#include "dataset/chunk.h"
#include "dataset/purge.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/units.h"

#define DAY_S 86400

/* "30d" too. */
static int set_age(void *options, const struct option_row *row, const char *value, struct error *err)
{
	size_t n = strlen(value);
	char number[24];
	int64_t days;

	if (n == 0 || n >= sizeof(number) || value[n - 1] != 'd')
		return option_set_duration(options, row, value, err);
	memcpy(number, value, n - 1);
	number[n - 1] = '\0';
	if (units_parse_integer(number, 0, 100000, &days) < 0)
		return option_wrong(row, value, err);
	*(uint64_t *)((char *)options + row->at) = (uint64_t)days * DAY_S * NS_PER_S;
	return 0;
}

static void print_json(const struct purge_options *o, const struct purge_result *r)
{
	fputs("{\"schema\": \"diesel.purge/1\", \"dataset\": ", stdout);
	ctl_json_string(o->dataset, strlen(o->dataset));
	printf(", \"dry_run\": %s, \"version\": %llu, \"oldest\": %llu, \"rewritten_chunks\": %llu, "
	       "\"samples\": "
	       "%llu, \"resumed_samples\": %llu, \"written_chunks\": %llu, \"removed_chunks\": %llu, "
	       "\"removed_bytes\": %llu, \"waiting_chunks\": %llu, \"waiting_bytes\": %llu}\n",
	       o->dry_run ? "true" : "false", (unsigned long long)r->version, (unsigned long long)r->oldest,
	       (unsigned long long)r->n_holed, (unsigned long long)r->n_samples,
	       (unsigned long long)r->n_resumed, (unsigned long long)r->n_written,
	       (unsigned long long)r->n_removed, (unsigned long long)r->removed_bytes,
	       (unsigned long long)r->n_waiting, (unsigned long long)r->waiting_bytes);
}

static void print_result(const struct purge_options *o, const struct purge_result *r)
{
	char removed[24], waiting[24];

	printf("%s%llu chunk%s with holes rewritten, %llu sample%s; %llu chunk%s removed, %s",
	       o->dry_run ? "would be done: " : "", (unsigned long long)r->n_holed, units_plural(r->n_holed),
	       (unsigned long long)r->n_samples, units_plural(r->n_samples), (unsigned long long)r->n_removed,
	       units_plural(r->n_removed), units_format_bytes(removed, sizeof(removed), r->removed_bytes));
	printf("; dataset version %llu, oldest readable version %llu\n", (unsigned long long)r->version,
	       (unsigned long long)r->oldest);
	if (r->n_waiting)
		printf("%llu chunk%s, %s, are needed only by old versions: a later purge removes them, when "
		       "these versions are old enough\n",
		       (unsigned long long)r->n_waiting, units_plural(r->n_waiting),
		       units_format_bytes(waiting, sizeof(waiting), r->waiting_bytes));
}

struct purge_command {
	struct purge_options options;
	struct ctl_wait wait;
	bool json;
};

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct progress bar = {0};
	struct purge_command c = {.wait = {.verb = verb},
				  .options = {.command = ctl_command(),
					      .keep = 1,
					      .older_ns = DAY_S * NS_PER_S,
					      .chunk_bytes = CHUNK_DEFAULT_BYTES,
					      .progress = progress_show,
					      .cancelled = ctl_is_stopped,
					      .context = &bar}};
	struct purge_result result;
	struct error err = ERROR_INIT;
	int status;

	if (!ctl_options(verb, argc, argv, &c, &status))
		return status;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one dataset");
	c.options.dataset = c.wait.dataset = argv[optind];
	ctl_wait_begin(&c.wait);
	ctl_stop_on_signals();
	int r;

	do {
		r = purge_run(&c.options, &result, &err);
		progress_end(&bar);
	} while (ctl_wait_again(&c.wait, r));
	if (r < 0)
		return ctl_failed(verb, &err);
	if (c.json)
		print_json(&c.options, &result);
	else
		print_result(&c.options, &result);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct purge_command, member)

static const struct option_row purge_rows[] = {
    {"keep", option_set_u64, AT(options.keep), .least = 1, .says = "must be a number of versions from 1",
     .value = "N", .usual = "1", .help = "minimum number of newest versions that can be read afterwards",
     .about = "The minimum number of newest versions that can be read afterwards; default 1, the one that "
	      "the purge makes."},
    {"older-than", set_age, AT(options.older_ns), .says = "must be a time such as 12h or 30d", .value = "AGE",
     .usual = "1d",
     .help = "also keep versions that were the newest within this time, such as 12h or 30d; jobs that read "
	     "older ones get errors",
     .about = "Keeps all versions that were the newest within this time (12h, 30d; default 1d), too. Jobs "
	      "continue with the version that they opened, and need its chunks. A job that reads a version "
	      "older than this gets an error that names the chunk. Use 0 only if nobody reads the dataset. "
	      "With the default, chunks that a purge rewrites take space twice, until a purge a day later."},
    CTL_ROW_KEEP_SNAPSHOTS(AT(options.keep_snapshots), .about = "As with `pack`."),
    {"dry-run", option_set_flag, .letter = 'n', AT(options.dry_run),
     .help = "print the effect, and change nothing"},
    CTL_ROW_WAIT(AT(wait.ns), .about = "Time to wait for another writer, as with `pack`."),
    {"json", option_set_flag, AT(json), .help = "as a JSON object"},
};

#undef AT

const struct option_verb ctl_purge = {
    .name = "purge",
    .arguments = "DATASET",
    .summary = "Rewrite chunks with holes, remove chunks that no version needs",
    .help = "The dataset changes at the end or not at all. After an interruption, the same command continues "
	    "where it\n"
	    "stopped.\n",
    .about =
	"Rewrites chunks that have deleted or replaced samples, without these, and removes chunks that no "
	"version needs any more. The dataset gets a new version with the same samples, numbered from 0 "
	"again. When a run is interrupted, the same command continues where it stopped, and nothing is lost.",
    OPTION_ROWS(purge_rows),
    .takes = OPTION_FILE,
    .run = run,
};
