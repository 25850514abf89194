/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl index: a dataset over tar shards, which stay where they are. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "ctl/formats/ctl_python.h"
#include "ctl_wait.h"
#include "dataset/chunk.h"
#include "dataset/external.h"
#include "ctl/indexing/index.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/units.h"

#define DEFAULT_THREADS 8
#define MAX_THREADS     64

struct index_context {
	struct index_options options;
	struct progress bar;
	bool json;
	uint32_t tokens;      /* of formats that Python reads */
	const char *database; /* likewise */
	struct ctl_wait wait;
};

/* Returns true for a folder of MDS or LitData. Folders of tar shards may have an index.json, too. */
static bool has_index(const char *folder)
{
	bool has_index = false, has_tar = false;
	DIR *dir = opendir(folder);

	for (const struct dirent *e; dir && (e = readdir(dir));) {
		const char *dot = strrchr(e->d_name, '.');

		has_index |= strcmp(e->d_name, "index.json") == 0;
		has_tar |= dot && strcmp(dot, ".tar") == 0;
	}
	if (dir)
		closedir(dir);
	return has_index && !has_tar;
}

static bool has_ending(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && strchr(dot, '/') == NULL &&
	       (strcmp(dot, ".zip") == 0 || strcmp(dot, ".bin") == 0 || strcmp(dot, ".idx") == 0 ||
		strcmp(dot, ".mdb") == 0 || strcmp(dot, ".lmdb") == 0);
}

struct listed {
	size_t skip; /* bytes of a name in front of its part below the prefix */
	bool is_for_python;
};

/* Ends the list at the first tar shard. */
static int look_at_object(const char *name, void *context)
{
	struct listed *l = context;
	const char *dot = strrchr(name, '.');

	l->is_for_python |=
	    strcmp(name + l->skip, "index.json") == 0 || strcmp(name + l->skip, "data.mdb") == 0;
	if (!dot || strcmp(dot, ".tar") != 0)
		return 0;
	l->is_for_python = false;
	return 1;
}

/* Returns 1 for formats whose samples Python finds: zip archives, LMDB, Megatron's token files, MDS and
 * LitData; else 0. */
static int is_for_python(const char *name, struct error *err)
{
	char path[PATH_MAX];
	struct stat st;
	size_t n = strlen(name);

	if (has_ending(name))
		return 1;
	while (n > 1 && name[n - 1] == '/' && (n > strlen("s3://") || !external_is_registered(name)))
		n--;
	if (external_is_registered(name) && n > 4 && strncmp(name + n - 4, ".tar", 4) == 0)
		return 0; /* without a request for each shard */
	if (external_is_registered(name)) {
		struct listed l = {.skip = n + 1};

		snprintf(path, sizeof(path), "%.*s/", (int)n, name);
		int r = external_list(path, look_at_object, &l, err);

		return r < 0 ? r : l.is_for_python;
	}
	snprintf(path, sizeof(path), "%s/data.mdb", name);
	return has_index(name) || stat(path, &st) == 0;
}

/* Returns 1 if Python reads all arguments, 0 if it reads none. */
static int are_for_python(char *const *names, struct error *err)
{
	int all = is_for_python(names[0], err);

	for (size_t i = 1; all >= 0 && names[i]; i++) {
		int one = is_for_python(names[i], err);

		if (one < 0)
			return one;
		if (one != all)
			return error_set(err, -EINVAL,
					 "%s and %s: tar shards and other formats cannot be indexed by one "
					 "command: run it for each",
					 names[0], names[i]);
	}
	return all;
}

static void show_progress(const char *what, uint64_t done, uint64_t total, uint64_t bytes, void *context)
{
	progress_show(what, done, total, bytes, &((struct index_context *)context)->bar);
}

static void print_json(const struct index_result *r, double elapsed_s)
{
	printf("{\"schema\": \"diesel.index/1\", \"version\": %llu, \"shards\": %llu, \"samples\": %llu, "
	       "\"bytes\": %llu, \"chunks\": %llu, \"seconds\": %.3f, \"resumed_shards\": %llu, "
	       "\"unchanged_shards\": %llu, \"left_out\": %llu, \"fields\": {",
	       (unsigned long long)r->version, (unsigned long long)r->n_shards,
	       (unsigned long long)r->n_samples, (unsigned long long)r->bytes,
	       (unsigned long long)r->n_chunks, elapsed_s, (unsigned long long)r->n_resumed,
	       (unsigned long long)r->n_unchanged, (unsigned long long)r->fields.n_left);
	for (size_t i = 0; i < r->fields.n_fields; i++) {
		const struct scanned_field *f = &r->fields.fields[i];

		fputs(i ? ", " : "", stdout);
		ctl_json_string(f->name, strlen(f->name));
		printf(": %llu", (unsigned long long)f->n_samples);
	}
	puts("}}");
}

static void print_fields(const struct index_result *r)
{
	for (size_t i = 0; i < r->fields.n_fields; i++) {
		const struct scanned_field *f = &r->fields.fields[i];

		ctl_print(stdout, i ? ", " : "fields: ");
		ctl_print(stdout, f->name);
		if (f->n_samples < r->n_samples)
			printf(" (missing in %llu)", (unsigned long long)(r->n_samples - f->n_samples));
	}
	puts("");
	if (!r->fields.n_left)
		return;
	printf("left out: %llu file%s without a field in the name, such as ",
	       (unsigned long long)r->fields.n_left, units_plural(r->fields.n_left));
	ctl_print(stdout, r->fields.left);
	puts("");
}

