/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata store on a Redis server.
 *
 * PREFIX:state is a hash with the dataset's number, the valid generation of buckets, and the number of the
 * writer that committed last. A commit is one command that changes this hash. Writers are numbered. The next
 * writer first removes everything that a dead one has written (redis_buckets.h).
 *
 * Of several transactions the one that began last wins: the others can neither write nor commit any more.
 * Callers make sure that only one writer at a time begins (dataset/writer.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "dataset/redis/redis_scripts.h"
#include "lib/units.h"
#include "meta_redis_private.h"
#include "redis_rows.h"

/* Reads the metadata on a Redis server, for readers and for a transaction. */

#define LOG_BATCH 30

enum field {
	F_FORMAT,
	F_DATASET,
	F_GENERATION,
	F_TX,
	F_DIRTY,   /* a writer that may have written without a commit; 0: none */
	F_SCRATCH, /* the generation that this writer made, or "" */
	F_COMMITTED,
	F_VERSION,
	F_CHUNKS,
	F_PATHS,
	F_DIGESTS,
	F_NEWEST,
	F_PENDING,
	F_GARBAGE, /* a generation that is to be removed, or "" */
	F_MARKS,   /* checksum of all buckets' marks after the last commit */
	N_FIELDS
};

static const char *const field_names[N_FIELDS] = {"format",  "dataset",   "generation", "tx",      "dirty",
						  "scratch", "committed", "version",    "chunks",  "paths",
						  "digests", "newest",    "pending",    "garbage", "marks"};

/* Sets the text for damaged metadata. Returns -EBADMSG. */
static int redis_damaged(const struct meta_redis *s, const char *what, struct error *err)
{
	return error_set(err, -EBADMSG, "%s: the metadata is damaged (%s): run `dieselctl rebuild`",
			 redis_link_text(s->link), what);
}

static int get_number(const struct redisReply *reply, uint64_t *ret)
{
	int64_t number;

	if (reply->type != REDIS_REPLY_STRING || units_parse_integer(reply->str, 0, INT64_MAX, &number) < 0)
		return -EBADMSG;
	*ret = (uint64_t)number;
	return 0;
}

static int get_text(const struct redisReply *reply, char *ret, size_t size)
{
	if (reply->type != REDIS_REPLY_STRING || reply->len >= size)
		return -EBADMSG;
	memcpy(ret, reply->str, reply->len + 1);
	return 0;
}

/* Ask for the state and parse the reply, which may come with other replies. -ENODATA, without a text: there
 * is no state. */
static void redis_state_ask(struct meta_redis *s)
{
	const char *args[2 + N_FIELDS] = {"HMGET", s->key};

	memcpy(args + 2, field_names, sizeof(field_names));
	redis_link_read(s->link, 2 + N_FIELDS, args, NULL);
}

static int numbers_of(struct redisReply *const *f, struct redis_state *state)
{
	uint64_t digests = 0;
	char newest[CHUNK_ID_TEXT] = "", pending[CHUNK_ID_TEXT] = "", marks[17] = "", *end = marks;
	int r = get_number(f[F_DIRTY], &state->dirty);

	r = r < 0 ? r : get_number(f[F_COMMITTED], &state->committed);
	r = r < 0 ? r : get_number(f[F_VERSION], &state->info.version);
	r = r < 0 ? r : get_number(f[F_CHUNKS], &state->info.n_chunks);
	r = r < 0 ? r : get_number(f[F_PATHS], &state->info.n_paths);
	r = r < 0 ? r : get_number(f[F_DIGESTS], &digests);
	r = r < 0 ? r : get_text(f[F_NEWEST], newest, sizeof(newest));
	r = r < 0 ? r : get_text(f[F_PENDING], pending, sizeof(pending));
	r = r < 0 ? r : get_text(f[F_MARKS], marks, sizeof(marks));
	state->marks = strtoull(marks, &end, 16);
	state->info.has_digests = digests != 0;
	state->info.has_newest = chunk_id_parse(newest, &state->info.newest) == 0;
	state->info.has_pending = chunk_id_parse(pending, &state->info.pending) == 0;
	return r < 0 || end != marks + 16 || (newest[0] && !state->info.has_newest) ||
		       (pending[0] && !state->info.has_pending)
		   ? -EBADMSG
		   : 0;
}

static int redis_state_take(const struct meta_redis *s, const redisReply *reply, struct redis_state *ret,
			    struct error *err)
{
	struct redisReply *const *f = reply->element;
	char format[16], dataset[33];
	struct redis_state state = {0};
	int r = 0;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != N_FIELDS)
		return redis_damaged(s, "no state", err);
	if (f[F_DATASET]->type == REDIS_REPLY_NIL)
		return -ENODATA;
	if (get_text(f[F_FORMAT], format, sizeof(format)) < 0 ||
	    get_text(f[F_DATASET], dataset, sizeof(dataset)) < 0)
		return redis_damaged(s, "not ours", err);
	if (strcmp(format, REDIS_FORMAT_PLAIN) != 0 && strcmp(format, REDIS_FORMAT_COMPRESSED) != 0)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s has metadata in a newer format than this program supports; update it",
				 redis_link_text(s->link));
	if (strcmp(dataset, s->place.dataset) != 0)
		return error_set(err, -EEXIST, "%s holds another dataset's metadata, not that of %s",
				 redis_link_text(s->link), s->file);
	state.info.is_compressed = strcmp(format, REDIS_FORMAT_COMPRESSED) == 0;
	r = get_text(f[F_GENERATION], state.generation, sizeof(state.generation));
	r = r < 0 ? r : get_text(f[F_SCRATCH], state.scratch, sizeof(state.scratch));
	r = r < 0 ? r : get_text(f[F_GARBAGE], state.garbage, sizeof(state.garbage));
	r = r < 0 ? r : numbers_of(f, &state);
	if (r < 0)
		return redis_damaged(s, "state", err);
	*ret = state;
	return 0;
}

