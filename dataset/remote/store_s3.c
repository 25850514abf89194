/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks as objects of a bucket: PREFIX/chunks/<id>.chunk.
 *
 * An object exists completely or not at all, so nothing has to be renamed or swept. Unfinished multipart
 * uploads of a dead writer are invisible, too; a lifecycle rule of the bucket removes them.
 */
#include "store_s3.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/container_of.h"

#define FOLDER      "chunks/"
#define SUFFIX      ".chunk"
#define KEY_BYTES   (sizeof(FOLDER) + CHUNK_ID_TEXT + sizeof(SUFFIX))
#define MAX_OBJECTS ((size_t)1 << 24) /* limits the memory that an endless list can take */

static struct bucket *bucket_of(const struct store *s)
{
	return ((const struct store_s3 *)((const char *)s - offsetof(struct store_s3, store)))->bucket;
}

static const char *key_of(const struct chunk_id *id, char key[KEY_BYTES])
{
	char text[CHUNK_ID_TEXT];

	snprintf(key, KEY_BYTES, FOLDER "%s" SUFFIX, chunk_id_format(id, text));
	return key;
}

static int s3_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		  struct error *err)
{
	char key[KEY_BYTES];

	return bucket_put_new(bucket_of(s), key_of(id, key), parts, n_parts, err);
}

static int s3_replace(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		      struct error *err)
{
	char key[KEY_BYTES];

	return bucket_replace(bucket_of(s), key_of(id, key), parts, n_parts, err);
}

static int checked(int r, struct error *err)
{
	if (r == -ENOENT)
		error_advise(err, CHUNK_MISSING);
	return r;
}

static int s3_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err)
{
	char key[KEY_BYTES];

	return checked(bucket_size(bucket_of(s), key_of(id, key), ret_bytes, err), err);
}

static int s3_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		   struct error *err)
{
	char key[KEY_BYTES];

	return checked(bucket_read(bucket_of(s), key_of(id, key), offset, buffer, bytes, err), err);
}

static int s3_read_made(struct store *s, const struct chunk_id *id, void *buffer, size_t bytes,
			struct external_maker *ret, struct error *err)
{
	*ret = (struct external_maker){.bucket = bucket_url(bucket_of(s))};
	return s3_read(s, id, 0, buffer, bytes, err);
}

struct bucket_listing {
	struct store_object *objects;
	size_t n, n_allocated;
};

static int take_object(const char *key, uint64_t bytes, void *context)
{
	struct bucket_listing *l = context;
	struct store_object object = {.bytes = bytes};
	char text[CHUNK_ID_TEXT];

	if (strlen(key) != strlen(FOLDER) + CHUNK_ID_TEXT - 1 + strlen(SUFFIX) ||
	    strcmp(key + strlen(FOLDER) + CHUNK_ID_TEXT - 1, SUFFIX) != 0)
		return 0;
	memcpy(text, key + strlen(FOLDER), CHUNK_ID_TEXT - 1);
	text[CHUNK_ID_TEXT - 1] = '\0';
	if (chunk_id_parse(text, &object.id) < 0)
		return 0;
	if (l->n == MAX_OBJECTS)
		return -EOVERFLOW;
	if (array_reserve(l->objects, l->n, l->n_allocated) < 0)
		return -ENOMEM;
	l->objects[l->n++] = object;
	return 0;
}

static int s3_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
		   struct error *err)
{
	struct error list_err = ERROR_INIT;
	struct bucket_listing l = {0};
	char key[KEY_BYTES];
	int r = bucket_list(bucket_of(s), FOLDER, after ? key_of(after, key) : NULL, 0, take_object, &l,
			    &list_err);

	if (r < 0) {
		free(l.objects);
		if (list_err.code == 0)
			return error_errno(err, r, "cannot list %s/" FOLDER, bucket_url(bucket_of(s)));
		if (err)
			*err = list_err;
		return r;
	}
	*ret = l.objects;
	*ret_n = l.n;
	return 0;
}

static int s3_remove(struct store *s, const struct chunk_id *id, struct error *err)
{
	char key[KEY_BYTES];
	uint64_t bytes;
	int r = bucket_size(bucket_of(s), key_of(id, key), &bytes,
			    err); /* a bucket does not report whether an object existed */

	return r < 0 ? r : bucket_delete(bucket_of(s), key, err);
}

static int s3_sweep(struct store *s, struct error *err)
{
	(void)s;
	(void)err;
	return 0;
}

static void s3_describe(const struct store *s, const struct chunk_id *id, char *text, size_t size)
{
	char key[KEY_BYTES];

	snprintf(text, size, "%s/%s", bucket_url(bucket_of(s)), key_of(id, key));
}

static void s3_free(struct store *s)
{
	free(container_of(s, struct store_s3, store));
}

const struct store_ops store_s3_ops = {
    .read_made = s3_read_made,
    .put = s3_put,
    .replace = s3_replace,
    .size = s3_size,
    .read = s3_read,
    .list = s3_list,
    .remove = s3_remove,
    .sweep = s3_sweep,
    .describe = s3_describe,
    .free = s3_free,
};
