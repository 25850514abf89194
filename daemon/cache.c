/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>

#include "policy.h"

static void drop_dataset(struct cache *c, struct served_dataset *d)
{
	struct served_dataset **link = &c->datasets;

	for (uint32_t i = 0; i < c->size_segments; i++) {
		if (c->segments[i] && c->segments[i]->dataset == d)
			cache_drop_segment(c, c->segments[i]);
	}
	while (*link != d)
		link = &(*link)->next;
	*link = d->next;
	c->snapshot_bytes -= d->copy_bytes;
	served_free(d);
}

/* Nobody uses it and nothing of it is under way. */
static bool is_droppable(const struct cache *c, const struct served_dataset *d)
{
	if (d->refs > 0)
		return false;
	for (uint32_t i = 0; i < c->size_segments; i++) {
		const struct segment *s = c->segments[i];

		if (s && s->dataset == d && d->chunks[s->chunk].state != CHUNK_READY)
			return false;
	}
	return true;
}

void cache_free(struct cache *c)
{
	while (c->datasets)
		drop_dataset(c, c->datasets);
	free(c->segments);
	free(c->generations);
}

uint64_t cache_segment_limit(const struct cache *c)
{
	uint64_t other = c->slot_bytes + c->snapshot_bytes;

	return c->budget_bytes > other ? c->budget_bytes - other : 0;
}

void cache_set_needs(struct cache *c, uint32_t prefetch_chunks)
{
	uint64_t limit = cache_segment_limit(c), all = 0, transient = 0;

	for (struct served_dataset *d = c->datasets; d; d = d->next) {
		uint64_t need;

		if (d->n_sessions == 0)
			continue;
		need = policy_join_need(d->info.n_chunks, d->need_chunks, prefetch_chunks);
		all += d->info.n_chunks * d->segment_bytes;
		transient += need * d->segment_bytes;
	}
	if (all <= limit)
		c->keep_limit_bytes = limit;
	else
		c->keep_limit_bytes = limit > transient ? limit - transient : 0;
}

/* Gives up one segment for a chunk at this distance; reuses it for d when it is d's own and fits. */
static struct segment *evict_one(struct cache *c, struct served_dataset *d, uint32_t distance, bool may_reuse)
{
	struct policy_segment *list = calloc(c->size_segments ? c->size_segments : 1, sizeof(*list));
	struct segment *victim;
	long choice;

	if (!list)
		return NULL;
	for (uint32_t i = 0; i < c->size_segments; i++) {
		struct segment *s = c->segments[i];
		struct served_chunk *k = s ? &s->dataset->chunks[s->chunk] : NULL;

		list[i] =
		    k ? (struct policy_segment){.distance = k->round == c->round ? k->distance : POLICY_NEVER,
						.busy = k->state != CHUNK_READY || k->pins > 0,
						.kept = k->kept,
						.idle = s->dataset->n_sessions == 0,
						.last_use = k->last_use}
		      : (struct policy_segment){.busy = true};
	}
	choice = policy_pick_victim(list, c->size_segments, distance, c->kept_bytes > c->keep_limit_bytes);
	free(list);
	if (choice < 0)
		return NULL;
	c->counters.evictions++;
	victim = c->segments[choice];
	if (may_reuse && d && victim->dataset == d) {
		struct served_chunk *k = &d->chunks[victim->chunk];

		if (k->kept)
			c->kept_bytes -= d->segment_bytes;
		k->kept = false;
		k->state = CHUNK_ABSENT;
		k->segment = NULL;
		d->n_cached--;
		return victim;
	}
	cache_drop_segment(c, victim);
	return NULL;
}

