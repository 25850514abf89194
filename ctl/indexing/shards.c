/* SPDX-License-Identifier: Apache-2.0 */
#include "shards.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/external.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/container.h"

#define SUFFIX ".tar"

static bool is_tar(const char *name)
{
	size_t n = strlen(name), suffix = strlen(SUFFIX);

	return n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* Returns true for a file that only another command takes. */
static bool is_foreign(const char *path)
{
	const struct container *c = container_of_path(path);

	return c && strcmp(c->what, "tar archives") != 0 && !(c->command && strstr(c->command, " index "));
}

/* below: the part of the path that names the shard. */
static int add(struct shards *s, const char *path, const char *below, struct error *err)
{
	size_t length = strlen(below) - (is_tar(below) ? strlen(SUFFIX) : 0);
	struct shard shard = {.path = external_find_name(path), .prefix = strndup(below, length)};

	if (!shard.path || !shard.prefix || array_reserve(s->all, s->n, s->capacity) < 0) {
		free(shard.path);
		free(shard.prefix);
		return error_errno(err, errno ? -errno : -ENOMEM, "%s", path);
	}
	s->all[s->n++] = shard;
	return 0;
}

static int add_below(struct shards *s, char *folder, struct error *err)
{
	char *const roots[] = {folder, NULL};
	FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
	size_t skip = strlen(folder) + (folder[1] ? 1 : 0);
	FTSENT *e;
	int r = 0;

	if (!tree)
		return error_errno(err, -errno, "cannot list %s", folder);
	while (r == 0 && (errno = 0, e = fts_read(tree))) {
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)
			r = error_errno(err, -e->fts_errno, "cannot read %s", e->fts_path);
		else if (e->fts_info == FTS_SLNONE && is_tar(e->fts_name))
			r = error_errno(err, -ENOENT, "cannot read %s, a link", e->fts_path);
		else if (e->fts_info == FTS_F && is_tar(e->fts_name))
			r = add(s, e->fts_path, e->fts_path + skip, err);
	}
	if (r == 0 && errno)
		r = error_errno(err, -errno, "cannot list %s", folder);
	fts_close(tree);
	return r;
}

struct bucket_shards {
	struct shards *shards;
	size_t skip; /* bytes of the name in front of a shard's own */
	struct error *err;
};

static int take_object(const char *name, void *context)
{
	const struct bucket_shards *b = context;

	return is_tar(name) ? add(b->shards, name, name + b->skip, b->err) : 0;
}

/* name: a shard, or a prefix of shards. */
static int add_bucket(struct shards *s, const char *name, struct error *err)
{
	_cleanup_(freep) char *folder = NULL;
	struct bucket_shards b = {.shards = s, .err = err};
	size_t n = strlen(name);

	if (is_tar(name))
		return add(s, name, strrchr(name, '/') + 1, err);
	while (n > 0 && name[n - 1] == '/')
		n--;
	if (asprintf(&folder, "%.*s/", (int)n, name) < 0) {
		folder = NULL;
		return error_errno(err, -ENOMEM, "%s", name);
	}
	b.skip = n + 1;
	return external_list(folder, take_object, &b, err);
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(((const struct shard *)a)->path, ((const struct shard *)b)->path);
}

static int compare_prefixes(const void *a, const void *b)
{
	return strcmp((*(const struct shard *const *)a)->prefix, (*(const struct shard *const *)b)->prefix);
}

static int check_prefixes(const struct shards *s, struct error *err)
{
	_cleanup_(freep) const struct shard **sorted = calloc(s->n, sizeof(*sorted));

	if (!sorted)
		return error_errno(err, -ENOMEM, "the list of shards");
	for (size_t i = 0; i < s->n; i++)
		sorted[i] = &s->all[i];
	qsort(sorted, s->n, sizeof(*sorted), compare_prefixes);
	for (size_t i = 1; i < s->n; i++)
		if (compare_prefixes(&sorted[i - 1], &sorted[i]) == 0)
			return error_set(
			    err, -EEXIST,
			    "%s and %s have the same name, which is the folder of their samples: "
			    "name the folder that has both instead",
			    sorted[i - 1]->path, sorted[i]->path);
	for (size_t i = 1; i < s->n; i++)
		if (compare_paths(&s->all[i - 1], &s->all[i]) == 0)
			return error_set(err, -EEXIST,
					 "%s is there twice, because another user's link leads to it: "
					 "leave the link out",
					 s->all[i].path);
	return 0;
}

static int refuse_empty(const char *folder, struct error *err)
{
	char advice[400];

	if (external_is_registered(folder))
		return error_set(
		    err, -ENODATA,
		    "there are no *.tar objects below %s, and no index.json of MDS or LitData and no "
		    "data.mdb of LMDB",
		    folder);
	if (container_advise(folder, advice, sizeof(advice)))
		return error_set(err, -ENODATA, "there are no *.tar files in %s: %s", folder, advice);
	return error_set(err, -ENODATA,
			 "there are no *.tar files in %s, and no index.json of MDS or LitData: if each file "
			 "is one sample, run `dieselctl pack %s "
			 "DATASET`",
			 folder, folder);
}

int shards_find(char *const *arguments, size_t n_arguments, struct shards *ret, struct error *err)
{
	struct shards s = {0};
	int r = 0;

	for (size_t i = 0; i < n_arguments && r == 0; i++) {
		bool in_bucket = external_is_registered(arguments[i]);
		_cleanup_(freep) char *path = in_bucket ? NULL : realpath(arguments[i], NULL);
		char advice[400];
		struct stat st;

		if (in_bucket)
			r = add_bucket(&s, arguments[i], err);
		else if (!path || stat(path, &st) < 0)
			r = error_errno(err, -errno, "cannot read %s", arguments[i]);
		else if (S_ISDIR(st.st_mode))
			r = add_below(&s, path, err);
		else if (is_foreign(path) && container_advise(arguments[i], advice, sizeof(advice)))
			r = error_set(err, -EINVAL, "%s is no tar archive: %s", arguments[i], advice);
		else
			r = add(&s, path, strrchr(path, '/') + 1, err);
	}
	if (r == 0 && s.n == 0)
		r = refuse_empty(arguments[0], err);
	if (r == 0) {
		qsort(s.all, s.n, sizeof(*s.all), compare_paths);
		r = check_prefixes(&s, err);
	}
	if (r < 0)
		shards_free(&s);
	else
		*ret = s;
	return r;
}

void shards_free(struct shards *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->all[i].path);
		free(s->all[i].prefix);
	}
	free(s->all);
	*s = (struct shards){0};
}

struct shard *shards_get(const struct shards *s, const char *path)
{
	const struct shard key = {.path = (char *)path};

	return s->n ? bsearch(&key, s->all, s->n, sizeof(key), compare_paths) : NULL;
}
