/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl log: the changes of each version of a dataset. */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataset/meta.h"
#include "dataset/backend.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

struct log {
	struct meta_info info;
	struct change *entries;
	size_t n, n_allocated;
};

static int take(const struct change *change, void *context)
{
	struct log *log = context;

	if (array_reserve(log->entries, log->n, log->n_allocated) < 0)
		return -ENOMEM;
	log->entries[log->n++] = *change;
	return 0;
}

static int read_log(const char *dataset, struct log *ret, struct error *err)
{
	struct place *place = NULL;
	struct meta *meta = NULL;
	int r = backend_open(dataset, BACKEND_READ, &place, err);

	if (r == 0)
		r = meta_open_at(place->dir_fd, place->folder, META_READ, &meta, err);
	if (r == -ENOENT)
		error_set(err, r, "there is no dataset %s; make one with `dieselctl pack SOURCE %s`", dataset,
			  dataset);
	if (r == 0)
		r = meta_info(meta, &ret->info, err);
	if (r == 0)
		r = meta_each_change(meta, take, ret, err);
	if (r < 0 && err->text[0] == '\0')
		error_errno(err, r, "%s", dataset);
	meta_free(meta);
	backend_close(place);
	return r;
}

/* Returns true if the version can be read. The newest entry has the oldest readable version, unless an
 * unlogged change followed. */
static bool is_readable(const struct log *log, const struct change *c)
{
	const struct change *newest = &log->entries[log->n - 1];

	return c->version == log->info.version ||
	       (newest->version == log->info.version && c->version >= newest->oldest);
}

static void print_json(const char *dataset, const struct log *log)
{
	fputs("{\"schema\": \"diesel.log/1\", \"dataset\": ", stdout);
	ctl_json_string(dataset, strlen(dataset));
	printf(", \"version\": %llu, \"changes\": [", (unsigned long long)log->info.version);
	for (size_t i = log->n; i-- > 0;) {
		const struct change *c = &log->entries[i];

		printf("%s\n{\"version\": %llu, \"time_ns\": %llu, \"host\": ", i + 1 < log->n ? "," : "",
		       (unsigned long long)c->version, (unsigned long long)c->time_ns);
		ctl_json_string(c->host, strlen(c->host));
		fputs(", \"user\": ", stdout);
		ctl_json_string(c->user, strlen(c->user));
		fputs(", \"command\": ", stdout);
		ctl_json_string(c->command, strlen(c->command));
		if (c->is_counted)
			printf(", \"added\": %llu, \"replaced\": %llu, \"deleted\": %llu",
			       (unsigned long long)c->n_added, (unsigned long long)c->n_replaced,
			       (unsigned long long)c->n_deleted);
		else
			fputs(", \"added\": null, \"replaced\": null, \"deleted\": null", stdout);
		printf(", \"samples\": %llu, \"chunks_written\": %llu, \"bytes_written\": %llu, "
		       "\"readable\": %s}",
		       (unsigned long long)c->n_samples, (unsigned long long)c->n_chunks,
		       (unsigned long long)c->n_bytes, is_readable(log, c) ? "true" : "false");
	}
	puts("]}");
}

static void print_entry(const struct log *log, const struct change *c)
{
	time_t seconds = (time_t)(c->time_ns / NS_PER_S);
	char when[32] = "?", paths[80] = "unknown";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	if (c->is_counted)
		snprintf(paths, sizeof(paths), "%llu added, %llu replaced, %llu deleted",
			 (unsigned long long)c->n_added, (unsigned long long)c->n_replaced,
			 (unsigned long long)c->n_deleted);
	printf("version %llu  %s  ", (unsigned long long)c->version, when);
	ctl_print(stdout, c->user);
	putchar('@');
	ctl_print(stdout, c->host);
	fputs(is_readable(log, c) ? "\n    " : "  (not readable any more)\n    ", stdout);
	ctl_print(stdout, c->command);
	printf("\n    paths: %s; samples: %llu\n", paths, (unsigned long long)c->n_samples);
}

static void print_gap(uint64_t above, uint64_t below)
{
	if (below > above + 1)
		printf("version%s %llu", below > above + 2 ? "s" : "", (unsigned long long)above + 1);
	if (below > above + 2)
		printf(" to %llu", (unsigned long long)below - 1);
	if (below > above + 1)
		puts("  not recorded");
}

static void print_log(const struct log *log)
{
	uint64_t below = log->info.version + 1; /* the version printed last */

	for (size_t i = log->n; i-- > 0;) {
		print_gap(log->entries[i].version, below);
		print_entry(log, &log->entries[i]);
		below = log->entries[i].version;
	}
	print_gap(0, below);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct log log = {0};
	struct error err = ERROR_INIT;
	bool json = false;
	int status;

	if (!ctl_options(verb, argc, argv, &json, &status))
		return status;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one dataset");
	int r = read_log(argv[optind], &log, &err);

	if (r == 0 && json)
		print_json(argv[optind], &log);
	else if (r == 0)
		print_log(&log);
	free(log.entries);
	return r < 0 ? ctl_failed(verb, &err) : ctl_finish(verb);
}

static const struct option_row log_rows[] = {
    {"json", option_set_flag, .help = "as a JSON object"},
};

const struct option_verb ctl_log = {
    .name = "log",
    .arguments = "DATASET",
    .summary = "List the changes of each version, newest first",
    .help = "Prints who made a version, when, by which command, and how many paths it added, replaced and "
	    "deleted.\n",
    .about =
	"Lists the changes of each version, newest first: when, by whom and on which host, by which command, "
	"how many paths it added, replaced and deleted, and how many samples the dataset had from then on. "
	"Everybody who may read the dataset can read the command as it was given, except for the URL of a "
	"Redis server. Versions by programs that kept no log are missing, and a line says so.",
    OPTION_ROWS(log_rows),
    .takes = OPTION_FILE,
    .run = run,
};
