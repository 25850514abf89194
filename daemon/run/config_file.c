/* SPDX-License-Identifier: Apache-2.0 */
#include "config_file.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

struct reading {
	FILE *file;
	const char *path, *section;
	config_set *set;
	void *user;
	struct error *err;
	int result, line;
	char text[1024]; /* of the line */
};

/* fgets() for inih, which also keeps the line. */
static char *read_line(char *line, int size, void *user)
{
	struct reading *reading = user;

	if (!fgets(line, size, reading->file))
		return NULL;
	reading->line++;
	snprintf(reading->text, sizeof(reading->text), "%s", line);
	return line;
}

/* The column of a word in the line, from 1; a value is looked for after the equals sign. */
static int column_of(const struct reading *reading, const char *word, bool is_value)
{
	const char *from = reading->text, *at;

	if (is_value && strpbrk(from, "=:"))
		from = strpbrk(from, "=:") + 1;
	at = *word ? strstr(from, word) : from;
	return at ? (int)(at - reading->text) + 1 : 1;
}

static int on_setting(void *user, const char *section, const char *name, const char *value)
{
	struct reading *reading = user;
	int r;

	if (reading->result < 0 || strcmp(section, reading->section) != 0)
		return 1;
	r = reading->set(reading->user, name, value, reading->err);
	if (r >= 0)
		return 1;
	if (r == -ENOENT)
		error_set(reading->err, r, "[%s] has no setting \"%s\"", section, name);
	error_prefix(reading->err, "%s:%d:%d", reading->path, reading->line,
		     r == -ENOENT ? column_of(reading, name, false) : column_of(reading, value, true));
	reading->result = r == -ENOENT ? -EINVAL : r;
	return 1;
}

int config_file_read(const char *path, const char *section, config_set *set, void *user, struct error *err)
{
	struct reading reading = {.path = path, .section = section, .set = set, .user = user, .err = err};
	int line;

	reading.file = fopen(path, "re");
	if (!reading.file)
		return error_errno(err, -errno, "cannot read the configuration %s", path);
	line = ini_parse_stream(read_line, &reading, on_setting, &reading);
	fclose(reading.file);
	if (reading.result < 0)
		return reading.result;
	if (line < 0)
		return error_set(err, -ENOMEM, "cannot read the configuration %s: out of memory", path);
	if (line > 0)
		return error_set(err, -EINVAL, "%s:%d:1: neither [section] nor name = value", path, line);
	return 0;
}
