/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Definitions shared by the parts that update a snapshot. snapshot_changes.c takes chunks and finds out what
 * they change in the previous snapshot, the base. snapshot_update.c writes the sections and the hash index.
 *
 * During the update, samples have interim numbers: the base's samples keep their numbers, and new samples are
 * numbered after them, in storage order. Removed samples make the final numbers smaller (changes_final()).
 */

#include "dataset/chunk/buffer.h"
#include "snapshot_build.h"
#include "dataset/lookup/snapshot_map.h"

/* A record of a chunk. */
struct change_entry {
	size_t path; /* offset of the path in the text */
	uint16_t path_length;
	uint16_t mode;
	bool is_delete;
	bool is_last; /* last of its path, and the only one that counts */
	uint32_t chunk, record;
	uint32_t bytes;
	uint32_t number; /* interim number; unset for a delete */
	uint64_t xxh3;
	uint64_t mtime_ns;
	uint64_t offset;
	/* Set only in entries that count: */
	uint64_t hash;
	uint64_t base; /* the base's sample that is removed, or SNAPSHOT_NOT_FOUND */
	uint64_t
	    place; /* that sample's place in the base's tree, or the place before which this path belongs */
	uint64_t path_offset; /* offset in the section being written */
};

struct snapshot_changes {
	uint64_t max_records;
	bool too_many;
	bool has_layout; /* the next field is set */
	enum chunk_layout layout;
	struct columns columns;
	struct buffer chunks;  /* struct snapshot_chunk_entry */
	struct buffer digests; /* struct digest of each, or empty */
	struct buffer text;    /* paths */
	struct buffer entries; /* struct change_entry, in storage order */
	/* Set once the entries are compared with the base: */
	struct buffer by_path;    /* uint32_t: the entries that count, in tree order */
	uint64_t n_put;           /* entries that count, without deletes */
	uint64_t *removed;        /* a bit for each sample of the base; NULL: none is removed */
	uint32_t *removed_before; /* number of removed samples before each word of `removed` */
	uint64_t n_removed;
};

#define REMOVED_BITS 64u

static inline struct change_entry *changes_entries(const struct snapshot_changes *c)
{
	return (struct change_entry *)c->entries.data;
}

static inline size_t changes_n_entries(const struct snapshot_changes *c)
{
	return c->entries.bytes / sizeof(struct change_entry);
}

static inline size_t changes_n_by_path(const struct snapshot_changes *c)
{
	return c->by_path.bytes / sizeof(uint32_t);
}

/* Returns the i-th entry that counts, in tree order. */
static inline struct change_entry *changes_by_path(const struct snapshot_changes *c, size_t i)
{
	return &changes_entries(c)[((const uint32_t *)c->by_path.data)[i]];
}

static inline struct path_text changes_path(const struct snapshot_changes *c, const struct change_entry *e)
{
	return (struct path_text){(const char *)c->text.data + e->path, e->path_length};
}

static inline bool changes_is_removed(const struct snapshot_changes *c, uint64_t sample)
{
	return c->removed && c->removed[sample / REMOVED_BITS] >> sample % REMOVED_BITS & 1;
}

/* Returns how many samples of the base before this one are removed. */
static inline uint64_t changes_removed_before(const struct snapshot_changes *c, uint64_t sample)
{
	if (!c->removed)
		return 0;
	uint64_t below = (UINT64_C(1) << sample % REMOVED_BITS) - 1, word = sample / REMOVED_BITS;

	return c->removed_before[word] + (uint64_t)__builtin_popcountll(c->removed[word] & below);
}

/* Returns the final number for an interim one. */
static inline uint32_t changes_final(const struct snapshot_changes *c, uint64_t n_base, uint64_t number)
{
	return (uint32_t)(number < n_base ? number - changes_removed_before(c, number)
					  : number - c->n_removed);
}

/* Finds out what the changes mean for the base. SNAPSHOT_NOT_UPDATED; -EEXIST: a path would be a file and a
 * directory, err names it; -ENOMEM. */
int changes_resolve(struct snapshot_changes *c, const struct snapshot *base, struct error *err);

/* Adds the hash index of the base with the changes to what b has written. SNAPSHOT_NOT_UPDATED: the index
 * would be too full; -ENOMEM, -errno. */
struct snapshot_builder;