static void print_summary(const struct index_result *r, double elapsed_s)
{
	char bytes[24];

	printf("indexed %llu shard%s: %llu sample%s, %s, in %.1f s", (unsigned long long)r->n_shards,
	       units_plural(r->n_shards), (unsigned long long)r->n_samples, units_plural(r->n_samples),
	       units_format_bytes(bytes, sizeof(bytes), r->bytes), elapsed_s);
	if (r->n_resumed)
		printf("; %llu were indexed before an interruption", (unsigned long long)r->n_resumed);
	if (r->n_unchanged)
		printf("; %llu unchanged", (unsigned long long)r->n_unchanged);
	printf("; dataset version %llu\n", (unsigned long long)r->version);
	if (r->fields.n_fields)
		print_fields(r);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct index_context c = {.options = {.chunk_bytes = CHUNK_DEFAULT_BYTES,
					      .n_threads = DEFAULT_THREADS,
					      .progress = show_progress,
					      .cancelled = ctl_is_stopped,
					      .command = ctl_command()},
				  .wait = {.verb = verb}};
	struct index_result result;
	struct error err = ERROR_INIT;
	uint64_t start_ns = clock_monotonic_ns();
	double elapsed_s;
	int status, r;

	if (!ctl_options(verb, argc, argv, &c, &status))
		return status;
	if ((argc - optind < 1) == !c.options.rows || !c.options.dataset)
		return ctl_usage(
		    verb, "expected shards, or folders of them, or --rows, and --output with the dataset");
	r = c.options.rows ? 0 : are_for_python(argv + optind, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (r > 0)
		return ctl_python(verb, "writing.indexing", argv);
	if (c.tokens || c.database)
		return ctl_usage(verb, "--tokens applies only to Megatron's token files, and --db to LMDB");
	c.options.arguments = argv + optind;
	c.options.n_arguments = (size_t)(argc - optind);
	c.options.context = &c;
	c.wait.dataset = c.options.dataset;
	ctl_stop_on_signals();
	ctl_wait_begin(&c.wait);
	do
		r = index_run(&c.options, &result, &err);
	while (ctl_wait_again(&c.wait, r));
	progress_end(&c.bar);
	if (r < 0)
		return ctl_failed(verb, &err);
	elapsed_s = (double)(clock_monotonic_ns() - start_ns) / NS_PER_S;
	if (c.json)
		print_json(&result, elapsed_s);
	else
		print_summary(&result, elapsed_s);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct index_context, member)

static const struct option_row index_rows[] = {
    {"output", option_set_string, .letter = 'o', AT(options.dataset), .value = "DATASET",
     .takes = OPTION_FILE, .needed = true,
     .help = "the dataset to make or to update: a folder or s3://BUCKET/PREFIX"},
    {"chunk-size", option_set_bytes, .letter = 'c', AT(options.chunk_bytes), .least = CHUNK_MIN_BYTES,
     .most = CHUNK_MAX_BYTES, .value = "SIZE", .usual = "8M", .says = "must be a size from 4M to 64M",
     .help = "bytes of a shard that are read at once, and shuffled as one chunk: 4M to 64M"},
    {"jobs", option_set_u32, .letter = 'j', AT(options.n_threads), .least = 1, .most = MAX_THREADS,
     .says = "must be a number from 1 to 64", .value = "N", .usual = "8",
     .help = "number of shards to scan at the same time"},
    {"rows", option_set_string, AT(options.rows), .value = "FILE", .takes = OPTION_FILE,
     .help = "samples in files of any format: lines of path, offset, length and sample, with tabs; -: stdin"},
    {"tokens", option_set_u32, AT(tokens), .least = 1, .most = UINT32_MAX, .value = "N",
     .says = "must be a number of tokens from 1",
     .help = "Megatron's token files: samples are windows of N tokens and the next one, not documents"},
    {"db", option_set_string, AT(database), .value = "NAME",
     .help = "LMDB: name of the database in the file"},
    CTL_ROW_WAIT(AT(wait.ns)),
    {"json", option_set_flag, AT(json), .help = "print the result as JSON"},
};

#undef AT

const struct option_verb ctl_index = {
    .name = "index",
    .arguments = "FILE|FOLDER ...",
    .summary = "Make a dataset over files of other formats, which stay where they are",
    .help = "Shards are uncompressed tar files as WebDataset writes them: the members of a\n"
	    "sample have one name up to the first dot, and follow one another. Only their\n"
	    "headers are read. A sample's path is SHARD/KEY, and its fields are the\n"
	    "members' extensions. Run the command again after shards have changed.\n"
	    "\n"
	    "Python packages read further formats: uncompressed zip archives (a member's\n"
	    "path is the sample's), LMDB (its keys), Megatron's .bin and .idx, and folders of\n"
	    "MDS and LitData (with index.json, uncompressed). With --rows, samples of any\n"
	    "other format can be indexed.\n",
    .about =
	"Makes a dataset whose samples stay in their files, or updates it: only new and changed files are "
	"read. FILE and FOLDER are tar shards or folders of them, or files and folders of the formats that "
	"Python reads; also `s3://BUCKET/KEY` and `s3://BUCKET/PREFIX`. Only headers and indexes are read. "
	"A killed run over tar shards is continued.\n"
	"Samples of a file that has changed since are refused until it is indexed again. Compressed "
	"archives, links, sparse files, a key whose members do not follow one another, and one field twice "
	"are refused, with the name of the member.\n"
	"Whoever trains from the dataset needs the right to read the files, see `DIESEL_SOURCES`.",
    OPTION_ROWS(index_rows),
    .run = run,
};
