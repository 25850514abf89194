/* SPDX-License-Identifier: Apache-2.0 */
#include "config_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

#define BLANKS " \t\r\n\f\v"

struct config_reading {
	const struct config_reader *reader;
	const char *path;
	struct error *err;
	char *line;                  /* the original line; `set` and `name` point into it */
	char section[64], other[64]; /* this section, and the first one that is not dieseld's */
	int number, other_number;
	bool ours, any_ours; /* this section is dieseld's; a section was */
};

/* Cuts blanks off both ends. */
static char *strip(char *text)
{
	size_t n;

	text += strspn(text, BLANKS);
	for (n = strlen(text); n > 0 && strchr(BLANKS, text[n - 1]); n--)
		;
	text[n] = '\0';
	return text;
}

/* Sets the error for a mistake at this place of the line. */
__attribute__((format(printf, 3, 4))) static int mistake(const struct config_reading *r, const char *at,
							 const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return error_set(r->err, -EINVAL, "%s:%d:%d: %s", r->path, r->number, (int)(at - r->line) + 1, text);
}

static int begin_section(struct config_reading *r, char *text)
{
	char *end = strchr(text, ']');
	const char *behind = end ? end + 1 + strspn(end + 1, BLANKS) : text;

	if (*behind && !strchr(";#", *behind))
		return mistake(r, text, "a section must be [NAME] on its own line: write [%s]",
			       r->reader->section);
	*end = '\0';
	snprintf(r->section, sizeof(r->section), "%s", strip(text + 1));
	r->ours = strcmp(r->section, r->reader->section) == 0;
	r->any_ours |= r->ours;
	if (!r->ours && !r->other_number) {
		r->other_number = r->number;
		snprintf(r->other, sizeof(r->other), "%s", r->section);
	}
	return 0;
}

/* Removes the comment after a value, which begins with a blank and a semicolon. */
static void cut_comment(char *value)
{
	for (char *at = value; (at = strchr(at, ';')); at++) {
		if (at == value || strchr(BLANKS, at[-1])) {
			*at = '\0';
			return;
		}
	}
}

static int read_setting(struct config_reading *r, char *name, char *value)
{
	const struct config_reader *reader = r->reader;
	struct error err = ERROR_INIT;
	int result;

	if (!r->ours) {
		if (!reader->knows(reader->user, name))
			return 0;
		return mistake(r, name, "%s has no effect %s%s%s: write [%s] on a line above it", name,
			       r->section[0] ? "in [" : "outside a section", r->section,
			       r->section[0] ? "]" : "", reader->section);
	}
	result = reader->set(reader->user, name, value, r->number, &err);
	if (result == -ENOENT)
		return mistake(r, name, "[%s] has no setting \"%s\"%s%s", r->section, name,
			       err.text[0] ? ": " : "", err.text);
	return result < 0 ? mistake(r, *value ? value : name, "%s", err.text) : 0;
}

static int read_line(struct config_reading *r, char *copy)
{
	char *text = strip(copy), *equals = strpbrk(text, "=:"), *name, *value;

	if (!*text || *text == ';' || *text == '#')
		return 0;
	if (*text == '[')
		return begin_section(r, text);
	if (!equals || equals == text)
		return mistake(r, text,
			       "expected [section] or name = value, such as cache = 4G, or ; and a comment");
	*equals = '\0';
	name = strip(text);
	cut_comment(equals + 1);
	value = strip(equals + 1);
	for (char *at = value; (at = strchr(at, '#')); at++)
		if (at > value && strchr(BLANKS, at[-1]) && r->ours)
			return mistake(r, at,
				       "a comment after a value must begin with ;, or stand on its own line");
	return read_setting(r, name, value);
}

int config_file_read(const char *path, const struct config_reader *reader, struct error *err)
{
	struct config_reading r = {.reader = reader, .path = path, .err = err};
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;
	ssize_t n = -1;

	errno = file ? 0 : errno;
	while (file && (n = getline(&line, &size, file)) >= 0) {
		int result;

		r.line = line;
		if (r.number++ == 0 && strncmp(line, "\xef\xbb\xbf", 3) == 0) /* UTF-8 byte order mark */
			memset(line, ' ', 3);
		if (strlen(line) < (size_t)n)
			return mistake(&r, line, "the line contains a NUL byte: must be text");
		result = read_line(&r, line);
		if (result < 0)
			return result;
		errno = 0;
	}
	if (errno == EISDIR)
		return error_set(err, -EISDIR, "%s is a folder: name the file, such as %s/dieseld.conf", path,
				 path);
	if (errno)
		return error_errno(err, -errno, "cannot read the configuration %s", path);
	if (r.other_number && !r.any_ours)
		return error_set(err, -EINVAL,
				 "%s:%d:1: found [%s], but no [%s]: write [%s] above the settings", path,
				 r.other_number, r.other, reader->section, reader->section);
	return 0;
}
