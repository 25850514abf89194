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
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "redis_env.h"

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

int redis_place_read(int dir_fd, const char *dataset_path, struct redis_place *ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	char text[REDIS_URL_TEXT + 200], *lines[3] = {text};
	struct redis_place place = {0};
	size_t bytes = 0;
	int r;

	if (asprintf(&path, "%s/" META_REDIS_FILE, dataset_path) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	_cleanup_(closep) int fd = dir_fd < 0 ? dir_fd : file_to_read(dir_fd, META_REDIS_FILE, false);

	r = fd < 0 ? fd : fd_read(fd, text, sizeof(text) - 1, &bytes);
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? -ENOENT : file_error(err, r, "read", path);
	while (bytes && text[bytes - 1] == '\n')
		bytes--;
	text[bytes] = '\0';
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
	r = redis_env_credentials(&place.url, err);
	if (r == 0)
		*ret = place;
	return r;
}

int redis_place_write(int dir_fd, const char *dataset_path, const struct redis_place *place,
		      struct error *err)
{
	_cleanup_(closep) int fd = -EBADF, folder = -EBADF;
	char url[REDIS_URL_TEXT];

	unlinkat(dir_fd, META_REDIS_TMP, 0);
	fd = openat(dir_fd, META_REDIS_TMP, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	folder = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || folder < 0 ||
	    dprintf(fd, FIRST_LINE "\n%s\n%s\n", redis_url_public(&place->url, url, sizeof(url)),
		    place->dataset) < 0 ||
	    fsync(fd) < 0 || renameat(dir_fd, META_REDIS_TMP, dir_fd, META_REDIS_FILE) < 0 ||
	    fsync(folder) < 0) {
		int r = -errno;

		unlinkat(dir_fd, META_REDIS_TMP, 0);
		return error_errno(err, r, "cannot write %s/" META_REDIS_FILE, dataset_path);
	}
	return 0;
}
