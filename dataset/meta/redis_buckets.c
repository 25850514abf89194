/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_buckets.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "lib/cleanup.h"
#include "dataset/redis/redis_scripts.h"

#define N_PATHS   1024
#define N_CHUNKS  16
#define N_BUCKETS REDIS_BUCKETS
_Static_assert(N_PATHS + N_CHUNKS == N_BUCKETS, "the header's number");
#define KEY_BYTES   (REDIS_URL_PART + 40)
#define MARK_BYTES  40
#define BATCH_BYTES (1 << 20)
#define BATCH_N     256
#define SCAN_N      8 /* buckets scanned at a time */
#define SCAN_CALLS  100000

static unsigned bucket_of(enum redis_family family, const void *field, size_t bytes)
{
	uint64_t hash = checksum_xxh3(field, bytes);

	return family == REDIS_PATHS ? (unsigned)(hash % N_PATHS) : N_PATHS + (unsigned)(hash % N_CHUNKS);
}

static const char *key_of(const struct redis_view *v, unsigned bucket, char key[KEY_BYTES])
{
	snprintf(key, KEY_BYTES, "%s:%s:%u", v->prefix, v->generation, bucket);
	return key;
}

static uint64_t number_at(const void *data)
{
	uint64_t n;

	memcpy(&n, data, sizeof(n));
	return be64toh(n);
}

int redis_buckets_make(struct redis_link *l, const struct redis_view *v, struct error *err)
{
	char key[KEY_BYTES], mark[MARK_BYTES] = {0};
	int r = 0;

	for (unsigned i = 0; i < N_BUCKETS && r == 0; i++) {
		key_of(v, i, key);
		redis_link_write(l, 4, (const char *[]){"HSETNX", key, "", mark},
				 (size_t[]){6, strlen(key), 0, sizeof(mark)});
		if (redis_link_n(l) == BATCH_N || i + 1 == N_BUCKETS)
			r = redis_link_run(l, err);
	}
	return r;
}

int redis_buckets_remove(struct redis_link *l, const struct redis_view *v, struct error *err)
{
	char key[KEY_BYTES];
	int r = 0;

	for (unsigned i = 0; i < N_BUCKETS && r == 0; i++) {
		redis_link_write(l, 2, (const char *[]){"UNLINK", key_of(v, i, key)}, NULL);
		if (redis_link_n(l) == BATCH_N || i + 1 == N_BUCKETS)
			r = redis_link_run(l, err);
	}
	return r;
}

int redis_buckets_sweep(struct redis_link *l, const struct redis_view *v, uint64_t dead, struct error *err)
{
	char key[KEY_BYTES], number[24], dead_number[24];
	int r = 0;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)v->number);
	snprintf(dead_number, sizeof(dead_number), "%llu", (unsigned long long)dead);
	for (unsigned i = 0; i < N_BUCKETS && r == 0; i++) {
		redis_link_script(l, SCRIPT_SWEEP, key_of(v, i, key), 2,
				  (const char *[]){number, dead_number}, NULL);
		if (redis_link_n(l) == 16 || i + 1 == N_BUCKETS)
			r = redis_link_run(l, err);
	}
	return r;
}

struct mark {
	uint64_t writer; /* the last writer that is visible in this view */
	uint64_t n;      /* values */
};

static int mark_of(const redisReply *mark, const struct redis_view *v, struct mark *ret)
{
	size_t at;

	if (mark->type != REDIS_REPLY_STRING || mark->len != MARK_BYTES)
		return -EBADMSG;
	if (number_at(mark->str + 24) <= v->number)
		at = 24;
	else if (number_at(mark->str + 8) <= v->number)
		at = 8;
	else
		return -ESTALE;
	*ret = (struct mark){number_at(mark->str + at), number_at(mark->str + at + 8)};
	return 0;
}

