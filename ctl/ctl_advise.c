/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl advise: how much cache, staging disk and CPU a node needs, from its history. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "capacity/capacity.h"
#include "ctl_daemon.h"
#include "history/history.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "lib/units.h"

#define DEFAULT_HISTORY "/var/lib/diesel/history.db"
#define MIB             0x1p20

static int on_round(void *user, const struct history_round *round)
{
	return capacity_add(user, round->node, round->samples, round->n_samples);
}

static const char *bytes_text(char text[16], double bytes)
{
	return isfinite(bytes) ? units_format_bytes(text, 16, (uint64_t)bytes) : "unknown";
}

static int print_json(const struct option_verb *verb, const struct capacity *c,
		      const struct capacity_advice *a)
{
	json_t *root = json_pack(
	    "{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema",
	    "diesel.advise/1", "seconds", (json_int_t)c->n_seconds, "jobs_at_once",
	    (json_int_t)c->n_jobs_most, "datasets", (json_int_t)c->n_datasets, "memory_limit_bytes",
	    ctl_known(c->limit_bytes), "memory_space_bytes", ctl_known(c->space_bytes), "needed_bytes",
	    ctl_known(c->need_bytes), "datasets_at_once_bytes", ctl_known(c->dataset_bytes), "decoded_bytes",
	    ctl_known(c->decoded_bytes), "cores", ctl_known(c->cores), "cores_busy_most",
	    ctl_known(c->cores_busy), "cache_max_bytes", ctl_known(a->cache_bytes), "cache_missing_bytes",
	    ctl_known(a->missing_bytes), "set_aside_bytes", ctl_known(a->set_aside_bytes), "stage_bytes",
	    ctl_known(a->stage_bytes), "cores_without_waits", ctl_known(a->cores));
	_cleanup_(freep) char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;

	json_decref(root);
	if (!text)
		return ctl_warn(verb, "out of memory");
	text_put_json(stdout, text);
	return ctl_finish(verb);
}

static void print_memory(const struct capacity *c, const struct capacity_advice *a)
{
	char text[4][16];

	printf("memory    jobs need at least %s; the datasets in use at the same time take %s,\n"
	       "          and their decoded samples %s; other programs left %s\n",
	       bytes_text(text[0], c->need_bytes), bytes_text(text[1], c->dataset_bytes),
	       bytes_text(text[2], c->decoded_bytes), bytes_text(text[3], c->space_bytes));
	if (!(a->cache_bytes > 0)) {
		printf("cache     this node lacks memory for these jobs: add %s, or run fewer jobs at the "
		       "same time\n",
		       bytes_text(text[0], a->lacking_bytes));
		return;
	}
	printf("cache     cache-max = %.0fM", ceil(a->cache_bytes / MIB));
	if (a->missing_bytes >= MIB)
		printf("; %s more would hold all of this", bytes_text(text[0], a->missing_bytes));
	printf("\nSlurm     MemSpecLimit=%.0f", ceil(a->set_aside_bytes / MIB));
	if (isfinite(c->limit_bytes))
		printf(" with RealMemory=%.0f", floor(c->limit_bytes / MIB));
	printf(": memory that Slurm must not give to jobs\n");
}

static void print_text(const struct capacity *c, const struct capacity_advice *a)
{
	char text[24];

	printf("history   %s with jobs, %zu at the same time at most, %zu dataset%s\n",
	       units_format_duration(text, sizeof(text), c->n_seconds * UINT64_C(1000000000)), c->n_jobs_most,
	       c->n_datasets, units_plural(c->n_datasets));
	print_memory(c, a);
	printf("staging   stage-size = %.0fM holds all of these datasets\n", ceil(a->stage_bytes / MIB));
	printf("CPU       %.1f cores serve these jobs without waits in 95 of 100 seconds; ", a->cores);
	if (isfinite(c->cores))
		printf("the node has %.0f, ", c->cores);
	printf("%.1f at most were busy\n", isfinite(c->cores_busy) ? c->cores_busy : 0);
	if (isfinite(c->cores) && a->cores > c->cores)
		printf("          The node has fewer cores: move decoding out of Python (see dieselctl "
		       "jobs).\n");
}

static int advise(const struct option_verb *verb, const char *path, bool json)
{
	_cleanup_(capacity_free) struct capacity c;
	struct capacity_advice advice;
	struct history *history = NULL;
	struct error err = ERROR_INIT;
	uint64_t n_foreign = 0;
	int r;

	capacity_init(&c);
	r = history_open_read(path, &history, &err);
	if (r == 0)
		r = history_load_rounds(history, on_round, &c, &n_foreign, &err);
	history_close(history);
	if (r == -ENOENT)
		r = error_set(&err, r,
			      "there is no history %s: start dieseld with --history %s, and run jobs on it, "
			      "or name the file that its --history names",
			      path, path);
	else if (r == -EEXIST || r == -EBADMSG)
		r = error_set(&err, r, "%s is not a history: name the file of dieseld --history", path);
	else if (r == -ENOMEM)
		r = error_set(&err, r, "out of memory");
	else if (r == 0 && !c.n_seconds)
		r = error_set(
		    &err, -ENODATA,
		    n_foreign
			? "%s was written by another version of dieseld: use the dieselctl of that version"
			: "%s has no record of a job: try again when dieseld has served some",
		    path);
	if (r < 0)
		return ctl_failed(verb, &err);
	advice = capacity_advise(&c);
	if (json)
		return print_json(verb, &c, &advice);
	print_text(&c, &advice);
	return ctl_finish(verb);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	bool json = false;
	int status;

	if (!ctl_options(verb, argc, argv, &json, &status))
		return status;
	if (argc - optind > 1)
		return ctl_usage(verb, "expected at most one history");
	return advise(verb, optind < argc ? argv[optind] : DEFAULT_HISTORY, json);
}

static const struct option_row advise_rows[] = {
    {"json", option_set_flag, .help = "print the figures as JSON, in bytes and cores"},
};

const struct option_verb ctl_advise = {
    .name = "advise",
    .arguments = "[HISTORY]",
    .summary = "Recommend cache, staging and CPU for this node, from its history",
    .help =
	"HISTORY is the file of dieseld --history (default " DEFAULT_HISTORY "). dieselctl sums up the\n"
	"jobs of each second, and takes the largest sum: memory for the datasets in use at the same time,\n"
	"and disk for all datasets. Cores: as many as keep pace with the jobs' devices. For Slurm:\nthe "
	"memory to keep from jobs.\n",
    .about = "Recommends cache, staging disk and CPU for this node, from the history of its jobs (`dieseld "
	     "--history`, default /var/lib/diesel/history.db). `advise` sums up the needs of the jobs of "
	     "each second, and takes the largest sum. Memory counts for the datasets in use at the same time "
	     "and for their decoded samples, disk for all datasets. The number of cores is enough to keep "
	     "pace with the jobs' devices in 95 of 100 seconds. Memory that other programs used all the time "
	     "counts as taken. For Slurm, `advise` prints `MemSpecLimit`.",
    OPTION_ROWS(advise_rows),
    .takes = OPTION_FILE,
    .run = run,
};
