/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"

/* Makes the folder of a copy, which nobody else may enter before it has the modes of the original. */
static int make_folder(const struct copy_source *s, const char *path, struct error *err)
{
	const char *name;
	_cleanup_(closep) int parent = file_folder(path, true, &name);

	if (parent == -EISDIR)
		return 0;
	if (parent < 0)
		return file_error(err, parent, "make the folder", path);
	if (mkdirat(parent, name, s->place->ops ? 0777 : 0700) < 0 && errno != EEXIST)
		return error_errno(err, -errno, "cannot make the folder %s", path);
	return 0;
}

static int check_places(const struct copy_options *o, const struct copy_source *s, struct error *err)
{
	if (s->place->ops || backend_is_elsewhere(o->to))
		return strcmp(o->from, o->to) == 0
			   ? error_set(err, -EINVAL, "%s cannot be copied to itself", o->from)
			   : 0;
	_cleanup_(freep) char *from = realpath(o->from, NULL);
	_cleanup_(freep) char *to = realpath(o->to, NULL);
	size_t n = from ? strlen(from) : 0;

	if (from && to && strncmp(from, to, n) == 0 && (to[n] == '\0' || to[n] == '/'))
		return error_set(err, -EINVAL, "%s is in %s: choose another folder", o->to, o->from);
	return 0;
}

/* Chooses the server for the metadata of a copy: that of the original, with a prefix that nobody uses. *ret
 * is NULL if there is nothing to choose, because the copy has metadata already, or has them in a file. */
static int choose_meta(const struct copy_options *o, const struct copy_source *s, char **ret,
		       struct error *err)
{
	_cleanup_(closep) int fd = file_folder_open(o->to, true);
	_cleanup_(freep) char *url = NULL;
	char *chosen = NULL;
	struct stat st;
	uint32_t random = 0;

	if (o->meta_url) {
		chosen = strdup(o->meta_url);
		if (!chosen)
			return error_errno(err, -ENOMEM, "%s", o->to);
		*ret = chosen;
		return 0;
	}
	if (!s->has_redis || s->gives_redis || backend_is_elsewhere(o->to) ||
	    fstatat(fd, META_REDIS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	int r = meta_redis_url(s->place->dir_fd, o->from, &url, err);

	if (r < 0)
		return r;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random) ||
	    asprintf(&chosen, "%s-%08x", url, random) < 0)
		return error_errno(err, -ENOMEM, "%s", o->to);
	*ret = chosen;
	return 0;
}

/* A dataset at the place of the copy must be what an earlier run has left. */
static int check_there(const struct copy_source *s, const struct writer *w, struct error *err)
{
	size_t n;
	const struct meta_chunk *chunks = copy_chunks_of(s, &n);
	const struct meta_info *there = &w->info;

	if (there->version == 0 ||
	    (there->version == s->version && there->n_chunks == n && there->n_paths == s->n_samples && n &&
	     there->has_newest && chunk_id_compare(&there->newest, &chunks[n - 1].id) == 0))
		return 0;
	return error_set(err, -EEXIST,
			 "%s has another dataset (version %" PRIu64 "): delete it, or choose another name",
			 w->path, there->version);
}

static int compare_ids(const void *id, const void *chunk)
{
	return chunk_id_compare(id, &((const struct meta_chunk *)chunk)->id);
}

/* Removes chunks that the original has not, such as those of an interrupted pack. */
static void remove_others(const struct copy_source *s, struct writer *w)
{
	size_t n;
	const struct meta_chunk *chunks = copy_chunks_of(s, &n);

	for (size_t i = 0; i < w->n_objects && !w->place->ops; i++)
		if (!n || !bsearch(&w->objects[i].id, chunks, n, sizeof(*chunks), compare_ids))
			store_remove(w->store, &w->objects[i].id, NULL);
	w->n_leftovers = 0;
}

static int copy_to(const struct copy_options *o, const struct copy_source *s, struct writer *w,
		   struct copy_result *result, struct error *err)
{
	int r = check_there(s, w, err);

	if (r == 0)
		r = writer_hold(w, err);
	if (r == 0)
		r = copy_chunks(o, s, w, result, err);
	if (r < 0)
		return r;
	remove_others(s, w);
	return copy_publish(o, s, w, result, err);
}

int copy_of_source(const struct copy_options *o, const struct copy_source *s, struct copy_result *result,
		   struct error *err)
{
	_cleanup_(freep) char *meta_url = NULL;
	_cleanup_(closep) int to_fd = -EBADF;
	struct writer *w = NULL;
	struct timespec began;

	clock_gettime(CLOCK_REALTIME_COARSE, &began); /* the clock of files */
	int r = backend_is_elsewhere(o->to) ? 0 : make_folder(s, o->to, err);

	if (r == 0)
		r = check_places(o, s, err);
	if (r == 0)
		r = choose_meta(o, s, &meta_url, err);
	if (r == 0)
		r = writer_open_on(o->to, WRITER_COPY, CHUNK_MIN_BYTES, meta_url, &w, err);
	if (r == 0)
		r = copy_to(o, s, w, result, err);
	if (r == 0 && !w->place->ops)
		to_fd = fcntl(w->dir_fd, F_DUPFD_CLOEXEC, 0);
	writer_free(w); /* which changes the time of the folder */
	if (to_fd >= 0)
		copy_attributes(s->place->ops ? -EBADF : s->place->dir_fd, to_fd, &began);
	return r;
}

int dataset_copy(const struct copy_options *o, struct copy_result *ret, struct error *err)
{
	struct copy_result result = {0};
	struct copy_source s;
	int r = copy_source_open(o->from, false, &s, err);

	if (r < 0)
		return r;
	r = copy_of_source(o, &s, &result, err);
	copy_source_close(&s);
	if (r == 0)
		*ret = result;
	return r;
}
