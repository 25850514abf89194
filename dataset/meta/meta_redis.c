/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata store on a Redis server.
 *
 * PREFIX:state is a hash: the dataset's number, which generation of buckets counts, and which writer's number
 * was committed last. A commit is one command that changes this hash, whatever was written before it. Writers
 * are numbered; what one that died has written is taken out by the next before anything else
 * (redis_buckets.h).
 *
 * One writer at a time: a lock on DATASET/meta.redis, which goes with its process. Where file locks do not
 * work, or two folders name the same keys, the later writer wins: the earlier one can neither write nor
 * commit any more.
 */
#include "dataset/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/units.h"
#include "redis_buckets.h"
#include "redis_place.h"
#include "redis_rows.h"
#include "redis_scripts.h"

#define FORMAT      "1"
#define FLUSH_BYTES (4 << 20)
#define KEY_BYTES   (REDIS_URL_PART + 8)
#define ID_DIGITS   32
#define LOG_NAME    32
#define LOG_BATCH   30

enum field {
	F_FORMAT,
	F_DATASET,
	F_GENERATION,
	F_TX,
	F_DIRTY,   /* the writer that may have written and did not commit; 0: none */
	F_SCRATCH, /* the generation that it made, or "" */
	F_COMMITTED,
	F_VERSION,
	F_CHUNKS,
	F_PATHS,
	F_DIGESTS,
	F_NEWEST,
	F_PENDING,
	F_GARBAGE, /* a generation that is to be removed, or "" */
	F_MARKS,   /* of all buckets, as the last commit left them */
	N_FIELDS
};

static const char *const field_names[N_FIELDS] = {"format",  "dataset",   "generation", "tx",      "dirty",
						  "scratch", "committed", "version",    "chunks",  "paths",
						  "digests", "newest",    "pending",    "garbage", "marks"};

struct state {
	struct meta_info info;
	uint64_t dirty, committed, marks;
	char generation[17], scratch[17], garbage[17];
};

struct meta_redis {
	struct meta meta;
	struct redis_link *link;
	struct redis_place place;
	char key[KEY_BYTES]; /* of the state */
	char *file;
	enum meta_mode mode;
	struct redis_view read; /* for lookups without a transaction; as it was at the last one */

	/* Of the transaction. */
	int lock;
	bool open, dirty, keeps_digests, must_clear;
	struct state was;
	struct redis_view view;
	char scratch[17]; /* "" until meta_clear() */
	bool has_last;
	struct chunk_id last;
	struct meta_chunk last_chunk;
	struct redis_puts puts;
};

static struct meta_redis *redis_of(struct meta *m)
{
	return (struct meta_redis *)((char *)m - offsetof(struct meta_redis, meta));
}

static bool id_parse(const char *text, struct chunk_id *ret)
{
	if (strlen(text) != ID_DIGITS || strspn(text, "0123456789abcdef") != ID_DIGITS)
		return false;
	for (int i = 0; i < ID_DIGITS / 2; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1]};

		ret->bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

static const char *id_text(const struct chunk_id *id, char text[ID_DIGITS + 1])
{
	for (int i = 0; i < ID_DIGITS / 2; i++)
		snprintf(text + 2 * i, 3, "%02x", id->bytes[i]);
	return text;
}

static int damaged(const struct meta_redis *s, const char *what, struct error *err)
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

static void ask_state(struct meta_redis *s)
{
	const char *args[2 + N_FIELDS] = {"HMGET", s->key};

	memcpy(args + 2, field_names, sizeof(field_names));
	redis_link_read(s->link, 2 + N_FIELDS, args, NULL);
}

static int numbers_of(struct redisReply *const *f, struct state *state)
{
	uint64_t digests = 0;
	char newest[ID_DIGITS + 1] = "", pending[ID_DIGITS + 1] = "", marks[17] = "", *end = marks;
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
	state->info.has_newest = id_parse(newest, &state->info.newest);
	state->info.has_pending = id_parse(pending, &state->info.pending);
	return r < 0 || end != marks + 16 || (newest[0] && !state->info.has_newest) ||
		       (pending[0] && !state->info.has_pending)
		   ? -EBADMSG
		   : 0;
}

