/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of external chunks (dataset/external.h) that are objects of a bucket. */
#include "store_s3.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "lib/array.h"
#include "lib/cleanup.h"

/* Buckets stay open until the process ends: sources of one dataset are in few. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bucket **buckets;
static size_t n_buckets, n_allocated;

/* Returns the length of s3://BUCKET in the name. */
static size_t bucket_length(const char *name)
{
	return strlen(BUCKET_SCHEME) + strcspn(name + strlen(BUCKET_SCHEME), "/");
}

static struct bucket *find(const char *name, size_t length)
{
	for (size_t i = 0; i < n_buckets; i++)
		if (strlen(bucket_url(buckets[i])) == length &&
		    memcmp(bucket_url(buckets[i]), name, length) == 0)
			return buckets[i];
	return NULL;
}

static int add(const char *name, size_t length, struct bucket **ret, struct error *err)
{
	_cleanup_(freep) char *url = strndup(name, length);
	struct bucket *b;
	int r = !url || array_reserve(buckets, n_buckets, n_allocated) < 0
		    ? error_errno(err, -ENOMEM, "%s", name)
		    : bucket_open(url, &b, err);

	if (r < 0)
		return r;
	buckets[n_buckets++] = b;
	*ret = b;
	return 0;
}

static int bucket_of(const char *name, struct bucket **ret, const char **ret_key, struct error *err)
{
	size_t length = bucket_length(name);
	struct bucket *b;
	int r = 0;

	pthread_mutex_lock(&lock);
	b = find(name, length);
	if (!b)
		r = add(name, length, &b, err);
	pthread_mutex_unlock(&lock);
	if (r < 0)
		return r;
	*ret = b;
	*ret_key = name + length + (name[length] == '/');
	return 0;
}

/* -EOPNOTSUPP: without an ETag a change cannot be noticed. */
static int stamp_of(const char *name, const char *tag, uint64_t *ret, struct error *err)
{
	if (!tag[0])
		return error_set(
		    err, -EOPNOTSUPP,
		    "%s: the server sends no ETag, so a change of the object could not be noticed: "
		    "copy the dataset's files to a folder, or pack them",
		    name);
	*ret = checksum_xxh3(tag, strlen(tag));
	return 0;
}

static int source_stat(const char *name, uint64_t *ret_bytes, uint64_t *ret_stamp, struct error *err)
{
	char tag[BUCKET_TAG_MAX];
	struct bucket *b;
	const char *key;
	int r = bucket_of(name, &b, &key, err);

	if (r == 0)
		r = bucket_stat(b, key, ret_bytes, tag, err);
	return r < 0 ? r : stamp_of(name, tag, ret_stamp, err);
}

static int source_read(const char *name, uint64_t offset, void *buffer, size_t bytes, uint64_t *ret_stamp,
		       struct error *err)
{
	char tag[BUCKET_TAG_MAX];
	struct bucket *b;
	const char *key;
	int r = bucket_of(name, &b, &key, err);

	if (r == 0)
		r = bucket_read_tagged(b, key, offset, buffer, bytes, tag, err);
	return r < 0 ? r : stamp_of(name, tag, ret_stamp, err);
}

struct shard_listing {
	const char *bucket;
	size_t bucket_length;
	external_list_callback *callback;
	void *context;
};

static int take_key(const char *key, uint64_t bytes, void *context)
{
	const struct shard_listing *l = context;
	_cleanup_(freep) char *name = NULL;

	(void)bytes;
	if (asprintf(&name, "%.*s/%s", (int)l->bucket_length, l->bucket, key) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	return l->callback(name, l->context);
}

static int source_list(const char *name, external_list_callback *callback, void *context, struct error *err)
{
	struct shard_listing l = {name, bucket_length(name), callback, context};
	struct bucket *b;
	const char *key;
	int r = bucket_of(name, &b, &key, err);

	return r < 0 ? r : bucket_list(b, key, NULL, 1000, take_key, &l, err);
}

const struct external_ops source_s3_ops = {
    .scheme = BUCKET_SCHEME, .stat = source_stat, .read = source_read, .list = source_list};
