/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandboxed/codec.h"
#include "daemon/cache/decoded.h"
#include "daemon/cache/peers/memberships.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/minmax.h"
#include "lib/units.h"
#include "serving.h"

uint64_t slots_control_bytes(void)
{
	return (sizeof(struct ring_control) + 4095) & ~UINT64_C(4095);
}

static void slots_drop(struct slots *s, struct batch_slot *slot)
{
	batch_unpin(&slot->batch, slot->session->order.dataset);
	if (slot->buffer != BATCH_BUFFER_NONE)
		batch_buffers_unref(s->buffers, slot->buffer);
	slot->buffer = BATCH_BUFFER_NONE;
	slot->state = SLOT_FREE;
}

/* Frees the slots that the client gave back. */
static void slots_reap(struct slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		struct batch_slot *slot = &s->all[i];

		if (slot->state == SLOT_PUBLISHED &&
		    atomic_load(&s->control->slot_state[i]) == RING_SLOT_FREE)
			slots_drop(s, slot);
	}
}

/* Returns a free slot, or NULL. */
static struct batch_slot *slots_free_one(struct slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->all[i].state == SLOT_FREE)
			return &s->all[i];
	}
	return NULL;
}

/* Marks the slot as FILLING, and puts it last in the order of publication. */
static void slots_begin(struct slots *s, struct batch_slot *slot)
{
	slot->state = SLOT_FILLING;
	slot->generation = s->generation;
	slot->shared = slot->is_decoded = false;
	s->turns[s->end_turn++ % RING_MAX_SLOTS] = (uint32_t)(slot - s->all);
	s->n_filling++;
}

/* Marks the slot as FILLED: its batch is complete, or will be dropped. */
static void slots_filled(struct batch_slot *slot)
{
	slot->state = SLOT_FILLED;
	slot->session->slots.n_filling--;
}

/* Removes the next slot from the order of publication and returns it. NULL: no slot, or it is not filled
 * yet. */
static struct batch_slot *slots_next(struct slots *s)
{
	struct batch_slot *slot = &s->all[s->turns[s->first_turn % RING_MAX_SLOTS]];

	if (s->first_turn == s->end_turn || slot->state != SLOT_FILLED)
		return NULL;
	s->first_turn++;
	return slot;
}

/* Publishes the slot. n_items: number of items that the client sees. */
static void slots_publish(struct slots *s, struct batch_slot *slot, uint32_t n_items)
{
	uint32_t number = (uint32_t)(slot - s->all);
	const struct batch *b = &slot->batch;
	const struct ring_descriptor descriptor = {.epoch = b->epoch,
						   .index = b->index,
						   .generation = slot->generation,
						   .slot = number,
						   .buffer = slot->buffer,
						   .n_items = n_items,
						   .item_bytes = s->item_bytes,
						   .status = b->status,
						   .n_damaged = b->status < 0 ? 0 : b->n_damaged};

	/* Without views, batches are copies, so their chunks may be evicted. */
	if (!s->has_views)
		batch_unpin(&slot->batch, slot->session->order.dataset);
	slot->state = SLOT_PUBLISHED;
	atomic_store_explicit(&s->control->slot_state[number], RING_SLOT_HELD, memory_order_relaxed);
	ring_publish(s->control, &s->published, &descriptor);
}

uint32_t slots_ready(const struct slots *s)
{
	return s->published - atomic_load_explicit(&s->control->consumed, memory_order_relaxed);
}

bool slots_are_drained(const struct slots *s)
{
	return s->first_turn == s->end_turn && slots_ready(s) == 0;
}

/* Takes back the batches that the client has not taken yet. Returns how many the client still holds. */
static uint32_t slots_revoke(struct slots *s)
{
	uint32_t n_held = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		if (s->all[i].state == SLOT_PUBLISHED)
			ring_revoke(s->control, i);
	}
	slots_reap(s);
	for (uint32_t i = 0; i < s->n; i++)
		n_held += s->all[i].state == SLOT_PUBLISHED;
	return n_held;
}

/* Returns true if a slot refers to the buffer. Two slots must never share a buffer: a client may write to the
 * batches that it holds, and its mapping has one copy of each page. */
static bool slots_have_buffer(const struct slots *s, uint32_t buffer)
{
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->all[i].buffer == buffer)
			return true;
	}
	return false;
}

/* ---- the lowest priority ---- */

/* Pause between searches for space, because a search scans all memory. */
#define FULL_NS NS_PER_S
/* Maximum chunks times nodes per call: finding a chunk's owner visits each node. */
#define OWNERS_AT_ONCE 65536