/* -ENODATA, without a text: there is none. */
static int take_state(const struct meta_redis *s, const redisReply *reply, struct state *ret,
		      struct error *err)
{
	struct redisReply *const *f = reply->element;
	char format[16], dataset[33];
	struct state state = {0};
	int r = 0;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != N_FIELDS)
		return damaged(s, "no state", err);
	if (f[F_DATASET]->type == REDIS_REPLY_NIL)
		return -ENODATA;
	if (get_text(f[F_FORMAT], format, sizeof(format)) < 0 ||
	    get_text(f[F_DATASET], dataset, sizeof(dataset)) < 0)
		return damaged(s, "not ours", err);
	if (strcmp(format, FORMAT) != 0)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s is of a newer version than this program knows; update it",
				 redis_link_text(s->link));
	if (strcmp(dataset, s->place.dataset) != 0)
		return error_set(err, -EEXIST, "%s holds another dataset's metadata, not that of %s",
				 redis_link_text(s->link), s->file);
	r = get_text(f[F_GENERATION], state.generation, sizeof(state.generation));
	r = r < 0 ? r : get_text(f[F_SCRATCH], state.scratch, sizeof(state.scratch));
	r = r < 0 ? r : get_text(f[F_GARBAGE], state.garbage, sizeof(state.garbage));
	r = r < 0 ? r : numbers_of(f, &state);
	if (r < 0)
		return damaged(s, "state", err);
	*ret = state;
	return 0;
}

static int lost(const struct meta_redis *s, struct error *err)
{
	return error_set(err, -EBADMSG, "%s has lost the dataset's metadata: run `dieselctl rebuild`",
			 redis_link_text(s->link));
}

static int read_state(struct meta_redis *s, struct state *ret, struct error *err)
{
	int r;

	ask_state(s);
	r = redis_link_run(s->link, err);
	if (r == 0)
		r = take_state(s, redis_link_reply(s->link, 0), ret, err);
	return r == -ENODATA ? lost(s, err) : r;
}

static void view_of(const struct meta_redis *s, const struct state *state, struct redis_view *ret)
{
	*ret = (struct redis_view){.prefix = s->place.url.prefix, .number = state->committed};
	memcpy(ret->generation, state->generation, sizeof(ret->generation));
}

/* One change of the state: op, then names and values up to NULL. */
static int change_state(struct meta_redis *s, const char *op, const char *const *pairs, struct error *err)
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

/* By now all servers were asked. */
static int check_policy(const struct meta_redis *s, struct error *err)
{
	return redis_link_evicts(s->link)
		   ? error_set(
			 err, -EINVAL,
			 "%s takes out keys when its memory is full, and a dataset's metadata with them: "
			 "set maxmemory-policy noeviction there",
			 redis_link_text(s->link))
		   : 0;
}

static int create_state(struct meta_redis *s, struct error *err)
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
		r = check_policy(s, err);
	if (r == 0)
		snprintf(marks, sizeof(marks), "%016" PRIx64, totals.marks);
	return r < 0 ? r
		     : change_state(
			   s, "create",
			   (const char *[]){"format",  FORMAT, "generation", v.generation, "tx",        "0",
					    "dirty",   "0",    "scratch",    "",           "committed", "0",
					    "version", "0",    "chunks",     "0",          "paths",     "0",
					    "digests", "0",    "newest",     "",           "pending",   "",
					    "garbage", "",     "marks",      marks,        NULL},
			   err);
}

static int mark_dirty(struct meta_redis *s, struct error *err)
{
	char number[24];
	int r;

	snprintf(number, sizeof(number), "%" PRIu64, s->view.number);
	r = change_state(s, "set", (const char *[]){"dirty", number, "scratch", s->scratch, NULL}, err);
	s->dirty |= r == 0;
	return r;
}

/* Before the first value of a transaction the state says who writes. */
static int flush(struct meta_redis *s, struct error *err)
{
	int r = 0;

	if (!s->puts.list.bytes)
		return 0;
	if (s->must_clear)
		return damaged(s, "by an interrupted writer", err);
	if (!s->dirty)
		r = mark_dirty(s, err);
	return r < 0 ? r : redis_puts_flush(&s->puts, s->link, &s->view, err);
}

/* What is in the transaction. */
static int count_open(struct meta_redis *s, struct redis_totals *ret, struct error *err)
{
	int r = flush(s, err);

	return r < 0 ? r : redis_buckets_count(s->link, &s->view, ret, err);
}

