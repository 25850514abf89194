/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "client/diesel.h"
#include "dataset/subset.h"
#include "kept.h"
#include "lib/clock.h"
#include "session.h"

#define MAX_MEMBERS 16 /* bounds what finding a batch costs; more make another group */

/* A member that is behind is waited for while it wants batches and gets them. */
#define HUNGRY_NS   (200 * NS_PER_MS)
#define PROGRESS_NS NS_PER_S
/* Longest time to give way: at first, as a part of the session's life, and at a time. */
#define WAY_FIRST_NS (10 * NS_PER_S)
#define WAY_PART     10
#define WAY_MOST_NS  (30 * NS_PER_S)
#define TICK_MS      UINT64_C(100)

_Static_assert(MAX_MEMBERS <= KEPT_FOLLOWERS, "all of them may be behind");

struct group {
	struct group *next; /* of the dataset */
	struct cached_dataset *dataset;
	struct session *first;
	uint32_t n_members;
	struct kept kept;
	uv_timer_t timer; /* runs while somebody gives way */
};

/* What decides the bytes of its batches, of what a client may ask for. Which batches it gets, and where it
 * starts, is no part of it. */
static struct wire_open_session key_of(const struct session *s)
{
	struct wire_open_session key = s->request;

	memset(&key.header, 0, sizeof(key.header));
	memset(key.group, 0, sizeof(key.group));
	key.first_batch = 0;
	if (!key.start) /* else the epoch that it is of has other batches than any other */
		key.epoch = 0;
	key.stride = key.offset = key.slots = 0;
	key.flags &= ~(uint32_t)DIESEL_PINNABLE;
	return key;
}

bool group_is_same(const struct session *a, const struct session *b)
{
	const struct wire_open_session of_a = key_of(a), of_b = key_of(b);

	/* Equal numbers with other bytes (0 and -0) cost a group, and nothing else.
	 * NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	bool same = memcmp(&of_a, &of_b, sizeof(of_a)) == 0;

	return same && a->dataset == b->dataset && a->uid == b->uid && subset_is_same(a->subset, b->subset);
}

/* Where it is in the order of all epochs: at the batch that it prepares next. */
static uint64_t position(const struct session *s)
{
	uint64_t epoch = s->has_head ? s->head.epoch : s->epoch,
		 index = s->has_head ? s->head.index : s->index;

	return kept_position(s->n_batches, epoch, index);
}

static void on_tick(uv_timer_t *timer)
{
	const struct group *g = timer->data;

	for (struct session *s = g->first; s; s = s->member.next) {
		if (s->member.looked_ns)
			session_pump(s);
	}
}

/* Lists the members that go on, and where each is. */
static struct kept_followers followers_of(const struct group *g)
{
	struct kept_followers followers = {.n = 0};

	for (const struct session *t = g->first; t; t = t->member.next) {
		if (!t->stopped && !t->closing && t->request.offset < t->n_batches)
			followers.all[followers.n++] = (struct kept_follower){
			    .next = position(t), .stride = t->request.stride, .offset = t->request.offset};
	}
	return followers;
}

/* Gives up a batch of the group that keeps most. */
static bool give_up_batch(struct cache *c)
{
	struct group *found = NULL;
	struct kept_followers followers;

	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct group *g = d->groups; g; g = g->next) {
			if (!found || kept_bytes(&g->kept) > kept_bytes(&found->kept))
				found = g;
		}
	}
	if (!found)
		return false;
	followers = followers_of(found);
	return kept_give_up(&found->kept, &followers);
}

static struct group *group_new(struct session *s)
{
	struct group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	if (uv_timer_init(s->cache->readers.loop, &g->timer) < 0) {
		free(g);
		return NULL;
	}
	g->timer.data = g;
	uv_unref((uv_handle_t *)&g->timer);
	g->dataset = s->dataset;
	s->cache->handler.give_up_batch = give_up_batch;
	g->next = s->dataset->groups;
	s->dataset->groups = g;
	return g;
}

static void on_closed(uv_handle_t *timer)
{
	free(timer->data);
}

static void group_free(struct group *g)
{
	struct group **link = &g->dataset->groups;

	while (*link != g)
		link = &(*link)->next;
	*link = g->next;
	kept_end(&g->kept);
	uv_close((uv_handle_t *)&g->timer, on_closed);
}

