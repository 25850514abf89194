/* SPDX-License-Identifier: Apache-2.0 */
#include "labels.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv.h"
#include "dataset/chunk.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/text.h"

#define NO_COLUMN  SIZE_MAX
#define DIGITS_MAX 20u /* of a whole number */

struct label_row {
	char *path, *class; /* class: behind the path, in the same memory */
	uint64_t line;
	unsigned n_files;
};

struct labels {
	const struct labels_options *options;
	struct survey_labels for_survey;
	char *base, *real; /* name of the source's folder; its absolute path */
	struct label_row *rows;
	size_t n, n_allocated;
	uint64_t n_missing;
	bool are_numbers;
};

static int bad(const struct labels *l, uint64_t line, const char *what, const char *value, struct error *err)
{
	char text[100];

	return error_set(err, -EINVAL, "%s, line %llu: %s%s%s%s", l->options->table, (unsigned long long)line,
			 value ? "'" : "",
			 value ? text_printable(text, sizeof(text), value, strlen(value)) : "",
			 value ? "' " : "", what);
}

static const char *below(const char *path, const char *folder)
{
	size_t n = folder ? strlen(folder) : 0;

	while (n && folder[n - 1] == '/')
		n--;
	return n && strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

/* A class is a folder of the dataset, so its name is written as the imports write it. Returns the length. */
static size_t folder_name(const char *label, char *to)
{
	size_t n = 0;

	for (const char *at = label; *at; at++)
		if (*at == '%' || *at == '/' || (*at == '.' && at == label))
			n += (size_t)sprintf(to + n, "%%%02X", (unsigned)*at);
		else
			to[n++] = *at;
	to[n] = '\0';
	return n;
}

static int add_row(struct labels *l, uint64_t line, const char *path, const char *label, struct error *err)
{
	struct label_row row = {.line = line};
	size_t bytes;

	if (!path || !*path)
		return bad(l, line, "the row names no file", NULL, err);
	if (!label || !*label)
		return bad(l, line, "has no label: remove the row, or complete it", path, err);
	while (strncmp(path, "./", 2) == 0)
		path += 2;
	path =
	    *path == '/' ? below(below(path, l->real), l->options->source) : below(path, l->options->source);
	bytes = strlen(path) + 1;
	row.path = malloc(bytes + 3 * strlen(label) + DIGITS_MAX + 1);
	if (!row.path || array_reserve(l->rows, l->n, l->n_allocated) < 0) {
		free(row.path);
		return error_errno(err, -ENOMEM, "%s", l->options->table);
	}
	memcpy(row.path, path, bytes);
	row.class = row.path + bytes;
	folder_name(label, row.class);
	l->rows[l->n++] = row;
	return 0;
}

struct table_header {
	const char *table;
	char *const *names; /* of its columns */
	size_t n;
};

/* Finds the column `wanted`; if that is NULL, the column `usual`, else the one with the number `other`. */
static int choose(const struct table_header *header, const char *wanted, const char *usual, size_t other,
		  size_t *ret, struct error *err)
{
	const char *name = wanted ? wanted : usual;
	char list[256] = "";
	size_t found = header->n;

	for (size_t i = 0; i < header->n; i++) {
		if (strcmp(header->names[i], name) != 0)
			continue;
		if (found < header->n)
			return error_set(err, -EINVAL, "%s has the column '%s' twice: rename one of them",
					 header->table, name);
		found = i;
	}
	if (found < header->n) {
		*ret = found;
		return 0;
	}
	for (size_t i = 0, at = 0; i < header->n && at < sizeof(list); i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", header->names[i]);
	if (wanted)
		return error_set(err, -EINVAL, "%s has no column '%s', but %s", header->table, wanted, list);
	if (other == NO_COLUMN)
		return error_set(err, -EINVAL,
				 "%s has several columns that may be the label: choose one with --label "
				 "COLUMN. It has %s",
				 header->table, list);
	*ret = other;
	return 0;
}

/* Finds the columns of paths and labels. */
static int choose_columns(const struct labels *l, char *const *names, size_t n, size_t *ret_path,
			  size_t *ret_label, struct error *err)
{
	const struct labels_options *o = l->options;
	size_t first = n > 1 && !*names[0]; /* without a name: numbers of the rows */
	const struct table_header header = {o->table, names, n};
	int r = choose(&header, o->path_column, "file_name", first, ret_path, err);

	if (r == 0 && n < 2)
		return error_set(err, -EINVAL,
				 "%s has one column, '%s', but paths and labels are two: separate them by "
				 "commas, tabs or semicolons",
				 o->table, n ? names[0] : "");
	if (r == 0)
		r = choose(&header, o->label_column, "label",
			   n - first == 2 && *ret_path >= first ? 2 * first + 1 - *ret_path : NO_COLUMN,
			   ret_label, err);
	if (r == 0 && *ret_path == *ret_label)
		r = error_set(err, -EINVAL,
			      "%s: '%s' cannot be both the path and the label: choose the "
			      "column of the paths with --path COLUMN",
			      o->table, names[*ret_path]);
	if (r == 0 && !o->path_column && strcspn(names[*ret_path], "./") < strlen(names[*ret_path]))
		r = error_set(
		    err, -EINVAL,
		    "%s begins with '%s', which looks like a file, not like the name of a column: add "
		    "a first line such as file,label",
		    o->table, names[*ret_path]);
	return r;
}

static int read_csv(struct labels *l, FILE *file, struct error *err)
{
	_cleanup_(csv_free) struct csv csv = {.file = file, .name = l->options->table};
	size_t path = 0, label = 0, n_columns;
	int r = csv_next(&csv, err);

	if (r == 0)
		return error_set(err, -EINVAL, "%s is empty", l->options->table);
	if (r > 0)
		r = choose_columns(l, csv.cells, csv.n, &path, &label, err);
	n_columns = csv.n;
	while (r >= 0 && (r = csv_next(&csv, err)) > 0) {
		if (csv.n != n_columns)
			return bad(l, csv.line, "the row and the first line have different numbers of cells",
				   NULL, err);
		r = add_row(l, csv.line, csv.cells[path], csv.cells[label], err);
	}
	return r;
}

/* Returns the text of a string or a whole number, from a buffer; NULL: of null and all others. */
static const char *text_of(const json_t *value, char buffer[24])
{
	if (json_is_integer(value))
		snprintf(buffer, 24, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value)) /* refused later, with a better reason */
		snprintf(buffer, 24, "%.17g", json_real_value(value));
	else
		return json_string_value(value);
	return buffer;
}

static int add_object(struct labels *l, const json_t *object, uint64_t line, char **columns,
		      struct error *err)
{
	char path[24], label[24];
	char *names[64];
	const char *name;
	json_t *value;
	size_t n = 0, path_at, label_at;
	int r = 0;

	if (!columns[0]) { /* the first row */
		json_object_foreach((json_t *)object, name, value) if (n < sizeof(names) / sizeof(*names))
		    names[n++] = (char *)name;
		r = choose_columns(l, names, n, &path_at, &label_at, err);
		if (r == 0 &&
		    (!(columns[0] = strdup(names[path_at])) || !(columns[1] = strdup(names[label_at]))))
			r = error_errno(err, -ENOMEM, "%s", l->options->table);
	}
	if (r < 0)
		return r;
	value = json_object_get(object, columns[1]);
	if (json_is_array(value) || json_is_object(value) || json_is_boolean(value))
		return bad(l, line,
			   "is a list, an object, true or false, but a label is a name or a whole number",
			   columns[1], err);
	return add_row(l, line, text_of(json_object_get(object, columns[0]), path), text_of(value, label),
		       err);
}

static int read_json_lines(struct labels *l, FILE *file, struct error *err)
{
	_cleanup_(freep) char *text = NULL;
	char *columns[2] = {NULL, NULL};
	size_t allocated = 0;
	uint64_t line = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = getline(&text, &allocated, file)) >= 0) {
		line++;
		if (strspn(text, " \t\r\n") == (size_t)n)
			continue;
		json_error_t why;
		json_t *object = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);

		r = json_is_object(object) ? add_object(l, object, line, columns, err)
					   : bad(l, line, "the line is no JSON object", NULL, err);
		json_decref(object);
	}
	if (r == 0 && ferror(file))
		r = error_errno(err, -EIO, "cannot read %s", l->options->table);
	free(columns[0]);
	free(columns[1]);
	return r;
}

