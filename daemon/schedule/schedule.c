/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include <errno.h>

#include "daemon/cache/peers/memberships.h"
#include "daemon/node/admin.h"
#include "lib/clock.h"

/* limit on chunks considered at one time for other nodes */
#define GIVES_AT_ONCE  64
#define MAX_CANDIDATES (SCHEDULE_MAX_SESSIONS + GIVES_AT_ONCE)
/* 1/AHEAD_PARTS of the cache limits one user's prefetch in progress: storage that hangs holds this memory. */
#define AHEAD_PARTS 8
/* how soon the end of a checkpoint is noticed */
#define LOOK_NS (200 * NS_PER_MS)

struct read_candidate {
	struct session *session; /* NULL: the read is for another node */
	struct give_want give;
	uint64_t chunk;
};

struct read_candidates {
	struct read_candidate all[MAX_CANDIDATES];
	struct read_want wants[MAX_CANDIDATES];
	size_t n;
	uint64_t now_ns, again_ns; /* again_ns: time of the next attempt if there is no event */
};

static bool has_reader(const struct serving *s, const struct cached_dataset *d, uint32_t uid)
{
	const struct readers *r = &s->cache.readers;
	const struct quota quota = serving_quota(s);

	if (d->reader || d->identity.is_fetched)
		return true;
	return readers_have_space(r) && readers_of(r, uid) < quota_share(&quota, uid, r->max);
}

/* Returns true if the dataset may have one more load in progress from the same source as this chunk's. */
static bool has_turn(const struct membership *m, const struct cached_dataset *d, uint64_t chunk)
{
	uint32_t n_others = d->loads.n_asking + d->loads.n_for_peers;

	if (membership_has_elsewhere(m, chunk))
		return d->loads.n_asking < CACHE_MAX_ASKING;
	return d->loads.n - n_others < CACHE_MAX_LOADING &&
	       (d->loads.n <= n_others + d->loads.n_verifying ||
		d->loads.n - n_others - d->loads.n_verifying < CACHE_MAX_READING);
}

/* Returns true if prefetching the chunk leaves enough memory for others. taken_bytes: cache_taken_bytes(). */
static bool has_space(const struct serving *s, const struct cached_dataset *d, uint32_t uid, uint64_t chunk,
		      uint64_t taken_bytes)
{
	const struct cache *c = &s->cache;
	uint64_t bytes = d->chunks[chunk].bytes;

	if (taken_bytes + cache_take_more(d, bytes) > c->budget_bytes)
		return false;
	return admin_is(uid) || cache_loading_bytes(c, uid) + bytes <= c->limit_bytes / AHEAD_PARTS;
}

/* Returns true if this chunk may be read for the session now: a reader is free, and prefetch leaves enough
 * memory for others. */
static bool may_load(const struct serving *s, struct session *q, uint64_t chunk, uint32_t distance,
		     uint64_t taken_bytes)
{
	const struct cached_dataset *d = q->order.dataset;

	if (!has_turn(q->order.membership, d, chunk) || !has_reader(s, d, q->uid))
		return false;
	if (distance == 0 || has_space(s, d, q->uid, chunk, taken_bytes))
		return true;
	/* A session does not starve while a load is in progress: for a time, its chunk takes space twice. */
	if (q->priority == SESSION_SPARE && d->loads.n == 0)
		q->starved = -ENOSPC;
	return false;
}

/* Returns true if the session knows which chunks other nodes have. */
static bool knows_others(struct session *q, struct read_candidates *c)
{
	if (q->order.membership && membership_waits(q->order.membership, c->now_ns, &c->again_ns))
		return false;
	if (session_spare_knows(q))
		return true;
	c->again_ns = c->now_ns;
	return false;
}

/* Returns true if the read must pause for a checkpoint. A session whose client has taken all batches reads
 * on: its checkpoint's writer makes way (diesel_loader/checkpoint/persist.py). */
