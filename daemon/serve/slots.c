/* SPDX-License-Identifier: Apache-2.0 */
#include "slots.h"

#include <assert.h>
#include <errno.h>

#include "session.h"

uint64_t slots_control_bytes(void)
{
	return (sizeof(struct ring_control) + 4095) & ~UINT64_C(4095);
}

int slots_open(struct slots *s, struct session *session, uint32_t batch, uint64_t n_chunks)
{
	int r = shared_memory_new("diesel-control", slots_control_bytes(), SHARED_CONTROL, &s->memory);

	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		s->all[i].session = session;
		s->all[i].buffer = BATCH_BUFFER_NONE;
		r = batch_init(&s->all[i].batch, batch, n_chunks);
	}
	if (r < 0)
		return r;
	s->control = (struct ring_control *)s->memory.data;
	s->control->magic = RING_MAGIC;
	s->control->n_slots = s->n;
	s->control->wake_below = s->n / 2;
	atomic_store(&s->control->wanted_workers, RING_NO_WISH);
	return 0;
}

void slots_close(struct slots *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		batch_free(&s->all[i].batch);
	shared_memory_free(&s->memory);
	if (s->buffers)
		batch_buffers_leave(s->buffers, s->n);
}

void slots_drop(struct slots *s, struct batch_slot *slot)
{
	batch_unpin(&slot->batch, slot->session->order.dataset);
	if (slot->buffer != BATCH_BUFFER_NONE)
		batch_buffers_unref(s->buffers, slot->buffer);
	slot->buffer = BATCH_BUFFER_NONE;
	slot->state = SLOT_FREE;
}

void slots_reap(struct slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		struct batch_slot *slot = &s->all[i];

		if (slot->state == SLOT_PUBLISHED &&
		    atomic_load(&s->control->slot_state[i]) == RING_SLOT_FREE)
			slots_drop(s, slot);
	}
}

struct batch_slot *slots_free_one(struct slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->all[i].state == SLOT_FREE)
			return &s->all[i];
	}
	return NULL;
}

void slots_begin(struct slots *s, struct batch_slot *slot)
{
	slot->state = SLOT_FILLING;
	slot->generation = s->generation;
	slot->shared = slot->is_decoded = false;
	s->turns[s->end_turn++ % RING_MAX_SLOTS] = (uint32_t)(slot - s->all);
	s->n_filling++;
}

void slots_filled(struct batch_slot *slot)
{
	slot->state = SLOT_FILLED;
	slot->session->slots.n_filling--;
}

struct batch_slot *slots_next(struct slots *s)
{
	struct batch_slot *slot = &s->all[s->turns[s->first_turn % RING_MAX_SLOTS]];

	if (s->first_turn == s->end_turn || slot->state != SLOT_FILLED)
		return NULL;
	s->first_turn++;
	return slot;
}

void slots_publish(struct slots *s, struct batch_slot *slot, uint32_t n_items)
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

uint32_t slots_revoke(struct slots *s)
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

bool slots_have_buffer(const struct slots *s, uint32_t buffer)
{
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->all[i].buffer == buffer)
			return true;
	}
	return false;
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

void slots_check(const struct slots *s)
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
#endif
