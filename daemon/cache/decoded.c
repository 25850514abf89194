/* SPDX-License-Identifier: Apache-2.0 */
#include "decoded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/hash.h"
#include "lib/huge_pages.h"
#include "lib/list.h"

#define FIRST_SLOTS  256u
#define EXTENT_PARTS 32 /* number of extents in the limit: the last is rarely full, each is evicted whole */

/* ---- the index ---- */

static uint32_t home_of(const struct decoded_cache *f, uint64_t sample)
{
	return (uint32_t)(hash_number(sample) >> 32) & (f->n_slots - 1);
}

static uint64_t sample_of(const struct decoded_slot *slot)
{
	return slot->extent->entries[slot->entry].sample;
}

/* Returns the sample's slot, or the free slot where it would be. There must be a free slot. */
static struct decoded_slot *slot_of(const struct decoded_cache *f, uint64_t sample)
{
	uint32_t i = home_of(f, sample);

	while (f->slots[i].extent && sample_of(&f->slots[i]) != sample)
		i = (i + 1) & (f->n_slots - 1);
	return &f->slots[i];
}

static int grow_index(struct cache *c, struct decoded_cache *f)
{
	struct decoded_slot *old = f->slots;
	uint32_t n_old = f->n_slots, n = n_old ? 2 * n_old : FIRST_SLOTS;
	uint64_t more = (uint64_t)(n - n_old) * sizeof(*old);
	struct decoded_slot *slots;

	if (f->n_entries < n_old / 2)
		return 0;
	slots = n ? calloc(n, sizeof(*slots)) : NULL;
	if (!slots)
		return -ENOMEM;
	f->slots = slots;
	f->n_slots = n;
	for (uint32_t i = 0; i < n_old; i++)
		if (old[i].extent)
			*slot_of(f, sample_of(&old[i])) = old[i];
	free(old);
	f->bytes += more;
	c->decoded_cache.bytes += more;
	return 0;
}

/* Empties a slot, and moves up later slots that were displaced by its entry. */
static void empty_slot(struct decoded_cache *f, struct decoded_slot *slot)
{
	uint32_t mask = f->n_slots - 1, hole = (uint32_t)(slot - f->slots), i = hole;

	for (;;) {
		uint32_t home;

		i = (i + 1) & mask;
		if (!f->slots[i].extent)
			break;
		home = home_of(f, sample_of(&f->slots[i]));
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		f->slots[hole] = f->slots[i];
		hole = i;
	}
	f->slots[hole].extent = NULL;
	f->n_entries--;
}

struct decoded_extent *decoded_find(const struct decoded_cache *f, uint64_t sample, uint32_t *ret_offset)
{
	const struct decoded_slot *slot;

	if (f->n_entries == 0)
		return NULL;
	slot = slot_of(f, sample);
	if (!slot->extent)
		return NULL;
	*ret_offset = slot->extent->entries[slot->entry].offset;
	return slot->extent;
}

/* ---- extents ---- */

static void extent_free(struct cache *c, struct decoded_extent *e)
{
	c->releasing_bytes -= e->memory.bytes;
	cache_release(c, &e->memory, e->memory.bytes);
	free(e->entries);
	free(e);
}

void decoded_pin(struct decoded_extent *e)
{
	e->pins++;
}

void decoded_unpin(struct cache *c, struct decoded_extent *e)
{
	if (--e->pins == 0 && !e->decoded_cache)
		extent_free(c, e);
}

static void extent_drop(struct cache *c, struct decoded_extent **link)
{
	struct decoded_extent *e = *link;
	struct decoded_cache *f = e->decoded_cache;

	*link = e->next;
	for (uint32_t i = 0; i < e->n_entries; i++) {
		struct decoded_slot *slot = slot_of(f, e->entries[i].sample);

		if (slot->extent == e && slot->entry == i)
			empty_slot(f, slot);
		f->used_bytes -= e->entries[i].bytes;
	}
	f->n_extents--;
	f->bytes -= e->memory.bytes;
	c->decoded_cache.bytes -= e->memory.bytes;
	c->decoded_cache.n_extents--;
	/* The memory counts as being released until it is freed. */
	c->releasing_bytes += e->memory.bytes;
	e->decoded_cache = NULL;
	if (e->pins == 0)
		extent_free(c, e);
}

static uint64_t extent_bytes(const struct decoded_cache *f)
{
	uint64_t bytes = f->limit_bytes / EXTENT_PARTS / DECODED_EXTENT_MIN * DECODED_EXTENT_MIN;

	if (bytes < DECODED_EXTENT_MIN)
		return DECODED_EXTENT_MIN;
	return bytes < DECODED_EXTENT ? bytes : DECODED_EXTENT;
}

static struct decoded_extent *extent_new(struct cache *c, struct decoded_cache *f)
{
	uint64_t bytes = extent_bytes(f);
	struct decoded_extent *e;