static void info_open(const struct meta_redis *s, const struct redis_totals *totals, struct meta_info *ret)
{
	*ret = s->was.info;
	ret->n_paths = totals->n[REDIS_PATHS];
	ret->n_chunks = totals->n[REDIS_CHUNKS];
	ret->has_digests = s->keeps_digests;
	ret->has_newest = s->has_last;
	ret->newest = s->last;
	ret->has_pending = true;
}

static int redis_info(struct meta *m, struct meta_info *ret, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct redis_totals totals;
	struct state state;
	int r;

	if (!s->open) {
		r = read_state(s, &state, err);
		if (r == 0)
			*ret = state.info;
		return r;
	}
	r = count_open(s, &totals, err);
	if (r == 0)
		info_open(s, &totals, ret);
	return r;
}

static int take_lock(struct meta_redis *s, struct error *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	_cleanup_(closep) int fd = open(s->file, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, -errno, "cannot open %s", s->file);
	if (fcntl(fd, F_OFD_SETLK, &whole) < 0)
		return errno == EAGAIN || errno == EACCES
			   ? error_set(err, -EBUSY,
				       "%s is being changed by another dieselctl; try again later", s->file)
			   : error_errno(err, -errno, "cannot lock %s", s->file);
	s->lock = steal_fd(&fd);
	return 0;
}

static void leave(struct meta_redis *s)
{
	s->open = false;
	s->puts.data.bytes = s->puts.list.bytes = 0;
	closep(&s->lock);
	s->lock = -EBADF;
}

/* Takes out what interrupted writers have left. */
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
		r = change_state(s, "set", (const char *[]){"dirty", "0", "scratch", "", "garbage", "", NULL},
				 err);
	return r;
}

/* Whether all buckets are as the last commit left them: none was evicted, or comes from a replica that knew
 * less, or from an older backup. */
static int check_marks(struct meta_redis *s, const struct state *state, struct error *err)
{
	struct redis_view v;
	struct redis_totals totals;
	int r;

	view_of(s, state, &v);
	r = redis_buckets_count(s->link, &v, &totals, err);
	if (r < 0)
		return r;
	return totals.marks != state->marks || totals.n[REDIS_PATHS] != state->info.n_paths ||
		       totals.n[REDIS_CHUNKS] != state->info.n_chunks
		   ? lost(s, err)
		   : 0;
}

/* The state as it was found, and this writer's number. */
static int take_number(struct meta_redis *s, const struct chunk_id *floor, struct error *err)
{
	char text[ID_DIGITS + 1];
	const redisReply *reply;
	int r = read_state(s, &s->was, err);

	if (r < 0)
		return r;
	r = change_state(s, "begin", (const char *[]){"pending", id_text(floor, text), NULL}, err);
	if (r < 0)
		return r;
	reply = redis_link_reply(s->link, 0);
	if (reply->type != REDIS_REPLY_INTEGER || reply->integer <= 0)
		return damaged(s, "state", err);
	view_of(s, &s->was, &s->view);
	s->view.number = (uint64_t)reply->integer;
	/* Nobody else wrote between: this number is what a commit of theirs would have to have. */
	struct state now;

	r = read_state(s, &now, err);
	if (r == 0 && (now.committed != s->was.committed || now.dirty != s->was.dirty ||
		       strcmp(now.generation, s->was.generation) != 0))
		r = error_set(err, -EBUSY, "%s was changed by another dieselctl just now; try again",
			      s->file);
	return r;
}

static int redis_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	int r = take_lock(s, err);

	if (r == 0)
		r = take_number(s, floor, err);
	s->scratch[0] = '\0';
	s->dirty = s->must_clear = false;
	if (r == 0)
		r = clear_up(s, err);
	if (r == 0 && s->mode != META_REPLACE)
		r = check_marks(s, &s->was, err);
	if (r == 0)
		r = check_policy(s, err);
	if (r < 0) {
		leave(s);
		return r;
	}
	s->open = true;
	s->keeps_digests = s->was.info.has_digests;
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
	if (s->scratch[0]) /* a second time */
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
	return s->puts.data.bytes + s->puts.list.bytes >= FLUSH_BYTES ? flush(s, err) : 0;
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
				 "chunk %s is older than what %s holds: run `dieselctl rebuild`",
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