/* Finds out which of the next chunks other nodes have. Limits the work per call (OWNERS_AT_ONCE). */
static void find_owners(struct session *s)
{
	struct order *o = &s->order;
	uint64_t n = o->dataset->info.n_chunks,
		 n_members = o->membership->group ? cluster_n_members(o->membership->group) : 1;
	uint64_t end = s->spare.n_known + OWNERS_AT_ONCE / n_members + 1;

	if (!o->skips)
		o->skips = calloc(n / 64 + 1, sizeof(*o->skips));
	if (!o->skips)
		return; /* later */
	for (uint64_t i = s->spare.n_known; i < n && i < end; s->spare.n_known = ++i)
		if (membership_has_elsewhere(o->membership, i))
			o->skips[i / 64] |= UINT64_C(1) << (i % 64);
}

bool session_spare_knows(const struct session *s)
{
	return s->priority != SESSION_SPARE || !s->order.membership ||
	       s->spare.n_known == s->order.dataset->info.n_chunks;
}

static bool is_lacking(const struct session *s, uint32_t chunk)
{
	const struct cached_want all = {0};

	return cached_lacks(s->order.dataset, chunk, &all) &&
	       s->order.dataset->chunks[chunk].state != CHUNK_BAD;
}

/* Returns true if the head batch lacks a chunk. elsewhere: consider only chunks that another node reads. */
static bool is_head_lacking(const struct session *s, bool elsewhere)
{
	const struct batch *head = &s->order.head;

	for (uint32_t i = 0; i < head->n_chunks; i++)
		if (is_lacking(s, head->chunks[i]) && (!elsewhere || order_skips(&s->order, head->chunks[i])))
			return true;
	return false;
}

/* Stops prefetching for a spare session: there is no space for the nearest chunk that it lacks. Fails the
 * head batch if that lacks a chunk, and returns true then. */
static bool spare_full(struct session *s, uint64_t now_ns)
{
	struct order *o = &s->order;

	if (!s->spare.full_ns || now_ns >= s->spare.full_ns + FULL_NS)
		s->spare.full_ns = now_ns;
	o->ahead.n = o->reach = 0;
	if (!o->has_head || o->head.status < 0 || !is_head_lacking(s, false))
		return false;
	batch_fail(&o->head, -ENOSPC, "the cache has no space for this chunk: all memory is in use");
	return true;
}

/* For a session of the lowest priority, fails head if another node has a chunk of it, or memory is full.
 * Returns false if head must wait until the nodes are known. Does nothing for other sessions. */
static bool spare_check(struct session *s)
{
	uint64_t again_ns = UINT64_MAX, now_ns = clock_monotonic_ns();
	struct batch *head = &s->order.head;

	if (s->priority != SESSION_SPARE || head->status < 0 || !is_head_lacking(s, false))
		return true;
	if (!session_spare_knows(s) && !membership_waits(s->order.membership, now_ns, &again_ns))
		find_owners(s);
	if (!session_spare_knows(s))
		return false;
	if (is_head_lacking(s, true))
		batch_fail(head, -EREMOTE, "another node of the job has this chunk");
	else if (s->spare.full_ns && now_ns < s->spare.full_ns + FULL_NS)
		(void)spare_full(s, now_ns);
	return true;
}

/* ---- how slots are filled ---- */

static void fill_work(struct pool_task *task)
{
	struct batch_slot *slot = (struct batch_slot *)task;
	const struct session *s = slot->session;
	const struct recipe *recipe = &s->order.request.recipe;
	const struct ring_layout *layout = &s->slots.layout;
	uint8_t *buffer = batch_buffers_at(s->slots.buffers, slot->buffer);

	batch_buffers_prepare(s->slots.buffers, slot->buffer);
	if (slot->keep) {
		batch_buffers_prepare(slot->keep, slot->keep_buffer);
		batch_copy(&s->slots.buffers->buffer[slot->buffer].batch,
			   batch_buffers_at(slot->keep, slot->keep_buffer), buffer, layout, recipe);
	}
	if (slot->from) {
		batch_copy(&slot->from->buffer[slot->from_buffer].batch, buffer,
			   batch_buffers_at(slot->from, slot->from_buffer), layout, recipe);
		return;
	}
	if (s->codecs) {
		batch_decode(&slot->batch,
			     &(struct batch_decoder){.dataset = s->order.dataset,
						     .codecs = s->codecs,
						     .recipe = recipe,
						     .has_views = s->slots.has_views,
						     .layout = layout,
						     .buffer = slot->buffer,
						     .memory = buffer},
			     &slot->decoded);
		task->elsewhere_ns = slot->decoded.counted.cpu_ns;
		return;
	}
	batch_write(&slot->batch, buffer, layout, s->slots.item_bytes);
}

