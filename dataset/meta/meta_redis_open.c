/* SPDX-License-Identifier: Apache-2.0 */
/* Which server, as whom, and whether it holds this dataset's metadata. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "meta_redis_private.h"
#include "dataset/redis/redis_env.h"

#define WAIT_S 60 /* a cluster takes a quarter of that to put another master in place */

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
	redis_link_run(s->link, NULL); /* there may be nothing */
	return redis_state_create(s, err);
}

int meta_redis_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		    struct error *err)
{
	struct redis_backend place;
	struct meta_redis *s;
	struct redis_state state;
	int r = redis_backend_read(dir_fd, dataset_path, &place, err);

	if (r == -ENOENT)
		return error_set(err, r, "%s has no " META_REDIS_FILE, dataset_path);
	if (r == 0 && place.is_copied)
		r = redis_backend_copied(dataset_path, err);
	if (r == 0)
		r = connect_meta(dataset_path, &place, mode, &s, err);
	explicit_bzero(&place, sizeof(place));
	if (r < 0)
		return r;
	r = redis_state_read(s, &state, err);
	if (r == -EBADMSG && mode == META_REPLACE)
		r = replace_state(s, err);
	if (r < 0) {
		redis_meta_free(&s->meta);
		return r;
	}
	*ret = &s->meta;
	return 0;
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

/* The dataset has its metadata on a server already: it has to be this one. The credentials of the URL count.
 */
static int open_same(const char *dataset_path, const struct redis_backend *place, const struct redis_url *url,
		     enum meta_mode mode, struct meta **ret, struct error *err)
{
	char there[REDIS_URL_TEXT], here[REDIS_URL_TEXT];
	struct redis_backend with = *place;
	struct meta_redis *s;
	struct redis_state state;

	if (!is_same(&place->url, url))
		return error_set(err, -EEXIST, "%s has its metadata on %s, not on %s", dataset_path,
				 redis_url_public(&place->url, there, sizeof(there)),
				 redis_url_public(url, here, sizeof(here)));
	with.url = *url;
	int r = connect_meta(dataset_path, &with, mode, &s, err);

	explicit_bzero(&with, sizeof(with));
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

int meta_redis_choose(const char *dataset_path, const char *url, enum meta_mode mode, struct meta **ret,
		      struct error *err)
{
	_cleanup_(closep) int dir_fd = file_folder_open(dataset_path, mode > META_CHECK);

	return dir_fd < 0 ? error_errno(err, dir_fd, "cannot open %s", dataset_path)
			  : meta_redis_choose_at(dir_fd, dataset_path, url, mode, ret, err);
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