/* A value in this view. -ENOENT without a text. *ret is borrowed from the link. */
static int look_up(struct meta_redis *s, enum redis_family family, const void *field, size_t bytes,
		   const unsigned char **ret, size_t *ret_bytes, struct error *err)
{
	int r = flush(s, err);

	if (r < 0)
		return r;
	redis_bucket_ask(s->link, &s->view, family, field, bytes);
	r = redis_link_run(s->link, err);
	if (r == 0)
		r = redis_bucket_value(redis_link_reply(s->link, 0), &s->view, ret, ret_bytes);
	else
		return r;
	return r < 0 && r != -ENOENT ? damaged(s, "keys are missing", err) : r;
}

static int redis_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
			    struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct meta_chunk chunk = s->last_chunk;

	if (chunk_id_compare(&chunk.id, id) != 0) {
		const unsigned char *data = NULL;
		size_t bytes = 0;
		int r = look_up(s, REDIS_CHUNKS, id->bytes, sizeof(id->bytes), &data, &bytes, err);

		if (r == 0)
			r = redis_chunk_unpack(id->bytes, sizeof(id->bytes), data, bytes, &chunk);
		if (r == -ENOENT)
			return 0; /* as where no row has this id */
		if (r < 0)
			return damaged(s, "chunk", err);
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
		change_state(s, "forget", (const char *[]){"pending", "", NULL}, NULL);
	leave(s);
}

/* The log lies in the state's hash, a field a version: so what commits also records. */
static const char *log_name(uint64_t version, char name[LOG_NAME])
{
	snprintf(name, LOG_NAME, "log:%" PRIu64, version);
	return name;
}

static int commit_state(struct meta_redis *s, uint64_t version, const struct redis_totals *totals,
			const struct change *change, struct error *err)
{
	char numbers[4][24], newest[ID_DIGITS + 1] = "", name[LOG_NAME], marks[17], text[CHANGE_MAX] = "";

	snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu64, s->view.number);
	snprintf(numbers[1], sizeof(numbers[1]), "%" PRIu64, version);
	snprintf(numbers[2], sizeof(numbers[2]), "%" PRIu64, totals->n[REDIS_CHUNKS]);
	snprintf(numbers[3], sizeof(numbers[3]), "%" PRIu64, totals->n[REDIS_PATHS]);
	snprintf(marks, sizeof(marks), "%016" PRIx64, totals->marks);
	if (s->has_last)
		id_text(&s->last, newest);
	if (change)
		change_format(change, text);
	return change_state(s, "set",
			    (const char *[]){"committed",
					     numbers[0],
					     "version",
					     numbers[1],
					     "chunks",
					     numbers[2],
					     "paths",
					     numbers[3],
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
					     change ? log_name(version, name) : NULL,
					     text,
					     NULL},
			    err);
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
			change_state(s, "set", (const char *[]){"garbage", "", NULL}, NULL);
	}
	leave(s);
	return r;
}

/* A lookup by a reader: the state comes with it, and says whether it was asked in the right place. */
static int find_committed(struct meta_redis *s, const char *path, size_t length, const unsigned char **ret,
			  size_t *ret_bytes, struct error *err)
{
	for (int i = 0; i < 10; i++) {
		struct redis_view now;
		struct state state;
		int r;

		ask_state(s);
		if (s->read.prefix)
			redis_bucket_ask(s->link, &s->read, REDIS_PATHS, path, length);
		r = redis_link_run(s->link, err);
		if (r == 0)
			r = take_state(s, redis_link_reply(s->link, 0), &state, err);
		if (r < 0)
			return r == -ENODATA ? lost(s, err) : r;
		view_of(s, &state, &now);
		if (s->read.prefix && s->read.number == now.number &&
		    !strcmp(s->read.generation, now.generation)) {
			r = redis_bucket_value(redis_link_reply(s->link, 1), &now, ret, ret_bytes);
			if (r != -ESTALE)
				return r < 0 && r != -ENOENT ? damaged(s, "keys are missing", err) : r;
		}
		s->read = now;
	}
	return error_set(err, -EAGAIN, "%s is changed all the time; try again", redis_link_text(s->link));
}