static void note_damage(struct session *s, const struct batch *b)
{
	struct cache *c = s->cache;

	log_limited(cache_lines_of(c, s->uid), LOG_LEVEL_WARNING,
		    "%s (%u damaged in batch %llu of epoch %llu)", b->damage, b->n_damaged,
		    (unsigned long long)b->index, (unsigned long long)b->epoch);
}

static void note_replaced(const struct session *s, uint64_t n)
{
	struct cache *c = s->cache;

	log_limited(cache_lines_of(c, s->uid), LOG_LEVEL_WARNING,
		    "job %llu: %llu decoder%s replaced after a crash or a timeout: run `journalctl -k -g "
		    "dieseld` to see whether the kernel killed a decoder",
		    (unsigned long long)s->job->id, (unsigned long long)n, units_plural(n));
}

static void batch_decoded_enter(struct batch *b, struct cache *c)
{
	/* In the order in which the decoded copies were written. Items that are left out made none, and come
	 * last. */
	for (uint32_t i = 0; b->grant && i < b->n_all; i++) {
		struct batch_item *item = &b->items[i];

		if (item->made_bytes > 0)
			decoded_add(c, b->grant, item->sample, item->made_bytes);
		item->made_bytes = 0;
	}
	if (b->grant)
		decoded_take_back(c, b->grant, b->grant_full);
	b->grant = NULL;
}

/* Adds the worker's decode counters to the job, and enters new decoded copies. */
static void count_decoded(struct session *s, struct batch_slot *slot)
{
	const struct batch_decoded *decoded = &slot->decoded;
	struct decode_counters *sum = &s->job->counters.decoded;
	struct cache *c = s->cache;

	sum->samples += decoded->counted.samples;
	sum->damaged += decoded->counted.damaged;
	sum->cpu_ns += decoded->counted.cpu_ns;
	sum->replaced += decoded->counted.replaced;
	if (decoded->counted.replaced)
		note_replaced(s, decoded->counted.replaced);
	batch_decoded_enter(&slot->batch, c);
	for (int i = 0; i < CODEC_N_WAYS; i++) {
		s->job->counters.ways[i].n += slot->batch.ways[i].n;
		s->job->counters.ways[i].cpu_ns += slot->batch.ways[i].cpu_ns;
	}
	s->job->counters.prospect.n += slot->batch.prospect.n;
	s->job->counters.prospect.n_served += slot->batch.prospect.n_served;
	s->job->counters.prospect.bytes += slot->batch.prospect.bytes;
	if (decoded->sandbox < 0 && !c->said_bare) {
		log_warning(
		    "images are decoded without a sandbox, because this system does not allow one (%s)",
		    strerror(-decoded->sandbox));
		c->said_bare = true;
	}
}

/* Ends a copy: the slot's buffer now holds the batch, too. */
static void copy_done(struct batch_slot *slot)
{
	struct session *s = slot->session;
	struct buffer_batch batch = slot->from->buffer[slot->from_buffer].batch;

	batch.member = 0;
	batch_buffers_unref(slot->from, slot->from_buffer);
	slot->from = NULL;
	batch_buffers_hold(s->slots.buffers, slot->buffer, &batch);
}

static void batch_decoded_unpin(struct batch *b, struct cache *c)
{
	for (uint32_t i = 0; i < b->n_all; i++) {
		if (b->items[i].decoded_copy)
			decoded_unpin(c, b->items[i].decoded_copy);
		b->items[i].decoded_copy = NULL;
	}
}

static void fill_done(struct pool_task *task)
{
	struct batch_slot *slot = (struct batch_slot *)task;
	struct session *s = slot->session;
	struct cache *c = s->cache;
	bool copied = slot->from != NULL;

	if (slot->keep)
		group_keep_ended(slot);
	if (slot->from)
		copy_done(slot);
	else if (s->codecs)
		count_decoded(s, slot);
	slot->decode_ns += task->elsewhere_ns;
	/* The time slice has ended before the batch was complete. */
	if (s->codecs && slot->batch.n_decoded < slot->batch.n_items &&
	    slot->generation == s->slots.generation && !s->closing && !s->orphaned) {
		s->member.progress_ns = clock_monotonic_ns();
		batch_decoded_grant(&slot->batch, c, s->decoded_cache);
		pool_submit_first(c->pool, &s->job->lane, &slot->task);
		return;
	}
	if (s->codecs && !copied)
		batch_decoded_unpin(&slot->batch, c);
	if (slot->batch.n_damaged && !copied)
		note_damage(s, &slot->batch);
	if (s->codecs && !copied)
		group_decode_ended(slot);
	session_filled(slot);
	if (s->closing && s->slots.n_filling == 0)
		session_free(s);
	cache_changed(c);
}