static bool ends_in(const char *name, const char *ending)
{
	size_t n = strlen(name), k = strlen(ending);

	return n >= k && strcmp(name + n - k, ending) == 0;
}

/* Cuts the ".0" that programs write where a column has holes. Returns the length of a whole number, else 0.
 */
static size_t whole_length(char *class)
{
	size_t n = strspn(class, "0123456789"), zeros = class[n] == '.' ? strspn(class + n + 1, "0") : 0;

	return n && n <= DIGITS_MAX && (!class[n] || (zeros && !class[n + 1 + zeros])) ? n : 0;
}

static bool is_number(const char *class)
{
	char *end;

	if (*class == '%') /* a point in front */
		return false;
	(void)strtod(class, &end);
	return strchr("+-0123456789", *class) && !*end;
}

/* Gives a number as many digits as the longest has. */
static void pad(char *class, size_t digits)
{
	size_t n = whole_length(class), zeros = strspn(class, "0");

	class[n] = '\0';
	n -= zeros;
	memmove(class + digits - n, class + zeros, n + 1);
	memset(class, '0', digits - n);
}

static int take_numbers(struct labels *l, struct error *err)
{
	size_t n_whole = 0, n_numbers = 0, digits = 1;
	const struct label_row *fraction = NULL;

	if (l->options->digits > 1 && l->options->digits <= DIGITS_MAX)
		digits = l->options->digits;
	for (size_t i = 0; i < l->n; i++) {
		struct label_row *row = &l->rows[i];
		size_t n = whole_length(row->class);

		n_whole += n > 0;
		n_numbers += is_number(row->class);
		n -= n ? strspn(row->class, "0") : 0;
		digits = n > digits ? n : digits;
		if (!whole_length(row->class) && !fraction)
			fraction = row;
	}
	if (fraction && n_numbers == l->n)
		return bad(l, fraction->line,
			   "is a label below zero or with a fraction, but classes are counted from 0: a "
			   "value to predict "
			   "is a field of its own, which `dieselctl pack --help csv:` writes",
			   fraction->class, err);
	if (n_whole < l->n)
		return 0;
	if (l->options->digits_of && digits > l->options->digits)
		return error_set(
		    err, -EINVAL,
		    "%s has labels of %zu digits, but the classes of %s have %zu, so that the same "
		    "label would be two classes: pack all files into a new dataset",
		    l->options->table, digits, l->options->digits_of, l->options->digits);
	for (size_t i = 0; i < l->n; i++)
		pad(l->rows[i].class, digits);
	l->are_numbers = true;
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct label_row *x = a, *y = b;
	int order = strcmp(x->path, y->path);

	return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Sorts the rows, and removes those that repeat another. */
static int sort_rows(struct labels *l, struct error *err)
{
	size_t n = 0;
	char text[100];
	int r = 0;

	qsort(l->rows, l->n, sizeof(*l->rows), compare_rows);
	for (size_t i = 0; i < l->n; i++) {
		const struct label_row *last = n ? &l->rows[n - 1] : NULL;

		if (!last || strcmp(last->path, l->rows[i].path) != 0) {
			l->rows[n++] = l->rows[i];
			continue;
		}
		if (r == 0 && strcmp(last->class, l->rows[i].class) != 0) {
			text_printable(text, sizeof(text), last->path, strlen(last->path));
			r = error_set(
			    err, -EINVAL,
			    "%s: '%s' has two labels, in lines %llu and %llu, but a sample has one class: "
			    "remove a row",
			    l->options->table, text, (unsigned long long)last->line,
			    (unsigned long long)l->rows[i].line);
		}
		free(l->rows[i].path);
	}
	l->n = n;
	return r;
}

static int compare_path(const void *key, const void *row)
{
	return strcmp(key, ((const struct label_row *)row)->path);
}

/* length: of the part of the path that the row may have. */
static struct label_row *find(const struct labels *l, const char *folder, const char *path, size_t length)
{
	char wanted[NAME_MAX + CHUNK_NAME_MAX + 3];

	snprintf(wanted, sizeof(wanted), "%s%s%.*s", folder, *folder ? "/" : "", (int)length, path);
	return l->n ? bsearch(wanted, l->rows, l->n, sizeof(*l->rows), compare_path) : NULL;
}

static const char *class_of(const char *path, void *context)
{
	struct labels *l = context;
	const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
	size_t whole = strlen(path), stem = dot ? (size_t)(dot - path) : whole;
	struct label_row *row = find(l, "", path, whole);

	if (!row)
		row = find(l, l->base, path, whole);
	if (!row)
		row = find(l, "", path, stem);
	if (!row)
		row = find(l, l->base, path, stem);
	if (!row)
		return NULL;
	row->n_files++;
	return row->class;
}

static int end(void *context, struct error *err)
{
	struct labels *l = context;
	const struct labels_options *o = l->options;
	const struct label_row *missing = NULL, *several = NULL;
	char text[100];

	l->n_missing = 0;
	for (size_t i = 0; i < l->n; i++) {
		struct label_row *row = &l->rows[i];

		if (row->n_files == 0 && l->n_missing++ == 0)
			missing = row;
		if (row->n_files > 1)
			several = row;
		row->n_files = 0; /* for another try */
	}
	if (several)
		return bad(l, several->line, "names several files, with different endings: add the ending",
			   several->path, err);
	if (!missing || o->skips_missing)
		return 0;
	text_printable(text, sizeof(text), missing->path, strlen(missing->path));
	return error_set(
	    err, -EINVAL,
	    "%llu of %zu rows of %s name no file of %s, such as '%s' in line %llu: correct the rows%s",
	    (unsigned long long)l->n_missing, l->n, o->table, o->source, text,
	    (unsigned long long)missing->line,
	    o->can_skip ? ", or add --skip-unreadable to leave them out" : "");
}

static int read_table(struct labels *l, struct error *err)
{
	const char *name = l->options->table;
	bool is_json = ends_in(name, ".jsonl") || ends_in(name, ".ndjson");
	FILE *file;
	int r;

	if (!is_json && !ends_in(name, ".csv") && !ends_in(name, ".tsv"))
		return error_set(
		    err, -EINVAL,
		    "%s does not end in .csv, .tsv or .jsonl: labels are a table with a first line of "
		    "column names, or JSON lines",
		    name);
	file = fopen(name, "re");
	if (!file)
		return error_errno(err, -errno, "cannot read %s", name);
	r = is_json ? read_json_lines(l, file, err) : read_csv(l, file, err);
	fclose(file);
	if (r == 0 && l->n == 0)
		r = error_set(err, -EINVAL, "%s has no rows", name);
	return r;
}

int labels_read(const struct labels_options *options, struct labels **ret, struct error *err)
{
	struct labels *l = calloc(1, sizeof(*l));
	const char *slash;
	int r;

	if (!l)
		return error_errno(err, -ENOMEM, "%s", options->table);
	l->options = options;
	l->for_survey = (struct survey_labels){.class_of = class_of, .end = end, .context = l};
	l->real = realpath(options->source, NULL); /* not of "-" */
	slash = l->real ? strrchr(l->real, '/') : NULL;
	l->base = strdup(slash ? slash + 1 : "");
	r = l->base ? read_table(l, err) : error_errno(err, -ENOMEM, "%s", options->table);
	if (r == 0)
		r = sort_rows(l, err);
	if (r == 0)
		r = take_numbers(l, err);
	if (r < 0)
		labels_free(l);
	else
		*ret = l;
	return r;
}

void labels_free(struct labels *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		free(l->rows[i].path);
	free(l->rows);
	free(l->base);
	free(l->real);
	free(l);
}

const struct survey_labels *labels_for_survey(const struct labels *l)
{
	return &l->for_survey;
}

uint64_t labels_n_missing(const struct labels *l)
{
	return l->n_missing;
}

bool labels_are_numbers(const struct labels *l)
{
	return l->are_numbers;
}
