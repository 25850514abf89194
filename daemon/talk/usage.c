/* SPDX-License-Identifier: Apache-2.0 */
/* What users have of the daemon now. It is added up each time, so that no count can be wrong (quota.h). */
#include "server.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/node/admin.h"
#include "connection.h"
#include "daemon/cache/peers/sharers.h"
#include "daemon/cache/policy.h"

/* The most descriptors that a client takes: its socket; two while it opens a dataset; three for a dataset,
 * and one for the place of its chunks; two for a session, one for its trainer's process and one for the
 * client's; one for a text. */
#define CONNECTION_FILES 11
/* OWN_FILES: the daemon's own, and those of datasets that nobody uses. */
#define MIN_FILES   96
#define MAX_READERS 128
#define OWN_FILES   (64 + 3 * CACHE_MAX_IDLE_DATASETS)

void server_size_by_files(struct server *s)
{
	struct rlimit limit = {.rlim_cur = 1024};
	uint64_t files;

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	/* With fewer the daemon can do little, and says so at its start. */
	files = limit.rlim_cur > OWN_FILES + MIN_FILES ? limit.rlim_cur - OWN_FILES : MIN_FILES;
	s->serving.cache.readers.max = files / 16 < MAX_READERS ? (uint32_t)(files / 16) : MAX_READERS;
	files -= s->serving.cache.readers.max;
	s->max_connections = files / 2 / CONNECTION_FILES < SERVER_MAX_CONNECTIONS
				 ? (uint32_t)(files / 2 / CONNECTION_FILES)
				 : SERVER_MAX_CONNECTIONS;
	files -= (uint64_t)s->max_connections * CONNECTION_FILES;
	/* Each segment takes one of the descriptors that are left. */
	s->serving.cache.segments.max = files > SEGMENT_MAX ? SEGMENT_MAX : (uint32_t)files;
}

struct quota server_quota(const struct server *s)
{
	return (struct quota){.share_percent = s->serving.options.user_share};
}

/* The part of the cache that may be under way for one user's reading ahead: storage that hangs keeps it. */
#define AHEAD_PARTS 8

static bool has_reader(const struct server *s, const struct cached_dataset *d, uint32_t uid)
{
	const struct readers *r = &s->serving.cache.readers;
	const struct quota quota = server_quota(s);

	if (d->reader || d->identity.is_fetched)
		return true;
	return readers_have_room(r) && readers_of(r, uid) < quota_share(&quota, uid, r->max);
}

/* Whether one more may be under way, of those that come the way that this one does. */
static bool has_turn(const struct sharer *m, const struct cached_dataset *d, uint64_t chunk)
{
	uint32_t n_others = d->loads.n_asking + d->loads.n_for_peers;

	if (sharer_has_elsewhere(m, chunk))
		return d->loads.n_asking < CACHE_MAX_ASKING;
	return d->loads.n - n_others < CACHE_MAX_LOADING &&
	       (d->loads.n <= n_others + d->loads.n_verifying ||
		d->loads.n - n_others - d->loads.n_verifying < CACHE_MAX_READING);
}

/* Whether what is read ahead leaves what others need. */
static bool has_room(const struct server *s, const struct cached_dataset *d, uint32_t uid, uint64_t chunk,
		     uint64_t taken_bytes)
{
	const struct cache *c = &s->serving.cache;
	uint64_t bytes = d->chunks[chunk].bytes;

	if (taken_bytes + cache_take_more(d, bytes) > c->budget_bytes)
		return false;
	return admin_is(uid) || cache_loading_bytes(c, uid) + bytes <= c->limit_bytes / AHEAD_PARTS;
}

bool server_may_load(const struct server *s, const struct session *q, uint64_t chunk, uint32_t distance,
		     uint64_t taken_bytes)
{
	const struct cached_dataset *d = q->dataset;

	if (!has_turn(q->sharer, d, chunk) || !has_reader(s, d, q->uid))
		return false;
	return distance == 0 || has_room(s, d, q->uid, chunk, taken_bytes);
}

int server_may_warm(const struct server *s, const struct session *q, uint64_t chunk, uint64_t taken_bytes)
{
	const struct cached_dataset *d = q->dataset;

	if (!has_turn(q->sharer, d, chunk) || !has_reader(s, d, q->uid))
		return -EAGAIN;
	if (has_room(s, d, q->uid, chunk, taken_bytes))
		return 0;
	/* What is on its way takes room twice. */
	return d->loads.n > 0 ? -EAGAIN : -ENOSPC;
}

int server_may_give(const struct server *s, const struct sharer *m, uint64_t chunk)
{
	const struct cached_dataset *d = m->dataset;

	if (d->loads.n_for_peers >= CACHE_MAX_FOR_PEERS || !has_reader(s, d, m->job->uid))
		return -EAGAIN;
	return has_room(s, d, m->job->uid, chunk, cache_taken_bytes(&s->serving.cache)) ? 0 : -EBUSY;
}

/* A user, or all for whom one quota pays. */
struct whose {
	uint32_t uid, payer;
	bool by_payer;
};