static void begin_fill(struct batch_slot *slot)
{
	struct session *s = slot->session;

	slot->task =
	    (struct pool_task){.work = fill_work, .done = fill_done, .is_long = s->codecs && !slot->from};
	slot->batch.pool = s->cache->pool;
	slot->batch.task = &slot->task;
	pool_submit(s->cache->pool, &s->job->lane, &slot->task);
}

static void decode(struct batch_slot *slot)
{
	batch_decoded_grant(&slot->batch, slot->session->cache, slot->session->decoded_cache);
	begin_fill(slot);
}

/*
 * Decoded copies of a batch, on the loop thread:
 *   batch_decoded_find()   once, before the first slice: finds and pins the decoded copies of its samples
 *   batch_decoded_grant()  before each slice: gives it memory for new decoded copies
 *   batch_decoded_enter()  after each slice: enters the new decoded copies in the index
 *   batch_decoded_unpin()  when the batch is laid out
 * With decoded copies NULL, the first two only reset their fields.
 */
static void batch_decoded_find(struct batch *b, const struct decoded_cache *decoded_cache)
{
	b->n_all = b->n_items;
	for (uint32_t i = 0; decoded_cache && b->status == 0 && i < b->n_items; i++) {
		struct batch_item *item = &b->items[i];

		item->decoded_copy = decoded_find(decoded_cache, item->sample, &item->decoded_offset);
		if (item->decoded_copy)
			decoded_pin(item->decoded_copy);
	}
}

void session_fill(struct batch_slot *slot)
{
	struct session *s = slot->session;

	slot->buffer = batch_buffers_take(s->slots.buffers);
	slot->lacks_buffer = slot->buffer == BATCH_BUFFER_NONE;
	if (slot->lacks_buffer)
		return;
	if (s->codecs)
		group_keep(slot);
	if (s->codecs && !slot->from) {
		group_decode_begins(slot);
		batch_decoded_find(&slot->batch, s->decoded_cache);
		decode(slot);
		return;
	}
	begin_fill(slot);
}

/* Marks the batch as decoded, because a buffer already holds it: the same samples and recipe, no error. */
static void batch_adopt(struct batch *b, const struct buffer_batch *from)
{
	b->n_items = b->n_decoded = from->n_items;
	b->n_damaged = from->n_damaged;
}

void session_fill_from(struct batch_slot *slot, struct buffers *from, uint32_t buffer)
{
	struct session *s = slot->session;
	const struct buffer_batch *found = &from->buffer[buffer].batch;

	slot->shared = from != s->slots.buffers || found->member != s->slots.member;
	slot->shared_job = found->job;
	batch_adopt(&slot->batch, found);
	batch_buffers_ref(from, buffer);
	if (from == s->slots.buffers && !slots_have_buffer(&s->slots, buffer)) {
		slot->buffer = buffer;
		session_filled(slot);
		return;
	}
	slot->from = from;
	slot->from_buffer = buffer;
	session_fill(slot);
}

/* Ends a slot that still lacks a buffer, without filling it. */
static void session_fill_not(struct batch_slot *slot)
{
	slot->lacks_buffer = false;
	if (slot->from)
		batch_buffers_unref(slot->from, slot->from_buffer);
	slot->from = NULL;
	session_filled(slot);
}

/* ---- reservations ---- */

uint64_t session_available_bytes(const struct session *s)
{
	const struct cache *c = s->cache;
	uint64_t available = cache_segment_limit(c, c->limit_bytes);
	uint64_t used = cache_stuck_bytes(c, CACHE_ANYBODY);

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d != s->order.dataset && d->n_sessions > 0)
			used += cached_need_bytes(d);
	}
	return available > used ? available - used : 0;
}

/* Changes the reservation; does not grow it if other sessions leave no space. */
static void reserve(struct session *s, uint64_t need)
{
	struct cached_dataset *d = s->order.dataset;
	uint64_t others = d->need_bytes - s->need_bytes, together = others + need;

	if (together > d->all_bytes)
		together = d->all_bytes;
	if (need == s->need_bytes || (need > s->need_bytes && together > session_available_bytes(s)))
		return;
	d->need_bytes = others + need;
	s->need_bytes = need;
	s->cache->needs_changed = true;
	cache_changed(s->cache);
}

