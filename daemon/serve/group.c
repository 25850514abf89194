/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "client/diesel.h"
#include "dataset/subset.h"
#include "kept.h"
#include "lib/array.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/minmax.h"
#include "session.h"

#define MAX_MEMBERS 16 /* bounds the cost of finding a batch; further members form another group */

/* A member waits for one that is behind only if, within these times, that one's client had no batch ready and
 * its decoders made progress. */
#define HUNGRY_NS   (200 * NS_PER_MS)
#define PROGRESS_NS NS_PER_S
/* Budget of time for giving way to slower members: initial value, divisor of the membership time that is
 * added, and maximum per wait. */
#define WAY_FIRST_NS (10 * NS_PER_S)
#define WAY_PART     10
#define WAY_MOST_NS  (30 * NS_PER_S)
#define TICK_MS      UINT64_C(100)

_Static_assert(MAX_MEMBERS <= KEPT_FOLLOWERS, "every member may be a follower");

struct group {
	struct group *next; /* next group of the dataset */
	struct cached_dataset *dataset;
	struct session *first;
	uint32_t n_members;
	struct kept kept;
	uv_timer_t timer; /* runs while a member gives way */
};

#define MAX_FRAMES 8192 /* maximum number of buffers: bounds the bookkeeping */
#define WARM       8    /* unused buffers that keep their memory, to be filled again */
#define NEAR       8    /* distance between members, in batches, at which their buffers suffice */
#define NOBODY     UINT64_MAX

/* Returns the session's position in the order of all epochs: that of the batch it prepares next. */
static uint64_t position(const struct session *s)
{
	uint64_t epoch = s->order.has_head ? s->order.head.epoch : s->order.epoch,
		 index = s->order.has_head ? s->order.head.index : s->order.index;

	return kept_position(s->order.n_batches, epoch, index);
}

static uint64_t next_use(const struct kept_followers *followers, uint64_t position, uint64_t index)
{
	uint64_t nearest = NOBODY;

	for (uint32_t i = 0; i < followers->n; i++) {
		const struct kept_follower *r = &followers->all[i];

		if (position >= r->next && index >= r->offset && (index - r->offset) % r->stride == 0)
			nearest = min_u64(nearest, position - r->next);
	}
	return nearest;
}

static bool is_needed(const struct kept *k, const struct kept_followers *followers, uint64_t position)
{
	return next_use(followers, position, position % k->n_batches) != NOBODY;
}