static bool is_held(const struct serving *s, const struct session *q, uint32_t distance,
		    struct read_candidates *c)
{
	bool waits = distance == 0 || (q->priority != SESSION_SPARE && slots_are_drained(&q->slots));
	uint64_t writer,
	    end_ns = waits ? 0
			   : read_holds_until(&s->cache.holds, q->uid, cached_storage(q->order.dataset),
					      c->now_ns, &writer);

	if (!end_ns)
		return false;
	if (end_ns > c->now_ns + 2 * LOOK_NS) /* until after the next look, so that the pause counts once */
		end_ns = c->now_ns + 2 * LOOK_NS;
	job_hold(q->job, writer, c->now_ns, end_ns);
	if (c->again_ns > c->now_ns + LOOK_NS)
		c->again_ns = c->now_ns + LOOK_NS;
	return true;
}

/* Collects the nearest missing chunk of each session that may still get memory in this pass. */
static void collect_wants(struct serving *s, struct read_candidates *c)
{
	uint64_t taken = cache_taken_bytes(&s->cache);

	s->cache.round++;
	for (struct session *q = s->sessions; q; q = q->next) {
		const struct cached_dataset *d = q->order.dataset;
		uint64_t chunk;
		uint32_t distance;

		if (!session_mark(q, &chunk, &distance) || q->starved || !knows_others(q, c) ||
		    !may_load(s, q, chunk, distance, taken) || is_held(s, q, distance, c))
			continue;
		c->all[c->n] = (struct read_candidate){.session = q, .chunk = chunk};
		c->wants[c->n++] = (struct read_want){.lanes = &q->job->read_lanes,
						      .storage = cached_storage(d),
						      .uid = q->uid,
						      .weight = q->job->read_weight,
						      .bytes = d->chunks[chunk].bytes,
						      .distance = distance,
						      .waits = distance == 0 && slots_are_drained(&q->slots),
						      .last_served = q->last_served};
	}
}

/* Returns 0 if this chunk may be read for another node now; -EAGAIN: later; -EBUSY: no space. */
static int may_give(const struct serving *s, const struct membership *m, uint64_t chunk)
{
	const struct cached_dataset *d = m->dataset;

	if (d->loads.n_for_peers >= CACHE_MAX_FOR_PEERS || !has_reader(s, d, m->job->uid))
		return -EAGAIN;
	return has_space(s, d, m->job->uid, chunk, cache_taken_bytes(&s->cache)) ? 0 : -EBUSY;
}

/* Adds one chunk for each job whose chunks other nodes request. The other nodes wait for it, as a batch here
 * would. */
static void collect_gives(struct serving *s, struct read_candidates *c)
{
	struct give_want gives[GIVES_AT_ONCE];
	size_t n = gives_wanted(&s->cache, gives, GIVES_AT_ONCE);

	for (size_t i = 0; i < n; i++) {
		const struct membership *m = gives[i].membership;
		int r = may_give(s, m, gives[i].chunk);

		if (r == -EBUSY)
			gives_refuse(&s->cache, &gives[i]);
		if (r < 0)
			continue;
		c->all[c->n] = (struct read_candidate){.give = gives[i], .chunk = gives[i].chunk};
		c->wants[c->n++] = (struct read_want){.lanes = &m->job->read_lanes,
						      .storage = cached_storage(m->dataset),
						      .uid = m->job->uid,
						      .weight = m->job->read_weight,
						      .bytes = m->dataset->chunks[gives[i].chunk].bytes};
	}
}

static void load_for_peer(struct serving *s, const struct give_want *give)
{
	const struct cached_want want = {.for_peer = true};
	const struct membership *m = give->membership;

	/* Loads at distance 1, so that no chunk is evicted that a session here is about to need. */
	if (cache_load(&s->cache, m->dataset, give->chunk, 1, m->job, m->place, &want) < 0)
		gives_refuse(&s->cache, give);
}

