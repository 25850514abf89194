/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "lib/units.h"

#define FIRST_KEY 256 /* getopt_long() returns this for the first row; later rows follow */

static void *field(void *options, const struct option_row *row)
{
	return (char *)options + row->at;
}

int option_wrong(const struct option_row *row, const char *value, struct error *err)
{
	if (!row->says && row->words)
		return error_set(err, -EINVAL, "--%s %s: must be one of %s", row->name, value, row->words);
	return error_set(err, -EINVAL, "--%s %s: %s", row->name, value,
			 row->says ? row->says : "not a valid value");
}

int option_set_flag(void *options, const struct option_row *row, const char *value, struct error *err)
{
	*(bool *)field(options, row) = true;
	return 0;
}

int option_set_string(void *options, const struct option_row *row, const char *value, struct error *err)
{
	*(const char **)field(options, row) = value;
	return 0;
}

int option_set_u64(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int64_t number;

	if (units_parse_integer(value, (int64_t)row->least, row->most ? (int64_t)row->most : INT64_MAX,
				&number) < 0)
		return option_wrong(row, value, err);
	*(uint64_t *)field(options, row) = (uint64_t)number;
	return 0;
}

int option_set_u32(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int64_t number;

	if (units_parse_integer(value, (int64_t)row->least, row->most ? (int64_t)row->most : UINT32_MAX,
				&number) < 0)
		return option_wrong(row, value, err);
	*(uint32_t *)field(options, row) = (uint32_t)number;
	return 0;
}

int option_set_bytes(void *options, const struct option_row *row, const char *value, struct error *err)
{
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < row->least || (row->most && bytes > row->most))
		return option_wrong(row, value, err);
	*(uint64_t *)field(options, row) = bytes;
	return 0;
}

int option_set_duration(void *options, const struct option_row *row, const char *value, struct error *err)
{
	uint64_t ns;

	if (units_parse_duration(value, &ns) < 0 || ns < row->least)
		return option_wrong(row, value, err);
	*(uint64_t *)field(options, row) = ns;
	return 0;
}

int option_word_place(const struct option_row *row, const char *value)
{
	size_t length = strlen(value), n;
	int place = 0;

	for (const char *word = row->words; *word; word += n + (word[n] == '|'), place++) {
		n = strcspn(word, "|");
		if (n == length && strncmp(word, value, n) == 0)
			return place;
	}
	return -EINVAL;
}

int option_set_choice(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);

	if (place < 0)
		return option_wrong(row, value, err);
	*(uint32_t *)field(options, row) = (uint32_t)place;
	return 0;
}

const struct option_row *option_find(const struct option_row *rows, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

/* Returns the edit distance: the number of letters to insert, remove or replace. Names must be short. */
static size_t distance(const char *a, const char *b)
{
	size_t n = strlen(b), row[32];

	if (strlen(a) >= 32 || n >= 32)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t replaced = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			row[j] = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
			row[j] = replaced < row[j] ? replaced : row[j];
		}
	}
	return row[n];
}

bool option_is_closer(const char *written, const char *name, size_t *least)
{
	size_t d = distance(written, name);

	if (d >= *least || 2 * d > strlen(written))
		return false;
	*least = d;
	return true;
}

const struct option_verb *option_find_verb(const struct option_program *program, const char *name,
					   struct error *err)
{
	const struct option_verb *best = NULL;
	size_t least = OPTION_FAR;

	for (size_t i = 0; i < program->n_verbs; i++) {
		if (strcmp(program->verbs[i]->name, name) == 0)
			return program->verbs[i];
		if (option_is_closer(name, program->verbs[i]->name, &least))
			best = program->verbs[i];
	}
	error_set(err, -ENOENT, "there is no verb '%s'%s%s%s", name, best ? " (do you mean " : "",
		  best ? best->name : "", best ? "?)" : "");
	return NULL;
}

static int unknown(const struct option_verb *verb, const char *word, struct error *err)
{
	const struct option_row *best = NULL;
	size_t least = OPTION_FAR;
	char name[32];

	if (optopt >= FIRST_KEY)
		return error_set(err, -EINVAL, "--%s takes no value", verb->rows[optopt - FIRST_KEY].name);
	if (optopt)
		return error_set(err, -EINVAL, "there is no option -%c", optopt);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
	for (size_t i = 0; i < verb->n_rows; i++)
		if (option_is_closer(name, verb->rows[i].name, &least))
			best = &verb->rows[i];
	return error_set(err, -EINVAL, "there is no option %s%s%s%s", word, best ? " (do you mean --" : "",
			 best ? best->name : "", best ? "?)" : "");
}

int option_next(const struct option_verb *verb, int argc, char **argv, const struct option_row **ret,
		struct error *err)
{
	struct option long_options[OPTION_ROWS_MAX + 2] = {0};
	char letters[2 * OPTION_ROWS_MAX + 8], *letter = letters;
	const struct option_row *rows = verb->rows;
	size_t n = verb->n_rows;
	int key;

	letter = stpcpy(letter, verb->command ? "+:h" : ":h"); /* '+' stops at the first argument */
	for (size_t i = 0; i < n && i < OPTION_ROWS_MAX; i++) {
		long_options[i] = (struct option){.name = rows[i].name,
						  .has_arg = rows[i].value ? required_argument : no_argument,
						  .val = FIRST_KEY + (int)i};
		if (rows[i].letter)
			*letter++ = rows[i].letter;
		if (rows[i].letter && rows[i].value)
			*letter++ = ':';
	}
	*letter = '\0';
	if (!option_find(rows, n, "help"))
		long_options[n] = (struct option){.name = "help", .val = 'h'};
	opterr = 0;
	key = getopt_long(argc, argv, letters, long_options, NULL);
	if (key < 0)
		return 0;
	if (key == '?')
		return unknown(verb, argv[optind - 1], err);
	if (key == ':')
		return error_set(err, -EINVAL, "%s needs an argument", argv[optind - 1]);
	for (size_t i = 0; i < n; i++) {
		if (key != rows[i].letter && key != FIRST_KEY + (int)i)
			continue;
		*ret = &rows[i];
		return 1;
	}
	return OPTION_HELP;
}

int option_parse(const struct option_verb *verb, int argc, char **argv, void *options, struct error *err)
{
	const struct option_row *row;
	int r;

	optind = 0;
	while ((r = option_next(verb, argc, argv, &row, err)) == 1) {
		r = row->set(options, row, row->value ? optarg : "yes", err);
		if (r != 0)
			return r;
	}
	return r;
}
