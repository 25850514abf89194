/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the Redis server and the credentials, and checks that the server holds this dataset's metadata. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/meta.h"
#include "dataset/redis/redis_env.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "meta_redis_private.h"

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

/* Parses the line that identifies a folder. Returns false if it cannot be parsed. */
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

/* Says in err what to do with a copy. Returns -EXDEV. */
static int redis_backend_copied(const char *dataset_path, struct error *err)
{
	return error_set(
	    err, -EXDEV,
	    "%s is a copy: its " META_REDIS_FILE
	    " still names the metadata of the original dataset. To give the copy its own metadata, choose a "
	    "PREFIX that no dataset uses and run `dieselctl rebuild --meta redis://HOST[:PORT]/PREFIX %s`",
	    dataset_path, dataset_path);
}

/* Reads meta.redis, and takes user and password from DIESEL_REDIS if they are for this server. -ENOENT: the
 * dataset has no such file. */
static int redis_backend_read(int dir_fd, const char *dataset_path, struct redis_backend *ret,
			      struct error *err)
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
				 "%s has a format version that this program does not support; update it",
				 path);
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

static int redis_backend_write(int dir_fd, const char *dataset_path, const struct redis_backend *place,
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

#define WAIT_S 60 /* seconds; a cluster needs a quarter of that to replace a master */

static int connect_meta(const char *dataset_path, const struct redis_backend *place, enum meta_mode mode,
			struct meta_redis **ret, struct error *err)
{
	struct meta_redis *s = calloc(1, sizeof(*s));
	struct redis_settings settings = {.url = place->url};
	int r;

	if (!s || asprintf(&s->file, "%s/" META_REDIS_FILE, dataset_path) < 0) {
		free(s);
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	s->meta.ops = &redis_meta_ops;
	s->place = *place;
	s->mode = mode;
	snprintf(s->key, sizeof(s->key), "%s:state", place->url.prefix);
	r = redis_env_settings(&settings, WAIT_S, err);
	if (r == 0)
		r = redis_link_open(&settings, &s->link, err);
	explicit_bzero(&settings, sizeof(settings));
	if (r < 0) {
		redis_meta_free(&s->meta);
		return r;
	}
	*ret = s;
	return 0;
}

/* For `rebuild`: keeps unusable metadata under another name, and starts from scratch. */
static int replace_state(struct meta_redis *s, struct error *err)
{
	char aside[KEY_BYTES + 16];

	snprintf(aside, sizeof(aside), "{%s}.damaged", s->key);
	redis_link_write(s->link, 3, (const char *[]){"RENAME", s->key, aside}, NULL);
	redis_link_run(s->link, NULL); /* ignores errors: there may be nothing to keep */
	return redis_state_create(s, err);
}

/* Opens the metadata that the server has. */
static int open_existing(const char *dataset_path, const struct redis_backend *place, enum meta_mode mode,
			 struct meta **ret, struct error *err)
{
	struct meta_redis *s;
	struct redis_state state;
	int r = connect_meta(dataset_path, place, mode, &s, err);

	if (r < 0)
		return r;
	r = redis_state_read(s, &state, err);
	if (r == -EBADMSG && mode == META_REPLACE)
		r = replace_state(s, err);
	if (r < 0)
		redis_meta_free(&s->meta);
	else
		*ret = &s->meta;
	return r;
}

int meta_redis_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		    struct error *err)
{
	struct redis_backend place;
	int r = redis_backend_read(dir_fd, dataset_path, &place, err);

	if (r == -ENOENT)
		return error_set(err, r, "%s has no " META_REDIS_FILE, dataset_path);
	if (r == 0 && place.is_copied)
		r = redis_backend_copied(dataset_path, err);
	if (r == 0)
		r = open_existing(dataset_path, &place, mode, ret, err);
	explicit_bzero(&place, sizeof(place));
	return r;
}

int meta_redis_check_url(const char *url, struct error *err)
{
	struct redis_url parsed;
	int r = redis_url_parse(url, true, &parsed, err);

	explicit_bzero(&parsed, sizeof(parsed));
	return r;
}

static bool is_same(const struct redis_url *a, const struct redis_url *b)
{
	char one[REDIS_URL_TEXT], other[REDIS_URL_TEXT];

	return strcmp(redis_url_public(a, one, sizeof(one)), redis_url_public(b, other, sizeof(other))) == 0;
}

/* Opens the metadata of a dataset that has them on a server already, which must be the server of the URL. The
 * URL's credentials are used. */
static int open_same(const char *dataset_path, const struct redis_backend *place, const struct redis_url *url,
		     enum meta_mode mode, struct meta **ret, struct error *err)
{
	char there[REDIS_URL_TEXT], here[REDIS_URL_TEXT];
	struct redis_backend with = *place;

	if (!is_same(&place->url, url))
		return error_set(err, -EEXIST, "%s has its metadata on %s, not on %s", dataset_path,
				 redis_url_public(&place->url, there, sizeof(there)),
				 redis_url_public(url, here, sizeof(here)));
	with.url = *url;
	int r = open_existing(dataset_path, &with, mode, ret, err);

	explicit_bzero(&with, sizeof(with));
	return r;
}

static int make_new(int dir_fd, const char *dataset_path, struct redis_backend *place, enum meta_mode mode,
		    struct meta **ret, struct error *err)
{
	struct meta_redis *s;
	int r = redis_random_hex(place->dataset, 32);

	if (r < 0)
		return error_errno(err, r, "random numbers");
	r = connect_meta(dataset_path, place, mode, &s, err);
	if (r < 0)
		return r;
	r = redis_state_create(s, err);
	if (r == 0)
		r = redis_backend_write(dir_fd, dataset_path, place, err);
	if (r < 0)
		redis_meta_free(&s->meta);
	else
		*ret = &s->meta;
	return r;
}

int meta_redis_choose_at(int dir_fd, const char *dataset_path, const char *url, enum meta_mode mode,
			 struct meta **ret, struct error *err)
{
	struct redis_backend place = {0}, there;
	struct stat st;
	int r = redis_url_parse(url, true, &place.url, err);

	if (r == 0)
		r = redis_env_credentials(&place.url, err);
	if (r < 0)
		return r;
	r = redis_backend_read(dir_fd, dataset_path, &there, err);
	if (r == 0 && there.is_copied)
		r = mode == META_REPLACE && !is_same(&there.url, &place.url)
			? make_new(dir_fd, dataset_path, &place, mode, ret, err)
			: redis_backend_copied(dataset_path, err);
	else if (r == 0)
		r = open_same(dataset_path, &there, &place.url, mode, ret, err);
	else if (r == -ENOENT && fstatat(dir_fd, META_SQLITE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = error_set(err, -EEXIST,
			      "%s has its metadata in " META_SQLITE_FILE ", not on a Redis server",
			      dataset_path);
	else if (r == -ENOENT)
		r = make_new(dir_fd, dataset_path, &place, mode, ret, err);
	explicit_bzero(&place, sizeof(place));
	explicit_bzero(&there, sizeof(there));
	return r;
}

int meta_redis_url(int dir_fd, const char *dataset_path, char **ret, struct error *err)
{
	struct redis_backend place;
	char text[REDIS_URL_TEXT];
	int r = redis_backend_read(dir_fd, dataset_path, &place, err);

	if (r == 0 && place.is_copied)
		r = redis_backend_copied(dataset_path, err);
	if (r == 0 && !(*ret = strdup(redis_url_public(&place.url, text, sizeof(text)))))
		r = error_errno(err, -ENOMEM, "%s", dataset_path);
	explicit_bzero(&place, sizeof(place));
	return r;
}

/* Removes the buckets of all generations, and last the state, without which nobody would find them again. */
static int remove_keys(struct meta_redis *s, const struct redis_state *state, uint64_t *n, struct error *err)
{
	const char *const generations[] = {state->scratch, state->garbage, state->generation};
	struct redis_view v = {.prefix = s->place.url.prefix};
	int r = 0;

	for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]) && r == 0; i++) {
		if (!generations[i][0])
			continue;
		memcpy(v.generation, generations[i], sizeof(v.generation));
		r = redis_buckets_remove(s->link, &v, err);
		*n += REDIS_BUCKETS;
	}
	if (r == 0) {
		redis_link_write(s->link, 2, (const char *[]){"UNLINK", s->key}, NULL);
		r = redis_link_run(s->link, err);
		*n += 1;
	}
	return r;
}