static int redis_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret,
		      struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct meta_path found = {.path = path, .path_length = path_length};
	const unsigned char *data = NULL;
	size_t bytes = 0;
	int r;

	if (path_length == 0 || path_length > CHUNK_NAME_MAX)
		return -ENOENT;
	r = s->open ? look_up(s, REDIS_PATHS, path, path_length, &data, &bytes, err)
		    : find_committed(s, path, path_length, &data, &bytes, err);
	if (r < 0)
		return r;
	if (redis_path_unpack(data, bytes, &found) < 0)
		return damaged(s, "path", err);
	*ret = found;
	return 0;
}

static int view_now(struct meta_redis *s, struct redis_view *ret, struct state *ret_state, struct error *err)
{
	int r;

	if (s->open) {
		*ret = s->view;
		*ret_state = s->was;
		ret_state->info.has_digests = s->keeps_digests;
		return flush(s, err);
	}
	r = read_state(s, ret_state, err);
	if (r == 0)
		r = check_marks(s, ret_state, err);
	if (r == 0)
		view_of(s, ret_state, ret);
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

static int redis_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct redis_view view;
	struct state state;
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
	return e.bad ? damaged(s, "chunk", err) : r;
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

static int redis_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	struct each e = {.callback = callback, .context = context};
	struct redis_view view;
	struct state state;
	int r = view_now(s, &view, &state, err);

	if (r == 0)
		r = redis_buckets_each(s->link, &view, REDIS_PATHS, each_path, &e, err);
	return e.bad ? damaged(s, "path", err) : r;
}

static int each_change_of(struct meta_redis *s, const redisReply *reply, meta_change_callback *callback,
			  void *context, struct error *err)
{
	int r = reply->type == REDIS_REPLY_ARRAY ? 0 : damaged(s, "log", err);

	for (size_t i = 0; i < reply->elements && r == 0; i++) {
		const redisReply *entry = reply->element[i];
		struct change change;

		if (entry->type == REDIS_REPLY_NIL)
			continue;
		r = entry->type == REDIS_REPLY_STRING ? change_parse(entry->str, entry->len, &change)
						      : -EBADMSG;
		r = r < 0 ? damaged(s, "log", err) : callback(&change, context);
	}
	return r;
}

static int redis_each_change(struct meta *m, meta_change_callback *callback, void *context, struct error *err)
{
	struct meta_redis *s = redis_of(m);
	char names[LOG_BATCH][LOG_NAME];
	const char *args[2 + LOG_BATCH] = {"HMGET", s->key};
	struct redis_view view;
	struct state state;
	int r = view_now(s, &view, &state, err);

	for (uint64_t first = 1; r == 0 && first <= state.info.version; first += LOG_BATCH) {
		size_t n = 0;

		while (n < LOG_BATCH && first + n <= state.info.version) {
			args[2 + n] = log_name(first + n, names[n]);
			n++;
		}
		redis_link_read(s->link, 2 + n, args, NULL);
		r = redis_link_run(s->link, err);
		if (r == 0)
			r = each_change_of(s, redis_link_reply(s->link, 0), callback, context, err);
	}
	return r;
}

static void redis_free(struct meta *m)
{
	struct meta_redis *s = redis_of(m);

	redis_rollback(m, false);
	redis_puts_free(&s->puts);
	redis_link_close(s->link);
	free(s->file);
	explicit_bzero(&s->place, sizeof(s->place));
	free(s);
}

static const struct meta_ops redis_ops = {
    .info = redis_info,
    .begin = redis_begin,
    .clear = redis_clear,
    .add_chunk = redis_add_chunk,
    .remove_chunk = redis_remove_chunk,
    .keep_digests = redis_keep_digests,
    .put_digest = redis_put_digest,
    .commit = redis_commit,
    .rollback = redis_rollback,
    .find = redis_find,
    .each_chunk = redis_each_chunk,
    .each_path = redis_each_path,
    .each_change = redis_each_change,
    .free = redis_free,
};

static int connect_meta(const char *dataset_path, const struct redis_place *place, enum meta_mode mode,
			struct meta_redis **ret, struct error *err)
{
	struct meta_redis *s = calloc(1, sizeof(*s));
	struct redis_settings settings = {.url = place->url};
	int r;