/* Returns the number of kept batches before this position. */
static uint32_t n_before(const struct kept *k, uint64_t position)
{
	uint32_t first = 0, end = k->n;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;

		if (k->places[middle].position < position)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static uint32_t find(const struct kept *k, uint64_t position)
{
	uint32_t i = n_before(k, position);

	return i < k->n && k->places[i].position == position ? i : k->n;
}

/* Returns the buffer that holds a copy of the batch, or BATCH_BUFFER_NONE. */
static uint32_t kept_find(const struct kept *k, uint64_t epoch, uint64_t index)
{
	uint32_t i = find(k, kept_position(k->n_batches, epoch, index));

	return i < k->n ? k->places[i].buffer : BATCH_BUFFER_NONE;
}

/* Returns how many consecutive batches, from this one on, are kept. */
static uint64_t kept_run(const struct kept *k, uint64_t epoch, uint64_t index)
{
	uint64_t position = kept_position(k->n_batches, epoch, index);
	uint32_t first = find(k, position), last = first, end = k->n;

	while (last + 1 < end) {
		uint32_t middle = last + (end - last) / 2;

		if (k->places[middle].position - position == middle - first)
			last = middle;
		else
			end = middle;
	}
	return first < k->n ? last - first + 1 : 0;
}

/* ---- memory ---- */

/* Returns the memory of a buffer that holds no batch to the system. */
static void give_back(struct kept *k, uint32_t buffer)
{
	struct cache *c = k->buffers->cache;

	c->kept_batches.bytes -= k->buffers->buffer_bytes;
	batch_buffers_give_back(k->buffers, buffer);
	/* Without memory for the list the buffer is not used again. */
	if (array_reserve(k->cold, k->n_cold, k->size_cold) == 0)
		k->cold[k->n_cold++] = buffer;
}

/* Returns a warm buffer that holds no batch and has no running copy; BATCH_BUFFER_NONE: none. */
static uint32_t take_warm(struct kept *k)
{
	for (uint32_t i = k->n_warm; i-- > 0;) {
		uint32_t buffer = k->warm[i];

		if (k->buffers->buffer[buffer].n_refs > 0)
			continue;
		k->warm[i] = k->warm[--k->n_warm];
		return buffer;
	}
	return BATCH_BUFFER_NONE;
}

/* Marks the buffer as empty and puts it on the list of warm ones, which is kept short. */
static void let_go(struct kept *k, uint32_t buffer)
{
	uint32_t spare;

	k->buffers->buffer[buffer].holds = false;
	k->warm[k->n_warm++] = buffer; /* find_cold() made space */
	while (!k->buffers->cache->closing && k->n_warm > WARM && (spare = take_warm(k)) != BATCH_BUFFER_NONE)
		give_back(k, spare);
}

/* Returns a buffer without memory, and makes space for it in the list of warm buffers; BATCH_BUFFER_NONE:
 * none available. */
static uint32_t find_cold(struct kept *k)
{
	struct buffers *f = k->buffers;

	while (k->size_warm <= f->n_live) {
		uint32_t full = k->size_warm;

		if (array_reserve(k->warm, full, k->size_warm) < 0)
			return BATCH_BUFFER_NONE;
	}
	/* The system may not have freed the memory of the last buffers yet. */
	for (uint32_t i = k->n_cold; i-- > 0;) {
		uint32_t buffer = k->cold[i];

		if (f->buffer[buffer].state != BUFFER_ABSENT)
			continue;
		k->cold[i] = k->cold[--k->n_cold];
		return buffer;
	}
	return k->n_touched < f->n_buffers ? k->n_touched++ : BATCH_BUFFER_NONE;
}

static bool begin(struct kept *k, struct cache *c, uint64_t n_batches, uint64_t buffer_bytes)
{
	uint64_t n = min_u64(c->limit_bytes / CACHE_BATCH_PART / buffer_bytes, MAX_FRAMES);

	if (k->buffers)
		return true;
	if (n == 0 || batch_buffers_new(c, buffer_bytes, (uint32_t)n, true, &k->buffers) < 0) {
		k->buffers = NULL;
		return false;
	}
	(void)batch_buffers_join(k->buffers, (uint32_t)n);
	k->n_batches = n_batches;
	return true;
}

static void set_asked(struct kept *k, struct cache *c, uint64_t bytes)
{
	c->kept_batches.asked_bytes += bytes - k->asked_bytes;
	k->asked_bytes = bytes;
	c->needs_changed = true;
	cache_changed(c);
}

/* Asks the cache for memory, because the batch at this position did not fit: unneeded chunks shall make
 * space. */
static void ask(struct kept *k, struct cache *c, uint64_t position, const struct kept_followers *followers)
{
	uint64_t first = position, bytes;

	for (uint32_t i = 0; i < followers->n; i++)
		first = min_u64(first, followers->all[i].next);
	bytes = min_u64(position - first + 1 + WARM, k->buffers->n_buffers) * k->buffers->buffer_bytes;
	if (bytes > k->asked_bytes + k->asked_bytes / 4)
		set_asked(k, c, bytes);
}

/* Drops everything. */
static void kept_end(struct kept *k)
{
	struct cache *c;

	if (!k->buffers)
		return;
	c = k->buffers->cache;
	c->kept_batches.bytes -= kept_bytes(k);
	if (k->asked_bytes > 0)
		set_asked(k, c, 0);
	batch_buffers_leave(k->buffers, k->buffers->n_buffers);
	free(k->places);
	free(k->warm);
	free(k->cold);
	*k = (struct kept){.buffers = NULL};
}

static void end_if_empty(struct kept *k)
{
	if (k->n == 0 && k->n_copies == 0)
		kept_end(k);
}

/* ---- places ---- */

static void drop(struct kept *k, uint32_t i)
{
	uint32_t buffer = k->places[i].buffer;

	memmove(&k->places[i], &k->places[i + 1], (--k->n - i) * sizeof(*k->places));
	let_go(k, buffer);
}

/*
 * Finds the place that is needed last, and when (*ret_use). The nearest member before a place needs it first.
 * So the result is the last place before some member's next batch, or the last place of all.
 */
static uint32_t find_last(const struct kept *k, const struct kept_followers *followers, uint64_t *ret_use)
{
	uint32_t found = k->n;
	uint64_t last = 0;

	for (uint32_t r = 0; r <= followers->n && k->n > 0; r++) {
		uint32_t end = r < followers->n ? n_before(k, followers->all[r].next) : k->n;
		uint64_t position, use;

		if (end == 0)
			continue;
		position = k->places[end - 1].position;
		use = next_use(followers, position, position % k->n_batches);
		if (found < k->n && use <= last)
			continue;
		found = end - 1;
		last = use;
	}
	*ret_use = last;
	return found;
}

static uint32_t take_buffer(struct kept *k, struct cache *c, uint64_t use,
			    const struct kept_followers *followers, bool may_grow)
{
	uint32_t buffer = take_warm(k), last;
	uint64_t last_use;

	if (buffer != BATCH_BUFFER_NONE)
		return buffer;
	if (may_grow && cache_make_batch_space(c, k->buffers->buffer_bytes)) {
		buffer = find_cold(k);
		if (buffer != BATCH_BUFFER_NONE) {
			c->kept_batches.bytes += k->buffers->buffer_bytes;
			return buffer;
		}
	}
	last = find_last(k, followers, &last_use);
	if (last == k->n || last_use <= use || k->buffers->buffer[k->places[last].buffer].n_refs > 0)
		return BATCH_BUFFER_NONE;
	drop(k, last);
	return take_warm(k);
}

/* Returns a buffer of buffer_bytes, with a reference, to copy this batch to. may_grow: more memory may be
 * used if the cache has space. BATCH_BUFFER_NONE: no member needs the batch, it is already kept, or memory
 * is at its limit and all kept batches are needed sooner. */
static uint32_t kept_reserve(struct kept *k, struct cache *c, uint64_t n_batches, uint64_t buffer_bytes,
			     const struct buffer_batch *batch, const struct kept_followers *followers,
			     bool may_grow)
{
	uint64_t position = kept_position(n_batches, batch->epoch, batch->index);
	uint64_t use = next_use(followers, position, batch->index);
	uint32_t buffer;

	if (use == NOBODY || !begin(k, c, n_batches, buffer_bytes) || find(k, position) < k->n)
		return BATCH_BUFFER_NONE;
	buffer = take_buffer(k, c, use, followers, may_grow);
	if (buffer == BATCH_BUFFER_NONE) {
		ask(k, c, position, followers);
		return BATCH_BUFFER_NONE;
	}
	batch_buffers_take_this(k->buffers, buffer);
	k->n_copies++;
	return buffer;
}

/* Gives up a reserved buffer. Whoever copies into it drops the reference when the copy has ended. */
static void kept_cancel(struct kept *k, uint32_t buffer)
{
	k->n_copies--;
	let_go(k, buffer);
}

/* To be called when the copy is complete. Keeps it if a follower still needs it. */
static void kept_enter(struct kept *k, uint32_t buffer, const struct buffer_batch *batch,
		       const struct kept_followers *followers)
{
	uint64_t position = kept_position(k->n_batches, batch->epoch, batch->index);
	uint32_t i = n_before(k, position);

	if (!is_needed(k, followers, position) || (i < k->n && k->places[i].position == position) ||
	    array_reserve(k->places, k->n, k->size) < 0) {
		kept_cancel(k, buffer);
		end_if_empty(k);
		return;
	}
	k->n_copies--;
	memmove(&k->places[i + 1], &k->places[i], (k->n++ - i) * sizeof(*k->places));
	k->places[i] = (struct kept_place){.position = position, .buffer = buffer};
	batch_buffers_hold(k->buffers, buffer, batch);
	k->buffers->buffer[buffer].batch.member = 0; /* the decoder's member number belongs to another pool */
}

/* ---- eviction ---- */

/* Ends the keeping if nothing is kept and the members are near each other again: then their buffers
 * suffice. */
static void try_end(struct kept *k, const struct kept_followers *followers)
{
	uint64_t first = UINT64_MAX, last = 0;

	for (uint32_t i = 0; i < followers->n; i++) {
		first = min_u64(first, followers->all[i].next);
		last = max_u64(last, followers->all[i].next);
	}
	if (followers->n < 2 || last - first < NEAR)
		end_if_empty(k);
}

/* To be called when a member has passed this position. */
static void kept_pass(struct kept *k, uint64_t position, const struct kept_followers *followers)
{
	uint32_t i;

	if (!k->buffers)
		return;
	i = find(k, position);
	if (i < k->n && !is_needed(k, followers, position))
		drop(k, i);
	while (k->n > 0 && !is_needed(k, followers, k->places[0].position))
		drop(k, 0);
	try_end(k, followers);
}

/* To be called when members have joined, left or moved. Drops all batches that no follower needs. */
static void kept_prune(struct kept *k, const struct kept_followers *followers)
{
	uint32_t n = 0, end = k->n;

	if (!k->buffers)
		return;
	k->n = 0;
	for (uint32_t i = 0; i < end; i++) {
		struct kept_place place = k->places[i];

		if (is_needed(k, followers, place.position))
			k->places[n++] = place;
		else
			let_go(k, place.buffer);
	}
	k->n = n;
	end_if_empty(k);
}

/* Evicts one batch: an unused buffer first, else the batch that is needed last. Returns false if there is
 * none. */
static bool kept_give_up(struct kept *k, const struct kept_followers *followers)
{
	uint32_t buffer, last;
	uint64_t use;

	if (!k->buffers || k->buffers->cache->closing)
		return false;
	buffer = take_warm(k);
	if (buffer != BATCH_BUFFER_NONE) {
		give_back(k, buffer);
		return true;
	}
	last = find_last(k, followers, &use);
	if (last == k->n)
		return false;
	/* The buffer keeps its memory while a copy from it is in progress. */
	drop(k, last);
	buffer = take_warm(k);
	if (buffer != BATCH_BUFFER_NONE)
		give_back(k, buffer);
	return true;
}

/* Returns the request fields that determine the contents of batches. The first batch and the choice of
 * batches are not part of the key. */
static struct wire_open_session key_of(const struct session *s)
{
	struct wire_open_session key = s->order.request;

	memset(&key.header, 0, sizeof(key.header));
	memset(key.group, 0, sizeof(key.group));
	key.first_batch = 0;
	if (!key.start) /* with a start, the batches of this epoch differ from all others */
		key.epoch = 0;
	key.stride = key.offset = key.slots = 0;
	key.flags &= ~(uint32_t)DIESEL_PINNABLE;
	return key;
}

/* Returns true if batches of equal epoch and index are equal in both sessions, to the last byte. */
static bool is_same(const struct session *a, const struct session *b)
{
	const struct wire_open_session of_a = key_of(a), of_b = key_of(b);

	/* Equal numbers with different bytes (0 and -0) only cause a separate group.
	 * NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	bool same = memcmp(&of_a, &of_b, sizeof(of_a)) == 0;

	return same && a->order.dataset == b->order.dataset && a->uid == b->uid &&
	       subset_is_same(a->order.subset, b->order.subset);
}

static void on_tick(uv_timer_t *timer)
{
	const struct group *g = timer->data;

	for (struct session *s = g->first; s; s = s->member.next) {
		if (s->member.looked_ns)
			session_pump(s);
	}
}

/* Lists the members that still need batches, with the position of each. */
static struct kept_followers followers_of(const struct group *g)
{
	struct kept_followers followers = {.n = 0};

	for (const struct session *t = g->first; t; t = t->member.next) {
		if (!t->stopped && !t->closing && t->order.request.offset < t->order.n_batches)
			followers.all[followers.n++] =
			    (struct kept_follower){.next = position(t),
						   .stride = t->order.request.stride,
						   .offset = t->order.request.offset};
	}
	return followers;
}

/* Evicts a kept batch of the group that keeps most bytes. */
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
	g->dataset = s->order.dataset;
	s->cache->handler.give_up_batch = give_up_batch;
	g->next = s->order.dataset->groups;
	s->order.dataset->groups = g;
	return g;
}

static void on_closed(uv_handle_t *timer)
{
	free(timer->data);
}

static void group_free(struct group *g)
{
	LL_DELETE(g->dataset->groups, g);
	kept_end(&g->kept);
	uv_close((uv_handle_t *)&g->timer, on_closed);
}

/* Returns a group that the session can join, or NULL. */
static struct group *find_group(const struct session *s)
{
	struct group *g = s->order.dataset->groups;

	while (g && (g->n_members == MAX_MEMBERS || !is_same(g->first, s)))
		g = g->next;
	return g;
}

void group_join(struct session *s)
{
	struct group *g = find_group(s);

	/* Only decoded batches without views are shared; asked sessions decode none. */
	if (!s->codecs || s->slots.has_views)
		return;
	if (!g)
		g = group_new(s);
	if (!g)
		return;
	s->member = (struct group_member){.group = g, .next = g->first, .joined_ns = clock_monotonic_ns()};
	g->first = s;
	g->n_members++;
}

struct buffers *group_buffers(const struct session *s)
{
	const struct group *g = s->order.request.flags & DIESEL_PINNABLE ? NULL : find_group(s);

	for (const struct session *t = g ? g->first : NULL; t; t = t->member.next) {
		/* The pool of a member that asked for its own memory has no space for others. */
		if (t->slots.buffers->n_buffers - t->slots.buffers->limit >= s->slots.n)
			return t->slots.buffers;
	}
	return NULL;
}

static bool is_decoded(const struct batch_slot *slot, const struct batch *b)
{
	return slot->state == SLOT_FILLING && slot->batch.epoch == b->epoch &&
	       slot->batch.index == b->index && !slot->awaits && !slot->from && !slot->is_decoded &&
	       slot->generation == slot->session->slots.generation;
}

static bool find_kept(const struct group *g, const struct batch *b, struct group_source *ret)
{
	uint32_t buffer = kept_find(&g->kept, b->epoch, b->index);

	if (buffer == BATCH_BUFFER_NONE)
		return false;
	*ret = (struct group_source){.buffers = g->kept.buffers, .buffer = buffer};
	return true;
}

static bool find_held(struct buffers *f, const struct batch *b, struct group_source *ret)
{
	uint32_t buffer = f ? batch_buffers_find(f, b->epoch, b->index) : BATCH_BUFFER_NONE;

	if (buffer == BATCH_BUFFER_NONE)
		return false;
	*ret = (struct group_source){.buffers = f, .buffer = buffer};
	return true;
}

/* Returns true while the batch is being copied to be kept. */
static bool is_copied(const struct group *g, const struct batch *b)
{
	for (const struct session *t = g->kept.n_copies > 0 ? g->first : NULL; t; t = t->member.next) {
		for (uint32_t i = 0; i < t->slots.n; i++) {
			const struct batch_slot *slot = &t->slots.all[i];
			const struct buffer_batch *from =
			    slot->keep ? &t->slots.buffers->buffer[slot->buffer].batch : NULL;

			if (from && from->epoch == b->epoch && from->index == b->index)
				return true;
		}
	}
	return false;
}

bool group_find(const struct session *s, const struct batch *b, struct group_source *ret)
{
	const struct group *g = s->member.group;

	*ret = (struct group_source){.buffers = NULL};
	if (!g || b->status < 0)
		return false;
	if (find_held(s->slots.buffers, b, ret) || find_kept(g, b, ret))
		return true;
	for (struct session *t = g->first; t; t = t->member.next) {
		if (t->slots.buffers != s->slots.buffers && find_held(t->slots.buffers, b, ret))
			return true;
		for (uint32_t i = 0; i < t->slots.n && t != s; i++) {
			if (is_decoded(&t->slots.all[i], b))
				ret->slot = &t->slots.all[i];
		}
	}
	ret->is_copied = !ret->slot && is_copied(g, b);
	return ret->slot != NULL;
}

/* Continues a slot whose awaited batch will not arrive. */
static void go_on(struct batch_slot *slot)
{
	struct session *s = slot->session;
	struct group_source source;

	slot->awaits = NULL;
	if (slot->generation != s->slots.generation || s->orphaned)
		session_filled(slot);
	else if (!group_find(s, &slot->batch, &source))
		session_fill(slot);
	else if (source.buffers)
		session_fill_from(slot, source.buffers, source.buffer);
	else
		slot->awaits = source.slot;
}

/* Continues all slots that wait for this one. holds: its buffer now holds the batch. */
static void settle(const struct group *g, const struct batch_slot *source, bool holds)
{
	for (struct session *t = g->first; t; t = t->member.next) {
		for (uint32_t i = 0; i < t->slots.n; i++) {
			struct batch_slot *slot = &t->slots.all[i];

			if (slot->awaits != source)
				continue;
			if (!holds) {
				go_on(slot);
				continue;
			}
			slot->awaits = NULL;
			session_fill_from(slot, source->session->slots.buffers, source->buffer);
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

	if (!g)
		return;
	for (uint32_t i = 0; i < s->slots.n; i++) {
		if (s->slots.all[i].keep && s->slots.all[i].keep == g->kept.buffers)
			kept_cancel(&g->kept, s->slots.all[i].keep_buffer);
	}
	s->member.group = NULL;
	LL_DELETE2(g->first, s, member.next);
	g->n_members--;
	for (uint32_t i = 0; i < s->slots.n; i++) {
		struct batch_slot *slot = &s->slots.all[i];

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

/* Returns true if quotas allow the session's group to keep another batch; kept_reserve() checks the
 * cache space. With quotas, kept batches may take a part of their payer's quota. */
static bool may_keep(const struct session *s)
{
	const struct cache *c = s->cache;
	uint64_t bytes = s->slots.buffers->buffer_bytes;

	for (const struct cached_dataset *d = c->quotas.n > 0 ? c->datasets : NULL; d; d = d->next) {
		for (const struct group *g = d->groups; g; g = g->next)
			bytes += g->first->payer == s->payer ? kept_bytes(&g->kept) : 0;
	}
	return c->quotas.n == 0 ||
	       bytes <= cache_quotas_bytes(&c->quotas, s->payer, c->limit_bytes) / CACHE_BATCH_PART;
}

void group_keep(struct batch_slot *slot)
{
	struct session *s = slot->session;
	struct group *g = s->member.group;
	const struct batch_buffer *buffer = &s->slots.buffers->buffer[slot->buffer];
	struct kept_followers followers;

	if (!g || g->n_members < 2 || !buffer->had)
		return;
	followers = followers_of(g);
	slot->keep_buffer =
	    kept_reserve(&g->kept, s->cache, s->order.n_batches, s->slots.buffers->buffer_bytes,
			 &buffer->batch, &followers, may_keep(s));
	slot->keep = slot->keep_buffer == BATCH_BUFFER_NONE ? NULL : g->kept.buffers;
}

void group_keep_ended(struct batch_slot *slot)
{
	struct session *s = slot->session;
	struct group *g = s->member.group;
	struct buffers *to = slot->keep;

	slot->keep = NULL;
	if (g && g->kept.buffers == to) {
		struct kept_followers followers = followers_of(g);

		kept_enter(&g->kept, slot->keep_buffer, &s->slots.buffers->buffer[slot->buffer].batch,
			   &followers);
	}
	batch_buffers_unref(to, slot->keep_buffer);
	cache_changed(s->cache); /* sessions that wait for the copy find it now */
}

void group_passed(struct session *s, uint64_t epoch, uint64_t index)
{
	struct group *g = s->member.group;
	struct kept_followers followers;

	if (!g || !g->kept.buffers)
		return;
	followers = followers_of(g);
	kept_pass(&g->kept, kept_position(s->order.n_batches, epoch, index), &followers);
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

	return g && g->kept.buffers && s->order.has_head
		   ? kept_run(&g->kept, s->order.head.epoch, s->order.head.index)
		   : 0;
}

void group_decode_begins(struct batch_slot *slot)
{
	slot->session->member.n_decoding++;
	slot->session->member.progress_ns = clock_monotonic_ns();
	slot->decode_ns = 0;
}

void group_decode_ended(struct batch_slot *slot)
{
	struct session *s = slot->session;
	struct group_member *m = &s->member;
	const struct batch *b = &slot->batch;
	bool holds = b->n_decoded >= b->n_items && b->status == 0;

	m->n_decoding--;
	slot->is_decoded = true;
	m->progress_ns = clock_monotonic_ns();
	if (holds) {
		m->batch_ns = m->batch_ns ? (m->batch_ns * 7 + slot->decode_ns) / 8 : slot->decode_ns;
		batch_buffers_hold(s->slots.buffers, slot->buffer,
				   &(struct buffer_batch){.epoch = b->epoch,
							  .index = b->index,
							  .n_items = b->n_items,
							  .n_all = b->n_all,
							  .n_damaged = b->n_damaged,
							  .member = s->slots.member,
							  .job = s->job->id});
	}
	if (m->group)
		settle(m->group, slot, holds);
}

/* Returns true if the member's client waits for a batch that its own decoders are working on. */
static bool catches_up(struct session *t, uint64_t now_ns)
{
	struct group_member *m = &t->member;
	struct group_source source;

	if (slots_ready(&t->slots) == 0)
		m->hungry_ns = now_ns;
	return !t->stopped && m->n_decoding > 0 && m->hungry_ns && now_ns - m->hungry_ns < HUNGRY_NS &&
	       now_ns - m->progress_ns < PROGRESS_NS && t->order.has_head &&
	       !group_find(t, &t->order.head, &source);
}

/* Returns how long the member may still give way, in ns. */
static uint64_t patience_ns(const struct group_member *m, uint64_t now_ns)
{
	uint64_t all_ns = WAY_FIRST_NS + (now_ns - m->joined_ns) / WAY_PART;

	if (m->gave_way_ns >= all_ns)
		return 0;
	return all_ns - m->gave_way_ns < WAY_MOST_NS ? all_ns - m->gave_way_ns : WAY_MOST_NS;
}

/* Estimates how many ns member t needs to reach the position of s, if its workers do nothing else. */
static uint64_t lag_ns(const struct session *s, const struct session *t)
{
	uint64_t batch_ns = s->member.batch_ns ? s->member.batch_ns : t->member.batch_ns, ns;
	uint64_t n = (position(s) - position(t)) / s->order.request.stride;

	return __builtin_mul_overflow(n, batch_ns, &ns)
		   ? UINT64_MAX
		   : ns / pool_lane_workers(s->cache->pool, &t->job->lane);
}

/* Returns true if the session should wait until a member slightly behind has caught up. Otherwise both would
 * continue at the same pace, the same few batches apart, and decode everything twice. */
static bool gives_way(struct session *s, uint64_t now_ns)
{
	uint64_t patience = patience_ns(&s->member, now_ns);

	for (struct session *t = s->member.group->first; t && patience; t = t->member.next) {
		if (t != s && t->order.request.stride == s->order.request.stride &&
		    t->order.request.offset == s->order.request.offset && position(t) < position(s) &&
		    catches_up(t, now_ns) && lag_ns(s, t) <= patience)
			return true;
	}
	return false;
}

static uint32_t n_busy(const struct session *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->slots.n; i++)
		n += s->slots.all[i].state != SLOT_FREE;
	return n;
}

/*
 * Returns true if the session's next batch would take the buffer of a batch that a member behind it has yet
 * to get, although its client has enough batches ready. Jobs whose devices are the slowest part never wait
 * for each other: a few batches apart, each would decode everything.
 */
static bool outruns(const struct session *s)
{
	uint32_t ready = slots_ready(&s->slots), enough = s->slots.n / 2;

	for (const struct session *t = s->member.group->first; t && ready >= enough; t = t->member.next) {
		uint64_t n_buffers;

		if (t == s || t->slots.buffers != s->slots.buffers || t->stopped ||
		    t->order.request.stride != s->order.request.stride ||
		    t->order.request.offset != s->order.request.offset || position(t) >= position(s))
			continue;
		n_buffers = (position(s) - position(t)) / s->order.request.stride + n_busy(t) + 1;
		if (n_buffers > s->slots.buffers->limit &&
		    n_buffers - (ready - enough) <= s->slots.buffers->limit)
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
	/* One more than can be decoded at a time, so that no worker waits for the loop. */
	if (m->n_decoding > pool_lane_workers(s->cache->pool, &s->job->lane))
		return true;
	/* Between two checks, the member may have waited for other reasons. */
	m->gave_way_ns += since_ns < 2 * TICK_MS * NS_PER_MS ? since_ns : 2 * TICK_MS * NS_PER_MS;
	if (!gives_way(s, now_ns))
		return false;
	m->looked_ns = now_ns;
	uv_timer_start(&m->group->timer, on_tick, TICK_MS, 0);
	return true;
}

#ifndef NDEBUG
static void kept_check(const struct kept *k)
{
	for (uint32_t i = 0; i < k->n; i++) {
		const struct batch_buffer *buffer = &k->buffers->buffer[k->places[i].buffer];

		assert(i == 0 || k->places[i - 1].position < k->places[i].position);
		assert(buffer->state == BUFFER_LIVE && buffer->holds &&
		       kept_position(k->n_batches, buffer->batch.epoch, buffer->batch.index) ==
			   k->places[i].position);
	}
	assert(k->n <= k->size && k->n_warm <= k->size_warm && k->n_cold <= k->size_cold);
}

static void check_group(const struct group *g)
{
	uint32_t n = 0;

	for (const struct session *s = g->first; s; s = s->member.next, n++) {
		uint32_t n_decoding = 0;

		assert(s->member.group == g && s->order.dataset == g->dataset && !s->closing);
		for (uint32_t i = 0; i < s->slots.n; i++) {
			const struct batch_slot *slot = &s->slots.all[i];

			n_decoding += slot->state == SLOT_FILLING && !slot->awaits && !slot->from &&
				      !slot->lacks_buffer;
			assert(!slot->awaits || slot->awaits->session->member.group == g);
		}
		assert(s->member.n_decoding == n_decoding);
	}
	assert(n == g->n_members && n > 0 && n <= MAX_MEMBERS);
	kept_check(&g->kept);
}

void check_groups(const struct cache *c)
{
	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (const struct group *g = d->groups; g; g = g->next) {
			assert(g->dataset == d);
			check_group(g);
		}
	}
}
#endif
