/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl diff: the differences between two versions of a dataset. */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dataset/chunk.h"
#include "dataset/dataset.h"
#include "dataset/path_order.h"
#include "lib/cleanup.h"
#include "lib/progress.h"
#include "lib/text.h"
#include "lib/units.h"

static void dataset_closep(struct dataset **d)
{
	dataset_close(*d);
}

enum kind { ADDED, CHANGED, DELETED, N_KINDS };

struct diff {
	const struct snapshot *a, *b;
	uint64_t counts[N_KINDS];
	bool json;
	bool shows_progress; /* false if the lines go to a terminal, too */
	struct progress bar;
};

static void print_path(struct diff *d, enum kind kind, const struct snapshot_sample *s)
{
	static const char *const names[] = {"added", "changed", "deleted"};
	char text[4 * CHUNK_NAME_MAX + 8];
	bool first = d->counts[ADDED] + d->counts[CHANGED] + d->counts[DELETED] == 0;

	d->counts[kind]++;
	if (d->json) {
		printf("%s\n{\"change\": \"%s\", \"path\": ", first ? "" : ",", names[kind]);
		ctl_json_string(s->path, s->path_length);
		putchar('}');
		return;
	}
	printf("%c ", "+~-"[kind]);
	if (isatty(STDOUT_FILENO)) /* a name must not send control codes to the terminal */
		fputs(text_printable(text, sizeof(text), s->path, s->path_length), stdout);
	else
		fwrite(s->path, 1, s->path_length, stdout);
	putchar('\n');
}

/* Returns false after the last sample. */
static bool get(const struct snapshot *s, uint64_t i, struct snapshot_sample *ret)
{
	uint64_t number;

	return snapshot_by_path(s, i, &number) == 0 && snapshot_sample_get(s, number, ret) == 0;
}

/* Compares the two versions by merging, since both are in tree order. */
static void compare(struct diff *d)
{
	struct snapshot_sample a, b;

	for (uint64_t i = 0, k = 0;;) {
		bool has_a = get(d->a, i, &a), has_b = get(d->b, k, &b);

		if (!has_a && !has_b)
			return;
		int order = !has_a   ? 1
			    : !has_b ? -1
				     : path_order_compare((struct path_text){a.path, a.path_length},
							  (struct path_text){b.path, b.path_length});

		if (order < 0)
			print_path(d, DELETED, &a);
		else if (order > 0)
			print_path(d, ADDED, &b);
		else if (a.bytes != b.bytes || a.xxh3 != b.xxh3 || a.mode != b.mode)
			print_path(d, CHANGED, &b);
		i += order <= 0;
		k += order >= 0;
		if (d->shows_progress)
			progress_show("comparing", i + k,
				      snapshot_info(d->a)->n_samples + snapshot_info(d->b)->n_samples, 0,
				      &d->bar);
	}
}

static int parse_version(const struct option_verb *verb, const char *text, uint64_t *ret)
{
	int64_t value;

	if (units_parse_integer(text, 1, INT64_MAX, &value) < 0)
		return ctl_usage(
		    verb, "invalid version '%s': must be a number from 1 that dieselctl log lists", text);
	*ret = (uint64_t)value;
	return CTL_OK;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(dataset_closep) struct dataset *a = NULL, *b = NULL;
	struct error err = ERROR_INIT;
	uint64_t versions[2] = {0};
	struct diff d = {.shows_progress = !isatty(STDOUT_FILENO)};
	int status;

	if (!ctl_options(verb, argc, argv, &d, &status))
		return status;
	if (argc - optind != 2 && argc - optind != 3)
		return ctl_usage(verb, "expected a dataset and one or two versions");
	for (int i = 1; i < argc - optind; i++)
		if (parse_version(verb, argv[optind + i], &versions[i - 1]) != CTL_OK)
			return CTL_USAGE;
	if (dataset_open_version(argv[optind], versions[0], &a, &err) < 0 ||
	    dataset_open_version(argv[optind], versions[1], &b, &err) < 0)
		return ctl_failed(verb, &err);
	d.a = dataset_snapshot(a);
	d.b = dataset_snapshot(b);
	if (d.json) {
		fputs("{\"schema\": \"diesel.diff/1\", \"dataset\": ", stdout);
		ctl_json_string(argv[optind], strlen(argv[optind]));
		printf(", \"from\": %llu, \"to\": %llu, \"changes\": [",
		       (unsigned long long)snapshot_info(d.a)->version,
		       (unsigned long long)snapshot_info(d.b)->version);
	}
	compare(&d);
	progress_end(&d.bar);
	if (d.json)
		printf("],\n\"added\": %llu, \"changed\": %llu, \"deleted\": %llu}\n",
		       (unsigned long long)d.counts[ADDED], (unsigned long long)d.counts[CHANGED],
		       (unsigned long long)d.counts[DELETED]);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct diff, member)

static const struct option_row diff_rows[] = {
    {"json", option_set_flag, AT(json), .help = "as a JSON object"},
};

#undef AT

const struct option_verb ctl_diff = {
    .name = "diff",
    .arguments = "DATASET A [B]",
    .summary = "List the changes from version A to B, or to the newest",
    .help = "+ added, ~ changed (bytes or mode), - deleted; one path per line, in the order of ls -R.\n",
    .about = "Lists the paths that differ between version A and version B (default: the newest): + added, "
	     "~ changed (bytes or mode), - deleted.\n"
	     "`ls`, `cat`, `stat`, `verify` and `diff` read old versions. If such a version has no snapshot, "
	     "they rebuild it from the heads of its chunks, in a temporary folder below $TMPDIR. This "
	     "takes as long as a rebuild of that version. Versions before a `rebuild`, and those that have "
	     "no log, cannot be read any more; `log` marks them.",
    OPTION_ROWS(diff_rows),
    .takes = OPTION_FILE,
    .run = run,
};