static int add_segment(struct cache *c, struct served_dataset *d, struct segment **ret)
{
	struct segment *s;
	uint32_t index = 0;
	int r;

	while (index < c->size_segments && c->segments[index])
		index++;
	if (index == c->size_segments) {
		uint32_t size = c->size_segments ? c->size_segments * 2 : 64;
		struct segment **segments = reallocarray(c->segments, size, sizeof(struct segment *));
		uint16_t *generations;

		if (!segments || size > SEGMENT_MAX)
			return -ENOMEM;
		c->segments = segments;
		generations = reallocarray(c->generations, size, sizeof(*generations));
		if (!generations)
			return -ENOMEM;
		c->generations = generations;
		for (uint32_t i = c->size_segments; i < size; i++) {
			c->segments[i] = NULL;
			c->generations[i] = 0;
		}
		c->size_segments = size;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	r = shared_memory_new("diesel-chunk", d->segment_bytes, false, &s->memory);
	if (r < 0) {
		free(s);
		return r;
	}
	s->dataset = d;
	s->id = index | (uint32_t)c->generations[index] << SEGMENT_INDEX_BITS;
	c->generations[index] = (c->generations[index] + 1) & ((1u << (32 - SEGMENT_INDEX_BITS)) - 1);
	c->segments[index] = s;
	c->n_segments++;
	c->segment_bytes += d->segment_bytes;
	*ret = s;
	return 0;
}

void cache_drop_segment(struct cache *c, struct segment *s)
{
	struct served_chunk *k = &s->dataset->chunks[s->chunk];

	if (k->segment == s) {
		if (k->kept)
			c->kept_bytes -= s->dataset->segment_bytes;
		if (k->state == CHUNK_READY)
			s->dataset->n_cached--;
		k->kept = false;
		k->segment = NULL;
		if (k->state != CHUNK_BAD)
			k->state = CHUNK_ABSENT;
	}
	c->segments[s->id & (SEGMENT_MAX - 1)] = NULL;
	c->n_segments--;
	c->segment_bytes -= s->dataset->segment_bytes;
	shared_memory_free(&s->memory);
	free(s);
}

struct segment *cache_take_segment(struct cache *c, struct served_dataset *d, uint32_t distance,
				   int *ret_error)
{
	struct segment *s = NULL;

	*ret_error = -ENOSPC;
	for (;;) {
		uint64_t limit = cache_segment_limit(c);
		uint32_t before = c->n_segments;
		int r = -ENOSPC;

		if (c->segment_bytes + d->segment_bytes <= limit) {
			r = add_segment(c, d, &s);
			if (r == 0)
				return s;
			*ret_error = r;
		}
		/* Out of descriptors or memory counts as out of budget: go on with what there is. */
		s = evict_one(c, d, distance, c->segment_bytes <= limit);
		if (s)
			return s;
		if (c->n_segments == before)
			return NULL;
	}
}

bool cache_make_room(struct cache *c, uint64_t bytes)
{
	struct served_dataset *d = c->datasets;

	while (d && c->segment_bytes + c->slot_bytes + c->snapshot_bytes + bytes > c->budget_bytes) {
		struct served_dataset *next = d->next;

		if (is_droppable(c, d))
			drop_dataset(c, d);
		d = next;
	}
	while (c->segment_bytes + c->slot_bytes + c->snapshot_bytes + bytes > c->budget_bytes) {
		uint32_t before = c->n_segments;

		evict_one(c, NULL, 0, false);
		if (c->n_segments == before)
			return false;
	}
	return true;
}

void cache_pin(struct cache *c, struct served_dataset *d, uint64_t chunk)
{
	d->chunks[chunk].pins++;
	d->chunks[chunk].last_use = ++c->clock;
}

void cache_unpin(struct served_dataset *d, uint64_t chunk)
{
	d->chunks[chunk].pins--;
}

void cache_mark(struct cache *c, struct served_dataset *d, uint64_t chunk, uint32_t distance)
{
	struct served_chunk *k = &d->chunks[chunk];

	if (k->round != c->round || distance < k->distance)
		k->distance = distance;
	k->round = c->round;
}

void cache_note_ready(struct cache *c, struct served_dataset *d, uint64_t chunk)
{
	struct served_chunk *k = &d->chunks[chunk];

	k->state = CHUNK_READY;
	k->last_use = ++c->clock;
	d->n_cached++;
	k->kept = c->kept_bytes + d->segment_bytes <= c->keep_limit_bytes;
	if (k->kept)
		c->kept_bytes += d->segment_bytes;
}

struct segment *cache_find_segment(const struct cache *c, uint32_t id)
{
	uint32_t index = id & (SEGMENT_MAX - 1);

	if (index >= c->size_segments || !c->segments[index] || c->segments[index]->id != id)
		return NULL;
	return c->segments[index];
}

void cache_add_dataset(struct cache *c, struct served_dataset *d)
{
	/* An older version that nobody uses any more will not be asked for again. */
	for (struct served_dataset *o = c->datasets, *next; o; o = next) {
		next = o->next;
		if (o->identity.directory_dev == d->identity.directory_dev &&
		    o->identity.directory_ino == d->identity.directory_ino && is_droppable(c, o))
			drop_dataset(c, o);
	}
	d->next = c->datasets;
	c->datasets = d;
	c->snapshot_bytes += d->copy_bytes;
}

struct served_dataset *cache_find_dataset(struct cache *c, const struct served_identity *identity)
{
	struct served_dataset *d = c->datasets;

	while (d && !served_identity_equal(&d->identity, identity))
		d = d->next;
	return d;
}