	if (f->bytes + bytes > f->limit_bytes || !cache_make_decoded_space(c, bytes))
		return NULL;
	e = calloc(1, sizeof(*e));
	if (!e || shared_memory_new("diesel-decoded", bytes, SHARED_MAPPABLE, &e->memory) < 0) {
		free(e);
		return NULL;
	}
	e->decoded_cache = f;
	e->next = f->extents;
	f->extents = e;
	f->n_extents++;
	f->bytes += bytes;
	c->decoded_cache.bytes += bytes;
	c->decoded_cache.n_extents++;
	return e;
}

struct decoded_extent *decoded_grant(struct cache *c, struct decoded_cache *f)
{
	struct decoded_extent *e = f->extents;

	while (e && (e->granted || e->full))
		e = e->next;
	if (!e)
		e = extent_new(c, f);
	if (!e)
		return NULL;
	e->granted = true;
	decoded_pin(e);
	return e;
}

/* Returns the offset of the decoded copy after one of `bytes` at `offset`. */
static uint64_t decoded_after(uint64_t offset, uint64_t bytes)
{
	return (offset + bytes + CODEC_DECODED_ALIGN - 1) / CODEC_DECODED_ALIGN * CODEC_DECODED_ALIGN;
}

void decoded_add(struct cache *c, struct decoded_extent *e, uint64_t sample, uint32_t bytes)
{
	struct decoded_cache *f = e->decoded_cache;
	uint32_t offset = e->used_bytes;
	struct decoded_slot *slot;

	e->used_bytes = (uint32_t)decoded_after(offset, bytes);
	if (!f || grow_index(c, f) < 0 || array_reserve(e->entries, e->n_entries, e->size_entries) < 0)
		return;
	slot = slot_of(f, sample);
	if (slot->extent) /* another session added this sample first */
		return;
	e->entries[e->n_entries] = (struct decoded_entry){.sample = sample, .offset = offset, .bytes = bytes};
	*slot = (struct decoded_slot){.extent = e, .entry = e->n_entries++};
	f->n_entries++;
	f->used_bytes += bytes;
}

void decoded_take_back(struct cache *c, struct decoded_extent *e, bool full)
{
	uint64_t left = e->memory.bytes - (e->used_bytes < e->memory.bytes ? e->used_bytes : e->memory.bytes);
	const struct decoded_cache *f = e->decoded_cache;

	e->granted = false;
	/* A decoded copy too large for an empty extent fits nowhere. The extent is full if a decoded copy of
	 * average size no longer fits. */
	e->full = e->full || (full && e->used_bytes > 0) || !left ||
		  (f && f->n_entries > 0 && left < f->used_bytes / f->n_entries);
	decoded_unpin(c, e);
}

/* ---- all decoded copies of a user and key ---- */

struct decoded_cache *decoded_open(struct cached_dataset *d, uint32_t uid, const char *field,
				   const struct recipe *key)
{
	struct decoded_cache *f = d->decoded_cache;

	while (f &&
	       (f->uid != uid || strcmp(f->field, field) != 0 || memcmp(&f->key, key, sizeof(*key)) != 0))
		f = f->next;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (f)
			f->field = strdup(field);
		if (!f || !f->field) {
			free(f);
			return NULL;
		}
		f->dataset = d;
		f->uid = uid;
		f->key = *key;
		f->next = d->decoded_cache;
		d->decoded_cache = f;
	}
	f->refs++;
	return f;
}

static void decoded_free(struct decoded_cache *f)
{
	LL_DELETE(f->dataset->decoded_cache, f);
	free(f->field);
	free(f);
}

void decoded_close(struct decoded_cache *f)
{
	if (f && --f->refs == 0 && !f->extents)
		decoded_free(f);
}

/* Frees the index, and *f if no session uses it. Call after the last extent was evicted. */
static void drop_index(struct cache *c, struct decoded_cache *f)
{
	c->decoded_cache.bytes -= f->bytes; /* size of the index */
	free(f->slots);
	f->slots = NULL;
	f->bytes = f->n_slots = 0;
	if (f->refs == 0)
		decoded_free(f);
}

bool decoded_drop_one(struct cache *c, struct decoded_cache *f)
{
	if (!f->extents)
		return false;
	extent_drop(c, &f->extents);
	if (!f->extents)
		drop_index(c, f);
	return true;
}

void decoded_drop_all(struct cache *c, struct cached_dataset *d)
{
	while (d->decoded_cache) {
		if (!decoded_drop_one(c, d->decoded_cache))
			decoded_free(d->decoded_cache);
	}
}

static bool drop_where(struct cache *c, bool used)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct decoded_cache *f = d->decoded_cache; f; f = f->next) {
			if ((f->refs > 0) == used && decoded_drop_one(c, f))
				return true;
		}
	}
	return false;
}

bool decoded_drop_any(struct cache *c)
{
	return drop_where(c, false) || drop_where(c, true);
}
