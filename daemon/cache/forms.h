/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cache of decoded samples ("forms", enum recipe_form), so that later epochs need not decode them again. A
 * struct forms holds those of one dataset, for one user, that all recipes with one key can use. A form is
 * bytes that decoders wrote and decoders read (apart/codec.h); this module never looks into them.
 *
 * Forms lie in extents: memory of some MiB that one decoder at a time fills from front to back, and that
 * goes back to the system as a whole. Each sample is used once an epoch, and all are equally likely to be
 * next, so choosing which to evict gains nothing.
 *
 * All of it is borrowed (cache.h): forms take only memory that sessions and claims leave, within
 * `asked_bytes`, and are evicted before any chunk. Losing a form costs only time.
 *
 * Loop thread only.
 */

#include "cached_dataset.h"
#include "daemon/apart/codec.h"
#include "image/recipe.h"
#include "daemon/storage/shared_memory.h"

struct cache;
struct forms;

struct form_entry {
	uint64_t sample;
	uint32_t offset, bytes;
};

struct form_extent {
	struct form_extent *next;
	struct forms *forms; /* NULL: evicted; freed with its last pin */
	struct shared_memory memory;
	uint32_t used_bytes;
	uint32_t pins;
	bool granted; /* a decoder is filling it */
	bool full;
	struct form_entry *entries;
	uint32_t n_entries, size_entries;
};

/* A slot of the index: open addressing, at most half of the slots taken. */
struct form_slot {
	struct form_extent *extent; /* NULL: free */
	uint32_t entry;
};

struct forms {
	struct forms *next; /* next of the dataset */
	struct cached_dataset *dataset;
	uint32_t uid;
	struct recipe key;
	uint32_t refs;        /* number of sessions */
	uint32_t payer;       /* payer of those sessions */
	uint64_t asked_bytes; /* the largest request of its jobs' knobs; kept when the last session ends */
	uint64_t limit_bytes; /* the part of asked_bytes that it may take; set by cache_fit() */
	uint64_t bytes;       /* size of its extents and its index */
	struct form_extent *extents;
	uint32_t n_extents;
	struct form_slot *slots;
	uint32_t n_slots;
	uint64_t n_entries;
	uint64_t used_bytes; /* size of the forms in the index */
};

#define FORM_EXTENT     (UINT64_C(32) << 20)
#define FORM_EXTENT_MIN (UINT64_C(1) << 20)

/* Returns the forms for this user and key, with one more reference. NULL: no memory. */
struct forms *forms_open(struct cached_dataset *d, uint32_t uid, const struct recipe *key);
/* Drops a reference. The forms stay while there is space. Accepts NULL. */
void forms_close(struct forms *f);

/* Returns the extent with the sample's form, and the form's offset in it. NULL: there is no such form. */
struct form_extent *forms_find(const struct forms *f, uint64_t sample, uint32_t *ret_offset);
void forms_pin(struct form_extent *e);
void forms_unpin(struct cache *c, struct form_extent *e);

/* Returns an extent to fill from its used_bytes on. It is pinned, and granted to nobody else until
 * forms_take_back(). NULL: no more memory may be taken. */
struct form_extent *forms_grant(struct cache *c, struct forms *f);
/* Adds a form of `bytes` that was written after the extent's used bytes. Ignores it if the extent was
 * evicted meanwhile, or if the sample has a form already. */
void forms_add(struct cache *c, struct form_extent *e, uint64_t sample, uint32_t bytes);
/* Ends a grant. full: the next form did not fit. */
void forms_take_back(struct cache *c, struct form_extent *e, bool full);

/* Evicts an extent; a pinned one is freed with its last pin. Returns false if there is none. Frees f, too,
 * if that was its last extent and no session uses f. */
bool forms_drop_one(struct cache *c, struct forms *f);
/* Evicts all forms of a dataset. */
void forms_drop_all(struct cache *c, struct cached_dataset *d);
/* Evicts an extent of any dataset, those without sessions first. Returns false if there is none. */
bool forms_drop_any(struct cache *c);