static int damaged(const struct redis_link *l, int code, struct error *err)
{
	if (code == -ESTALE)
		return error_set(err, -EAGAIN, "%s was changed while it was read; try again",
				 redis_link_text(l));
	if (code == -ENOMEM)
		return error_errno(err, code, "%s", redis_link_text(l));
	return error_set(err, -EBADMSG,
			 "%s: keys of the dataset are missing or damaged: run `dieselctl rebuild`",
			 redis_link_text(l));
}

int redis_buckets_count(struct redis_link *l, const struct redis_view *v, struct redis_totals *ret,
			struct error *err)
{
	struct redis_totals totals = {.marks = 0};
	struct mark marks[N_BUCKETS];
	char key[KEY_BYTES];
	int r;

	for (unsigned i = 0; i < N_BUCKETS; i++) {
		key_of(v, i, key);
		redis_link_read(l, 3, (const char *[]){"HGET", key, ""}, (size_t[]){4, strlen(key), 0});
	}
	r = redis_link_run(l, err);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < N_BUCKETS; i++) {
		r = mark_of(redis_link_reply(l, i), v, &marks[i]);
		if (r < 0)
			return damaged(l, r, err);
		totals.n[i < N_PATHS ? REDIS_PATHS : REDIS_CHUNKS] += marks[i].n;
	}
	totals.marks = checksum_xxh3(marks, sizeof(marks));
	*ret = totals;
	return 0;
}

struct bucket_put {
	unsigned bucket;
	uint16_t field_bytes;
	uint16_t bytes;
	size_t offset; /* where the data has the field, followed by the value */
};

int redis_puts_add(struct redis_puts *p, enum redis_family family, const void *field, size_t field_bytes,
		   const void *data, size_t bytes)
{
	struct bucket_put put = {bucket_of(family, field, field_bytes), (uint16_t)field_bytes,
				 (uint16_t)bytes, p->data.bytes};
	int r = buffer_append(&p->data, field, field_bytes);

	if (r == 0)
		r = buffer_append(&p->data, data, bytes);
	return r < 0 ? r : buffer_append(&p->list, &put, sizeof(put));
}

static int compare_fields(const void *a, const void *b, void *data)
{
	const struct bucket_put *x = a, *y = b;

	if (x->field_bytes != y->field_bytes)
		return x->field_bytes < y->field_bytes ? -1 : 1;
	return memcmp((const char *)data + x->offset, (const char *)data + y->offset, x->field_bytes);
}

