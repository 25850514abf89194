/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl snapshot, rebuild and rm: changes to what is already packed. */
#include "ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdbool.h>
#include <string.h>

#include "dataset/digest.h"
#include "dataset/meta.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "lib/units.h"

static void writer_freep(struct writer **w)
{
	writer_free(*w);
}

/* For verbs without options of their own. Returns true if the verb is to end, with *ret_exit as its exit
 * status. */
static bool only_help(const struct ctl_verb *verb, int argc, char **argv, int *ret_exit)
{
	static const struct option long_options[] = {CTL_OPTION_HELP, {0}};
	int option = getopt_long(argc, argv, ":h", long_options, NULL);

	if (option < 0)
		return false;
	ctl_common_option(verb, option, argv);
	*ret_exit = option == 'h' ? CTL_OK : CTL_USAGE;
	return true;
}

static int run_snapshot(const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	const struct meta_info *info;
	struct error err = ERROR_INIT;
	int exit_status;

	if (only_help(verb, argc, argv, &exit_status))
		return exit_status;
	if (argc - optind != 1)
		return ctl_usage(verb, "one dataset is needed");
	if (writer_open(argv[optind], WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, &err) < 0 ||
	    writer_snapshot(w, &err) < 0)
		return ctl_failed(verb, &err);
	info = writer_info(w);
	printf("snapshot of version %llu: %llu sample%s in %llu chunk%s\n", (unsigned long long)info->version,
	       (unsigned long long)info->n_paths, units_plural(info->n_paths),
	       (unsigned long long)info->n_chunks, units_plural(info->n_chunks));
	return ctl_finish(verb);
}

const struct ctl_verb ctl_snapshot = {
    .name = "snapshot",
    .arguments = "DATASET",
    .summary = "Write the snapshot anew from the metadata",
    .help = "For a snapshot that is damaged, missing or behind the metadata.\n",
    .run = run_snapshot,
};

static void show_lost(const struct chunk_id *id, const char *text, void *context)
{
	const struct ctl_verb *verb = context;

	(void)id;
	ctl_warn(verb, text);
}

static int run_rebuild(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {
	    {"digest", required_argument, NULL, 'd'}, CTL_OPTION_HELP, {0}};
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct writer_result result;
	struct error err = ERROR_INIT;
	bool keep_digests = false;
	int option;

	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		if (strcmp(optarg, DIGEST_NAME) != 0)
			return ctl_usage(verb, "--digest %s: it must be " DIGEST_NAME, optarg);
		keep_digests = true;
	}
	if (argc - optind != 1)
		return ctl_usage(verb, "one dataset is needed");
	int r = writer_open(argv[optind], WRITER_REBUILD, CHUNK_DEFAULT_BYTES, &w, &err);
	uint64_t n_lost = 0;

	if (r == 0)
		writer_set_command(w, ctl_command());
	if (r == 0 && keep_digests)
		r = writer_keep_digests(w, &err);
	if (r == 0)
		r = writer_rebuild(w, show_lost, (void *)verb, &n_lost, &err);
	if (r == 0)
		r = writer_commit(w, &result, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	printf("rebuilt version %llu: %llu sample%s in %llu chunk%s", (unsigned long long)result.version,
	       (unsigned long long)result.n_paths, units_plural(result.n_paths),
	       (unsigned long long)result.n_chunks, units_plural(result.n_chunks));
	if (n_lost)
		printf("; %llu damaged chunk%s left out", (unsigned long long)n_lost, units_plural(n_lost));
	putchar('\n');
	r = ctl_finish(verb);
	return r == CTL_OK && n_lost ? CTL_FAILED : r;
}

const struct ctl_verb ctl_rebuild = {
    .name = "rebuild",
    .arguments = "[--digest sha256] DATASET",
    .summary = "Make metadata and snapshot anew from the chunks",
    .help = "      --digest sha256  keep a SHA-256 of each chunk as it is now; without it, if the dataset "
	    "has them\n"
	    "\n"
	    "Replays all chunks in the order they were made. Damaged chunks are left out, with a line for\n"
	    "each and exit status 1. Metadata that cannot be read is kept as meta.db.damaged.\n",
    .run = run_rebuild,
};

struct rm_context {
	const char *directory;
	size_t length;
	struct writer *writer;
	uint64_t n_removed;
	struct error *err;
};

static int remove_below(const struct meta_path *path, void *context)
{
	struct rm_context *c = context;

	if (path->path_length <= c->length || path->path[c->length] != '/' ||
	    memcmp(path->path, c->directory, c->length) != 0)
		return 0;
	c->n_removed++;
	return writer_delete(c->writer, path->path, path->path_length, c->err);
}

static int remove_path(struct writer *w, const char *path, bool recursive, uint64_t *n_removed,
		       struct error *err)
{
	struct rm_context context = {.directory = path, .length = strlen(path), .writer = w, .err = err};
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

static int run_rm(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {
	    {"recursive", no_argument, NULL, 'r'}, CTL_OPTION_HELP, {0}};
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct writer_result result;
	struct error err = ERROR_INIT;
	uint64_t n_removed = 0;
	bool recursive = false;
	int option;

	while ((option = getopt_long(argc, argv, ":hr", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		recursive = true;
	}
	if (argc - optind < 2)
		return ctl_usage(verb, "a dataset and a path in it are needed");
	int r = writer_open(argv[optind], WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, &err);

	if (r == 0)
		writer_set_command(w, ctl_command());
	for (int i = optind + 1; i < argc && r == 0; i++)
		r = remove_path(w, argv[i], recursive, &n_removed, &err);
	if (r == 0)
		r = writer_commit(w, &result, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	printf("removed %llu sample%s; dataset version %llu\n", (unsigned long long)n_removed,
	       units_plural(n_removed), (unsigned long long)result.version);
	return ctl_finish(verb);
}

const struct ctl_verb ctl_rm = {
    .name = "rm",
    .arguments = "[-r] DATASET PATH ...",
    .summary = "Remove samples from a dataset",
    .help = "  -r, --recursive  remove folders too\n\nAll of them or none. Their bytes stay in the chunks.\n",
    .run = run_rm,
};
