/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl purge: gives back what no version of a dataset needs. */
#include "ctl/ctl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ctl/ctl_json.h"
#include "ctl/waiting/ctl_wait.h"
#include "dataset/chunk.h"
#include "dataset/purge.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/units.h"

#define DAY_S 86400

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
	stop_signal = number;
}

static bool is_cancelled(void *context)
{
	(void)context;
	return stop_signal != 0;
}

/* "30d" too. */
static int parse_age(const char *text, uint64_t *ret_ns)
{
	size_t n = strlen(text);
	char number[24];
	int64_t days;

	if (n == 0 || n >= sizeof(number) || text[n - 1] != 'd')
		return units_parse_duration(text, ret_ns);
	memcpy(number, text, n - 1);
	number[n - 1] = '\0';
	int r = units_parse_integer(number, 0, 100000, &days);

	if (r == 0)
		*ret_ns = (uint64_t)days * DAY_S * NS_PER_S;
	return r;
}

static int parse_option(const struct ctl_verb *verb, int option, struct purge_options *o)
{
	int64_t value;

	switch (option) {
	case 'k':
		if (units_parse_integer(optarg, 1, INT64_MAX, &value) < 0)
			return ctl_usage(verb, "--keep %s: a number of versions from 1 is needed", optarg);
		o->keep = (uint64_t)value;
		return CTL_OK;
	case 'o':
		if (parse_age(optarg, &o->older_ns) < 0)
			return ctl_usage(verb, "--older-than %s: a time such as 12h or 30d is needed",
					 optarg);
		return CTL_OK;
	case 'K': return ctl_keep_snapshots(verb, &o->keep_snapshots);
	case 'n': o->dry_run = true; return CTL_OK;
	}
	return CTL_OK;
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

	printf("%s%llu chunk%s with holes written anew, %llu sample%s; %llu chunk%s removed, %s",
	       o->dry_run ? "would be done: " : "", (unsigned long long)r->n_holed, units_plural(r->n_holed),
	       (unsigned long long)r->n_samples, units_plural(r->n_samples), (unsigned long long)r->n_removed,
	       units_plural(r->n_removed), units_format_bytes(removed, sizeof(removed), r->removed_bytes));
	printf("; dataset version %llu, the oldest that can be read %llu\n", (unsigned long long)r->version,
	       (unsigned long long)r->oldest);
	if (r->n_waiting)
		printf(
		    "%llu chunk%s, %s, only old versions need: a purge when these are older removes them\n",
		    (unsigned long long)r->n_waiting, units_plural(r->n_waiting),
		    units_format_bytes(waiting, sizeof(waiting), r->waiting_bytes));
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {{"keep", required_argument, NULL, 'k'},
						     {"older-than", required_argument, NULL, 'o'},
						     {"dry-run", no_argument, NULL, 'n'},
						     {"json", no_argument, NULL, 'J'},
						     CTL_OPTION_KEEP_SNAPSHOTS,
						     CTL_OPTION_WAIT,
						     CTL_OPTION_HELP,
						     {0}};
	struct progress bar = {0};
	struct purge_options o = {
	    .command = ctl_command(),
	    .keep = 1,
	    .older_ns = DAY_S * NS_PER_S,
	    .chunk_bytes = CHUNK_DEFAULT_BYTES,
	    .progress = progress_show,
	    .cancelled = is_cancelled,
	    .context = &bar,
	};
	struct sigaction action = {.sa_handler = on_signal,
				   .sa_flags = SA_RESETHAND}; /* a second one kills */
	struct ctl_wait wait = {.verb = verb};
	struct purge_result result;
	struct error err = ERROR_INIT;
	bool json = false;
	int option;

	while ((option = getopt_long(argc, argv, ":hn", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		if (option == 'w' ? ctl_wait_option(verb, &wait.ns) : parse_option(verb, option, &o))
			return CTL_USAGE;
		json |= option == 'J';
	}
	if (argc - optind != 1)
		return ctl_usage(verb, "one dataset is needed");
	o.dataset = wait.dataset = argv[optind];
	ctl_wait_begin(&wait);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	int r;

	do {
		r = purge_run(&o, &result, &err);
		progress_end(&bar);
	} while (ctl_wait_again(&wait, r));
	if (r < 0)
		return ctl_failed(verb, &err);
	if (json)
		print_json(&o, &result);
	else
		print_result(&o, &result);
	return ctl_finish(verb);
}

const struct ctl_verb ctl_purge = {
    .name = "purge",
    .arguments = "[OPTION ...] DATASET",
    .summary = "Write chunks with holes anew, remove what no version needs",
    .help =
	"      --keep N          versions that can be read afterwards at least, the newest (default 1)\n"
	"      --older-than AGE  and all that were the newest within this time: 12h, 30d (default 1d); jobs\n"
	"                        that read older ones than that get errors\n" CTL_KEEP_SNAPSHOTS_HELP
	"  -n, --dry-run         say what it would do\n"
	"      --wait SECONDS    how long to wait for another writer of the dataset (5m too; default 0)\n"
	"      --json            as a JSON object\n"
	"\n"
	"The dataset changes at the end or not at all; when a run was interrupted, the same command goes on\n"
	"where it stopped.\n",
    .run = run,
};
