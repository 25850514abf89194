/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl ls and cat: the contents of a dataset. */
#include "ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl_dataset.h"
#include "dataset/fields.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

#define NO_NUMBER UINT64_MAX /* number of a sample that was found in the metadata, which has no numbers */

struct ls_options {
	uint64_t version;
	bool from_meta;
	bool details, recursive, json;
	bool first; /* nothing printed yet */
	bool is_terminal;
};

/* A trailing slash, as added by a shell's completion, is ignored. */
static size_t path_length_of(const char *path)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		n--;
	return n;
}

static void print_time(uint64_t mtime_ns)
{
	time_t seconds = (time_t)(mtime_ns / NS_PER_S);
	char text[32];
	struct tm tm;

	if (localtime_r(&seconds, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm))
		fputs(text, stdout);
}

static void print_sample_json(const struct snapshot_sample *sample, uint64_t number)
{
	if (number != NO_NUMBER)
		printf(", \"sample\": %llu", (unsigned long long)number);
	printf(", \"bytes\": %u", sample->bytes);
	if (number != NO_NUMBER)
		printf(", \"class\": %d", sample->class_index);
	printf(", \"mode\": %u, \"mtime_ns\": %llu", sample->mode, (unsigned long long)sample->mtime_ns);
}

/* Prints an entry. path: relative to the root of the dataset; sample NULL: a directory, which has no number.
 */
static void print_entry(struct ls_options *o, const char *path, size_t length,
			const struct snapshot_sample *sample, uint64_t number)
{
	if (o->json) {
		fputs(o->first ? "[\n" : ",\n", stdout);
		fputs("{\"path\": ", stdout);
		ctl_json_string(path, length);
		if (sample)
			print_sample_json(sample, number);
		else
			fputs(", \"directory\": true", stdout);
		putchar('}');
		o->first = false;
		return;
	}
	if (o->details && sample) {
		printf("%04o %12u ", sample->mode & 07777, sample->bytes);
		print_time(sample->mtime_ns);
		putchar(' ');
	} else if (o->details) {
		printf("%-34s", "directory");
	}
	if (o->is_terminal) {
		char text[4 * CHUNK_NAME_MAX + 8]; /* a name must not send control codes to the terminal */

		fputs(text_printable(text, sizeof(text), path, length), stdout);
	} else {
		fwrite(path, 1, length, stdout);
	}
	puts(sample ? "" : "/");
}

static int list_directory(const struct snapshot *s, const char *directory, size_t length,
			  struct ls_options *o)
{
	struct snapshot_entry entry;
	struct snapshot_sample sample = {0};
	uint64_t cursor = 0;
	bool found = false, is_name_all = !o->details && !o->json;

	while (snapshot_list(s, directory, length, &cursor, &entry) == 0) {
		/* entry.name points into the full path, so the path starts before it. */
		const char *path = entry.name - (length ? length + 1 : 0);
		size_t path_length = (size_t)(entry.name + entry.name_length - path);

		found = true;
		if (!entry.is_directory &&
		    (is_name_all || snapshot_sample_stat(s, entry.sample, &sample) == 0))
			print_entry(o, path, path_length, &sample, entry.sample);
		else if (entry.is_directory && o->recursive)
			list_directory(s, path, path_length, o);
		else if (entry.is_directory)
			print_entry(o, path, path_length, NULL, 0);
	}
	return found ? 0 : -ENOENT;
}

static int print_found(const struct look_up_entry *entry, void *context)
{
	struct snapshot_sample sample;

	if (entry->sample)
		sample = ctl_sample_of(entry->sample);
	print_entry(context, entry->path, entry->path_length, entry->sample ? &sample : NULL, NO_NUMBER);
	return 0;
}

/* Like list_snapshot(), but from the metadata. */
static int list_meta(struct look_up *l, const char *path, size_t length, struct ls_options *o,
		     struct error *err)
{
	struct meta_path found;
	struct snapshot_sample sample;
	int r = length ? look_up_find(l, path, length, &found, err) : -ENOENT;

