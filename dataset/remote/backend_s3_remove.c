/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a dataset from a bucket. A manifest with the next number says so first, and is removed last:
 * meanwhile nobody can publish a version, which would be lost. Only keys that belong to a dataset are
 * removed.
 */
#include "backend_s3_remove.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk.h"
#include "dataset/chunk/buffer.h"
#include "dataset/copy.h"
#include "lib/cleanup.h"
#include "manifest.h"
#include "s3/bucket.h"

#define KEY_BYTES 64
#define MAX_TRIES 16

struct object {
	char key[KEY_BYTES];
	uint64_t bytes;
};

static bool has_end(const char *key, const char *end)
{
	return strcmp(key, end) == 0;
}

/* Returns true if this is PREFIX followed by a chunk's id and one of the endings. */
static bool is_named(const char *key, const char *prefix, const char *end, const char *other_end)
{
	size_t n = strlen(prefix);
	struct chunk_id id;
	char text[CHUNK_ID_TEXT];

	if (strncmp(key, prefix, n) != 0 || strlen(key) < n + CHUNK_ID_TEXT)
		return false;
	memcpy(text, key + n, CHUNK_ID_TEXT - 1);
	text[CHUNK_ID_TEXT - 1] = '\0';
	key += n + CHUNK_ID_TEXT - 1;
	return chunk_id_parse(text, &id) == 0 && (has_end(key, end) || has_end(key, other_end));
}

static bool is_version(const char *key)
{
	const char *digits = key + strlen("versions/");

	return strncmp(key, "versions/", strlen("versions/")) == 0 && strlen(digits) == 16 &&
	       strspn(digits, "0123456789abcdef") == 16;
}

static int take(const char *key, uint64_t bytes, void *context)
{
	struct object object = {.bytes = bytes};

	if (!is_version(key) && !is_named(key, "chunks/", ".chunk", ".chunk") &&
	    !is_named(key, "data/", ".snapshot", ".meta"))
		return 0;
	snprintf(object.key, sizeof(object.key), "%s", key);
	return buffer_append(context, &object, sizeof(object));
}

struct removal_run {
	struct bucket *bucket;
	progress_callback *progress;
	void *context;
	struct removal *removal;
	uint64_t mark; /* number of the manifest that says that the dataset is removed */
};

/* Counts a removed object. */
static void count(struct removal_run *c, const struct object *object)
{
	struct removal *r = c->removal;
	size_t n = strlen(object->key);

	r->bytes += object->bytes;
	r->n_chunks += has_end(object->key + n - 6, ".chunk");
	r->n_snapshots += has_end(object->key + n - 9, ".snapshot");
}

/* Removes all objects of a prefix but the mark. */
static int remove_all(struct removal_run *c, const char *prefix, struct error *err)
{
	struct error why = ERROR_INIT;
	struct buffer objects = {0};
	char mark[MANIFEST_KEY];
	int r = bucket_list(c->bucket, prefix, NULL, 0, take, &objects, &why);
	size_t n = objects.bytes / sizeof(struct object);

	manifest_key(c->mark, mark);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct object *object = (const struct object *)objects.data + i;

		if (!strcmp(object->key, mark))
			continue;
		r = bucket_delete(c->bucket, object->key, &why);
		if (r == 0)
			count(c, object);
		if (c->progress)
			c->progress("removing", i + 1, n, c->removal->bytes, c->context);
	}
	buffer_free(&objects);
	if (r < 0 && !why.code)
		error_errno(&why, r, "cannot list %s/%s", bucket_url(c->bucket), prefix);
	if (r < 0 && err)
		*err = why;
	return r;
}

static int take_newest(const char *key, uint64_t bytes, void *context)
{
	(void)bytes;
	if (!is_version(key))
		return 0;
	*(uint64_t *)context = ~(uint64_t)strtoull(key + strlen("versions/"), NULL, 16);
	return 1;
}

