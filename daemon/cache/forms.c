/* SPDX-License-Identifier: Apache-2.0 */
#include "forms.h"

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
#include "lib/huge_pages.h"

#define FIRST_SLOTS  256u
#define EXTENT_PARTS 32 /* extents in the limit: the last is rarely full, each is evicted whole */

/* ---- the index ---- */

static uint32_t home_of(const struct forms *f, uint64_t sample)
{
	return (uint32_t)((sample * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (f->n_slots - 1);
}

static uint64_t sample_of(const struct form_slot *slot)
{
	return slot->extent->entries[slot->entry].sample;
}

/* Returns the sample's slot, or the free slot where it would be. There must be a free slot. */
static struct form_slot *slot_of(const struct forms *f, uint64_t sample)
{
	uint32_t i = home_of(f, sample);

	while (f->slots[i].extent && sample_of(&f->slots[i]) != sample)
		i = (i + 1) & (f->n_slots - 1);
	return &f->slots[i];
}

static int grow_index(struct cache *c, struct forms *f)
{
	struct form_slot *old = f->slots;
	uint32_t n_old = f->n_slots, n = n_old ? 2 * n_old : FIRST_SLOTS;
	uint64_t more = (uint64_t)(n - n_old) * sizeof(*old);
	struct form_slot *slots;

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
	c->forms.bytes += more;
	return 0;
}

/* Empties a slot, and moves up later slots that were placed there because this one was taken. */
static void empty_slot(struct forms *f, struct form_slot *slot)
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

struct form_extent *forms_find(const struct forms *f, uint64_t sample, uint32_t *ret_offset)
{
	const struct form_slot *slot;

	if (f->n_entries == 0)
		return NULL;
	slot = slot_of(f, sample);
	if (!slot->extent)
		return NULL;
	*ret_offset = slot->extent->entries[slot->entry].offset;
	return slot->extent;
}

/* ---- extents ---- */

static void extent_free(struct cache *c, struct form_extent *e)
{
	c->releasing_bytes -= e->memory.bytes;
	cache_release(c, &e->memory, e->memory.bytes);
	free(e->entries);
	free(e);
}

void forms_pin(struct form_extent *e)
{
	e->pins++;
}

void forms_unpin(struct cache *c, struct form_extent *e)
{
	if (--e->pins == 0 && !e->forms)
		extent_free(c, e);
}

static void extent_drop(struct cache *c, struct form_extent **link)
{
	struct form_extent *e = *link;
	struct forms *f = e->forms;

	*link = e->next;
	for (uint32_t i = 0; i < e->n_entries; i++) {
		struct form_slot *slot = slot_of(f, e->entries[i].sample);

		if (slot->extent == e && slot->entry == i)
			empty_slot(f, slot);
		f->used_bytes -= e->entries[i].bytes;
	}
	f->n_extents--;
	f->bytes -= e->memory.bytes;
	c->forms.bytes -= e->memory.bytes;
	c->forms.n_extents--;
	/* Counts as being released until it is freed. */
	c->releasing_bytes += e->memory.bytes;
	e->forms = NULL;
	if (e->pins == 0)
		extent_free(c, e);
}

static uint64_t extent_bytes(const struct forms *f)
{
	uint64_t bytes = f->limit_bytes / EXTENT_PARTS / FORM_EXTENT_MIN * FORM_EXTENT_MIN;

	if (bytes < FORM_EXTENT_MIN)
		return FORM_EXTENT_MIN;
	return bytes < FORM_EXTENT ? bytes : FORM_EXTENT;
}

static struct form_extent *extent_new(struct cache *c, struct forms *f)
{
	uint64_t bytes = extent_bytes(f);
	struct form_extent *e;

	if (f->bytes + bytes > f->limit_bytes || !cache_make_form_room(c, bytes))
		return NULL;
	e = calloc(1, sizeof(*e));
	if (!e || shared_memory_new("diesel-forms", bytes, SHARED_LENT, &e->memory) < 0) {
		free(e);
		return NULL;
	}
	e->forms = f;
	e->next = f->extents;
	f->extents = e;
	f->n_extents++;
	f->bytes += bytes;
	c->forms.bytes += bytes;
	c->forms.n_extents++;
	return e;
}

struct form_extent *forms_grant(struct cache *c, struct forms *f)
{
	struct form_extent *e = f->extents;

	while (e && (e->granted || e->full))
		e = e->next;
	if (!e)
		e = extent_new(c, f);
	if (!e)
		return NULL;
	e->granted = true;
	forms_pin(e);
	return e;
}

/* Returns the offset of the form after one of `bytes` at `offset`. */
static uint64_t form_after(uint64_t offset, uint64_t bytes)
{
	return (offset + bytes + CODEC_FORM_ALIGN - 1) / CODEC_FORM_ALIGN * CODEC_FORM_ALIGN;
}

void forms_add(struct cache *c, struct form_extent *e, uint64_t sample, uint32_t bytes)
{
	struct forms *f = e->forms;
	uint32_t offset = e->used_bytes;
	struct form_slot *slot;

	e->used_bytes = (uint32_t)form_after(offset, bytes);
	if (!f || grow_index(c, f) < 0 || array_room(e->entries, e->n_entries, e->size_entries) < 0)
		return;
	slot = slot_of(f, sample);
	if (slot->extent) /* another session was faster */
		return;
	e->entries[e->n_entries] = (struct form_entry){.sample = sample, .offset = offset, .bytes = bytes};
	*slot = (struct form_slot){.extent = e, .entry = e->n_entries++};
	f->n_entries++;
	f->used_bytes += bytes;
}

void forms_take_back(struct cache *c, struct form_extent *e, bool full)
{
	uint64_t left = e->memory.bytes - (e->used_bytes < e->memory.bytes ? e->used_bytes : e->memory.bytes);
	const struct forms *f = e->forms;

	e->granted = false;
	/* A form too large for an empty extent fits nowhere. The extent is full if a form of average size no
	 * longer fits. */
	e->full = e->full || (full && e->used_bytes > 0) || !left ||
		  (f && f->n_entries > 0 && left < f->used_bytes / f->n_entries);
	forms_unpin(c, e);
}

/* ---- all forms of a user and key ---- */

struct forms *forms_open(struct cached_dataset *d, uint32_t uid, const struct recipe *key)
{
	struct forms *f = d->forms;

	while (f && (f->uid != uid || memcmp(&f->key, key, sizeof(*key)) != 0))
		f = f->next;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			return NULL;
		f->dataset = d;
		f->uid = uid;
		f->key = *key;
		f->next = d->forms;
		d->forms = f;
	}
	f->refs++;
	return f;
}

static void forms_free(struct forms *f)
{
	struct forms **link = &f->dataset->forms;

	while (*link != f)
		link = &(*link)->next;
	*link = f->next;
	free(f);
}

void forms_close(struct forms *f)
{
	if (f && --f->refs == 0 && !f->extents)
		forms_free(f);
}

/* Frees the index, and *f if no session uses it. Call after the last extent was evicted. */
static void drop_index(struct cache *c, struct forms *f)
{
	c->forms.bytes -= f->bytes; /* size of the index */
	free(f->slots);
	f->slots = NULL;
	f->bytes = f->n_slots = 0;
	if (f->refs == 0)
		forms_free(f);
}

bool forms_drop_one(struct cache *c, struct forms *f)
{
	if (!f->extents)
		return false;
	extent_drop(c, &f->extents);
	if (!f->extents)
		drop_index(c, f);
	return true;
}

void forms_drop_all(struct cache *c, struct cached_dataset *d)
{
	while (d->forms) {
		if (!forms_drop_one(c, d->forms))
			forms_free(d->forms);
	}
}

static bool drop_where(struct cache *c, bool used)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct forms *f = d->forms; f; f = f->next) {
			if ((f->refs > 0) == used && forms_drop_one(c, f))
				return true;
		}
	}
	return false;
}

bool forms_drop_any(struct cache *c)
{
	return drop_where(c, false) || drop_where(c, true);
}
