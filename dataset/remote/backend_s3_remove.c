/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a dataset from a bucket. Its manifests go first, from the oldest to the newest, so that a reader
 * finds the newest version or none. Only keys that belong to a dataset are removed.
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
#include "s3/bucket.h"

#define KEY_BYTES 64

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

struct run {
	struct bucket *bucket;
	progress_callback *progress;
	void *context;
	struct removal *removal;
};

/* Counts a removed object. */
static void count(struct run *c, const struct object *object)
{
	struct removal *r = c->removal;
	size_t n = strlen(object->key);

	r->bytes += object->bytes;
	r->n_chunks += has_end(object->key + n - 6, ".chunk");
	r->n_snapshots += has_end(object->key + n - 9, ".snapshot");
}

/* Removes all objects of a prefix, in descending order, as a version's key has the complement of its number.
 */
static int remove_all(struct run *c, const char *prefix, struct error *err)
{
	struct error why = ERROR_INIT;
	struct buffer objects = {0};
	int r = bucket_list(c->bucket, prefix, NULL, 0, take, &objects, &why);
	size_t n = objects.bytes / sizeof(struct object);

	for (size_t i = n; i > 0 && r == 0; i--) {
		const struct object *object = (const struct object *)objects.data + (i - 1);

		r = bucket_delete(c->bucket, object->key, &why);
		if (r == 0)
			count(c, object);
		if (c->progress)
			c->progress("removing", n - i + 1, n, c->removal->bytes, c->context);
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

/* Checks that there is a dataset, or what an interrupted removal left, and that it has this version. */
static int check(struct run *c, uint64_t version, struct error *err)
{
	static const char *const prefixes[] = {"versions/", "chunks/", "data/"};
	const char *url = bucket_url(c->bucket);
	uint64_t newest = 0;
	bool found = false;
	int r = bucket_list(c->bucket, "versions/", NULL, 0, take_newest, &newest, err);

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]) && r >= 0 && !found; i++)
		r = bucket_list(c->bucket, prefixes[i], NULL, 0, take_any, &found, err);
	if (r < 0)
		return r;
	if (!found)
		return error_set(err, -ENOENT, "there is no dataset %s", url);
	if (version && newest != version)
		return error_set(err, -EBUSY,
				 "%s was changed by another dieselctl meanwhile; nothing was removed", url);
	return 0;
}

int backend_s3_remove(const char *name, uint64_t version, progress_callback *progress, void *context,
		      struct removal *ret, struct error *err)
{
	struct run c = {.progress = progress, .context = context, .removal = ret};
	uint64_t newest = 0;
	int r = bucket_open(name, &c.bucket, err);

	if (r < 0)
		return r;
	r = check(&c, version, err);
	if (r == 0)
		r = remove_all(&c, "versions/", err);
	if (r == 0)
		r = remove_all(&c, "data/", err);
	if (r == 0)
		r = remove_all(&c, "chunks/", err);
	if (r == 0)
		r = bucket_list(c.bucket, "versions/", NULL, 0, take_newest, &newest, err);
	if (r == 1)
		r = error_set(err, -EBUSY,
			      "another dieselctl published version %" PRIu64
			      " of %s meanwhile, of which chunks are removed: run the same command again",
			      newest, name);
	bucket_close(c.bucket);
	return r;
}