/* The one that it can join. */
static struct group *find_group(const struct session *s)
{
	struct group *g = s->dataset->groups;

	while (g && (g->n_members == MAX_MEMBERS || !group_is_same(g->first, s)))
		g = g->next;
	return g;
}

void group_join(struct session *s)
{
	struct group *g = find_group(s);

	if (!s->codecs) /* nothing to share; nor where batches are asked for, whose numbers say nothing */
		return;
	if (!g)
		g = group_new(s);
	if (!g)
		return;
	s->member = (struct group_member){.group = g, .next = g->first, .joined_ns = clock_monotonic_ns()};
	g->first = s;
	g->n_members++;
}

struct frames *group_frames(const struct session *s)
{
	const struct group *g = s->request.flags & DIESEL_PINNABLE ? NULL : find_group(s);

	for (const struct session *t = g ? g->first : NULL; t; t = t->member.next) {
		/* Those of one that asked for its own have no room. */
		if (t->frames->n_frames - t->frames->limit >= s->n_slots)
			return t->frames;
	}
	return NULL;
}

static bool is_decoded(const struct slot *slot, const struct batch *b)
{
	return slot->state == SLOT_FILLING && slot->batch.epoch == b->epoch &&
	       slot->batch.index == b->index && !slot->awaits && !slot->from &&
	       slot->generation == slot->session->generation;
}

static bool find_kept(const struct group *g, const struct batch *b, struct group_source *ret)
{
	uint32_t frame = kept_find(&g->kept, b->epoch, b->index);

	if (frame == FRAME_NONE)
		return false;
	*ret = (struct group_source){.frames = g->kept.frames, .frame = frame};
	return true;
}

static bool find_held(struct frames *f, const struct batch *b, struct group_source *ret)
{
	uint32_t frame = f ? frames_find(f, b->epoch, b->index) : FRAME_NONE;

	if (frame == FRAME_NONE)
		return false;
	*ret = (struct group_source){.frames = f, .frame = frame};
	return true;
}

bool group_find(const struct session *s, const struct batch *b, struct group_source *ret)
{
	const struct group *g = s->member.group;

	*ret = (struct group_source){.frames = NULL};
	if (!g || b->status < 0)
		return false;
	if (find_held(s->frames, b, ret) || find_kept(g, b, ret))
		return true;
	for (struct session *t = g->first; t; t = t->member.next) {
		if (t->frames != s->frames && find_held(t->frames, b, ret))
			return true;
		for (uint32_t i = 0; i < t->n_slots && t != s; i++) {
			if (is_decoded(&t->slots[i], b))
				ret->slot = &t->slots[i];
		}
	}
	return ret->slot != NULL;
}

bool group_is_copied(const struct session *s, const struct batch *b)
{
	const struct group *g = s->member.group;

	for (const struct session *t = g && g->kept.n_copies > 0 ? g->first : NULL; t; t = t->member.next) {
		for (uint32_t i = 0; i < t->n_slots; i++) {
			const struct slot *slot = &t->slots[i];
			const struct frame_batch *from =
			    slot->keep ? &t->frames->frame[slot->frame].batch : NULL;

			if (from && from->epoch == b->epoch && from->index == b->index)
				return true;
		}
	}
	return false;
}

/* What it waited for does not come. */
static void go_on(struct slot *slot)
{
	struct session *s = slot->session;
	struct group_source source;

	slot->awaits = NULL;
	if (slot->generation != s->generation || s->orphaned)
		session_filled(slot);
	else if (!group_find(s, &slot->batch, &source))
		session_fill(slot);
	else if (source.frames)
		session_fill_from(slot, source.frames, source.frame);
	else
		slot->awaits = source.slot;
}

/* Goes through the slots that wait for this one. */
static void settle(const struct group *g, const struct slot *source, bool holds)
{
	for (struct session *t = g->first; t; t = t->member.next) {
		for (uint32_t i = 0; i < t->n_slots; i++) {
			struct slot *slot = &t->slots[i];

			if (slot->awaits != source)
				continue;
			if (!holds) {
				go_on(slot);
				continue;
			}
			slot->awaits = NULL;
			session_fill_from(slot, source->session->frames, source->frame);
		}
	}
}