static int compare_puts(const void *a, const void *b, void *data)
{
	const struct bucket_put *x = a, *y = b;
	int order = (x->bucket > y->bucket) - (x->bucket < y->bucket);

	if (order == 0)
		order = compare_fields(a, b, data);
	return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Adds one command for the first values of the list, which are all of one bucket. Returns the number of
 * values taken. */
static size_t add_command(const struct redis_puts *p, const struct bucket_put *list, size_t n,
			  struct redis_link *l, const struct redis_view *v)
{
	const char *args[SCRIPT_MAX_ARGS], *data = (const char *)p->data.data;
	size_t sizes[SCRIPT_MAX_ARGS], i = 0, k = 1;
	char key[KEY_BYTES], number[24];

	args[0] = number;
	sizes[0] = (size_t)snprintf(number, sizeof(number), "%llu", (unsigned long long)v->number);
	for (; i < n && list[i].bucket == list->bucket && k + 2 <= SCRIPT_MAX_ARGS; i++) {
		if (i + 1 < n && list[i + 1].bucket == list->bucket &&
		    compare_fields(&list[i], &list[i + 1], p->data.data) == 0)
			continue; /* a later one replaces it */
		args[k] = data + list[i].offset;
		sizes[k++] = list[i].field_bytes;
		args[k] = data + list[i].offset + list[i].field_bytes;
		sizes[k++] = list[i].bytes;
	}
	redis_link_script(l, SCRIPT_PUT, key_of(v, list->bucket, key), k, args, sizes);
	return i;
}

int redis_puts_flush(struct redis_puts *p, struct redis_link *l, const struct redis_view *v,
		     struct error *err)
{
	struct bucket_put *list = (struct bucket_put *)p->list.data;
	size_t n = p->list.bytes / sizeof(*list);
	int r = 0;

	if (n)
		qsort_r(list, n, sizeof(*list), compare_puts, p->data.data);
	for (size_t i = 0; i < n && r == 0;) {
		i += add_command(p, list + i, n - i, l, v);
		if (i == n || redis_link_n(l) == BATCH_N || redis_link_bytes(l) > BATCH_BYTES)
			r = redis_link_run(l, err);
	}
	p->data.bytes = p->list.bytes = 0;
	return r;
}

void redis_puts_free(struct redis_puts *p)
{
	buffer_free(&p->data);
	buffer_free(&p->list);
}

/* Finds the version of a value that is visible in the view. -ENOENT: there is none, or it is deleted. */
static int version_of(const void *value, size_t length, const struct redis_view *v, const unsigned char **ret,
		      size_t *ret_bytes)
{
	const unsigned char *at = value, *end = at + length, *found = NULL;

	while (at < end) {
		if (end - at < 9 || end - at - 9 < at[8])
			return -EBADMSG;
		if (number_at(at) <= v->number)
			found = at;
		at += 9 + at[8];
	}
	if (!found || found[8] == 0)
		return -ENOENT;
	*ret = found + 9;
	*ret_bytes = found[8];
	return 0;
}

void redis_bucket_ask(struct redis_link *l, const struct redis_view *v, enum redis_family family,
		      const void *field, size_t field_bytes)
{
	char key[KEY_BYTES];

	key_of(v, bucket_of(family, field, field_bytes), key);
	redis_link_read(l, 4, (const char *[]){"HMGET", key, "", field},
			(size_t[]){5, strlen(key), 0, field_bytes});
}

int redis_bucket_value(const redisReply *reply, const struct redis_view *v, const unsigned char **ret,
		       size_t *ret_bytes)
{
	struct mark mark;
	int r;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return -EBADMSG;
	r = mark_of(reply->element[0], v, &mark);
	if (r < 0)
		return r;
	if (reply->element[1]->type == REDIS_REPLY_NIL)
		return -ENOENT;
	if (reply->element[1]->type != REDIS_REPLY_STRING)
		return -EBADMSG;
	return version_of(reply->element[1]->str, reply->element[1]->len, v, ret, ret_bytes);
}

/* A bucket that is being read. HSCAN may return a field twice. */
struct bucket_scan {
	char cursor[24];
	unsigned n_calls;
	bool done;
	struct buffer data; /* fields and values of the view */
	struct buffer list; /* struct bucket_put */
};

static int take_pair(struct bucket_scan *s, const redisReply *field, const redisReply *value,
		     const struct redis_view *v)
{
	struct bucket_put put = {.offset = s->data.bytes, .field_bytes = (uint16_t)field->len};
	const unsigned char *data;
	size_t bytes = 0;
	int r;

	if (field->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING || field->len > UINT16_MAX)
		return -EBADMSG;
	if (field->len == 0)
		return 0;
	r = version_of(value->str, value->len, v, &data, &bytes);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	put.bytes = (uint16_t)bytes;
	r = buffer_append(&s->data, field->str, field->len);
	if (r == 0)
		r = buffer_append(&s->data, data, bytes);
	return r < 0 ? r : buffer_append(&s->list, &put, sizeof(put));
}

static int take_scan(struct bucket_scan *s, const redisReply *reply, const struct redis_view *v)
{
	const redisReply *pairs =
	    reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 ? reply->element[1] : NULL;
	int r = 0;

	if (!pairs || pairs->type != REDIS_REPLY_ARRAY || reply->element[0]->type != REDIS_REPLY_STRING ||
	    reply->element[0]->len >= sizeof(s->cursor))
		return -EBADMSG;
	memcpy(s->cursor, reply->element[0]->str, reply->element[0]->len + 1);
	s->done = !strcmp(s->cursor, "0");
	if (++s->n_calls > SCAN_CALLS)
		return -EBADMSG;
	for (size_t i = 0; i + 1 < pairs->elements && r == 0; i += 2)
		r = take_pair(s, pairs->element[i], pairs->element[i + 1], v);
	return r;
}

/* Sorts the fields, removes duplicates, and compares their number with the mark. */
static int settle(struct bucket_scan *s, const redisReply *mark, const struct redis_view *v)
{
	struct bucket_put *list = (struct bucket_put *)s->list.data;
	size_t n = s->list.bytes / sizeof(*list), kept = 0;
	struct mark wanted;
	int r = mark_of(mark, v, &wanted);

	if (n)
		qsort_r(list, n, sizeof(*list), compare_fields, s->data.data);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || compare_fields(&list[kept - 1], &list[i], s->data.data) != 0)
			list[kept++] = list[i];
	s->list.bytes = kept * sizeof(*list);
	return r == 0 && kept != wanted.n ? -EBADMSG : r;
}