/* Reduces the reservation to the chunks that its batches have pinned, because the session makes no more. */
static void reserve_pinned(struct session *s)
{
	uint64_t bytes = 0, n_chunks = 0;

	for (uint32_t i = 0; i < s->slots.n; i++) {
		const struct batch *b = &s->slots.all[i].batch;

		for (uint32_t k = 0; b->pinned && k < b->n_chunks; k++, n_chunks++)
			bytes += s->order.dataset->chunks[b->chunks[k]].bytes;
	}
	if (n_chunks < s->need_chunks) {
		s->order.dataset->need_chunks -= s->need_chunks - n_chunks;
		s->need_chunks = n_chunks;
	}
	if (bytes < s->need_bytes)
		reserve(s, bytes);
}

static uint64_t head_bytes(const struct session *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->order.head.n_chunks; i++)
		bytes += s->order.dataset->chunks[s->order.head.chunks[i]].bytes;
	return bytes;
}

/* Turns the next batch, which cannot be loaded for this reason, into an error that says what to do. bytes:
 * memory that the batch needs; 0: the size of its own chunks. */
static void give_up(struct session *s, int reason, uint64_t bytes)
{
	char text[400], needed[16], budget[16];

	if (reason == -ENOSPC)
		snprintf(text, sizeof(text),
			 "the order of this epoch needs %s of chunks in memory at one time, but the cache of "
			 "%s has no space for them. Start dieseld with a larger --cache, or use a smaller "
			 "window or batch",
			 units_format_bytes(needed, sizeof(needed), bytes ? bytes : head_bytes(s)),
			 units_format_bytes(budget, sizeof(budget), s->cache->limit_bytes));
	else
		snprintf(text, sizeof(text),
			 "dieseld cannot allocate memory for a chunk (%s): raise its limit of open files "
			 "(LimitNOFILE=) or of memory",
			 strerror(-reason));
	batch_fail(&s->order.head, reason, text);
}

/* If the order is exact, reserves the bytes that its plans need. Turns head into an error if they are not
 * available. */
static void reserve_head(struct session *s)
{
	const struct epoch_plan *plans = s->order.plans;
	uint64_t need = plans[s->order.head.epoch & 1].need_bytes;

	if (!s->order.exact)
		return;
	/* Other sessions may have ended since the last reservation. */
	reserve(s, max_u64(plans[0].need_bytes, plans[1].need_bytes));
	if (!s->slots.has_views)
		need = head_bytes(s);
	if (need > s->need_bytes)
		give_up(s, -ENOSPC, need);
}

/* ---- from the order to the slots ---- */

/* Returns true if the workers have more of this session's batches than they can fill at a time. Slots
 * released in the meantime are found when the first of these batches is done, before a worker runs out of
 * work. */
static bool has_fills_waiting(const struct session *s)
{
	uint32_t n = 0;

	if (s->codecs) /* decoded batches wait for decoders, too, not only for workers */
		return false;
	for (uint32_t i = 0; i < s->slots.n; i++)
		n += s->slots.all[i].state == SLOT_FILLING && !s->slots.all[i].lacks_buffer &&
		     !s->slots.all[i].awaits;
	return n > pool_lane_workers(s->cache->pool, &s->job->lane);
}

/* Returns a free slot. If there is none, returns NULL, and arranges for the session to be pumped when a
 * slot is released. */
static struct batch_slot *take_slot(struct session *s)
{
	struct batch_slot *slot = slots_free_one(&s->slots);

	if (slot)
		return slot;
	if (!has_fills_waiting(s))
		ring_daemon_waits(s->slots.control);
	slots_reap(&s->slots);
	return slots_free_one(&s->slots);
}

/* Publishes the slot's batch to the client. */
static void publish(struct session *s, struct batch_slot *slot)
{
	/* A client of the lowest priority gets no samples: it only needs the chunks in memory. */
	uint32_t n_items = slot->batch.status < 0 || s->priority == SESSION_SPARE ? 0 : slot->batch.n_items;
	struct job_counters *sum = &s->job->counters;

	slots_publish(&s->slots, slot, n_items);
	s->n_delivered++;
	s->member.n_shared += slot->shared;
	s->cache->counters.batches++;
	sum->batches++;
	sum->shared_batches += slot->shared;
	if (slot->shared)
		s->job->shared_from = slot->shared_job;
	sum->samples += n_items;
	sum->bytes += slot->batch.status < 0 ? 0 : slot->batch.bytes;
}

