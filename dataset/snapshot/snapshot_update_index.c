/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash index of a snapshot that is updated: the base's buckets with other numbers in them, but for those
 * that change, which are patched first.
 */
#include <errno.h>
#include <string.h>

#include "checksum.h"
#include "lib/cleanup.h"
#include "snapshot_changes.h"
#include "snapshot_parts.h"

/* Of 64 slots 61 taken. Fuller ones make searches long; building the index anew makes room. */
#define FULL_OF_64 61u

struct index_update {
	const struct snapshot *base;
	uint32_t *patch_of;    /* of each bucket: 1 + its patch, or 0 */
	struct buffer patches; /* struct snapshot_bucket, with interim numbers */
	uint64_t *new_hashes;  /* of interim numbers from the base's number of samples on */
	uint64_t n_buckets;    /* with those behind the last one where a search may begin */
};

static void index_free(struct index_update *u)
{
	free(u->patch_of);
	free(u->new_hashes);
	buffer_free(&u->patches);
}

static const struct snapshot_bucket *look_at(const struct index_update *u, uint64_t at)
{
	const struct snapshot_bucket *patches = (const struct snapshot_bucket *)u->patches.data;

	return u->patch_of[at] ? &patches[u->patch_of[at] - 1] : &u->base->buckets[at];
}

/* The bucket, to be written to until the next call. NULL: no memory. */
static struct snapshot_bucket *change(struct index_update *u, uint64_t at)
{
	struct snapshot_bucket *patches;
	size_t n = u->patches.bytes / sizeof(*patches);

	if (!u->patch_of[at]) {
		if (buffer_append(&u->patches, &u->base->buckets[at], sizeof(*patches)) < 0)
			return NULL;
		u->patch_of[at] = (uint32_t)++n;
	}
	patches = (struct snapshot_bucket *)u->patches.data;
	return &patches[u->patch_of[at] - 1];
}

static uint64_t home_of(const struct index_update *u, uint64_t hash)
{
	return snapshot_bucket_of(hash, u->base->header.n_buckets);
}

static int remove_slot(struct index_update *u, uint64_t at, uint32_t slot)
{
	struct snapshot_bucket *b = change(u, at);

	if (!b)
		return -ENOMEM;
	b->n_taken--;
	b->tags[slot] = b->tags[b->n_taken];
	b->samples[slot] = b->samples[b->n_taken];
	b->tags[b->n_taken] = 0;
	b->samples[b->n_taken] = 0;
	return 0;
}

static int add_slot(struct index_update *u, uint64_t at, uint8_t tag, uint32_t sample)
{
	struct snapshot_bucket *b = change(u, at);

	if (!b)
		return -ENOMEM;
	b->tags[b->n_taken] = tag;
	b->samples[b->n_taken++] = sample;
	return 0;
}

/* Moves one slot of bucket `at` whose search begins at `gap` or before to there. -ENOENT: there is none. */
static int move_slot(struct index_update *u, uint64_t at, uint64_t gap)
{
	const struct snapshot_bucket b = *look_at(u, at);

	for (uint32_t i = 0; i < b.n_taken; i++) {
		struct path_text path = snapshot_path(u->base, b.samples[i]);

		if (!path.text)
			return SNAPSHOT_NOT_UPDATED;
		if (home_of(u, checksum_xxh3(path.text, path.length)) > gap)
			continue;
		int r = add_slot(u, gap, b.tags[i], b.samples[i]);

		return r < 0 ? r : remove_slot(u, at, i);
	}
	return -ENOENT;
}

/* A search goes on to the next bucket only where this one is full. So what lies beyond a bucket that has room
 * now, because there was none, has to come back. */
static int close_gap(struct index_update *u, uint64_t gap)
{
	for (uint64_t at = gap + 1; at < u->n_buckets && at < gap + SNAPSHOT_PROBE_MAX; at++) {
		bool was_full = look_at(u, at)->n_taken == SNAPSHOT_BUCKET_SLOTS;
		int r = move_slot(u, at, gap);

		if (r != 0 && r != -ENOENT)
			return r;
		if (!was_full)
			return 0;
		if (r == 0)
			gap = at;
	}
	return 0;
}

/* Finds the slot of a sample of the base. */
static int find_slot(const struct index_update *u, uint64_t hash, uint64_t sample, uint64_t *ret_bucket,
		     uint32_t *ret_slot)
{
	uint64_t home = home_of(u, hash);

	for (uint64_t at = home; at < u->n_buckets && at < home + SNAPSHOT_PROBE_MAX; at++) {
		const struct snapshot_bucket *b = look_at(u, at);

		for (uint32_t i = 0; i < b->n_taken; i++)
			if (b->samples[i] == sample) {
				*ret_bucket = at;
				*ret_slot = i;
				return 0;
			}
	}
	return SNAPSHOT_NOT_UPDATED;
}

static int take_out(struct index_update *u, const struct change_entry *e)
{
	uint64_t at;
	uint32_t slot;
	int r = find_slot(u, e->hash, e->base, &at, &slot);

	if (r != 0)
		return r;
	bool was_full = look_at(u, at)->n_taken == SNAPSHOT_BUCKET_SLOTS;

	r = remove_slot(u, at, slot);
	return r == 0 && was_full ? close_gap(u, at) : r;
}