/* Returns which samples of the chunk to read for the session: all, if another session reads the whole
 * dataset. A session that asks for a few samples per chunk gets the whole chunk on its second visit. A chunk
 * that is not at the head yet is read whole. */
static struct cached_want want_for(const struct serving *s, const struct session *q, uint64_t chunk,
				   uint32_t distance)
{
	const struct cached_want all = {0};
	const struct order *o = &q->order;

	/* Other nodes request and send only whole chunks. */
	if (o->membership && !o->asked)
		return all;
	if (o->asked && (distance > 0 || o->dataset->chunks[chunk].part))
		return all;
	for (const struct session *other = s->sessions; other; other = other->next) {
		if (other->order.dataset == o->dataset && !other->order.asked && !other->order.subset)
			return all;
	}
	return o->want;
}

static void load(struct serving *s, const struct read_candidate *chosen, uint32_t distance)
{
	struct session *q = chosen->session;
	struct cached_want want;

	if (!q) {
		load_for_peer(s, &chosen->give);
		return;
	}
	want = want_for(s, q, chosen->chunk, distance);
	q->starved =
	    cache_load(&s->cache, q->order.dataset, chosen->chunk, distance, q->job, q->place, &want);
	if (q->starved == 0)
		q->last_served = ++s->n_reads;
}

/* Starts reads until enough are in progress, or no session can use another one. Returns the time at
 * which another read may become possible even if no event occurs, in ns; UINT64_MAX: none. */
static uint64_t start_reads(struct serving *s)
{
	struct read_candidates c;

	for (struct session *q = s->sessions; q; q = q->next)
		q->starved = 0;
	serving_note_checkpoints(s, clock_monotonic_ns());
	for (;;) {
		uint64_t again_ns;
		long pick;

		c.n = 0;
		c.now_ns = clock_monotonic_ns();
		c.again_ns = UINT64_MAX;
		collect_wants(s, &c);
		collect_gives(s, &c);
		pick = read_turns_pick(s->cache.turns, c.wants, c.n, c.now_ns, &again_ns);
		if (pick < 0)
			return c.again_ns < again_ns ? c.again_ns : again_ns;
		load(s, &c.all[pick], c.wants[pick].distance);
	}
}

/* Returns true if no work is in progress and nobody holds memory that could be given back: then nothing will
 * change. */
static bool is_still(const struct serving *s)
{
	const struct cache *c = &s->cache;

	if (c->n_loading > 0 || c->releasing_bytes > 0)
		return false;
	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->slots.n_filling > 0)
			return false;
	}
	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *segment = c->segments.all[i];

		if (segment && cache_chunk_of(segment) && cache_chunk_of(segment)->pins > 0)
			return false;
	}
	return true;
}

static void serve_starved(struct serving *s)
{
	bool moves = false; /* true once work was found in progress: nothing below ends that work */

	for (struct session *q = s->sessions; q; q = q->next) {
		if (!q->starved)
			continue;
		moves = moves || !is_still(s);
		if (!session_starve(q, !moves))
			continue;
		serving_touch(s);
		if (q->priority != SESSION_SPARE)
			return; /* other sessions continue with the memory that this one leaves */
	}
}

bool schedule_turn(struct serving *s, uint64_t *ret_again_ns)
{
	bool any = s->dirty;

	*ret_again_ns = UINT64_MAX;
	while (s->dirty) {
		s->dirty = false;
		if (s->cache.needs_changed && !s->cache.closing)
			serving_refresh(s);
		for (struct session *q = s->sessions; q; q = q->next)
			session_pump(q);
		if (s->cache.unfit)
			cache_fit(&s->cache);
		gives_pump(&s->cache);
		if (!s->cache.closing)
			*ret_again_ns = start_reads(s);
		serve_starved(s);
	}
	check_pool(s->cache.pool);
	check_cache(&s->cache);
	check_sessions(s);
	check_groups(&s->cache);
	return any;
}
