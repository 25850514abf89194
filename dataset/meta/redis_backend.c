/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "dataset/redis/redis_env.h"

#define FIRST_LINE "diesel-metadata 2"
#define MAX_LINES  4

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

/* A folder is known by its inode and time of birth, which stay when it is moved, and are the same on all
 * nodes that mount it. 0: the file system has no such time. */
struct redis_folder {
	unsigned long long inode, born_ns;
};

static int folder_of(int dir_fd, struct redis_folder *ret)
{
	struct statx st;

	if (statx(dir_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	*ret = (struct redis_folder){.inode = st.stx_ino};
	if (st.stx_mask & STATX_BTIME)
		ret->born_ns = (unsigned long long)st.stx_btime.tv_sec * NS_PER_S + st.stx_btime.tv_nsec;
	return 0;
}

/* Returns false if the line says nothing that is known. */
static bool is_written_for(const char *line, int dir_fd, bool *ret)
{
	struct redis_folder then, now;

	if (sscanf(line, "folder %llu %llu", &then.inode, &then.born_ns) != 2)
		return false;
	*ret = folder_of(dir_fd, &now) < 0 ||
	       (then.inode == now.inode &&
		(then.born_ns == now.born_ns || then.born_ns == 0 || now.born_ns == 0));
	return true;
}

int redis_backend_copied(const char *dataset_path, struct error *err)
{
	return error_set(err, -EXDEV,
			 "%s is a copy, whose " META_REDIS_FILE " names the metadata of the dataset it was "
			 "copied from: `dieselctl rebuild --meta redis://HOST[:PORT]/PREFIX %s`, with a "
			 "prefix that no dataset has, makes metadata of its own",
			 dataset_path, dataset_path);
}

int redis_backend_read(int dir_fd, const char *dataset_path, struct redis_backend *ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	char text[REDIS_URL_TEXT + 200], *lines[MAX_LINES] = {text};
	struct redis_backend place = {0};
	size_t bytes = 0;
	bool is_ours = true;
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
	for (int i = 1; i < MAX_LINES && lines[i - 1]; i++) {
		lines[i] = strchr(lines[i - 1], '\n');
		if (lines[i])
			*lines[i]++ = '\0';
	}
	if (strncmp(text, "diesel-metadata ", 16) == 0 && strcmp(text, FIRST_LINE) != 0)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s is of another version than this program knows; update it", path);
	if (strcmp(text, FIRST_LINE) != 0 || !lines[2] || !lines[3] ||
	    !is_written_for(lines[3], dir_fd, &is_ours) ||
	    redis_url_parse(lines[1], true, &place.url, NULL) < 0 || strlen(lines[2]) != 32 ||
	    strspn(lines[2], "0123456789abcdef") != 32)
		return error_set(err, -EBADMSG,
				 "%s is damaged: remove it, and run `dieselctl rebuild --meta "
				 "redis://HOST[:PORT]/PREFIX %s` with a prefix that no dataset has",
				 path, dataset_path);
	memcpy(place.dataset, lines[2], 33);
	place.is_copied = !is_ours;
	r = redis_env_credentials(&place.url, err);
	if (r == 0)
		*ret = place;
	return r;
}

int redis_backend_write(int dir_fd, const char *dataset_path, const struct redis_backend *place,
			struct error *err)
{
	_cleanup_(closep) int fd = -EBADF, folder = -EBADF;
	char url[REDIS_URL_TEXT];
	struct redis_folder of;

	unlinkat(dir_fd, META_REDIS_TMP, 0);
	fd = openat(dir_fd, META_REDIS_TMP, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	folder = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || folder < 0 || folder_of(folder, &of) < 0 ||
	    dprintf(fd, FIRST_LINE "\n%s\n%s\nfolder %llu %llu\n",
		    redis_url_public(&place->url, url, sizeof(url)), place->dataset, of.inode,
		    of.born_ns) < 0 ||
	    fsync(fd) < 0 || renameat(dir_fd, META_REDIS_TMP, dir_fd, META_REDIS_FILE) < 0 ||
	    fsync(folder) < 0) {
		int r = -errno;

		unlinkat(dir_fd, META_REDIS_TMP, 0);
		return error_errno(err, r, "cannot write %s/" META_REDIS_FILE, dataset_path);
	}
	return 0;
}