static bool is_of(const struct whose *whose, uint32_t uid, uint32_t payer)
{
	return whose->by_payer ? payer == whose->payer : uid == whose->uid;
}

/* Adds what they have of a dataset. */
static void add_dataset(const struct server *s, const struct cached_dataset *d, const struct whose *whose,
			struct usage *u)
{
	uint64_t chunks = 0, bytes = 0;
	bool opened = false;

	for (const struct connection *c = s->connections; c; c = c->next)
		opened = opened || (c->dataset == d && is_of(whose, c->uid, c->payer));
	if (d->copy.is_held &&
	    (whose->by_payer ? d->payers.open >> whose->payer & 1 : d->copy.uid == whose->uid)) {
		u->of[QUOTA_BYTES] += d->copy.bytes;
		u->of[QUOTA_CHUNKS] += CACHE_HELD_FILES;
	}
	if (!opened)
		return;
	for (const struct session *q = s->serving.sessions; q; q = q->next) {
		if (q->dataset != d || !is_of(whose, q->uid, q->payer))
			continue;
		chunks = policy_join_need(d->info.n_chunks, chunks, q->need_chunks);
		bytes += q->need_bytes;
	}
	u->of[QUOTA_BYTES] += d->copy.bytes + (bytes < d->all_bytes ? bytes : d->all_bytes);
	u->of[QUOTA_CHUNKS] += chunks;
}

static void look(const struct server *s, const struct whose *whose, struct usage *ret)
{
	*ret = (struct usage){0};
	for (const struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		add_dataset(s, d, whose, ret);
	for (const struct session *q = s->serving.sessions; q; q = q->next)
		ret->of[QUOTA_BYTES] += is_of(whose, q->uid, q->payer) ? q->cost_bytes : 0;
	ret->of[QUOTA_BYTES] += cache_stuck_bytes(&s->serving.cache, whose->uid);
	for (const struct connection *c = s->connections; c; c = c->next)
		ret->of[QUOTA_BYTES] += is_of(whose, c->uid, c->payer) ? connection_reserved_bytes(c) : 0;
}

static void look_at_all(const struct server *s, struct usage *ret)
{
	*ret = (struct usage){0};
	for (const struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		ret->of[QUOTA_CHUNKS] += policy_join_need(d->info.n_chunks, d->need_chunks, 0) +
					 (d->copy.is_held ? CACHE_HELD_FILES : 0);
	ret->of[QUOTA_BYTES] =
	    cache_floor_bytes(&s->serving.cache) + cache_stuck_bytes(&s->serving.cache, CACHE_ANYBODY);
	for (const struct connection *c = s->connections; c; c = c->next)
		ret->of[QUOTA_BYTES] += connection_reserved_bytes(c);
}

int server_check_usage(struct server *s, const struct connection *c, struct error *err)
{
	struct cache *cache = &s->serving.cache;
	struct whose whose = {.uid = c->uid, .payer = c->payer};
	const struct quota quota = server_quota(s);
	/* A row takes the place of the share. */
	const struct quota of_cache =
	    c->payer == CACHE_QUOTA_REST ? quota : (struct quota){.share_percent = 100};
	struct usage mine, all, paid;
	int r;

	cache_find_holders(cache);
	look(s, &whose, &mine);
	look_at_all(s, &all);
	r = quota_check(&of_cache, c->uid, QUOTA_BYTES, &mine, &all, cache->limit_bytes, err);
	if (r == 0)
		r = quota_check(&quota, c->uid, QUOTA_CHUNKS, &mine, &all, cache->segments.max, err);
	if (r < 0 || cache->quotas.n == 0)
		return r;
	whose.by_payer = true;
	look(s, &whose, &paid);
	return quota_check_payer(&cache->quotas, c->payer, c->uid, paid.of[QUOTA_BYTES], cache->limit_bytes,
				 err);
}

int server_may_take(void *user, uint64_t bytes, struct error *err)
{
	struct server *s = user;
	struct cache *cache = &s->serving.cache;
	int r;

	s->opens->batch_bytes = bytes;
	r = server_check_usage(s, s->opens, err);
	cache->slot_bytes += bytes;
	if (r == 0)
		(void)cache_make_room(cache, 0); /* who opens it looks again */
	cache->slot_bytes -= bytes;
	s->opens->batch_bytes = 0;
	return r;
}

void server_count_paid(void *user, uint64_t paid[CACHE_QUOTA_PAYERS])
{
	const struct server *s = user;

	for (struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		d->payers.open = d->refs > 0 ? 0 : d->payers.open;
	for (const struct connection *c = s->connections; c; c = c->next) {
		paid[c->payer] += connection_reserved_bytes(c);
		if (c->dataset)
			c->dataset->payers.open |= 1u << c->payer;
	}
}

void server_set_quotas(struct server *s, const struct cache_quotas *quotas)
{
	s->serving.cache.quotas = *quotas;
	for (struct connection *c = s->connections; c; c = c->next) {
		c->payer = cache_quotas_payer_of(quotas, c->fd, c->uid);
		if (c->session)
			c->session->payer = c->payer;
	}
	s->serving.cache.needs_changed = true;
	serving_touch(&s->serving);
}