static void prune(struct group *g)
{
	struct kept_followers followers = followers_of(g);

	kept_prune(&g->kept, &followers);
}

void group_leave(struct session *s)
{
	struct group *g = s->member.group;
	struct session **link;

	if (!g)
		return;
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].keep && s->slots[i].keep == g->kept.frames)
			kept_cancel(&g->kept, s->slots[i].keep_frame);
	}
	s->member.group = NULL;
	link = &g->first;
	while (*link != s)
		link = &(*link)->member.next;
	*link = s->member.next;
	g->n_members--;
	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct slot *slot = &s->slots[i];

		if (slot->awaits) {
			slot->awaits = NULL;
			session_filled(slot);
		}
		settle(g, slot, false);
	}
	if (g->first)
		prune(g);
	else
		group_free(g);
}

/* Returns true if there is room for another batch of the session's group, but for that in the cache. With
 * quotas, what is kept for a payer is a part of his. */
static bool may_keep(const struct session *s)
{
	const struct cache *c = s->cache;
	uint64_t bytes = s->frames->frame_bytes;

	for (const struct cached_dataset *d = c->quotas.n > 0 ? c->datasets : NULL; d; d = d->next) {
		for (const struct group *g = d->groups; g; g = g->next)
			bytes += g->first->payer == s->payer ? kept_bytes(&g->kept) : 0;
	}
	return c->quotas.n == 0 ||
	       bytes <= cache_quotas_bytes(&c->quotas, s->payer, c->limit_bytes) / CACHE_BATCH_PART;
}

void group_keep(struct slot *slot)
{
	struct session *s = slot->session;
	struct group *g = s->member.group;
	const struct frame *frame = &s->frames->frame[slot->frame];
	struct kept_followers followers;

	if (!g || g->n_members < 2 || !frame->had)
		return;
	followers = followers_of(g);
	slot->keep_frame = kept_reserve(&g->kept, s->cache, s->n_batches, s->frames->frame_bytes,
					&frame->batch, &followers, may_keep(s));
	slot->keep = slot->keep_frame == FRAME_NONE ? NULL : g->kept.frames;
}

void group_keep_ended(struct slot *slot)
{
	struct session *s = slot->session;
	struct group *g = s->member.group;
	struct frames *to = slot->keep;

	slot->keep = NULL;
	if (g && g->kept.frames == to) {
		struct kept_followers followers = followers_of(g);

		kept_enter(&g->kept, slot->keep_frame, &s->frames->frame[slot->frame].batch, &followers);
	}
	frames_unref(to, slot->keep_frame);
	cache_changed(s->cache); /* who waits for it finds it */
}

void group_passed(struct session *s, uint64_t epoch, uint64_t index)
{
	struct group *g = s->member.group;
	struct kept_followers followers;

	if (!g || !g->kept.frames)
		return;
	followers = followers_of(g);
	kept_pass(&g->kept, kept_position(s->n_batches, epoch, index), &followers);
}

void group_moved(struct session *s)
{
	if (s->member.group)
		prune(s->member.group);
}

uint64_t group_kept_bytes(const struct session *s)
{
	const struct group *g = s->member.group;

	return g && g->first == s ? kept_bytes(&g->kept) : 0;
}

uint64_t group_kept_run(const struct session *s)
{
	const struct group *g = s->member.group;

	return g && g->kept.frames && s->has_head ? kept_run(&g->kept, s->head.epoch, s->head.index) : 0;
}

void group_decode_begins(struct slot *slot)
{
	slot->session->member.n_decoding++;
	slot->session->member.progress_ns = clock_monotonic_ns();
	slot->decode_ns = 0;
}

void group_decode_ended(struct slot *slot)
{
	struct session *s = slot->session;
	struct group_member *m = &s->member;
	const struct batch *b = &slot->batch;
	bool holds = b->n_decoded >= b->n_items && b->status == 0;

	m->n_decoding--;
	m->progress_ns = clock_monotonic_ns();
	if (holds) {
		m->batch_ns = m->batch_ns ? (m->batch_ns * 7 + slot->decode_ns) / 8 : slot->decode_ns;
		frames_hold(s->frames, slot->frame,
			    &(struct frame_batch){.epoch = b->epoch,
						  .index = b->index,
						  .n_items = b->n_items,
						  .n_all = b->n_all,
						  .n_damaged = b->n_damaged,
						  .member = s->frames_member,
						  .job = s->job->id});
	}
	if (m->group)
		settle(m->group, slot, holds);
}

