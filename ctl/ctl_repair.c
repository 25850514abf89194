/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl rebuild and rm: changes to packed datasets. */
#include "ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdbool.h>
#include <string.h>

#include "ctl_wait.h"
#include "dataset/meta.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/progress.h"
#include "lib/text.h"
#include "lib/units.h"

struct rebuild_context {
	const struct option_verb *verb;
	struct progress bar;
	bool json, first;
	bool keep_digests, takes_all;
	uint64_t keep_snapshots;
	const char *meta_url;
	struct ctl_wait wait;
};

static void show_lost(const struct chunk_id *id, const char *text, void *context)
{
	struct rebuild_context *c = context;
	char name[CHUNK_ID_TEXT];

	progress_hide(&c->bar);
	ctl_warn(c->verb, text);
	if (c->json)
		printf("%s\"%s\"", c->first ? "" : ", ", chunk_id_format(id, name));
	c->first = false;
}

static void print_rebuilt(const struct writer_result *result, uint64_t n_lost)
{
	printf("rebuilt version %llu: %llu sample%s in %llu chunk%s", (unsigned long long)result->version,
	       (unsigned long long)result->n_paths, units_plural(result->n_paths),
	       (unsigned long long)result->n_chunks, units_plural(result->n_chunks));
	if (n_lost)
		printf("; %llu damaged chunk%s left out", (unsigned long long)n_lost, units_plural(n_lost));
	putchar('\n');
	if (result->n_foreign)
		printf("left out %llu chunk%s that belong to no version, because other writers may be about "
		       "to publish or remove them; to include them, use --all-chunks\n",
		       (unsigned long long)result->n_foreign, units_plural(result->n_foreign));
}

/* Closes the JSON object, which has a version only if the dataset has one. */
static void print_rebuilt_json(const struct writer_result *result)
{
	fputs("]", stdout);
	if (result)
		printf(", \"version\": %llu, \"samples\": %llu, \"chunks\": %llu, \"foreign_chunks\": %llu",
		       (unsigned long long)result->version, (unsigned long long)result->n_paths,
		       (unsigned long long)result->n_chunks, (unsigned long long)result->n_foreign);
	puts("}");
}

static int rebuild(struct rebuild_context *c, struct writer_result *ret, uint64_t *ret_n_lost,
		   struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	int r = writer_open_on(c->wait.dataset, WRITER_REBUILD, CHUNK_DEFAULT_BYTES, c->meta_url, &w, err);

	if (r < 0)
		return r;
	writer_set_command(w, ctl_command());
	writer_keep_snapshots(w, c->keep_snapshots);
	writer_show(w, progress_show, &c->bar);
	if (c->takes_all)
		writer_take_all(w);
	if (c->keep_digests)
		r = writer_keep_digests(w, err);
	if (r == 0)
		r = writer_rebuild(w, show_lost, c, ret_n_lost, err);
	return r < 0 ? r : writer_commit(w, ret, err);
}

static int run_rebuild(const struct option_verb *verb, int argc, char **argv)
{
	struct rebuild_context c = {
	    .verb = verb, .first = true, .wait = {.verb = verb}, .keep_snapshots = WRITER_KEEP_SNAPSHOTS};
	struct writer_result result;
	struct error err = ERROR_INIT;
	uint64_t n_lost = 0;
	int r, status;

	if (!ctl_options(verb, argc, argv, &c, &status))
		return status;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one dataset");
	c.wait.dataset = argv[optind];
	ctl_wait_begin(&c.wait);
	if (c.json)
		fputs("{\"schema\": \"diesel.rebuild/1\", \"lost\": [", stdout);
	do {
		r = rebuild(&c, &result, &n_lost, &err);
		progress_end(&c.bar);
	} while (c.first && ctl_wait_again(&c.wait, r)); /* later tries do not report lost samples again */
	if (c.json)
		print_rebuilt_json(r == 0 ? &result : NULL);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (!c.json)
		print_rebuilt(&result, n_lost);
	r = ctl_finish(verb);
	return r == CTL_OK && n_lost ? CTL_FAILED : r;
}

#define AT(member) .at = offsetof(struct rebuild_context, member)

static const struct option_row rebuild_rows[] = {
    CTL_ROW_META(AT(meta_url),
		 .help = "for a copy: keep its metadata on a Redis server, separate from the original's"),
    CTL_ROW_DIGEST(AT(keep_digests),
		   .help =
		       "keep a SHA-256 of each chunk as it is now; without it, only if the dataset has them"),
    {"all-chunks", option_set_flag, AT(takes_all),
     .help =
	 "in a bucket, also include chunks that belong to no version; use it only while nobody else writes"},
    CTL_ROW_KEEP_SNAPSHOTS(AT(keep_snapshots)),
    CTL_ROW_WAIT(AT(wait.ns)),
    {"json", option_set_flag, AT(json),
     .help = "print the result as a JSON object, with the ids of lost chunks"},
};

#undef AT

