/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl copy, move: a whole dataset, from and to folders and buckets. */
#include "ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "ctl/ctl_wait.h"
#include "ctl/life/removed.h"
#include "dataset/backend.h"
#include "dataset/copy.h"
#include "lib/progress.h"
#include "lib/units.h"

#define MAX_THREADS 64

struct copy_command {
	struct copy_options options;
	struct ctl_wait wait;
	bool json;
};

static void print_json(const struct copy_command *c, const struct copy_result *r,
		       const struct removal *removed)
{
	printf("{\"schema\": \"diesel.%s/1\", \"from\": ", removed ? "move" : "copy");
	ctl_json_string(c->options.from, strlen(c->options.from));
	fputs(", \"to\": ", stdout);
	ctl_json_string(c->options.to, strlen(c->options.to));
	if (removed)
		printf(", \"renamed\": %s", r->is_renamed ? "true" : "false");
	if (!r->is_renamed)
		printf(", \"version\": %llu, \"samples\": %llu, \"chunks\": %llu, \"resumed_chunks\": %llu, "
		       "\"copied_bytes\": %llu, \"snapshots\": %llu, \"samples_outside\": %llu, "
		       "\"source_files\": %llu",
		       (unsigned long long)r->version, (unsigned long long)r->n_samples,
		       (unsigned long long)r->n_chunks, (unsigned long long)r->n_resumed,
		       (unsigned long long)r->bytes, (unsigned long long)r->n_snapshots,
		       (unsigned long long)r->n_outside, (unsigned long long)r->n_sources);
	if (removed && !r->is_renamed) {
		fputs(", \"removed\": ", stdout);
		ctl_removed_json(removed);
	}
	puts("}");
}

static void print_result(const struct copy_command *c, const struct copy_result *r,
			 const struct removal *removed)
{
	char bytes[24];

	if (r->is_renamed) {
		fputs("renamed to ", stdout);
		ctl_print(stdout, c->options.to);
		putchar('\n');
		return;
	}
	uint64_t n_inside = r->n_samples - r->n_outside;

	printf("copied %llu chunk%s, %s", (unsigned long long)(r->n_chunks - r->n_resumed),
	       units_plural(r->n_chunks - r->n_resumed), units_format_bytes(bytes, sizeof(bytes), r->bytes));
	if (n_inside || !r->n_outside)
		printf("; verified %llu sample%s", (unsigned long long)n_inside, units_plural(n_inside));
	if (r->n_outside)
		printf("; %llu sample%s stay%s in %llu file%s, which %s not changed",
		       (unsigned long long)r->n_outside, units_plural(r->n_outside),
		       r->n_outside == 1 ? "s" : "", (unsigned long long)r->n_sources,
		       units_plural(r->n_sources), r->n_sources == 1 ? "has" : "have");
	if (r->n_resumed)
		printf("; %llu chunk%s of an earlier run", (unsigned long long)r->n_resumed,
		       units_plural(r->n_resumed));
	printf("; %llu snapshot%s; dataset version %llu\n", (unsigned long long)r->n_snapshots,
	       units_plural(r->n_snapshots), (unsigned long long)r->version);
	if (removed)
		ctl_removed_print(c->options.from, removed);
}

/* Readers of a bucket are on other machines. */
static void warn_of_local_files(const struct copy_command *c, const struct copy_result *r)
{
	struct error text = ERROR_INIT;

	if (!r->n_outside || !backend_is_elsewhere(c->options.to) || r->source[0] != '/')
		return;
	error_set(
	    &text, 0,
	    "%s refers to files of this machine, such as %s: a reader needs them under the same names. To "
	    "copy the samples, too, run `dieselctl pack %s TO`",
	    c->options.to, r->source, c->options.from);
	ctl_warn(c->wait.verb, text.text);
}

