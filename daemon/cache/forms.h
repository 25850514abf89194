/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decoded forms of samples (enum recipe_form), kept so that later epochs need not decode them again: those of
 * one dataset, for one user, that all recipes with one key can use. A form is bytes that decoders wrote and
 * decoders read (apart/codec.h); nothing here looks into it.
 *
 * They lie in extents: memory of some MiB that a decoder fills from front to back, while no other may, and
 * that goes back to the system as a whole. A sample is used once an epoch, each as likely as any other, so
 * nothing is gained by choosing which to give up.
 *
 * All of it is borrowed (cache.h): it is taken only from what sessions and claims leave, within
 * `asked_bytes`, and goes before any chunk does. What is kept here costs time, at most, when it is lost.
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
	struct forms *forms; /* NULL: given up; it goes when nobody uses it any more */
	struct shared_memory memory;
	uint32_t used_bytes;
	uint32_t pins;
	bool granted; /* a decoder fills it */
	bool full;
	struct form_entry *entries;
	uint32_t n_entries, size_entries;
};

/* Of the index: open addressing, at most half of it taken. */
struct form_slot {
	struct form_extent *extent; /* NULL: free */
	uint32_t entry;
};

struct forms {
	struct forms *next; /* of the dataset */
	struct cached_dataset *dataset;
	uint32_t uid;
	struct recipe key;
	uint32_t refs;        /* sessions */
	uint32_t payer;       /* of these */
	uint64_t asked_bytes; /* its jobs' knobs; stays as it was when the last session ends */
	uint64_t limit_bytes; /* what it may take of that: cache_fit() */
	uint64_t bytes;       /* of its extents and its index */
	struct form_extent *extents;
	uint32_t n_extents;
	struct form_slot *slots;
	uint32_t n_slots;
	uint64_t n_entries;
	uint64_t used_bytes; /* of the forms that can be found */
};

#define FORM_EXTENT     (UINT64_C(32) << 20)
#define FORM_EXTENT_MIN (UINT64_C(1) << 20)

/* The forms for this user and key, with one more reference; NULL: no memory. */
struct forms *forms_open(struct cached_dataset *d, uint32_t uid, const struct recipe *key);
/* They stay, as long as there is room. Accepts NULL. */
void forms_close(struct forms *f);

/* Where the sample's form lies; NULL: there is none. */
struct form_extent *forms_find(const struct forms *f, uint64_t sample, uint32_t *ret_offset);
void forms_pin(struct form_extent *e);
void forms_unpin(struct cache *c, struct form_extent *e);

/* An extent to be filled from its used_bytes on, which is pinned and nobody else's until forms_take_back().
 * NULL: no more memory may be taken. */
struct form_extent *forms_grant(struct cache *c, struct forms *f);
/* A form of so many bytes was written behind the extent's used ones. If the extent was given up meanwhile,
 * it is forgotten, as it is if there is another one of the sample. */
void forms_add(struct cache *c, struct form_extent *e, uint64_t sample, uint32_t bytes);
/* full: what came next did not fit. */
void forms_take_back(struct cache *c, struct form_extent *e, bool full);

/* Gives up an extent; what is pinned goes when it is not. Returns false if there is none. With the last
 * one, forms that no session uses go too. */
bool forms_drop_one(struct cache *c, struct forms *f);
/* Gives up everything of a dataset. */
void forms_drop_all(struct cache *c, struct cached_dataset *d);
/* Gives up an extent of any dataset, of those that nobody uses first; false: there is none. */
bool forms_drop_any(struct cache *c);