const struct option_verb ctl_rebuild = {
    .name = "rebuild",
    .arguments = "DATASET",
    .summary = "Rebuild metadata and snapshot from the chunks",
    .help = "Replays all chunks in the order in which they were made. Leaves out damaged chunks, with a line "
	    "for each\n"
	    "and exit status 1. Keeps metadata that cannot be read as meta.db.damaged.\n",
    .about = "Makes metadata and snapshot again from the chunks. `rebuild` leaves out chunks whose head is "
	     "damaged, with a line for each and exit status 1. It keeps metadata that it cannot read as "
	     "meta.db.damaged. With `--digest sha256`, and wherever the dataset had digests, `rebuild` "
	     "computes digests from the chunks as they are now: run `verify` first.\n"
	     "In a bucket, `rebuild` leaves out and counts chunks that belong to no version: another writer "
	     "may be about to publish or remove them. `--all-chunks` includes them; then nobody else may "
	     "write to the dataset. If the metadata cannot be read, `rebuild` takes all chunks in any case.\n"
	     "A copy of a dataset with its metadata on a Redis server (`cp -r`) names the metadata of the "
	     "original. Verbs that would read or change that metadata refuse the copy; jobs read it by its "
	     "snapshot. `--meta` URL makes metadata for the copy, under a prefix that no dataset has. The "
	     "same holds for a dataset that was moved to another file system, or restored from a backup.",
    OPTION_ROWS(rebuild_rows),
    .takes = OPTION_FILE,
    .run = run_rebuild,
};

struct rm_context {
	const char *directory;
	size_t length;
	struct writer *writer;
	struct progress *bar;
	uint64_t n_seen, n_removed;
	struct error *err;
};

static int remove_below(const struct meta_path *path, void *context)
{
	struct rm_context *c = context;

	progress_show("looking for samples", ++c->n_seen, writer_info(c->writer)->n_paths, 0, c->bar);
	if (path->path_length <= c->length || path->path[c->length] != '/' ||
	    memcmp(path->path, c->directory, c->length) != 0)
		return 0;
	c->n_removed++;
	return writer_delete(c->writer, path->path, path->path_length, c->err);
}

static int remove_path(struct writer *w, const char *path, bool recursive, uint64_t *n_removed,
		       struct progress *bar, struct error *err)
{
	struct rm_context context = {
	    .directory = path, .length = strlen(path), .writer = w, .bar = bar, .err = err};
	struct meta_path found;
	char text[200];

	while (context.length && path[context.length - 1] == '/')
		context.length--;
	int r = meta_find(writer_meta(w), path, context.length, &found, err);

	if (r == 0) {
		++*n_removed;
		return writer_delete(w, path, context.length, err);
	}
	if (r != -ENOENT)
		return r;
	if (recursive) {
		r = meta_each_path(writer_meta(w), remove_below, &context, err);
		*n_removed += context.n_removed;
		if (r < 0 || context.n_removed)
			return r;
	}
	return error_set(err, -ENOENT, "there is no sample '%s'%s; nothing was removed",
			 text_printable(text, sizeof(text), path, strlen(path)),
			 recursive ? "" : " (-r removes a folder)");
}

/* Removes all of these paths, or none. */
static int remove_paths(char **argv, bool recursive, uint64_t keep_snapshots, uint64_t *ret_n,
			struct writer_result *ret, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct progress bar = {0};
	int r = writer_open(argv[0], WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, err);

	*ret_n = 0;
	if (r == 0) {
		writer_set_command(w, ctl_command());
		writer_keep_snapshots(w, keep_snapshots);
		writer_show(w, progress_show, &bar);
		r = writer_catch_up(w, err); /* a commit of a writer that died may not be published yet */
	}
	for (char **path = argv + 1; *path && r == 0; path++)
		r = remove_path(w, *path, recursive, ret_n, &bar, err);
	if (r == 0)
		r = writer_commit(w, ret, err);
	progress_end(&bar);
	return r;
}

struct rm_options {
	bool recursive, json;
	uint64_t keep_snapshots;
	struct ctl_wait wait;
};

static int run_rm(const struct option_verb *verb, int argc, char **argv)
{
	struct rm_options o = {.wait = {.verb = verb}, .keep_snapshots = WRITER_KEEP_SNAPSHOTS};
	struct writer_result result;
	struct error err = ERROR_INIT;
	uint64_t n_removed = 0;
	int status;

	if (!ctl_options(verb, argc, argv, &o, &status))
		return status;
	if (argc - optind < 2)
		return ctl_usage(verb, "expected a dataset and a path in it");
	int r;

	o.wait.dataset = argv[optind];
	ctl_wait_begin(&o.wait);
	do {
		r = remove_paths(argv + optind, o.recursive, o.keep_snapshots, &n_removed, &result, &err);
	} while (ctl_wait_again(&o.wait, r));
	if (r < 0)
		return ctl_failed(verb, &err);
	if (o.json)
		printf("{\"schema\": \"diesel.rm/1\", \"removed\": %llu, \"version\": %llu}\n",
		       (unsigned long long)n_removed, (unsigned long long)result.version);
	else
		printf("removed %llu sample%s; dataset version %llu\n", (unsigned long long)n_removed,
		       units_plural(n_removed), (unsigned long long)result.version);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct rm_options, member)

static const struct option_row rm_rows[] = {
    {"recursive", option_set_flag, .letter = 'r', AT(recursive), .help = "remove folders too"},
    CTL_ROW_KEEP_SNAPSHOTS(AT(keep_snapshots)),
    CTL_ROW_WAIT(AT(wait.ns)),
    {"json", option_set_flag, AT(json), .help = "print the result as a JSON object"},
};

#undef AT

const struct option_verb ctl_rm = {
    .name = "rm",
    .arguments = "DATASET PATH ...",
    .summary = "Remove samples from a dataset",
    .help = "rm removes all of them or none. Their bytes stay in the chunks until a purge.\n",
    .about = "Removes samples; with `-r` (`--recursive`) folders too. `rm` removes all of them or none. "
	     "Their bytes stay in the chunks until a `purge`. `rm` also drops chunks that an interrupted "
	     "`pack` has left.",
    OPTION_ROWS(rm_rows),
    .takes = OPTION_FILE,
    .run = run_rm,
};