/* Publishes filled slots in order; those from before a seek are dropped. */
static void publish_filled(struct session *s)
{
	struct batch_slot *slot;

	while ((slot = slots_next(&s->slots))) {
		if (slot->generation == s->slots.generation && !s->orphaned && !s->closing)
			publish(s, slot);
		else
			slots_drop(&s->slots, slot);
	}
}

void session_filled(struct batch_slot *slot)
{
	slots_filled(slot);
	publish_filled(slot->session);
}

void session_add_waits(const struct session *s, uint64_t now_ns, struct job_counters *counters)
{
	struct ring_control *control = s->slots.control;
	uint64_t since_ns = atomic_load(&control->wait_since_ns);
	uint64_t open_ns = since_ns && since_ns < now_ns && !s->closing ? now_ns - since_ns : 0;

	counters->n_waits += atomic_load(&control->n_waits);
	counters->wait_fetch_ns += atomic_load(&control->wait_fetch_ns);
	counters->wait_prep_ns += atomic_load(&control->wait_prep_ns);
	if (ring_cause_fetches(atomic_load(&control->cause)))
		counters->wait_fetch_ns += open_ns;
	else
		counters->wait_prep_ns += open_ns;
}

/* Pins the chunks, which must all be ready, and sets each item's source and location. */
static void batch_pin(struct batch *b, struct cache *c, struct cached_dataset *d)
{
	for (uint32_t i = 0; i < b->n_chunks; i++) {
		cache_pin(c, d, b->chunks[i]);
		cache_note_use(c, d, b->chunks[i]);
	}
	b->pinned = true;
	for (uint32_t i = 0; i < b->n_items; i++) {
		struct batch_item *item = &b->items[i];
		const struct segment *s = d->chunks[item->chunk].segment;

		item->source = s->memory.data + item->location;
		item->location |= (uint64_t)s->id << 32;
	}
}

static void dispatch(struct session *s, struct batch_slot *slot, const struct group_source *source)
{
	struct batch empty = slot->batch;
	uint64_t epoch = s->order.head.epoch, index = s->order.head.index;

	slot->batch = s->order.head;
	s->order.head = empty;
	s->order.has_head = false;
	if (slot->batch.status == 0 && !source->buffers)
		batch_pin(&slot->batch, s->cache, s->order.dataset);
	slots_begin(&s->slots, slot);
	if (source->buffers)
		session_fill_from(slot, source->buffers, source->buffer);
	else if (source->slot)
		slot->awaits = source->slot;
	else
		session_fill(slot);
	group_passed(s, epoch, index);
}

void session_look_ahead(struct session *s)
{
	struct order_now now = {.at_ns = clock_monotonic_ns(), .kept_run = group_kept_run(s)};
	uint64_t n_visited = s->order.n_visited;
	struct job_counters waits = {0};

	if (s->stopped)
		return;
	session_add_waits(s, now.at_ns, &waits);
	now.waited_ns = waits.wait_fetch_ns;
	order_look_ahead(&s->order, &now);
	s->job->counters.chunk_visits += s->order.n_visited - n_visited;
}

/* Returns true if there is a next batch. */
static bool prepare_head(struct session *s)
{
	if (s->order.has_head)
		return true;
	if (!order_next(&s->order))
		return false;
	if (s->order.asked)
		s->job->counters.chunk_visits += s->order.head.n_chunks;
	session_look_ahead(s);
	reserve_head(s);
	return true;
}

static const enum ring_cause causes[] = {[BATCH_READY] = RING_CAUSE_PREP,
					 [BATCH_VERIFY] = RING_CAUSE_PREP,
					 [BATCH_STAGING] = RING_CAUSE_STAGING,
					 [BATCH_PEERS] = RING_CAUSE_PEERS,
					 [BATCH_FETCH] = RING_CAUSE_FETCH};

static void set_cause(struct session *s, enum ring_cause cause)
{
	if (atomic_load_explicit(&s->slots.control->cause, memory_order_relaxed) != (uint32_t)cause)
		atomic_store_explicit(&s->slots.control->cause, (uint32_t)cause, memory_order_relaxed);
}

