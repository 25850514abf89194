/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and changes PREFIX:state, a hash with the dataset's number, the valid generation of buckets, and the
 * number of the writer that committed last. A commit is one command that changes this hash.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/units.h"
#include "meta_redis_private.h"
#include "dataset/redis/redis_scripts.h"

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

static bool id_parse(const char *text, struct chunk_id *ret)
{
	if (strlen(text) != REDIS_ID_DIGITS || strspn(text, "0123456789abcdef") != REDIS_ID_DIGITS)
		return false;
	for (int i = 0; i < REDIS_ID_DIGITS / 2; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1]};

		ret->bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

const char *redis_id_text(const struct chunk_id *id, char text[REDIS_ID_DIGITS + 1])
{
	for (int i = 0; i < REDIS_ID_DIGITS / 2; i++)
		snprintf(text + 2 * i, 3, "%02x", id->bytes[i]);
	return text;
}

int redis_damaged(const struct meta_redis *s, const char *what, struct error *err)
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

void redis_state_ask(struct meta_redis *s)
{
	const char *args[2 + N_FIELDS] = {"HMGET", s->key};

	memcpy(args + 2, field_names, sizeof(field_names));
	redis_link_read(s->link, 2 + N_FIELDS, args, NULL);
}

static int numbers_of(struct redisReply *const *f, struct redis_state *state)
{
	uint64_t digests = 0;
	char newest[REDIS_ID_DIGITS + 1] = "", pending[REDIS_ID_DIGITS + 1] = "", marks[17] = "",
				      *end = marks;
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

int redis_state_take(const struct meta_redis *s, const redisReply *reply, struct redis_state *ret,
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

int redis_lost(const struct meta_redis *s, struct error *err)
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

void redis_state_view(const struct meta_redis *s, const struct redis_state *state, struct redis_view *ret)
{
	*ret = (struct redis_view){.prefix = s->place.url.prefix, .number = state->committed};
	memcpy(ret->generation, state->generation, sizeof(ret->generation));
}

int redis_state_change(struct meta_redis *s, const char *op, const char *const *pairs, struct error *err)
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

int redis_state_check_policy(const struct meta_redis *s, struct error *err)
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

int redis_state_check_marks(struct meta_redis *s, const struct redis_state *state, struct error *err)
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

const char *redis_log_name(uint64_t version, char name[REDIS_LOG_NAME])
{
	snprintf(name, REDIS_LOG_NAME, "log:%" PRIu64, version);
	return name;
}