static int take_any(const char *key, uint64_t bytes, void *context)
{
	struct buffer one = {0};
	int r = take(key, bytes, &one);

	*(bool *)context |= one.bytes > 0;
	buffer_free(&one);
	return r < 0 ? r : *(bool *)context;
}

/* Checks that there is a dataset, or what an interrupted removal left. */
static int check(struct removal_run *c, struct error *err)
{
	static const char *const prefixes[] = {"versions/", "chunks/", "data/"};
	bool found = false;
	int r = 0;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]) && r >= 0 && !found; i++)
		r = bucket_list(c->bucket, prefixes[i], NULL, 0, take_any, &found, err);
	if (r < 0)
		return r;
	return found ? 0 : error_set(err, -ENOENT, "there is no dataset %s", bucket_url(c->bucket));
}

static int newest_of(struct removal_run *c, uint64_t *ret, struct error *err)
{
	*ret = 0;
	int r = bucket_list(c->bucket, "versions/", NULL, 0, take_newest, ret, err);

	return r < 0 ? r : 0;
}

/* Returns true if an interrupted removal left this manifest. */
static bool is_mark(struct removal_run *c, uint64_t version)
{
	char key[MANIFEST_KEY], text[MANIFEST_MAX];
	struct manifest m;
	uint64_t bytes;

	return bucket_size(c->bucket, manifest_key(version, key), &bytes, NULL) == 0 &&
	       bytes <= sizeof(text) && bucket_read(c->bucket, key, 0, text, bytes, NULL) == 0 &&
	       manifest_parse(text, bytes, &m) == 0 && m.is_removed;
}

/* Takes the number after the newest one, which must be `version` unless that is 0. */
static int mark(struct removal_run *c, uint64_t version, struct error *err)
{
	int r = -EEXIST;

	for (int i = 0; i < MAX_TRIES && r == -EEXIST; i++) {
		char key[MANIFEST_KEY], text[MANIFEST_MAX];
		struct manifest m = {.is_removed = true};
		struct iovec part = {.iov_base = text};

		r = newest_of(c, &c->mark, err);
		if (r < 0 || (c->mark > 0 && is_mark(c, c->mark) && (!version || c->mark == version + 1)))
			return r;
		if (version && c->mark != version)
			break;
		m.version = ++c->mark;
		part.iov_len = manifest_format(&m, text);
		r = bucket_put_new(c->bucket, manifest_key(c->mark, key), &part, 1, err);
		if (r != -EEXIST)
			return r;
	}
	return error_set(err, -EBUSY, "%s was changed by another dieselctl meanwhile; nothing was removed",
			 bucket_url(c->bucket));
}

/* Removes the mark, unless a server without If-None-Match let another writer publish. */
static int unmark(struct removal_run *c, struct error *err)
{
	char key[MANIFEST_KEY];
	uint64_t newest;
	int r = newest_of(c, &newest, err);

	if (r == 0)
		r = bucket_delete(c->bucket, manifest_key(c->mark, key), err);
	if (r < 0 || newest <= c->mark)
		return r;
	return error_set(err, -EBUSY,
			 "another dieselctl published version %" PRIu64
			 " of %s meanwhile, of which chunks are removed: run the same command again",
			 newest, bucket_url(c->bucket));
}

int backend_s3_remove(const char *name, uint64_t version, progress_callback *progress, void *context,
		      struct removal *ret, struct error *err)
{
	struct removal_run c = {.progress = progress, .context = context, .removal = ret};
	int r = bucket_open(name, &c.bucket, err);

	if (r < 0)
		return r;
	r = check(&c, err);
	if (r == 0)
		r = mark(&c, version, err);
	if (r == 0)
		r = remove_all(&c, "versions/", err);
	if (r == 0)
		r = remove_all(&c, "data/", err);
	if (r == 0)
		r = remove_all(&c, "chunks/", err);
	if (r == 0)
		r = unmark(&c, err);
	bucket_close(c.bucket);
	return r;
}