void session_pump(struct session *s)
{
	if (s->closing)
		return;
	slots_reap(&s->slots);
	for (uint32_t i = 0; i < s->slots.n; i++) {
		if (s->slots.all[i].lacks_buffer)
			session_fill(&s->slots.all[i]);
	}
	while (!s->stopped) {
		enum batch_wait wait = BATCH_READY;
		struct group_source source;
		struct batch_slot *slot;
		bool found;

		if (!prepare_head(s) || !spare_check(s))
			return;
		found = group_find(s, &s->order.head, &source);
		if (source.is_copied) {
			set_cause(s, RING_CAUSE_PREP);
			return;
		}
		if (!found)
			wait = batch_check(&s->order.head, s->order.dataset, clock_monotonic_ns());
		/* If the client waits now, a batch that is being filled is the cause, if there is one. */
		set_cause(s, s->slots.first_turn != s->slots.end_turn ? RING_CAUSE_PREP : causes[wait]);
		if (wait != BATCH_READY) {
			/* Views that the client holds may take the memory that these chunks need. */
			if (s->starved && s->slots.has_views)
				ring_daemon_waits(s->slots.control);
			return;
		}
		slot = take_slot(s);
		if (!slot || (!found && group_holds_back(s, clock_monotonic_ns())))
			return;
		dispatch(s, slot, &source);
	}
}

/* Returns true if the chunk must be loaded. */
static bool lacks(const struct session *s, uint32_t chunk)
{
	return !order_skips(&s->order, chunk) && cached_lacks(s->order.dataset, chunk, &s->order.want);
}

bool session_mark(struct session *s, uint64_t *ret_chunk, uint32_t *ret_distance)
{
	const struct order *o = &s->order;
	const struct order_ahead *a = &o->ahead;
	/* If the group keeps head's batch, head needs no chunk. */
	uint32_t n_head = o->has_head && o->head.status == 0 && group_kept_run(s) == 0 ? o->head.n_chunks : 0;
	uint32_t from = s->priority == SESSION_SPARE ? CACHE_SPARE_DISTANCE : 0;
	bool missing = false;

	/* If batches are asked for, reading ahead continues between them. */
	if ((!o->has_head && !o->asked) || s->closing || s->stopped)
		return false;
	for (uint32_t i = 0; i < n_head + a->n; i++) {
		uint32_t chunk = i < n_head ? o->head.chunks[i] : a->chunks[i - n_head];
		uint32_t distance = from + (i < n_head ? 0 : i - n_head + 1);

		cache_mark(s->cache, o->dataset, chunk, distance);
		if (missing || !lacks(s, chunk))
			continue;
		*ret_chunk = chunk;
		*ret_distance = distance;
		missing = true;
	}
	return missing;
}

bool session_starve(struct session *s, bool is_still)
{
	bool failed = false;
	uint64_t chunk;
	uint32_t distance;

	if (s->priority == SESSION_SPARE) {
		/* A spare session without memory waits only while memory is being released. */
		failed = s->cache->releasing_bytes == 0 && spare_full(s, clock_monotonic_ns());
	} else if (session_mark(s, &chunk, &distance) && distance == 0 && is_still) {
		give_up(s, s->starved, 0);
		failed = true;
	}
	if (failed || s->priority != SESSION_SPARE)
		session_pump(s);
	return failed;
}

uint32_t session_seek(struct session *s, uint64_t epoch, uint64_t batch)
{
	s->slots.generation++;
	order_seek(&s->order, epoch, batch);
	publish_filled(s);
	group_moved(s);
	return s->slots.generation;
}

void session_stop(struct session *s)
{
	s->stopped = true;
	group_moved(s);
}

uint32_t session_orphan(struct session *s)
{
	uint32_t n_held;

	s->orphaned = true;
	session_stop(s);
	order_drop_cursor(&s->order);
	n_held = slots_revoke(&s->slots);
	reserve_pinned(s);
	return n_held;
}

/* Frees a closing session if no worker uses its memory any more. */
static void try_free(struct session *s)
{
	if (s->closing && s->slots.n_filling == 0)
		session_free(s);
}

void session_close(struct session *s)
{
	if (!s)
		return;
	LL_DELETE(s->serving->sessions, s);
	session_count_taken(s, clock_monotonic_ns());
	s->closing = true;
	if (s->codecs)
		codecs_cancel(s->codecs);
	order_drop_cursor(&s->order);
	group_leave(s);
	for (uint32_t i = 0; i < s->slots.n; i++) {
		struct batch_slot *slot = &s->slots.all[i];

		if (slot->lacks_buffer)
			session_fill_not(slot);
		if (slot->state == SLOT_PUBLISHED)
			slots_drop(&s->slots, slot);
	}
	try_free(s);
}

