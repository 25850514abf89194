/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cache of decoded samples ("decoded copies", enum recipe_decoded), so that later epochs need not decode them
 * again. A struct decoded_cache holds the decoded copies of one dataset (of one field, if its
 * samples have fields) for one user, which all recipes with
 * the same key can use. A decoded copy is bytes that decoders wrote and decoders read (sandboxed/codec.h);
 * this module never looks into them.
 *
 * Decoded copies are stored in extents: memory of some MiB that one decoder at a time fills from front to
 * back, and that goes back to the system as a whole. Each sample is used once an epoch, and all are equally
 * likely to be next, so a choice of which to evict gains nothing.
 *
 * All of it is borrowed (cache.h): decoded copies take only memory that sessions and claims leave, within
 * `asked_bytes`, and are evicted before any chunk. Losing a decoded copy costs only time.
 *
 * Loop thread only.
 */

#include "cached_dataset.h"
#include "daemon/sandboxed/codec.h"
#include "image/recipe.h"
#include "daemon/storage/shared_memory.h"

struct cache;
struct decoded_cache;

struct decoded_entry {
	uint64_t sample;
	uint32_t offset, bytes;
};

struct decoded_extent {
	struct decoded_extent *next;
	struct decoded_cache *decoded_cache; /* NULL: evicted; freed with its last pin */
	struct shared_memory memory;
	uint32_t used_bytes;
	uint32_t pins;
	bool granted; /* a decoder is filling it */
	bool full;
	struct decoded_entry *entries;
	uint32_t n_entries, size_entries;
};

/* A slot of the index: open addressing, at most half of the slots taken. */
struct decoded_slot {
	struct decoded_extent *extent; /* NULL: free */
	uint32_t entry;
};

struct decoded_cache {
	struct decoded_cache *next; /* next in the dataset's list */
	struct cached_dataset *dataset;
	uint32_t uid;
	char *field; /* field that was decoded; "": samples have no fields */
	struct recipe key;
	uint32_t refs;        /* number of sessions */
	uint32_t payer;       /* payer of those sessions */
	uint64_t asked_bytes; /* the largest request of its jobs' knobs; kept when the last session ends */
	uint64_t limit_bytes; /* the part of asked_bytes that it may take; set by cache_fit() */
	uint64_t bytes;       /* size of its extents and its index */
	struct decoded_extent *extents;
	uint32_t n_extents;
	struct decoded_slot *slots;
	uint32_t n_slots;
	uint64_t n_entries;
	uint64_t used_bytes; /* size of the decoded copies in the index */
};

#define DECODED_EXTENT     (UINT64_C(32) << 20)
#define DECODED_EXTENT_MIN (UINT64_C(1) << 20)

/* Returns the decoded copies for this user, field ("": none) and key, and adds a reference. NULL: no memory.
 */
struct decoded_cache *decoded_open(struct cached_dataset *d, uint32_t uid, const char *field,
				   const struct recipe *key);
/* Drops a reference. The decoded copies stay while there is space. Accepts NULL. */
void decoded_close(struct decoded_cache *f);

/* Returns the extent with the sample's decoded copy, and the copy's offset in it. NULL: there is none. */
struct decoded_extent *decoded_find(const struct decoded_cache *f, uint64_t sample, uint32_t *ret_offset);
void decoded_pin(struct decoded_extent *e);
void decoded_unpin(struct cache *c, struct decoded_extent *e);

/* Returns an extent to fill from its used_bytes on. It is pinned, and reserved for the caller until
 * decoded_take_back(). NULL: memory is at its limit. */
struct decoded_extent *decoded_grant(struct cache *c, struct decoded_cache *f);
/* Adds a decoded copy of `bytes` that was written after the extent's used bytes. Ignores it if the extent was
 * evicted meanwhile, or if the sample has a decoded copy already. */
void decoded_add(struct cache *c, struct decoded_extent *e, uint64_t sample, uint32_t bytes);
/* Ends a grant. full: the next decoded copy did not fit. */
void decoded_take_back(struct cache *c, struct decoded_extent *e, bool full);

/* Evicts an extent; a pinned one is freed with its last pin. Returns false if there is none. Frees f, too,
 * if that was its last extent and no session uses f. */
bool decoded_drop_one(struct cache *c, struct decoded_cache *f);
/* Evicts all decoded copies of a dataset. */
void decoded_drop_all(struct cache *c, struct cached_dataset *d);
/* Evicts an extent of any dataset, those without sessions first. Returns false if there is none. */
bool decoded_drop_any(struct cache *c);