static int start(const struct option_verb *verb, int argc, char **argv, struct copy_command *c)
{
	int status;

	if (!ctl_options(verb, argc, argv, c, &status))
		return status;
	if (argc - optind != 2)
		return ctl_usage(verb, "expected a dataset and its new place");
	c->options.from = c->wait.dataset = argv[optind];
	c->options.to = argv[optind + 1];
	ctl_wait_begin(&c->wait);
	ctl_stop_on_signals();
	return CTL_OK;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct progress bar = {0};
	struct copy_command c = {
	    .wait = {.verb = verb},
	    .options = {
		.n_threads = 8, .progress = progress_show, .cancelled = ctl_is_stopped, .context = &bar}};
	bool moves = verb == &ctl_move;
	struct removal removed = {0};
	struct copy_result result;
	struct error err = ERROR_INIT;
	int status = start(verb, argc, argv, &c), r;

	if (status != CTL_OK || !c.options.to)
		return status;
	do {
		r = moves ? dataset_move(&c.options, &result, &removed, &err)
			  : dataset_copy(&c.options, &result, &err);
		progress_end(&bar);
	} while (!backend_is_elsewhere(c.options.from) && ctl_wait_again(&c.wait, r));
	if (r < 0)
		return ctl_failed(verb, &err);
	warn_of_local_files(&c, &result);
	if (c.json)
		print_json(&c, &result, moves ? &removed : NULL);
	else
		print_result(&c, &result, moves ? &removed : NULL);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct copy_command, member)

static const struct option_row copy_rows[] = {
    CTL_ROW_META(AT(options.meta_url), .help = "keep the copy's metadata on a Redis server",
		 .about =
		     "Keeps the metadata of the copy on a Redis server, with a prefix that no dataset has. "
		     "Without this option, a copy in a folder has its metadata where the original has "
		     "them: in a file, or on the same server, with a prefix made of the original's and a "
		     "random number. In a bucket they are always in an object."),
    {"threads", option_set_u32, AT(options.n_threads), .least = 1, .most = MAX_THREADS, .value = "N",
     .usual = "8", .says = "must be a number from 1 to 64", .help = "chunks copied at the same time",
     .about = "The number of chunks that are copied at the same time (default 8). Each needs memory for one "
	      "chunk."},
    CTL_ROW_WAIT(AT(wait.ns), .about = "How long to wait for a writer of the dataset, as with `pack`."),
    {"json", option_set_flag, AT(json), .help = "as a JSON object"},
};

#undef AT

const struct option_verb ctl_copy = {
    .name = "copy",
    .arguments = "DATASET TO",
    .summary = "Copy a dataset to another folder or bucket, and verify the copy",
    .help = "Readers see the copy when it is complete. After an interruption, the same command continues "
	    "where it\nstopped.\n",
    .about = "Copies a whole dataset: chunks, metadata with the log, digests, and snapshots of earlier "
	     "versions that "
	     "are kept. `DATASET` and `TO` are folders or `s3://BUCKET/PREFIX`. Each chunk is verified while "
	     "it is "
	     "copied: its head, all samples, and its digest if it has one. Samples of an "
	     "indexed dataset stay in their files: the copy refers to these, which must be as they were "
	     "indexed. The copy has the version and the "
	     "sample "
	     "numbers of the original, and, from folder to folder, its modes, access control lists, times "
	     "and, where "
	     "the user may, owners. A writer at work makes the command fail, unless `--wait` is given.",
    OPTION_ROWS(copy_rows),
    .takes = OPTION_FILE,
    .run = run,
};

const struct option_verb ctl_move = {
    .name = "move",
    .arguments = "DATASET TO",
    .summary = "Rename a dataset's folder, or copy a dataset elsewhere and delete the original",
    .help =
	"Within a file system the folder is renamed. Otherwise, the dataset is copied as by dieselctl copy, "
	"and\nthen deleted as by dieselctl delete.\n",
    .about = "Moves a whole dataset. Within a file system, the folder gets another name: running jobs "
	     "continue with "
	     "the files that they have open. From one file system to another, and from and to buckets, the "
	     "dataset is "
	     "copied and verified, as by `copy`, and then the original is removed, as by `delete`. Metadata "
	     "on a Redis "
	     "server stay there, unless `--meta` names another place or `TO` is a bucket.",
    OPTION_ROWS(copy_rows),
    .takes = OPTION_FILE,
    .run = run,
};
