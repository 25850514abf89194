/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl delete: removes a whole dataset. */
#include "ctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl_dataset.h"
#include "ctl/ctl_wait.h"
#include "ctl/life/removed.h"
#include "dataset/backend.h"
#include "dataset/snapshot.h"
#include "lib/cleanup.h"
#include "lib/progress.h"
#include "lib/units.h"

struct delete_command {
	struct ctl_wait wait;
	bool yes, json;
};

void ctl_removed_json(const struct removal *r)
{
	printf("{\"chunks\": %llu, \"bytes\": %llu, \"snapshots\": %llu, \"redis_keys\": %llu, \"other\": ",
	       (unsigned long long)r->n_chunks, (unsigned long long)r->bytes,
	       (unsigned long long)r->n_snapshots, (unsigned long long)r->n_redis_keys);
	if (r->other[0])
		ctl_json_string(r->other, strlen(r->other));
	else
		fputs("null", stdout);
	putchar('}');
}

void ctl_removed_print(const char *dataset, const struct removal *r)
{
	char bytes[24];

	printf("removed %llu chunk%s, %s, and %llu snapshot%s", (unsigned long long)r->n_chunks,
	       units_plural(r->n_chunks), units_format_bytes(bytes, sizeof(bytes), r->bytes),
	       (unsigned long long)r->n_snapshots, units_plural(r->n_snapshots));
	if (r->n_redis_keys)
		printf(", and %llu keys on the Redis server", (unsigned long long)r->n_redis_keys);
	puts("; running jobs keep what they have mapped");
	if (r->other[0]) {
		fputs("kept the folder ", stdout);
		ctl_print(stdout, dataset);
		printf(", which has other files, such as %s\n", r->other);
	}
}

/* Asks the user. Returns false if the answer is not yes. A dataset that cannot be opened has no counts. */
static bool is_confirmed(const struct option_verb *verb, const char *dataset)
{
	struct ctl_dataset d = {0};
	char bytes[24], answer[16];

	fprintf(stderr, "dieselctl %s: delete ", verb->name);
	ctl_print(stderr, dataset);
	if (ctl_dataset_open(dataset, 0, false, &d, NULL) == 0 && d.dataset) {
		const struct snapshot_info *info = snapshot_info(dataset_snapshot(d.dataset));

		fprintf(stderr, " (version %llu, %llu sample%s, %s)", (unsigned long long)info->version,
			(unsigned long long)info->n_samples, units_plural(info->n_samples),
			units_format_bytes(bytes, sizeof(bytes), info->total_bytes));
	}
	ctl_dataset_closep(&d);
	fputs("? [y/N] ", stderr);
	return fgets(answer, sizeof(answer), stdin) && (!strcmp(answer, "y\n") || !strcmp(answer, "yes\n"));
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct progress bar = {0};
	struct delete_command c = {.wait = {.verb = verb}};
	struct error err = ERROR_INIT;
	struct removal removed;
	int status, r;

	if (!ctl_options(verb, argc, argv, &c, &status))
		return status;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one dataset");
	const char *dataset = c.wait.dataset = argv[optind];

	if (!c.yes && !isatty(STDIN_FILENO))
		return ctl_usage(verb,
				 "nobody can be asked, because standard input is no terminal: add --yes");
	if (!c.yes && !is_confirmed(verb, dataset))
		return ctl_warn(verb, "nothing was deleted");
	ctl_wait_begin(&c.wait);
	do {
		r = dataset_remove(dataset, progress_show, &bar, &removed, &err);
		progress_end(&bar);
	} while (!backend_is_elsewhere(dataset) && ctl_wait_again(&c.wait, r));
	if (r < 0)
		return ctl_failed(verb, &err);
	if (c.json) {
		fputs("{\"schema\": \"diesel.delete/1\", \"dataset\": ", stdout);
		ctl_json_string(dataset, strlen(dataset));
		fputs(", \"removed\": ", stdout);
		ctl_removed_json(&removed);
		puts("}");
	} else {
		ctl_removed_print(dataset, &removed);
	}
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct delete_command, member)

static const struct option_row delete_rows[] = {
    {"yes", option_set_flag, .letter = 'y', AT(yes), .help = "do not ask"},
    CTL_ROW_WAIT(AT(wait.ns), .about = "How long to wait for a writer of the dataset, as with `pack`."),
    {"json", option_set_flag, AT(json), .help = "as a JSON object"},
};

#undef AT

const struct option_verb ctl_delete = {
    .name = "delete",
    .arguments = "DATASET",
    .summary = "Delete a whole dataset: chunks, metadata and snapshots",
    .help = "Asks first, if standard input is a terminal. After an interruption, the same command continues "
	    "where it\nstopped.\n",
    .about = "Deletes a whole dataset in a folder or a bucket: snapshot, snapshots of earlier versions, "
	     "metadata, also "
	     "on a Redis server, and chunks. On a terminal, the command asks first. It refuses a folder that "
	     "is not a "
	     "dataset, a dataset of a newer format, and one of which a writer is at work. It removes only "
	     "files that "
	     "belong to the dataset, and follows no symbolic link: if the folder has other files, it stays "
	     "with them. "
	     "Running jobs keep the chunks that are in memory, and get errors for others.",
    OPTION_ROWS(delete_rows),
    .takes = OPTION_FILE,
    .run = run,
};