static int redis_lost(const struct meta_redis *s, struct error *err)
{
	return error_set(err, -EBADMSG, "%s has lost the dataset's metadata: run `dieselctl rebuild`",
			 redis_link_text(s->link));
}

int redis_state_read(struct meta_redis *s, struct redis_state *ret, struct error *err)
{
	int r;

	redis_state_ask(s);
	r = redis_link_run(s->link, err);
	if (r == 0)
		r = redis_state_take(s, redis_link_reply(s->link, 0), ret, err);
	return r == -ENODATA ? redis_lost(s, err) : r;
}

/* Returns the view of the committed state. */
static void redis_state_view(const struct meta_redis *s, const struct redis_state *state,
			     struct redis_view *ret)
{
	*ret = (struct redis_view){.prefix = s->place.url.prefix, .number = state->committed};
	memcpy(ret->generation, state->generation, sizeof(ret->generation));
}

/* Changes the state: op, then names and values up to NULL. */
static int redis_state_change(struct meta_redis *s, const char *op, const char *const *pairs,
			      struct error *err)
{
	const char *args[40] = {op, s->place.dataset};
	char number[24];
	size_t n = 3;

	snprintf(number, sizeof(number), "%" PRIu64, s->view.number);
	args[2] = number;
	while (*pairs && n < 40)
		args[n++] = *pairs++;
	redis_link_script(s->link, SCRIPT_STATE, s->key, n, args, NULL);
	return redis_link_run(s->link, err);
}

/* Fails if a server evicts keys when its memory is full. Call it after all servers were contacted. */
static int redis_state_check_policy(const struct meta_redis *s, struct error *err)
{
	return redis_link_evicts(s->link)
		   ? error_set(err, -EINVAL,
			       "%s evicts keys when its memory is full, which destroys a dataset's metadata: "
			       "set maxmemory-policy noeviction on that server",
			       redis_link_text(s->link))
		   : 0;
}