void session_usage(const struct session *s, struct session_usage *ret)
{
	uint32_t consumed = s->orphaned ? s->slots.published : atomic_load(&s->slots.control->consumed);

	*ret = (struct session_usage){.ready = s->slots.published - consumed, .waits_for = ""};
	for (uint32_t i = 0; i < s->slots.n; i++) {
		const struct batch_slot *slot = &s->slots.all[i];

		if (slot->batch.pinned)
			ret->pinned_chunks += slot->batch.n_chunks;
		if (slot->state == SLOT_PUBLISHED &&
		    atomic_load(&s->slots.control->slot_state[i]) != RING_SLOT_FREE)
			ret->held++;
	}
	/* `consumed` comes from the client, and may be wrong. */
	if (ret->ready > ret->held)
		ret->ready = ret->held;
	ret->held -= ret->ready;
	if (s->order.has_head)
		ret->waits_for = ret->ready == s->slots.n || atomic_load(&s->slots.control->daemon_waits)
				     ? "client"
				 : ring_cause_fetches(atomic_load(&s->slots.control->cause)) ? "fetch"
											     : "prep";
}

#ifndef NDEBUG
/* Checks that the chunks of a pinned batch are in memory and cannot be evicted. */
static void check_pins(const struct batch *b, const struct cached_dataset *d)
{
	for (uint32_t i = 0; b->pinned && i < b->n_chunks; i++)
		assert(d->chunks[b->chunks[i]].pins > 0 && d->chunks[b->chunks[i]].segment);
}

static void check_slot(const struct slots *s, const struct batch_slot *slot)
{
	const struct batch_slot *source = slot->awaits;

	if (slot->state == SLOT_FREE)
		assert(slot->buffer == BATCH_BUFFER_NONE && !slot->batch.pinned);
	if (slot->state != SLOT_FILLING)
		assert(!slot->lacks_buffer && !source && !slot->from && !slot->keep);
	if (slot->state == SLOT_PUBLISHED || slot->state == SLOT_FILLED)
		assert(slot->generation <= s->generation);
	if (slot->buffer != BATCH_BUFFER_NONE)
		assert(s->buffers->buffer[slot->buffer].n_refs > 0);
	if (slot->lacks_buffer || source)
		assert(slot->buffer == BATCH_BUFFER_NONE);
	if (source)
		assert(source->state == SLOT_FILLING && source->session != slot->session);
	check_pins(&slot->batch, slot->session->order.dataset);
}

static void slots_check(const struct slots *s)
{
	uint32_t n[SLOT_PUBLISHED + 1] = {0}, n_refs = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		n[s->all[i].state]++;
		n_refs += s->all[i].buffer != BATCH_BUFFER_NONE;
		check_slot(s, &s->all[i]);
	}
	assert(s->n_filling == n[SLOT_FILLING]);
	assert(s->end_turn - s->first_turn == n[SLOT_FILLING] + n[SLOT_FILLED]);
	for (uint32_t i = s->first_turn; i != s->end_turn; i++) {
		enum slot_state state = s->all[s->turns[i % RING_MAX_SLOTS]].state;

		assert(state == SLOT_FILLING || state == SLOT_FILLED);
	}
	assert(s->buffers->n_refs >= n_refs);
}

static void check_dataset(const struct serving *serving, const struct cached_dataset *d)
{
	uint64_t need_bytes = 0, need_chunks = 0;
	uint32_t n = 0;

	for (const struct session *s = serving->sessions; s; s = s->next) {
		if (s->order.dataset != d)
			continue;
		n++;
		need_bytes += s->need_bytes;
		need_chunks += s->need_chunks;
	}
	/* Closed sessions whose workers still run count too. */
	assert(d->n_sessions >= n && d->refs >= d->n_sessions);
	assert(d->need_bytes >= need_bytes && d->need_chunks >= need_chunks);
}

void check_sessions(const struct serving *serving)
{
	uint64_t cost_bytes = 0;

	for (const struct session *s = serving->sessions; s; s = s->next) {
		const struct order *o = &s->order;

		assert(s->serving == serving && s->is_counted && !s->closing && s->job->n_sessions > 0);
		assert(!s->orphaned || s->stopped);
		assert(!o->head.pinned && (!o->has_head || o->head.n_items <= o->batch));
		assert(o->ahead.n <= o->ahead.size && (!o->has_cursor || !s->stopped || !s->orphaned));
		slots_check(&s->slots);
		cost_bytes += s->cost_bytes;
	}
	assert(serving->cache.slot_bytes >= cost_bytes);
	for (const struct cached_dataset *d = serving->cache.datasets; d; d = d->next)
		check_dataset(serving, d);
}
#endif