	if (!s || asprintf(&s->file, "%s/" META_REDIS_FILE, dataset_path) < 0) {
		free(s);
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	s->meta.ops = &redis_ops;
	s->place = *place;
	s->mode = mode;
	s->lock = -EBADF;
	snprintf(s->key, sizeof(s->key), "%s:state", place->url.prefix);
	r = redis_place_settings(&settings, err);
	if (r == 0)
		r = redis_link_open(&settings, &s->link, err);
	explicit_bzero(&settings, sizeof(settings));
	if (r < 0) {
		redis_free(&s->meta);
		return r;
	}
	*ret = s;
	return 0;
}

/* For `rebuild`: keeps what is there and cannot be used under another name, and begins anew. */
static int replace_state(struct meta_redis *s, struct error *err)
{
	char aside[KEY_BYTES + 16];

	snprintf(aside, sizeof(aside), "{%s}.damaged", s->key);
	redis_link_write(s->link, 3, (const char *[]){"RENAME", s->key, aside}, NULL);
	redis_link_run(s->link, NULL); /* there may be nothing */
	return create_state(s, err);
}

int meta_redis_open(const char *dataset_path, enum meta_mode mode, struct meta **ret, struct error *err)
{
	struct redis_place place;
	struct meta_redis *s;
	struct state state;
	int r = redis_place_read(dataset_path, &place, err);

	if (r == -ENOENT)
		return error_set(err, r, "%s has no " META_REDIS_FILE, dataset_path);
	if (r == 0)
		r = connect_meta(dataset_path, &place, mode, &s, err);
	explicit_bzero(&place, sizeof(place));
	if (r < 0)
		return r;
	r = read_state(s, &state, err);
	if (r == -EBADMSG && mode == META_REPLACE)
		r = replace_state(s, err);
	if (r < 0) {
		redis_free(&s->meta);
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

/* The dataset has its metadata on a server already: it has to be this one. The credentials of the URL count.
 */
static int open_same(const char *dataset_path, const struct redis_place *place, const struct redis_url *url,
		     enum meta_mode mode, struct meta **ret, struct error *err)
{
	char there[REDIS_URL_TEXT], here[REDIS_URL_TEXT];
	struct redis_place with = *place;
	struct meta_redis *s;
	struct state state;

	redis_url_public(&place->url, there, sizeof(there));
	if (strcmp(there, redis_url_public(url, here, sizeof(here))) != 0)
		return error_set(err, -EEXIST, "%s has its metadata on %s, not on %s", dataset_path, there,
				 here);
	with.url = *url;
	int r = connect_meta(dataset_path, &with, mode, &s, err);

	explicit_bzero(&with, sizeof(with));
	if (r < 0)
		return r;
	r = read_state(s, &state, err);
	if (r == -EBADMSG && mode == META_REPLACE)
		r = replace_state(s, err);
	if (r < 0)
		redis_free(&s->meta);
	else
		*ret = &s->meta;
	return r;
}

static int make_new(const char *dataset_path, struct redis_place *place, enum meta_mode mode,
		    struct meta **ret, struct error *err)
{
	struct meta_redis *s;
	int r = redis_random_hex(place->dataset, 32);

	if (r < 0)
		return error_errno(err, r, "random numbers");
	r = connect_meta(dataset_path, place, mode, &s, err);
	if (r < 0)
		return r;
	r = create_state(s, err);
	if (r == 0)
		r = redis_place_write(dataset_path, place, err);
	if (r < 0)
		redis_free(&s->meta);
	else
		*ret = &s->meta;
	return r;
}

int meta_redis_choose(const char *dataset_path, const char *url, enum meta_mode mode, struct meta **ret,
		      struct error *err)
{
	struct redis_place place = {0}, there;
	_cleanup_(freep) char *file = NULL;
	struct stat st;
	int r = redis_url_parse(url, true, &place.url, err);

	if (r == 0)
		r = redis_place_credentials(&place.url, err);
	if (r < 0)
		return r;
	r = redis_place_read(dataset_path, &there, err);
	if (r == 0)
		r = open_same(dataset_path, &there, &place.url, mode, ret, err);
	else if (r == -ENOENT && asprintf(&file, "%s/" META_SQLITE_FILE, dataset_path) > 0 &&
		 stat(file, &st) == 0)
		r = error_set(err, -EEXIST,
			      "%s has its metadata in " META_SQLITE_FILE ", not on a Redis server",
			      dataset_path);
	else if (r == -ENOENT)
		r = make_new(dataset_path, &place, mode, ret, err);
	explicit_bzero(&place, sizeof(place));
	explicit_bzero(&there, sizeof(there));
	return r;
}