int redis_state_create(struct meta_redis *s, struct error *err)
{
	struct redis_view v = {.prefix = s->place.url.prefix};
	struct redis_totals totals;
	char marks[17];
	int r = redis_random_hex(v.generation, 16);

	if (r < 0)
		return error_errno(err, r, "random numbers");
	r = redis_buckets_make(s->link, &v, err);
	if (r == 0)
		r = redis_buckets_count(s->link, &v, &totals, err);
	if (r == 0)
		r = redis_state_check_policy(s, err);
	if (r == 0)
		snprintf(marks, sizeof(marks), "%016" PRIx64, totals.marks);
	return r < 0 ? r
		     : redis_state_change(s, "create", (const char *[]){"format",     REDIS_FORMAT_PLAIN,
									"generation", v.generation,
									"tx",         "0",
									"dirty",      "0",
									"scratch",    "",
									"committed",  "0",
									"version",    "0",
									"chunks",     "0",
									"paths",      "0",
									"digests",    "0",
									"newest",     "",
									"pending",    "",
									"garbage",    "",
									"marks",      marks,
									NULL},
					  err);
}

/* Checks that all buckets are as the last commit left them: no bucket was evicted, or restored from a lagging
 * replica or an older backup. */
static int redis_state_check_marks(struct meta_redis *s, const struct redis_state *state, struct error *err)
{
	struct redis_view v;
	struct redis_totals totals;
	int r;

	redis_state_view(s, state, &v);
	r = redis_buckets_count(s->link, &v, &totals, err);
	if (r < 0)
		return r;
	return totals.marks != state->marks || totals.n[REDIS_PATHS] != state->info.n_paths ||
		       totals.n[REDIS_CHUNKS] != state->info.n_chunks
		   ? redis_lost(s, err)
		   : 0;
}

/* Returns the field of a version's log entry. The log lies in the state's hash, one field per version: so a
 * commit also records its entry. */
static const char *redis_log_name(uint64_t version, char name[REDIS_LOG_NAME])
{
	snprintf(name, REDIS_LOG_NAME, "log:%" PRIu64, version);
	return name;
}

static int mark_dirty(struct meta_redis *s, struct error *err)
{
	char number[24];
	int r;

	snprintf(number, sizeof(number), "%" PRIu64, s->view.number);
	r = redis_state_change(s, "set", (const char *[]){"dirty", number, "scratch", s->scratch, NULL}, err);
	s->dirty |= r == 0;
	return r;
}

/* Sends the values put so far. Before the first value of a transaction, the state records the writer. */
static int redis_flush(struct meta_redis *s, struct error *err)
{
	int r = 0;

	if (!s->puts.list.bytes)
		return 0;
	if (s->must_clear)
		return redis_damaged(s, "by an interrupted writer", err);
	if (!s->dirty)
		r = mark_dirty(s, err);
	return r < 0 ? r : redis_puts_flush(&s->puts, s->link, &s->view, err);
}

/* Reads a value in the transaction's view. -ENOENT without a text. *ret is borrowed from the link. */
static int redis_look_up(struct meta_redis *s, enum redis_family family, const void *field, size_t bytes,
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

/* Looks up a path for a reader. The reply includes the state, which shows whether the right generation was
 * read. */
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
	return error_set(err, -EAGAIN, "%s keeps changing; try again", redis_link_text(s->link));
}

static int redis_meta_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret,
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

static int redis_meta_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context,
				 struct error *err)
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

static int redis_meta_each_path(struct meta *m, meta_path_callback *callback, void *context,
				struct error *err)
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

static int redis_meta_each_change(struct meta *m, meta_change_callback *callback, void *context,
				  struct error *err)
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

#define FLUSH_BYTES (4 << 20)

/* Counts the contents of the open transaction. */
static int count_open(struct meta_redis *s, struct redis_totals *ret, struct error *err)
{
	int r = redis_flush(s, err);

	return r < 0 ? r : redis_buckets_count(s->link, &s->view, ret, err);
}