/* Returns true if the member's client waits for what its own decoders are at. */
static bool catches_up(struct session *t, uint64_t now_ns)
{
	struct group_member *m = &t->member;
	struct group_source source;

	if (t->published == atomic_load_explicit(&t->control->consumed, memory_order_relaxed))
		m->hungry_ns = now_ns;
	return !t->stopped && m->n_decoding > 0 && m->hungry_ns && now_ns - m->hungry_ns < HUNGRY_NS &&
	       now_ns - m->progress_ns < PROGRESS_NS && t->has_head && !group_find(t, &t->head, &source);
}

/* How long it may give way from now on. */
static uint64_t patience_ns(const struct group_member *m, uint64_t now_ns)
{
	uint64_t all_ns = WAY_FIRST_NS + (now_ns - m->joined_ns) / WAY_PART;

	if (m->gave_way_ns >= all_ns)
		return 0;
	return all_ns - m->gave_way_ns < WAY_MOST_NS ? all_ns - m->gave_way_ns : WAY_MOST_NS;
}

/* How long the member takes to be where s is, if its workers do nothing else. */
static uint64_t lag_ns(const struct session *s, const struct session *t)
{
	uint64_t batch_ns = s->member.batch_ns ? s->member.batch_ns : t->member.batch_ns, ns;
	uint64_t n = (position(s) - position(t)) / s->request.stride;

	return __builtin_mul_overflow(n, batch_ns, &ns)
		   ? UINT64_MAX
		   : ns / pool_lane_workers(s->cache->pool, &t->job->lane);
}

/* Returns true if it should wait until a member that is a little behind is where it is: otherwise they would
 * go on at the same pace, the same few batches apart, and decode everything twice. */
static bool gives_way(struct session *s, uint64_t now_ns)
{
	uint64_t patience = patience_ns(&s->member, now_ns);

	for (struct session *t = s->member.group->first; t && patience; t = t->member.next) {
		if (t != s && t->request.stride == s->request.stride &&
		    t->request.offset == s->request.offset && position(t) < position(s) &&
		    catches_up(t, now_ns) && lag_ns(s, t) <= patience)
			return true;
	}
	return false;
}

static uint32_t n_busy(const struct session *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_slots; i++)
		n += s->slots[i].state != SLOT_FREE;
	return n;
}

/*
 * Returns true if its next batch would take the frame of one that a member behind it has yet to get, although
 * enough are ready for its client. Jobs whose devices are the slowest part never wait for each other: a few
 * batches apart, each would decode everything.
 */
static bool outruns(const struct session *s)
{
	uint32_t ready = s->published - atomic_load_explicit(&s->control->consumed, memory_order_relaxed),
		 enough = s->n_slots / 2;

	for (const struct session *t = s->member.group->first; t && ready >= enough; t = t->member.next) {
		uint64_t n_frames;

		if (t == s || t->frames != s->frames || t->stopped ||
		    t->request.stride != s->request.stride || t->request.offset != s->request.offset ||
		    position(t) >= position(s))
			continue;
		n_frames = (position(s) - position(t)) / s->request.stride + n_busy(t) + 1;
		if (n_frames > s->frames->limit && n_frames - (ready - enough) <= s->frames->limit)
			return true;
	}
	return false;
}

bool group_holds_back(struct session *s, uint64_t now_ns)
{
	struct group_member *m = &s->member;
	uint64_t since_ns = m->looked_ns ? now_ns - m->looked_ns : 0;

	m->looked_ns = 0;
	if (!m->group || m->group->n_members < 2)
		return false;
	if (outruns(s))
		return true;
	/* One more than work at a time, so that none waits for the loop. */
	if (m->n_decoding > pool_lane_workers(s->cache->pool, &s->job->lane))
		return true;
	/* Between two looks it may have had other reasons to wait. */
	m->gave_way_ns += since_ns < 2 * TICK_MS * NS_PER_MS ? since_ns : 2 * TICK_MS * NS_PER_MS;
	if (!gives_way(s, now_ns))
		return false;
	m->looked_ns = now_ns;
	uv_timer_start(&m->group->timer, on_tick, TICK_MS, 0);
	return true;
}