	if (r == -ENOENT)
		return look_up_list(l, path, length, o->recursive, print_found, o, err);
	if (r == 0) {
		sample = ctl_sample_of(&found);
		print_entry(o, path, length, &sample, NO_NUMBER);
	}
	return r;
}

static int list_snapshot(const struct snapshot *s, const char *path, size_t length, struct ls_options *o)
{
	struct snapshot_sample sample;
	uint64_t number;

	if (length && snapshot_find(s, path, length, &number) == 0 &&
	    snapshot_sample_stat(s, number, &sample) == 0) {
		print_entry(o, path, length, &sample, number);
		return 0;
	}
	return list_directory(s, path, length, o);
}

static int list_path(const struct option_verb *verb, const struct ctl_dataset *d, const char *path,
		     const char *dataset, struct ls_options *o)
{
	size_t length = path_length_of(path);
	struct error err = ERROR_INIT;
	char text[200];
	int r = d->look_up ? list_meta(d->look_up, path, length, o, &err)
			   : list_snapshot(dataset_snapshot(d->dataset), path, length, o);

	if (r == 0 || (r == -ENOENT && length == 0))
		return CTL_OK;
	if (err.code == 0)
		error_set(&err, -ENOENT, "there is no '%s' in %s",
			  text_printable(text, sizeof(text), path, length), dataset);
	return ctl_failed(verb, &err);
}

static int run_ls(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(ctl_dataset_closep) struct ctl_dataset d = {0};
	struct ls_options o = {.first = true, .is_terminal = isatty(STDOUT_FILENO)};
	struct error err = ERROR_INIT;
	int status, result = CTL_OK;

	if (!ctl_options(verb, argc, argv, &o, &status))
		return status;
	if (optind == argc)
		return ctl_usage(verb, "a dataset is needed");
	if (ctl_dataset_open(argv[optind], o.version, o.from_meta, &d, &err) < 0)
		return ctl_failed(verb, &err);
	if (optind + 1 == argc)
		result = list_path(verb, &d, "", argv[optind], &o);
	for (int i = optind + 1; i < argc; i++) {
		int r = list_path(verb, &d, argv[i], argv[optind], &o);

		result = r == CTL_OK ? result : r;
	}
	if (o.json)
		puts(o.first ? "[]" : "\n]");
	int r = ctl_finish(verb);

	return r == CTL_OK ? result : r;
}

#define AT(member) .at = offsetof(struct ls_options, member)

static const struct option_row ls_rows[] = {
    {"long", option_set_flag, .letter = 'l', AT(details), .help = "also print mode, size and time"},
    {"recursive", option_set_flag, .letter = 'R', AT(recursive),
     .help = "list all samples below, instead of the folder's own entries"},
    {"json", option_set_flag, AT(json), .help = "as a JSON array"},
    CTL_ROW_VERSION(AT(version), .help = "version to list (default: the newest)"),
    {"meta", option_set_flag, AT(from_meta), .help = "read the metadata instead of the snapshot"},
};

#undef AT

const struct option_verb ctl_ls = {
    .name = "ls",
    .arguments = "DATASET [PATH ...]",
    .summary = "List samples and folders, one path per line",
    .about = "Lists samples and folders (with a slash), one path per line. `-l` adds mode, size and time; "
	     "`-R` lists all samples below. With `--json` samples have their number in the dataset, as in "
	     "`diesel_loader`(3).\n"
	     "`ls`, `cat` and, for a path, `stat` read the snapshot. With `--meta`, and if there is no "
	     "snapshot, they read the metadata store, which has the last commit. Each path takes one lookup, "
	     "but `ls` reads all paths. Only the snapshot has numbers and classes.",
    OPTION_ROWS(ls_rows),
    .takes = OPTION_FILE,
    .run = run_ls,
};

/* Returns true if the data has control characters other than the usual white space, which would garble a
 * terminal. */
static bool is_binary(const unsigned char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if ((data[i] < 0x20 && !strchr("\t\n\r\f\b", data[i])) || data[i] == 0 || data[i] == 0x7f)
			return true;
	return false;
}