static void info_open(const struct meta_redis *s, const struct redis_totals *totals, struct meta_info *ret)
{
	*ret = s->was.info;
	ret->n_paths = totals->n[REDIS_PATHS];
	ret->n_chunks = totals->n[REDIS_CHUNKS];
	ret->has_digests = s->keeps_digests;
	ret->is_compressed = s->is_compressed;
	ret->has_newest = s->has_last;
	ret->newest = s->last;
	ret->has_pending = true;
}

static int redis_info(struct meta *m, struct meta_info *ret, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct redis_totals totals;
	struct redis_state state;
	int r;

	if (!s->open) {
		r = redis_state_read(s, &state, err);
		if (r == 0)
			*ret = state.info;
		return r;
	}
	r = count_open(s, &totals, err);
	if (r == 0)
		info_open(s, &totals, ret);
	return r;
}

static void leave(struct meta_redis *s)
{
	s->open = false;
	s->puts.data.bytes = s->puts.list.bytes = 0;
}

/* Removes the values that interrupted writers have left. */
static int clear_up(struct meta_redis *s, struct error *err)
{
	struct redis_view v = s->view;
	int r = 0;

	if (s->was.scratch[0]) {
		memcpy(v.generation, s->was.scratch, sizeof(v.generation));
		r = redis_buckets_remove(s->link, &v, err);
	}
	if (r == 0 && s->was.garbage[0]) {
		memcpy(v.generation, s->was.garbage, sizeof(v.generation));
		r = redis_buckets_remove(s->link, &v, err);
	}
	if (r == 0 && s->was.dirty && s->mode == META_REPLACE) {
		s->must_clear = true;
		return 0;
	}
	if (r == 0 && s->was.dirty)
		r = redis_buckets_sweep(s->link, &s->view, s->was.dirty, err);
	if (r == 0 && (s->was.dirty || s->was.garbage[0]))
		r = redis_state_change(
		    s, "set", (const char *[]){"dirty", "0", "scratch", "", "garbage", "", NULL}, err);
	return r;
}

/* Reads the state, and gets a number for this writer. */
static int take_number(struct meta_redis *s, const struct chunk_id *floor, struct error *err)
{
	char text[CHUNK_ID_TEXT];
	const redisReply *reply;
	int r = redis_state_read(s, &s->was, err);

	if (r < 0)
		return r;
	r = redis_state_change(s, "begin", (const char *[]){"pending", chunk_id_format(floor, text), NULL},
			       err);
	if (r < 0)
		return r;
	reply = redis_link_reply(s->link, 0);
	if (reply->type != REDIS_REPLY_INTEGER || reply->integer <= 0)
		return redis_damaged(s, "state", err);
	redis_state_view(s, &s->was, &s->view);
	s->view.number = (uint64_t)reply->integer;
	/* Check that no other writer committed in between. From now on, only the newest number can commit. */
	struct redis_state now;

	r = redis_state_read(s, &now, err);
	if (r == 0 && (now.committed != s->was.committed || now.dirty != s->was.dirty ||
		       strcmp(now.generation, s->was.generation) != 0))
		r = error_set(err, -EBUSY, "%s was changed by another dieselctl just now; try again",
			      s->file);
	return r;
}

static int redis_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	int r = take_number(s, floor, err);

	s->scratch[0] = '\0';
	s->dirty = s->must_clear = false;
	if (r == 0)
		r = clear_up(s, err);
	if (r == 0 && s->mode != META_REPLACE)
		r = redis_state_check_marks(s, &s->was, err);
	if (r == 0)
		r = redis_state_check_policy(s, err);
	if (r < 0) {
		leave(s);
		return r;
	}
	s->open = true;
	s->keeps_digests = s->was.info.has_digests;
	s->is_compressed = s->was.info.is_compressed;
	s->has_last = s->was.info.has_newest;
	s->last = s->was.info.newest;
	s->last_chunk = (struct meta_chunk){0};
	*ret = s->was.info;
	return 0;
}

