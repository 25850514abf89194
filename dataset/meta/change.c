/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/change.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "dataset/chunk_id.h"

#define FIRST_LINE "DIESEL change"

/* Appends a checksum to the entry, because old versions are rebuilt from it. */
static size_t add_check(char text[CHANGE_MAX], size_t bytes)
{
	return bytes + (size_t)snprintf(text + bytes, CHANGE_MAX - bytes, "check %016" PRIx64 "\n",
					checksum_xxh3(text, bytes));
}

size_t change_format(const struct change *c, char text[CHANGE_MAX])
{
	char newest[CHUNK_ID_TEXT] = "-", paths[80] = "-";

	if (c->has_newest)
		chunk_id_format(&c->newest, newest);
	if (c->is_counted)
		snprintf(paths, sizeof(paths), "%" PRIu64 " %" PRIu64 " %" PRIu64, c->n_added, c->n_replaced,
			 c->n_deleted);
	int n = snprintf(text, CHANGE_MAX,
			 FIRST_LINE " 1\nversion %" PRIu64 " %" PRIu64 "\ntime %" PRIu64
				    "\nnewest %s\npaths %s\nsamples %" PRIu64 "\nwritten %" PRIu64 " %" PRIu64
				    "\nhost %s\nuser %s\ncommand %s\n",
			 c->version, c->oldest, c->time_ns, newest, paths, c->n_samples, c->n_chunks,
			 c->n_bytes, c->host, c->user, c->command);

	return add_check(text, (size_t)n);
}

/* Takes the rest of the line at *at, which must begin with name, and advances *at to the next line. */
static int take_line(const char **at, const char *name, char *ret, size_t size)
{
	size_t skip = strlen(name);
	const char *start = *at + skip, *end;

	if (strncmp(*at, name, skip) != 0)
		return -EBADMSG;
	end = strchr(start, '\n');
	if (!end || (size_t)(end - start) >= size)
		return -EBADMSG;
	memcpy(ret, start, (size_t)(end - start));
	ret[end - start] = '\0';
	*at = end + 1;
	return 0;
}

static int parse_numbers(const char *text, struct change *c)
{
	char newest[CHUNK_ID_TEXT], paths[80];
	int n = 0;

	if (sscanf(text,
		   FIRST_LINE " 1\nversion %" SCNu64 " %" SCNu64 "\ntime %" SCNu64
			      "\nnewest %32s\npaths %79[^\n]\nsamples %" SCNu64 "\nwritten %" SCNu64
			      " %" SCNu64 "\n%n",
		   &c->version, &c->oldest, &c->time_ns, newest, paths, &c->n_samples, &c->n_chunks,
		   &c->n_bytes, &n) != 8 ||
	    n == 0)
		return -EBADMSG;
	c->has_newest = strcmp(newest, "-") != 0;
	c->is_counted = strcmp(paths, "-") != 0;
	if (c->has_newest && chunk_id_parse(newest, &c->newest) < 0)
		return -EBADMSG;
	if (c->is_counted && sscanf(paths, "%" SCNu64 " %" SCNu64 " %" SCNu64, &c->n_added, &c->n_replaced,
				    &c->n_deleted) != 3)
		return -EBADMSG;
	return n;
}

int change_parse(const char *text, size_t bytes, struct change *ret)
{
	char copy[CHANGE_MAX], again[CHANGE_MAX];
	struct change c = {0};
	unsigned format;
	const char *at;

	if (bytes >= sizeof(copy) || memchr(text, '\0', bytes))
		return -EBADMSG;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	if (sscanf(copy, FIRST_LINE " %u\n", &format) != 1)
		return -EBADMSG;
	if (format != 1)
		return -EPROTONOSUPPORT;
	int r = parse_numbers(copy, &c);

	if (r < 0)
		return r;
	at = copy + r;
	if (take_line(&at, "host ", c.host, sizeof(c.host)) < 0 ||
	    take_line(&at, "user ", c.user, sizeof(c.user)) < 0 ||
	    take_line(&at, "command ", c.command, sizeof(c.command)) < 0)
		return -EBADMSG;
	/* Accepts only the canonical spelling of an entry. */
	if (change_format(&c, again) != bytes || memcmp(again, text, bytes) != 0)
		return -EBADMSG;
	*ret = c;
	return 0;
}
