/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the metadata on a Redis server, for readers and for a transaction. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "meta_redis_private.h"
#include "redis_rows.h"

#define LOG_BATCH 30

int redis_look_up(struct meta_redis *s, enum redis_family family, const void *field, size_t bytes,
		  const unsigned char **ret, size_t *ret_bytes, struct error *err)
{
	int r = redis_flush(s, err);

	if (r < 0)
		return r;
	redis_bucket_ask(s->link, &s->view, family, field, bytes);
	r = redis_link_run(s->link, err);
	if (r == 0)
		r = redis_bucket_value(redis_link_reply(s->link, 0), &s->view, ret, ret_bytes);
	else
		return r;
	return r < 0 && r != -ENOENT ? redis_damaged(s, "keys are missing", err) : r;
}

/* A lookup by a reader: the state comes with it, and says whether it was asked in the right place. */
static int find_committed(struct meta_redis *s, const char *path, size_t length, const unsigned char **ret,
			  size_t *ret_bytes, struct error *err)
{
	for (int i = 0; i < 10; i++) {
		struct redis_view now;
		struct redis_state state;
		int r;

		redis_state_ask(s);
		if (s->read.prefix)
			redis_bucket_ask(s->link, &s->read, REDIS_PATHS, path, length);
		r = redis_link_run(s->link, err);
		if (r == 0)
			r = redis_state_take(s, redis_link_reply(s->link, 0), &state, err);
		if (r < 0)
			return r == -ENODATA ? redis_lost(s, err) : r;
		redis_state_view(s, &state, &now);
		if (s->read.prefix && s->read.number == now.number &&
		    !strcmp(s->read.generation, now.generation)) {
			r = redis_bucket_value(redis_link_reply(s->link, 1), &now, ret, ret_bytes);
			if (r != -ESTALE)
				return r < 0 && r != -ENOENT ? redis_damaged(s, "keys are missing", err) : r;
		}
		s->read = now;
	}
	return error_set(err, -EAGAIN, "%s is changed all the time; try again", redis_link_text(s->link));
}

int redis_meta_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret,
		    struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct meta_path found = {.path = path, .path_length = path_length};
	const unsigned char *data = NULL;
	size_t bytes = 0;
	int r;

	if (path_length == 0 || path_length > CHUNK_NAME_MAX)
		return -ENOENT;
	r = s->open ? redis_look_up(s, REDIS_PATHS, path, path_length, &data, &bytes, err)
		    : find_committed(s, path, path_length, &data, &bytes, err);
	if (r < 0)
		return r;
	if (redis_path_unpack(data, bytes, &found) < 0)
		return redis_damaged(s, "path", err);
	*ret = found;
	return 0;
}

static int view_now(struct meta_redis *s, struct redis_view *ret, struct redis_state *ret_state,
		    struct error *err)
{
	int r;

	if (s->open) {
		*ret = s->view;
		*ret_state = s->was;
		ret_state->info.has_digests = s->keeps_digests;
		ret_state->info.is_compressed = s->is_compressed;
		return redis_flush(s, err);
	}
	r = redis_state_read(s, ret_state, err);
	if (r == 0)
		r = redis_state_check_marks(s, ret_state, err);
	if (r == 0)
		redis_state_view(s, ret_state, ret);
	return r;
}

struct each {
	struct buffer chunks;
	meta_path_callback *callback;
	void *context;
	bool bad;
};

static int collect_chunk(const void *field, size_t field_bytes, const unsigned char *data, size_t bytes,
			 void *context)
{
	struct each *e = context;
	struct meta_chunk chunk = {0};
	int r = redis_chunk_unpack(field, field_bytes, data, bytes, &chunk);

	e->bad |= r < 0;
	return r < 0 ? r : buffer_append(&e->chunks, &chunk, sizeof(chunk));
}

static int compare_chunks(const void *a, const void *b)
{
	return chunk_id_compare(&((const struct meta_chunk *)a)->id, &((const struct meta_chunk *)b)->id);
}

int redis_meta_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct redis_view view;
	struct redis_state state;
	struct each e = {.bad = false};
	int r = view_now(s, &view, &state, err);

	if (r == 0)
		r = redis_buckets_each(s->link, &view, REDIS_CHUNKS, collect_chunk, &e, err);
	struct meta_chunk *chunks = (struct meta_chunk *)e.chunks.data;
	size_t n = e.chunks.bytes / sizeof(*chunks);

	if (n)
		qsort(chunks, n, sizeof(*chunks), compare_chunks);
	for (size_t i = 0; i < n && r == 0; i++) {
		e.bad |= chunks[i].has_sha256 != state.info.has_digests;
		r = e.bad ? -EBADMSG : callback(&chunks[i], context);
	}
	buffer_free(&e.chunks);
	return e.bad ? redis_damaged(s, "chunk", err) : r;
}

static int each_path(const void *field, size_t field_bytes, const unsigned char *data, size_t bytes,
		     void *context)
{
	struct each *e = context;
	struct meta_path path = {.path = field, .path_length = field_bytes};

	if (redis_path_unpack(data, bytes, &path) < 0) {
		e->bad = true;
		return -EBADMSG;
	}
	return e->callback(&path, e->context);
}

int redis_meta_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct each e = {.callback = callback, .context = context};
	struct redis_view view;
	struct redis_state state;
	int r = view_now(s, &view, &state, err);

	if (r == 0)
		r = redis_buckets_each(s->link, &view, REDIS_PATHS, each_path, &e, err);
	return e.bad ? redis_damaged(s, "path", err) : r;
}

static int each_change_of(struct meta_redis *s, const redisReply *reply, meta_change_callback *callback,
			  void *context, struct error *err)
{
	int r = reply->type == REDIS_REPLY_ARRAY ? 0 : redis_damaged(s, "log", err);

	for (size_t i = 0; i < reply->elements && r == 0; i++) {
		const redisReply *entry = reply->element[i];
		struct change change;

		if (entry->type == REDIS_REPLY_NIL)
			continue;
		r = entry->type == REDIS_REPLY_STRING ? change_parse(entry->str, entry->len, &change)
						      : -EBADMSG;
		r = r < 0 ? redis_damaged(s, "log", err) : callback(&change, context);
	}
	return r;
}

int redis_meta_each_change(struct meta *m, meta_change_callback *callback, void *context, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	char names[LOG_BATCH][REDIS_LOG_NAME];
	const char *args[2 + LOG_BATCH] = {"HMGET", s->key};
	struct redis_view view;
	struct redis_state state;
	int r = view_now(s, &view, &state, err);

	for (uint64_t first = 1; r == 0 && first <= state.info.version; first += LOG_BATCH) {
		size_t n = 0;

		while (n < LOG_BATCH && first + n <= state.info.version) {
			args[2 + n] = redis_log_name(first + n, names[n]);
			n++;
		}
		redis_link_read(s->link, 2 + n, args, NULL);
		r = redis_link_run(s->link, err);
		if (r == 0)
			r = each_change_of(s, redis_link_reply(s->link, 0), callback, context, err);
	}
	return r;
}