static int replace(struct index_update *u, const struct change_entry *e)
{
	uint64_t at;
	uint32_t slot;
	int r = find_slot(u, e->hash, e->base, &at, &slot);
	struct snapshot_bucket *b = r == 0 ? change(u, at) : NULL;

	if (r == 0 && !b)
		return -ENOMEM;
	if (r == 0)
		b->samples[slot] = e->number;
	return r;
}

/* The bucket where the search for this sample begins. SNAPSHOT_NOT_UPDATED: it has no path. */
static int home_of_sample(const struct index_update *u, uint32_t sample, uint64_t *ret)
{
	uint64_t n_base = u->base->info.n_samples;
	struct path_text path = snapshot_path(u->base, sample);

	if (sample < n_base && !path.text)
		return SNAPSHOT_NOT_UPDATED;
	*ret = home_of(u, sample < n_base ? checksum_xxh3(path.text, path.length)
					  : u->new_hashes[sample - n_base]);
	return 0;
}

/* Of a full bucket, the slot whose search begins last. */
static int find_last(const struct index_update *u, const struct snapshot_bucket *b, uint32_t *ret_slot,
		     uint64_t *ret_home)
{
	uint64_t last = 0;
	uint32_t slot = 0;

	for (uint32_t i = 0; i < b->n_taken; i++) {
		uint64_t home = 0;

		if (home_of_sample(u, b->samples[i], &home) != 0)
			return SNAPSHOT_NOT_UPDATED;
		if (home >= last) {
			last = home;
			slot = i;
		}
	}
	*ret_slot = slot;
	*ret_home = last;
	return 0;
}

/* Runs of full buckets are long, so what comes to one takes the slot of what is nearest to its home, which
 * goes on to the next bucket: nothing ends up far from where its search begins. */
static int put(struct index_update *u, const struct change_entry *e)
{
	uint8_t tag = (uint8_t)e->hash;
	uint32_t sample = e->number, slot = 0;
	uint64_t home = home_of(u, e->hash), other = 0;

	for (uint64_t at = home; at < u->n_buckets && at - home < SNAPSHOT_PROBE_MAX; at++) {
		struct snapshot_bucket was = *look_at(u, at), *b;

		if (was.n_taken < SNAPSHOT_BUCKET_SLOTS)
			return add_slot(u, at, tag, sample);
		if (find_last(u, &was, &slot, &other) != 0)
			return SNAPSHOT_NOT_UPDATED;
		if (other <= home)
			continue;
		b = change(u, at);
		if (!b)
			return -ENOMEM;
		b->tags[slot] = tag;
		b->samples[slot] = sample;
		tag = was.tags[slot];
		sample = was.samples[slot];
		home = other;
	}
	return SNAPSHOT_NOT_UPDATED;
}

static int make_changes(struct index_update *u, const struct snapshot_changes *c)
{
	size_t n = changes_n_by_path(c);
	int r = 0;

	/* First what goes, while all numbers are the base's. */
	for (size_t i = 0; i < n && r == 0; i++)
		if (changes_by_path(c, i)->is_delete)
			r = take_out(u, changes_by_path(c, i));
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct change_entry *e = changes_by_path(c, i);

		if (!e->is_delete)
			r = e->base == SNAPSHOT_NOT_FOUND ? put(u, e) : replace(u, e);
	}
	return r;
}

static int write_buckets(const struct index_update *u, const struct snapshot_changes *c,
			 struct section_writer *w)
{
	uint64_t n_base = u->base->info.n_samples;
	int r = 0;

	for (uint64_t at = 0; at < u->n_buckets && r == 0; at++) {
		struct snapshot_bucket b = *look_at(u, at);

		for (uint32_t i = 0; i < b.n_taken; i++) {
			if (b.samples[i] >= n_base + c->n_put)
				return SNAPSHOT_NOT_UPDATED;
			b.samples[i] = changes_final(c, n_base, b.samples[i]);
		}
		r = section_add(w, &b, sizeof(b));
	}
	return r;
}

/* Returns true if each bucket has as many slots taken as there are. */
static bool buckets_are_sound(const struct snapshot *base)
{
	for (uint64_t at = 0; at < base->n_all_buckets; at++)
		if (base->buckets[at].n_taken > SNAPSHOT_BUCKET_SLOTS)
			return false;
	return true;
}

int changes_write_index(const struct snapshot_changes *c, const struct snapshot *base,
			struct snapshot_builder *b)
{
	_cleanup_(section_free) struct section_writer w = {0};
	_cleanup_(index_free) struct index_update u = {.base = base, .n_buckets = base->n_all_buckets};
	uint64_t room = base->header.n_buckets * SNAPSHOT_BUCKET_SLOTS;
	int r;

	if (b->header.n_samples * 64 > room * FULL_OF_64 || !buckets_are_sound(base))
		return SNAPSHOT_NOT_UPDATED;
	b->header.n_buckets = base->header.n_buckets;
	u.patch_of = calloc(u.n_buckets, sizeof(*u.patch_of));
	u.new_hashes = calloc(c->n_put + 1, sizeof(*u.new_hashes));
	if (!u.patch_of || !u.new_hashes)
		return -ENOMEM;
	for (size_t i = 0; i < changes_n_by_path(c); i++) {
		const struct change_entry *e = changes_by_path(c, i);

		if (!e->is_delete)
			u.new_hashes[e->number - base->info.n_samples] = e->hash;
	}
	r = make_changes(&u, c);
	if (r == 0)
		r = builder_begin_section(b, &w);
	if (r == 0)
		r = write_buckets(&u, c, &w);
	return r == 0 ? builder_end_section(b, &w, SNAPSHOT_HASH) : r;
}
