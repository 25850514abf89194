/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/units.h"

#define WAIT_S     60 /* a cluster takes a quarter of that to put another master in place */
#define WAIT_MAX_S 86400
#define FIRST_LINE "diesel-metadata 1"

int redis_random_hex(char *ret, size_t digits)
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	for (size_t i = 0; i < digits; i++)
		ret[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 4 : 0) & 15];
	ret[digits] = '\0';
	return 0;
}

/* The file's text without the newline at its end. */
static int read_small(const char *path, char *text, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (n < 0)
		return -errno;
	while (n && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	return 0;
}

int redis_place_credentials(struct redis_url *url, struct error *err)
{
	const char *given = getenv("DIESEL_REDIS"), *file = getenv("DIESEL_REDIS_FILE");
	char text[4 * REDIS_URL_PART] = "";
	struct redis_url found;
	int r;

	if (url->password[0])
		return 0;
	if (!given && file) {
		r = read_small(file, text, sizeof(text));
		if (r < 0)
			return error_errno(err, r, "DIESEL_REDIS_FILE: %s", file);
		given = text;
	}
	if (!given)
		return 0;
	if (redis_url_parse(given, false, &found, err) < 0) {
		error_prefix(err, "DIESEL_REDIS");
		return -EINVAL;
	}
	/* A dataset's folder is not to say which server gets a password, nor that it goes in the clear. */
	if (found.tls == url->tls && !strcmp(found.host, url->host) && !strcmp(found.port, url->port)) {
		memcpy(url->user, found.user, sizeof(url->user));
		memcpy(url->password, found.password, sizeof(url->password));
	}
	explicit_bzero(text, sizeof(text));
	explicit_bzero(&found, sizeof(found));
	return 0;
}

int redis_place_settings(struct redis_settings *settings, struct error *err)
{
	const char *wait = getenv("DIESEL_REDIS_WAIT");
	int64_t seconds = WAIT_S;

	if (wait && units_parse_integer(wait, 1, WAIT_MAX_S, &seconds) < 0)
		return error_set(err, -EINVAL,
				 "DIESEL_REDIS_WAIT: a number of seconds from 1 to %d is needed", WAIT_MAX_S);
	settings->patience_ns = (uint64_t)seconds * NS_PER_S;
	settings->tls = (struct redis_tls_files){
	    .ca = getenv("DIESEL_REDIS_CA"),
	    .cert = getenv("DIESEL_REDIS_CERT"),
	    .key = getenv("DIESEL_REDIS_KEY"),
	};
	return 0;
}

int redis_place_read(const char *dataset_path, struct redis_place *ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	char text[REDIS_URL_TEXT + 200], *lines[3] = {text};
	struct redis_place place = {0};
	int r;

	if (asprintf(&path, "%s/" META_REDIS_FILE, dataset_path) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	r = read_small(path, text, sizeof(text));
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? -ENOENT : error_errno(err, r, "cannot read %s", path);
	for (int i = 1; i < 3 && lines[i - 1]; i++) {
		lines[i] = strchr(lines[i - 1], '\n');
		if (lines[i])
			*lines[i]++ = '\0';
	}
	if (strncmp(text, "diesel-metadata ", 16) == 0 && strcmp(text, FIRST_LINE) != 0)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s is of a newer version than this program knows; update it", path);
	if (!lines[2] || strcmp(text, FIRST_LINE) != 0 ||
	    redis_url_parse(lines[1], true, &place.url, NULL) < 0 || strlen(lines[2]) != 32 ||
	    strspn(lines[2], "0123456789abcdef") != 32)
		return error_set(err, -EBADMSG,
				 "%s is damaged: remove it, and run `dieselctl rebuild --meta redis://...`",
				 path);
	memcpy(place.dataset, lines[2], 33);
	r = redis_place_credentials(&place.url, err);
	if (r == 0)
		*ret = place;
	return r;
}

int redis_place_write(const char *dataset_path, const struct redis_place *place, struct error *err)
{
	_cleanup_(freep) char *path = NULL, *temporary = NULL;
	_cleanup_(closep) int fd = -EBADF, folder = -EBADF;
	char url[REDIS_URL_TEXT];

	if (asprintf(&path, "%s/" META_REDIS_FILE, dataset_path) < 0 ||
	    asprintf(&temporary, "%s/" META_REDIS_TMP, dataset_path) < 0)
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	unlink(temporary);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	folder = open(dataset_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || folder < 0 ||
	    dprintf(fd, FIRST_LINE "\n%s\n%s\n", redis_url_public(&place->url, url, sizeof(url)),
		    place->dataset) < 0 ||
	    fsync(fd) < 0 || rename(temporary, path) < 0 || fsync(folder) < 0) {
		int r = -errno;

		unlink(temporary);
		return error_errno(err, r, "cannot write %s", path);
	}
	return 0;
}