struct cat_options {
	bool force, from_meta;
	uint64_t version;
	const char *field;
};

/* Finds the bytes of one field of a sample. */
static int find_field(const struct ctl_dataset *d, const char *path, const char *name, const void *sample,
		      size_t bytes, struct field *ret, struct error *err)
{
	char text[200], shown[160];
	const struct snapshot_info *of = d->dataset ? snapshot_info(dataset_snapshot(d->dataset)) : NULL;
	struct fields_walk w;
	int r = of ? fields_begin(&w, of->layout, of->columns, sample, bytes) : -EINVAL;

	text_printable(text, sizeof(text), path, strlen(path));
	text_printable(shown, sizeof(shown), name, strlen(name));
	if (r == -EINVAL)
		return error_set(err, r, "'%s' has no fields%s", text,
				 d->dataset ? "" : " that --meta knows of: leave out --meta");
	while (r == 0 && (r = fields_next(&w, ret)) > 0) {
		if (ret->name_length == strlen(name) && memcmp(ret->name, name, ret->name_length) == 0)
			return 0;
		r = 0;
	}
	return r < 0 ? error_set(err, r, "the fields of '%s' are damaged", text)
		     : error_set(err, -ENOENT, "'%s' has no field '%s'; `dieselctl stat` lists its fields",
				 text, shown);
}

static int cat_path(const struct option_verb *verb, const struct ctl_dataset *d, const char *path,
		    const struct cat_options *o)
{
	_cleanup_(freep) unsigned char *data = NULL;
	struct error err = ERROR_INIT;
	uint32_t bytes = 0;
	char text[200];
	int r = ctl_dataset_read(d, path, &data, &bytes, &err);

	if (r < 0)
		return ctl_failed(verb, &err);
	struct field f = {.data = data, .bytes = bytes};

	if (o->field && find_field(d, path, o->field, data, bytes, &f, &err) < 0)
		return ctl_failed(verb, &err);
	text_printable(text, sizeof(text), path, strlen(path));
	if (!o->force && isatty(STDOUT_FILENO) && is_binary(f.data, f.bytes)) {
		error_set(&err, -EINVAL, "'%s' is binary: write it to a file or a pipe, or add -f", text);
		return ctl_failed(verb, &err);
	}
	fwrite(f.data, 1, f.bytes, stdout);
	return CTL_OK;
}

static int run_cat(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(ctl_dataset_closep) struct ctl_dataset d = {0};
	struct error err = ERROR_INIT;
	struct cat_options o = {0};
	int status, result = CTL_OK;

	if (!ctl_options(verb, argc, argv, &o, &status))
		return status;
	if (argc - optind < 2)
		return ctl_usage(verb, "expected a dataset and a path in it");
	if (ctl_dataset_open(argv[optind], o.version, o.from_meta, &d, &err) < 0)
		return ctl_failed(verb, &err);
	for (int i = optind + 1; i < argc; i++) {
		int r = cat_path(verb, &d, argv[i], &o);

		result = r == CTL_OK ? result : r;
	}
	int r = ctl_finish(verb);

	return r == CTL_OK ? result : r;
}

#define AT(member) .at = offsetof(struct cat_options, member)

static const struct option_row cat_rows[] = {
    {"field", option_set_string, AT(field), .value = "NAME", .help = "write only this field of each sample"},
    {"force", option_set_flag, .letter = 'f', AT(force), .help = "print binary data to a terminal too"},
    CTL_ROW_VERSION(AT(version), .help = "version to read (default: the newest)"),
    {"meta", option_set_flag, AT(from_meta),
     .help = "look up the samples in the metadata, not in the snapshot"},
};

#undef AT

const struct option_verb ctl_cat = {
    .name = "cat",
    .arguments = "DATASET PATH ...",
    .summary = "Write samples to standard output",
    .help = "cat verifies the checksum of each sample.\n",
    .about = "Writes samples to standard output, after checking them. Binary data goes to a terminal only "
	     "with `-f` (`--force`).",
    OPTION_ROWS(cat_rows),
    .takes = OPTION_FILE,
    .run = run_cat,
};
