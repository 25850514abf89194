/* SPDX-License-Identifier: Apache-2.0 */
#include "kept.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/minmax.h"

#define MAX_FRAMES 8192 /* maximum number of buffers: bounds the bookkeeping */
#define WARM       8    /* unused buffers that keep their memory, to be filled again */
#define NEAR       8    /* distance between members, in batches, at which their buffers suffice */
#define NOBODY     UINT64_MAX

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

uint32_t kept_find(const struct kept *k, uint64_t epoch, uint64_t index)
{
	uint32_t i = find(k, kept_position(k->n_batches, epoch, index));

	return i < k->n ? k->places[i].buffer : BATCH_BUFFER_NONE;
}

uint64_t kept_run(const struct kept *k, uint64_t epoch, uint64_t index)
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

void kept_end(struct kept *k)
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

uint32_t kept_reserve(struct kept *k, struct cache *c, uint64_t n_batches, uint64_t buffer_bytes,
		      const struct buffer_batch *batch, const struct kept_followers *followers, bool may_grow)
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

void kept_cancel(struct kept *k, uint32_t buffer)
{
	k->n_copies--;
	let_go(k, buffer);
}

void kept_enter(struct kept *k, uint32_t buffer, const struct buffer_batch *batch,
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

void kept_pass(struct kept *k, uint64_t position, const struct kept_followers *followers)
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

void kept_prune(struct kept *k, const struct kept_followers *followers)
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

bool kept_give_up(struct kept *k, const struct kept_followers *followers)
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

#ifndef NDEBUG
void kept_check(const struct kept *k)
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
#endif