static int redis_clear(struct meta *m, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	int r = 0;

	s->puts.data.bytes = s->puts.list.bytes = 0;
	if (s->scratch[0]) /* cleared before in this transaction */
		r = redis_buckets_remove(s->link, &s->view, err);
	else if (redis_random_hex(s->scratch, 16) < 0)
		r = error_errno(err, -EIO, "random numbers");
	if (r == 0)
		r = mark_dirty(s, err);
	if (r < 0)
		return r;
	memcpy(s->view.generation, s->scratch, sizeof(s->view.generation));
	r = redis_buckets_make(s->link, &s->view, err);
	if (r == 0) {
		s->must_clear = false;
		s->has_last = false;
	}
	return r;
}

static int put(struct meta_redis *s, enum redis_family family, const void *field, size_t field_bytes,
	       const void *data, size_t bytes, struct error *err)
{
	if (redis_puts_add(&s->puts, family, field, field_bytes, data, bytes) < 0)
		return error_errno(err, -ENOMEM, "%s", s->file);
	return s->puts.data.bytes + s->puts.list.bytes >= FLUSH_BYTES ? redis_flush(s, err) : 0;
}

static int put_chunk(struct meta_redis *s, const struct meta_chunk *chunk, struct error *err)
{
	unsigned char data[REDIS_CHUNK_BYTES];

	redis_chunk_pack(chunk, data);
	return put(s, REDIS_CHUNKS, chunk->id.bytes, sizeof(chunk->id.bytes), data, sizeof(data), err);
}

static int redis_add_chunk(struct meta *m, const struct chunk_view *view, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	const struct chunk_header *h = view->header;
	char text[CHUNK_ID_TEXT];
	int r;

	if (s->has_last && chunk_id_compare(&h->id, &s->last) <= 0)
		return error_set(err, -EINVAL,
				 "chunk %s is older than the newest one in %s: run `dieselctl rebuild`",
				 chunk_id_format(&h->id, text), redis_link_text(s->link));
	s->last_chunk = (struct meta_chunk){
	    .id = h->id,
	    .file_bytes = h->file_bytes,
	    .created_ns = h->created_ns,
	    .head_xxh3 = h->head_xxh3,
	    .n_records = h->n_records,
	    .payload_offset = h->payload_offset,
	    .flags = h->flags,
	};
	s->is_compressed |= (h->flags & CHUNK_FORM_FLAGS) != 0;
	r = put_chunk(s, &s->last_chunk, err);
	for (uint32_t i = 0; i < h->n_records && r == 0; i++) {
		const struct chunk_record *record = &view->records[i];
		unsigned char data[REDIS_PATH_BYTES];

		redis_path_pack(&h->id, i, record, data);
		r = put(s, REDIS_PATHS, view->names + record->name_offset, record->name_length, data,
			h->flags & CHUNK_FLAG_TOMBSTONE ? 0 : sizeof(data), err);
	}
	if (r == 0) {
		s->has_last = true;
		s->last = h->id;
	}
	return r;
}

static int redis_remove_chunk(struct meta *m, const struct chunk_id *id, struct error *err)
{
	return put(redis_of(m), REDIS_CHUNKS, id->bytes, sizeof(id->bytes), NULL, 0, err);
}

static int redis_keep_digests(struct meta *m, struct error *err)
{
	redis_of(m)->keeps_digests = true;
	return 0;
}

static int redis_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
			    struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct meta_chunk chunk = s->last_chunk;

	if (chunk_id_compare(&chunk.id, id) != 0) {
		const unsigned char *data = NULL;
		size_t bytes = 0;
		int r = redis_look_up(s, REDIS_CHUNKS, id->bytes, sizeof(id->bytes), &data, &bytes, err);

		if (r == 0)
			r = redis_chunk_unpack(id->bytes, sizeof(id->bytes), data, bytes, &chunk);
		if (r == -ENOENT)
			return 0; /* no error, as in SQLite if no row has this id */
		if (r < 0)
			return redis_damaged(s, "chunk", err);
	}
	chunk.has_sha256 = true;
	chunk.sha256 = *sha256;
	return put_chunk(s, &chunk, err);
}