/* Reads some buckets as a whole. */
static int read_buckets(struct redis_link *l, const struct redis_view *v, unsigned first, unsigned n,
			struct bucket_scan *scans, struct error *err)
{
	char key[KEY_BYTES];
	unsigned asked[SCAN_N];
	int r = 0;

	for (unsigned i = 0; i < n; i++) {
		strcpy(scans[i].cursor, "0");
		scans[i].done = false;
		scans[i].n_calls = 0;
		scans[i].data.bytes = scans[i].list.bytes = 0;
	}
	for (unsigned left = n; left && r == 0;) {
		left = 0;
		for (unsigned i = 0; i < n; i++) {
			if (scans[i].done)
				continue;
			asked[left++] = i;
			redis_link_read(l, 5,
					(const char *[]){"HSCAN", key_of(v, first + i, key), scans[i].cursor,
							 "COUNT", "1000"},
					NULL);
		}
		r = left ? redis_link_run(l, err) : 0;
		if (r < 0)
			return r;
		for (unsigned i = 0; i < left && r == 0; i++)
			r = take_scan(&scans[asked[i]], redis_link_reply(l, i), v);
	}
	for (unsigned i = 0; i < n && r == 0; i++) {
		key_of(v, first + i, key);
		redis_link_read(l, 3, (const char *[]){"HGET", key, ""}, (size_t[]){4, strlen(key), 0});
	}
	if (r < 0)
		return damaged(l, r, err);
	r = redis_link_run(l, err);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < n && r == 0; i++)
		r = settle(&scans[i], redis_link_reply(l, i), v);
	return r < 0 ? damaged(l, r, err) : 0;
}

static int call_each(const struct bucket_scan *s, redis_value_callback *callback, void *context)
{
	const struct bucket_put *list = (const struct bucket_put *)s->list.data;
	int r = 0;

	for (size_t i = 0; i < s->list.bytes / sizeof(*list) && r == 0; i++) {
		const unsigned char *field = s->data.data + list[i].offset;

		r = callback(field, list[i].field_bytes, field + list[i].field_bytes, list[i].bytes, context);
	}
	return r;
}

int redis_buckets_each(struct redis_link *l, const struct redis_view *v, enum redis_family family,
		       redis_value_callback *callback, void *context, struct error *err)
{
	unsigned first = family == REDIS_PATHS ? 0 : N_PATHS,
		 end = family == REDIS_PATHS ? N_PATHS : N_BUCKETS;
	struct bucket_scan scans[SCAN_N] = {0};
	int r = 0;

	for (; first < end && r == 0; first += SCAN_N) {
		unsigned n = end - first < SCAN_N ? end - first : SCAN_N;

		r = read_buckets(l, v, first, n, scans, err);
		for (unsigned i = 0; i < n && r == 0; i++)
			r = call_each(&scans[i], callback, context);
	}
	for (unsigned i = 0; i < SCAN_N; i++) {
		buffer_free(&scans[i].data);
		buffer_free(&scans[i].list);
	}
	return r;
}