int meta_redis_remove(int dir_fd, const char *dataset_path, uint64_t *ret_n, struct error *err)
{
	struct error lost = ERROR_INIT;
	struct meta *m = NULL;
	struct redis_state state;
	uint64_t n = 0;
	int r = meta_redis_open(dir_fd, dataset_path, META_WRITE, &m, &lost);

	if (r == 0) {
		r = redis_state_read(redis_of(m), &state, &lost);
		if (r == 0)
			r = remove_keys(redis_of(m), &state, &n, &lost);
		meta_free(m);
	}
	if (r < 0 && r != -EBADMSG) {
		if (err)
			*err = lost;
		return r;
	}
	if (unlinkat(dir_fd, META_REDIS_FILE, 0) < 0 && errno != ENOENT)
		return error_errno(err, -errno, "cannot remove %s/" META_REDIS_FILE, dataset_path);
	*ret_n = n;
	return 0;
}

int meta_redis_move(int from_fd, const char *from, int to_fd, const char *to, struct error *err)
{
	struct redis_backend place, there;
	int r = redis_backend_read(from_fd, from, &place, err);

	if (r == 0 && place.is_copied)
		r = redis_backend_copied(from, err);
	if (r == 0 && redis_backend_read(to_fd, to, &there, NULL) < 0)
		r = redis_backend_write(to_fd, to, &place, err);
	else if (r == 0 && (there.is_copied || strcmp(there.dataset, place.dataset) != 0))
		r = error_set(err, -EEXIST, "%s has metadata of its own", to);
	if (r == 0 && unlinkat(from_fd, META_REDIS_FILE, 0) < 0)
		r = error_errno(err, -errno, "cannot remove %s/" META_REDIS_FILE, from);
	explicit_bzero(&place, sizeof(place));
	explicit_bzero(&there, sizeof(there));
	return r;
}