static void redis_rollback(struct meta *m, bool forget_pending)
{
	struct meta_redis *s = redis_of(m);

	if (!s->open)
		return;
	if (forget_pending)
		redis_state_change(s, "forget", (const char *[]){"pending", "", NULL}, NULL);
	leave(s);
}

static int commit_state(struct meta_redis *s, uint64_t version, const struct redis_totals *totals,
			const struct change *change, struct error *err)
{
	char numbers[4][24], newest[CHUNK_ID_TEXT] = "", name[REDIS_LOG_NAME], marks[17],
			     text[CHANGE_MAX] = "";

	snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu64, s->view.number);
	snprintf(numbers[1], sizeof(numbers[1]), "%" PRIu64, version);
	snprintf(numbers[2], sizeof(numbers[2]), "%" PRIu64, totals->n[REDIS_CHUNKS]);
	snprintf(numbers[3], sizeof(numbers[3]), "%" PRIu64, totals->n[REDIS_PATHS]);
	snprintf(marks, sizeof(marks), "%016" PRIx64, totals->marks);
	if (s->has_last)
		chunk_id_format(&s->last, newest);
	if (change)
		change_format(change, text);
	return redis_state_change(
	    s, "set",
	    (const char *[]){"committed",
			     numbers[0],
			     "version",
			     numbers[1],
			     "chunks",
			     numbers[2],
			     "paths",
			     numbers[3],
			     "format",
			     s->is_compressed ? REDIS_FORMAT_COMPRESSED : REDIS_FORMAT_PLAIN,
			     "digests",
			     s->keeps_digests ? "1" : "0",
			     "newest",
			     newest,
			     "pending",
			     "",
			     "dirty",
			     "0",
			     "scratch",
			     "",
			     "marks",
			     marks,
			     "generation",
			     s->view.generation,
			     "garbage",
			     s->scratch[0] ? s->was.generation : "",
			     change ? redis_log_name(version, name) : NULL,
			     text,
			     NULL},
	    err);
}

/* Readers see entries of versions up to the committed one. */
static int redis_put_change(struct meta *m, const struct change *change, struct error *err)
{
	char name[REDIS_LOG_NAME], text[CHANGE_MAX];

	change_format(change, text);
	return redis_state_change(redis_of(m), "set",
				  (const char *[]){redis_log_name(change->version, name), text, NULL}, err);
}

static int redis_commit(struct meta *m, uint64_t version, const struct change *change, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct redis_totals totals;
	int r = count_open(s, &totals, err);

	if (r == 0)
		r = commit_state(s, version, &totals, change, err);
	if (r == 0 && s->scratch[0]) {
		struct redis_view old = s->view;

		/* If this fails, the next writer does it. */
		memcpy(old.generation, s->was.generation, sizeof(old.generation));
		if (redis_buckets_remove(s->link, &old, NULL) == 0)
			redis_state_change(s, "set", (const char *[]){"garbage", "", NULL}, NULL);
	}
	leave(s);
	return r;
}

void redis_meta_free(struct meta *m)
{
	struct meta_redis *s = redis_of(m);

	redis_rollback(m, false);
	redis_puts_free(&s->puts);
	redis_link_close(s->link);
	free(s->file);
	explicit_bzero(&s->place, sizeof(s->place));
	free(s);
}

const struct meta_ops redis_meta_ops = {
    .info = redis_info,
    .begin = redis_begin,
    .clear = redis_clear,
    .add_chunk = redis_add_chunk,
    .remove_chunk = redis_remove_chunk,
    .keep_digests = redis_keep_digests,
    .put_digest = redis_put_digest,
    .put_change = redis_put_change,
    .commit = redis_commit,
    .rollback = redis_rollback,
    .find = redis_meta_find,
    .each_chunk = redis_meta_each_chunk,
    .each_path = redis_meta_each_path,
    .each_change = redis_meta_each_change,
    .free = redis_meta_free,
};
