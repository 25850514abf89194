/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "dataset/chunk_id.h"
#include "dataset/lookup/snapshot_map.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "lib/text.h"
#include "snapshot_parts.h"

#define N_AT_ONCE 256u

/*
 * During the update, samples have interim numbers: the base's samples keep their numbers, and new samples are
 * numbered after them, in storage order. Removed samples make the final numbers smaller (changes_final()).
 */

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

static struct change_entry *changes_entries(const struct snapshot_changes *c)
{
	return (struct change_entry *)c->entries.data;
}

static size_t changes_n_entries(const struct snapshot_changes *c)
{
	return c->entries.bytes / sizeof(struct change_entry);
}

static size_t changes_n_by_path(const struct snapshot_changes *c)
{
	return c->by_path.bytes / sizeof(uint32_t);
}

/* Returns the i-th entry that counts, in tree order. */
static struct change_entry *changes_by_path(const struct snapshot_changes *c, size_t i)
{
	return &changes_entries(c)[((const uint32_t *)c->by_path.data)[i]];
}

static struct path_text changes_path(const struct snapshot_changes *c, const struct change_entry *e)
{
	return (struct path_text){(const char *)c->text.data + e->path, e->path_length};
}

static bool changes_is_removed(const struct snapshot_changes *c, uint64_t sample)
{
	return c->removed && c->removed[sample / REMOVED_BITS] >> sample % REMOVED_BITS & 1;
}

/* Returns how many samples of the base before this one are removed. */
static uint64_t changes_removed_before(const struct snapshot_changes *c, uint64_t sample)
{
	if (!c->removed)
		return 0;
	uint64_t below = (UINT64_C(1) << sample % REMOVED_BITS) - 1, word = sample / REMOVED_BITS;

	return c->removed_before[word] + (uint64_t)__builtin_popcountll(c->removed[word] & below);
}

/* Returns the final number for an interim one. */
static uint32_t changes_final(const struct snapshot_changes *c, uint64_t n_base, uint64_t number)
{
	return (uint32_t)(number < n_base ? number - changes_removed_before(c, number)
					  : number - c->n_removed);
}

int snapshot_changes_new(uint64_t max_records, struct snapshot_changes **ret)
{
	struct snapshot_changes *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->max_records = max_records;
	*ret = c;
	return 0;
}

static void forget(struct snapshot_changes *c)
{
	buffer_free(&c->chunks);
	buffer_free(&c->digests);
	buffer_free(&c->text);
	buffer_free(&c->entries);
}

void snapshot_changes_free(struct snapshot_changes *c)
{
	if (!c)
		return;
	forget(c);
	buffer_free(&c->by_path);
	free(c->removed);
	free(c->removed_before);
	free(c);
}

static int add_entry(struct snapshot_changes *c, const struct chunk_view *view, uint32_t chunk, uint32_t i)
{
	const struct chunk_record *r = &view->records[i];
	struct change_entry e = {
	    .path = c->text.bytes,
	    .path_length = r->name_length,
	    .mode = (uint16_t)r->mode,
	    .is_delete = view->header->flags & CHUNK_FLAG_TOMBSTONE,
	    .chunk = chunk,
	    .record = i,
	    .bytes = r->bytes,
	    .xxh3 = r->xxh3,
	    .mtime_ns = r->mtime_ns,
	    .offset = r->offset,
	};
	int out = buffer_append(&c->text, view->names + r->name_offset, r->name_length);

	return out < 0 ? out : buffer_append(&c->entries, &e, sizeof(e));
}

int snapshot_changes_add(struct snapshot_changes *c, const struct chunk_view *view,
			 const struct digest *sha256)
{
	const struct chunk_header *h = view->header;
	struct snapshot_chunk_entry chunk = {
	    .id = h->id,
	    .file_bytes = h->file_bytes,
	    .payload_offset = h->payload_offset,
	    .form = snapshot_form_of(h->flags),
	    .head_xxh3 = h->head_xxh3,
	};
	uint32_t number = (uint32_t)(c->chunks.bytes / sizeof(chunk));
	int r;

	c->too_many = c->too_many || changes_n_entries(c) + h->n_records > c->max_records ||
		      c->text.bytes + c->entries.bytes + h->n_records * sizeof(struct change_entry) >
			  SNAPSHOT_CHANGES_BYTES;
	if (c->too_many) {
		forget(c);
		return 0;
	}
	if (!(h->flags & CHUNK_FLAG_TOMBSTONE)) {
		c->has_layout = true;
		c->layout = chunk_layout_of(h->flags);
	}
	r = buffer_append(&c->chunks, &chunk, sizeof(chunk));
	if (r == 0 && sha256)
		r = buffer_append(&c->digests, sha256, sizeof(*sha256));
	for (uint32_t i = 0; i < h->n_records && r == 0; i++)
		r = add_entry(c, view, number, i);
	return r;
}

static int compare_entries(const void *a, const void *b, void *changes)
{
	const struct snapshot_changes *c = changes;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = path_order_compare(changes_path(c, &changes_entries(c)[x]),
				       changes_path(c, &changes_entries(c)[y]));

	return order ? order : compare_numbers(x, y);
}

/* Sorts the entries. Of entries with the same path, the last one counts. */
static int sort(struct snapshot_changes *c)
{
	size_t n = changes_n_entries(c), kept = 0;
	uint32_t *order;
	int r = buffer_reserve(&c->by_path, n * sizeof(*order));

	if (r < 0 || n == 0)
		return r;
	order = (uint32_t *)c->by_path.data;
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), compare_entries, c);
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || path_order_compare(changes_path(c, &changes_entries(c)[order[i]]),
						     changes_path(c, &changes_entries(c)[order[i + 1]])) != 0)
			order[kept++] = order[i];
	c->by_path.bytes = kept * sizeof(*order);
	return 0;
}

static void find_in_base(struct snapshot_changes *c, const struct snapshot *base)
{
	struct path_text paths[N_AT_ONCE];
	uint64_t found[N_AT_ONCE];
	size_t n = changes_n_by_path(c);

	for (size_t first = 0; first < n; first += N_AT_ONCE) {
		size_t n_now = n - first < N_AT_ONCE ? n - first : N_AT_ONCE;

		for (size_t i = 0; i < n_now; i++)
			paths[i] = changes_path(c, changes_by_path(c, first + i));
		snapshot_find_many(base, paths, n_now, found);
		for (size_t i = 0; i < n_now; i++)
			changes_by_path(c, first + i)->base = found[i];
	}
}

/* Drops deletes of paths that do not exist. */
static void drop_void(struct snapshot_changes *c)
{
	uint32_t *order = (uint32_t *)c->by_path.data;
	size_t n = changes_n_by_path(c), kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct change_entry *e = changes_by_path(c, i);

		if (e->is_delete && e->base == SNAPSHOT_NOT_FOUND)
			continue;
		e->is_last = true;
		order[kept++] = order[i];
	}
	c->by_path.bytes = kept * sizeof(*order);
}

static bool sorts_before(const struct snapshot *base, uint64_t place, struct path_text path)
{
	struct path_text other = snapshot_path(base, base->tree[place]);

	return other.text && path_order_compare(other, path) < 0;
}

static int find_places(struct snapshot_changes *c, const struct snapshot *base)
{
	uint64_t n = base->info.n_samples, last = 0;

	for (size_t k = 0; k < changes_n_by_path(c); k++) {
		struct change_entry *e = changes_by_path(c, k);
		struct path_text path = changes_path(c, e);

		e->hash = checksum_xxh3(path.text, path.length);
		/* Both ascend. */
		e->place = last + sorted_count(n - last, i, sorts_before(base, last + i, path));
		if (e->base != SNAPSHOT_NOT_FOUND && (e->place == n || base->tree[e->place] != e->base))
			return SNAPSHOT_NOT_UPDATED;
		last = e->place;
	}
	return 0;
}

static int mark_removed(struct snapshot_changes *c, const struct snapshot *base)
{
	size_t n_words = base->info.n_samples / REMOVED_BITS + 1;
	uint32_t before = 0;

	for (size_t k = 0; k < changes_n_by_path(c); k++) {
		uint64_t sample = changes_by_path(c, k)->base;

		if (sample == SNAPSHOT_NOT_FOUND)
			continue;
		if (!c->removed) {
			c->removed = calloc(n_words, sizeof(*c->removed));
			c->removed_before = calloc(n_words, sizeof(*c->removed_before));
			if (!c->removed || !c->removed_before)
				return -ENOMEM;
		}
		c->removed[sample / REMOVED_BITS] |= UINT64_C(1) << sample % REMOVED_BITS;
		c->n_removed++;
	}
	for (size_t i = 0; c->removed && i < n_words; i++) {
		c->removed_before[i] = before;
		before += (uint32_t)__builtin_popcountll(c->removed[i]);
	}
	return 0;
}

static int give_numbers(struct snapshot_changes *c, uint64_t n_base)
{
	for (size_t i = 0; i < changes_n_entries(c); i++) {
		struct change_entry *e = &changes_entries(c)[i];

		if (e->is_last && !e->is_delete)
			e->number = (uint32_t)(n_base + c->n_put++);
	}
	return n_base + c->n_put > SNAPSHOT_MAX_SAMPLES ? SNAPSHOT_NOT_UPDATED : 0;
}

/* Returns true if this path is a sample after the changes. */
static bool is_file(const struct snapshot_changes *c, const struct snapshot *base, struct path_text path)
{
	size_t n = changes_n_by_path(c);
	size_t at = sorted_count(n, i, path_order_compare(changes_path(c, changes_by_path(c, i)), path) < 0);
	const struct change_entry *e = at < n ? changes_by_path(c, at) : NULL;
	uint64_t sample;

	if (e && path_order_compare(changes_path(c, e), path) == 0)
		return !e->is_delete;
	return snapshot_find(base, path.text, path.length, &sample) == 0;
}

static bool lies_before(const struct snapshot *base, uint64_t place, struct path_text directory, bool past)
{
	struct path_text path = snapshot_path(base, base->tree[place]);
	int order = path.text ? path_order_compare_directory(path, directory) : 1;

	return order < 0 || (past && order == 0);
}

/* Returns true if the base has samples below this path that stay. */
static bool is_directory(const struct snapshot_changes *c, const struct snapshot *base, struct path_text path)
{
	uint64_t n = base->info.n_samples;
	uint64_t first = sorted_count(n, i, lies_before(base, i, path, false));
	uint64_t end = first + sorted_count(n - first, i, lies_before(base, first + i, path, true));

	for (; first < end; first++)
		if (base->tree[first] < n && !changes_is_removed(c, base->tree[first]))
			return true;
	return false;
}

static size_t common_length(struct path_text a, struct path_text b)
{
	size_t n = 0;

	while (n < a.length && n < b.length && a.text[n] == b.text[n])
		n++;
	return n;
}

/* A file system could not show a path that is both. */
static int check_names(const struct snapshot_changes *c, const struct snapshot *base, struct error *err)
{
	struct path_text last = {"", 0};
	char text[200];

	for (size_t k = 0; k < changes_n_by_path(c); k++) {
		const struct change_entry *e = changes_by_path(c, k);
		struct path_text path = changes_path(c, e), wrong = {0};

		if (e->is_delete || e->base != SNAPSHOT_NOT_FOUND)
			continue;
		/* Directories shared with the previous path were checked already. */
		for (size_t end = common_length(last, path); end < path.length && !wrong.text; end++)
			if (path.text[end] == '/' && is_file(c, base, (struct path_text){path.text, end}))
				wrong = (struct path_text){path.text, end};
		if (!wrong.text && is_directory(c, base, path))
			wrong = path;
		last = path;
		if (wrong.text)
			return error_set(err, -EEXIST,
					 "'%s' would be a file and a directory; remove one of them first",
					 text_printable(text, sizeof(text), wrong.text, wrong.length));
	}
	return 0;
}

/* Finds out what the changes mean for the base. SNAPSHOT_NOT_UPDATED; -EEXIST: a path would be a file and a
 * directory, err names it; -ENOMEM. */
static int changes_resolve(struct snapshot_changes *c, const struct snapshot *base, struct error *err)
{
	int r = sort(c);

	if (r < 0)
		return r;
	find_in_base(c, base);
	drop_void(c);
	r = find_places(c, base);
	if (r == 0)
		r = mark_removed(c, base);
	if (r == 0)
		r = give_numbers(c, base->info.n_samples);
	return r == 0 ? check_names(c, base, err) : r;
}

/*
 * Writes the hash index of an updated snapshot: the base's buckets with renumbered samples. Buckets that
 * change are patched first.
 */

/* maximum number of taken slots, of 64. A fuller index makes searches long; building the index from scratch
 * makes space. */
#define FULL_OF_64 61u

struct index_update {
	const struct snapshot *base;
	uint32_t *patch_of;    /* for each bucket: 1 + the index of its patch; 0: no patch */
	struct buffer patches; /* struct snapshot_bucket, with interim numbers */
	uint64_t *new_hashes;  /* hashes of the new samples, whose interim numbers follow the base's */
	uint64_t n_buckets;    /* including the overflow buckets at the end, where no search begins */
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

/* Returns the bucket's patch, which may be written to until the next call. NULL: no memory. */
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

/* Moves one slot of bucket `at` to bucket `gap`, if its search begins there or before. -ENOENT: no slot
 * qualifies. */
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

/* Refills bucket `gap`, which has a free slot now. A search continues in the next bucket only if a bucket is
 * full, so slots that had overflowed from this bucket must move back. */
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

/* Finds the bucket where the search for this sample begins. SNAPSHOT_NOT_UPDATED: the sample has no valid
 * path. */
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

/* Finds the slot of a full bucket whose search begins last. */
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

/* Adds a sample. Runs of full buckets are long, so a new entry takes the slot of the entry nearest to its own
 * home bucket, which moves on to the next bucket. So no entry ends up far from where its search begins. */
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

	/* Remove samples first, while all numbers are the base's. */
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

static int changes_write_index(const struct snapshot_changes *c, const struct snapshot *base,
			       struct snapshot_builder *b)
{
	_cleanup_(section_free) struct section_writer w = {0};
	_cleanup_(index_free) struct index_update u = {.base = base, .n_buckets = base->n_all_buckets};
	uint64_t space = base->header.n_buckets * SNAPSHOT_BUCKET_SLOTS;
	int r;

	if (b->header.n_samples * 64 > space * FULL_OF_64 || !buckets_are_sound(base))
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

/* From offset `from` in the base's paths on, paths move by this many bytes in the new file. */
struct shift {
	uint64_t from;
	uint64_t by; /* modulo 2^64 */
};

struct update {
	const struct snapshot *base;
	struct snapshot_changes *changes;
	struct snapshot_builder *b;
	struct buffer shifts; /* struct shift, ascending */
	size_t last_shift;    /* the shift used last, which most lookups need again */

	struct section_writer paths;
	uint64_t place,
	    offset; /* position in the base's tree and paths; everything before it is written or left out */
	struct buffer classes; /* struct snapshot_class */
	struct path_text last_class;
	uint32_t next_class; /* next class of the base */

	struct section_writer records, times;
	struct buffer places;   /* uint32_t: places of the current chunk's samples */
	struct buffer mtimes;   /* uint64_t */
	bool names_are_unknown; /* the kind of names must be found again: names were removed, or the base
				   lacks it */
};

static void update_free(struct update *u)
{
	buffer_free(&u->shifts);
	buffer_free(&u->classes);
	buffer_free(&u->places);
	buffer_free(&u->mtimes);
	section_free(&u->paths);
	section_free(&u->records);
	section_free(&u->times);
	snapshot_builder_free(u->b);
}

/* Begins a class: the samples from `offset` of the written paths on belong to it. */
static int take_class(struct update *u, struct path_text name, uint64_t offset)
{
	struct snapshot_class class = {.name_offset = offset, .name_length = (uint32_t)name.length};

	if (name.length == 0 ||
	    (name.length == u->last_class.length && memcmp(name.text, u->last_class.text, name.length) == 0))
		return 0;
	u->last_class = name;
	u->b->header.n_classes++;
	return buffer_append(&u->classes, &class, sizeof(class));
}

static int take_classes_of_base(struct update *u, uint64_t end)
{
	const struct snapshot *base = u->base;
	int r = 0;

	for (; u->next_class < base->info.n_classes && r == 0; u->next_class++) {
		uint64_t offset = base->classes[u->next_class].name_offset;
		struct path_text name;

		if (offset >= end)
			break;
		if (offset < u->offset) /* the class's first path in the base was removed */
			continue;
		if (snapshot_class_name(base, u->next_class, &name.text, &name.length) < 0)
			return SNAPSHOT_NOT_UPDATED;
		r = take_class(u, name, offset + (u->paths.bytes - u->offset));
	}
	return r;
}

/* Copies the base's paths until this place. */
static int copy_paths(struct update *u, uint64_t place)
{
	const struct snapshot *base = u->base;
	struct shift shift = {u->offset, u->paths.bytes - u->offset};
	uint64_t end = base->paths_bytes;
	struct path_text first = {0};
	int r;

	if (place < base->info.n_samples) {
		struct path_text path = snapshot_path(base, base->tree[place]);

		end = path.text ? (uint64_t)(path.text - base->paths) : 0;
	}
	if (place == u->place)
		return end == u->offset ? 0 : SNAPSHOT_NOT_UPDATED;
	if (place > u->place)
		first = snapshot_path(base, base->tree[u->place]);
	if (!first.text || end < u->offset)
		return SNAPSHOT_NOT_UPDATED;
	r = take_class(u, (struct path_text){first.text, path_top_length(first)}, u->paths.bytes);
	if (r == 0)
		r = take_classes_of_base(u, end);
	if (r == 0)
		r = buffer_append(&u->shifts, &shift, sizeof(shift));
	if (r == 0)
		r = section_add(&u->paths, base->paths + u->offset, end - u->offset);
	u->place = place;
	u->offset = end;
	return r;
}

static int put_path(struct update *u, struct change_entry *e)
{
	struct path_text path = changes_path(u->changes, e);
	int r = take_class(u, (struct path_text){path.text, path_top_length(path)}, u->paths.bytes);

	e->path_offset = u->paths.bytes;
	return r < 0 ? r : section_add(&u->paths, path.text, path.length);
}

static int write_paths(struct update *u)
{
	struct snapshot_changes *c = u->changes;
	int r = builder_begin_section(u->b, &u->paths);

	for (size_t k = 0; k < changes_n_by_path(c) && r == 0; k++) {
		struct change_entry *e = changes_by_path(c, k);

		r = copy_paths(u, e->place);
		if (r == 0 && !e->is_delete)
			r = put_path(u, e);
		if (r == 0 && e->base != SNAPSHOT_NOT_FOUND) {
			u->place++;
			u->offset += e->path_length;
		}
	}
	if (r == 0)
		r = copy_paths(u, u->base->info.n_samples);
	if (r == 0 && u->paths.bytes >= UINT64_C(1) << SNAPSHOT_PATH_OFFSET_BITS)
		r = SNAPSHOT_NOT_UPDATED;
	return r == 0 ? builder_end_section(u->b, &u->paths, SNAPSHOT_PATHS) : r;
}

/* Finds by how many bytes a path of the base moves. */
static int shift_of(struct update *u, uint64_t offset, uint64_t *ret)
{
	const struct shift *shifts = (const struct shift *)u->shifts.data;
	size_t n = u->shifts.bytes / sizeof(*shifts), i = u->last_shift;

	if (i >= n || shifts[i].from > offset || (i + 1 < n && shifts[i + 1].from <= offset)) {
		i = sorted_count(n, k, shifts[k].from <= offset);
		if (i-- == 0)
			return SNAPSHOT_NOT_UPDATED;
		u->last_shift = i;
	}
	*ret = shifts[i].by;
	return 0;
}

static int add_record(struct update *u, const struct snapshot_record *record, uint32_t place,
		      uint64_t mtime_ns)
{
	int r = section_add(&u->records, record, sizeof(*record));

	if (r == 0)
		r = buffer_append(&u->places, &place, sizeof(place));
	if (r == 0)
		r = buffer_append(&u->mtimes, &mtime_ns, sizeof(mtime_ns));
	builder_count_sample(&u->b->header,
			     (uint32_t)(record->stored & SNAPSHOT_LOW_BITS(SNAPSHOT_BYTES_BITS)));
	return r;
}

/* Ends a chunk whose samples are all taken. A chunk without samples is left out. */
static int end_chunk(struct update *u, const struct snapshot_chunk_entry *chunk, const struct digest *sha256)
{
	struct snapshot_chunk_entry entry = *chunk;
	int r;

	entry.n_samples = (uint32_t)(u->places.bytes / sizeof(uint32_t));
	if (entry.n_samples == 0)
		return 0;
	entry.first_sample = u->b->header.n_samples - entry.n_samples;
	r = builder_add_times(&entry, &u->times, &u->places, &u->mtimes);
	if (r == 0)
		r = buffer_append(&u->b->chunks, &entry, sizeof(entry));
	if (r == 0 && sha256)
		r = buffer_append(&u->b->digests, sha256, sizeof(*sha256));
	u->places.bytes = u->mtimes.bytes = 0;
	return r;
}

static int copy_record(struct update *u, const struct snapshot_chunk_entry *chunk,
		       const unsigned char *places, uint32_t i)
{
	const struct snapshot *base = u->base;
	struct snapshot_record record = base->records[chunk->first_sample + i];
	uint64_t offset = record.path & SNAPSHOT_LOW_BITS(SNAPSHOT_PATH_OFFSET_BITS), by = 0;
	uint32_t place = i;

	if (shift_of(u, offset, &by) != 0)
		return SNAPSHOT_NOT_UPDATED;
	if (u->names_are_unknown && u->b->header.names != SNAPSHOT_NAMES_OTHERS) {
		struct path_text path = snapshot_path(base, chunk->first_sample + i);

		if (!path.text)
			return SNAPSHOT_NOT_UPDATED;
		builder_count_name(&u->b->header, path);
	}
	if (chunk->has_places)
		memcpy(&place, places + i * sizeof(place), sizeof(place));
	record.path = (record.path & ~SNAPSHOT_LOW_BITS(SNAPSHOT_PATH_OFFSET_BITS)) |
		      ((offset + by) & SNAPSHOT_LOW_BITS(SNAPSHOT_PATH_OFFSET_BITS));
	return add_record(u, &record, place, snapshot_time(chunk, places, i));
}

static int copy_chunk(struct update *u, uint64_t number)
{
	const struct snapshot *base = u->base;
	const struct snapshot_chunk_entry *chunk = &base->chunks[number];
	const unsigned char *places = snapshot_places(base, chunk);
	int r = 0;

	if (!places || chunk->time_bytes > sizeof(uint64_t))
		return SNAPSHOT_NOT_UPDATED;
	for (uint32_t i = 0; i < chunk->n_samples && r == 0; i++)
		if (!changes_is_removed(u->changes, chunk->first_sample + i))
			r = copy_record(u, chunk, places, i);
	return r == 0 ? end_chunk(u, chunk, base->digests ? &base->digests[number] : NULL) : r;
}

static int put_record(struct update *u, const struct change_entry *e)
{
	struct path_text path = changes_path(u->changes, e);
	struct snapshot_record record = builder_record(e->xxh3, e->bytes, e->offset, e->mode,
						       builder_path_word(e->path_offset, path.length));

	builder_count_name(&u->b->header, path);
	return add_record(u, &record, e->record, e->mtime_ns);
}

static int put_chunks(struct update *u)
{
	const struct snapshot_changes *c = u->changes;
	const struct snapshot_chunk_entry *chunks = (const struct snapshot_chunk_entry *)c->chunks.data;
	const struct digest *digests = (const struct digest *)c->digests.data;
	size_t n = c->chunks.bytes / sizeof(*chunks), at = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		for (; at < changes_n_entries(c) && changes_entries(c)[at].chunk == i && r == 0; at++) {
			const struct change_entry *e = &changes_entries(c)[at];

			if (e->is_last && !e->is_delete)
				r = put_record(u, e);
		}
		if (r == 0)
			r = end_chunk(u, &chunks[i], digests ? &digests[i] : NULL);
	}
	return r;
}

static int write_records(struct update *u)
{
	const struct snapshot *base = u->base;
	uint64_t n = base->info.n_samples - u->changes->n_removed + u->changes->n_put;
	int r = builder_begin_section(u->b, &u->records);

	/* Both sections grow at the same time; the second begins where the first will end, since its length
	 * is known. */
	if (r == 0)
		r = section_begin(&u->times, u->b->fd,
				  u->records.offset + n * sizeof(struct snapshot_record));
	for (uint64_t i = 0; i < base->info.n_chunks && r == 0; i++)
		r = copy_chunk(u, i);
	if (r == 0)
		r = put_chunks(u);
	if (r == 0 && u->b->header.n_samples != n)
		r = SNAPSHOT_NOT_UPDATED;
	if (r == 0)
		r = builder_end_section(u->b, &u->records, SNAPSHOT_RECORDS);
	return r == 0 ? builder_end_section(u->b, &u->times, SNAPSHOT_TIMES) : r;
}

static int put_in_tree(const struct update *u, struct section_writer *w, uint64_t number)
{
	uint32_t sample = changes_final(u->changes, u->base->info.n_samples, number);

	return section_add(w, &sample, sizeof(sample));
}

static int write_tree(struct update *u)
{
	_cleanup_(section_free) struct section_writer w = {0};
	const struct snapshot_changes *c = u->changes;
	size_t k = 0, n_changes = changes_n_by_path(c);
	int r = builder_begin_section(u->b, &w);

	for (uint64_t place = 0; place <= u->base->info.n_samples && r == 0; place++) {
		bool is_removed = false;

		for (; k < n_changes && changes_by_path(c, k)->place == place && r == 0; k++) {
			const struct change_entry *e = changes_by_path(c, k);

			is_removed = is_removed || e->base != SNAPSHOT_NOT_FOUND;
			if (!e->is_delete)
				r = put_in_tree(u, &w, e->number);
		}
		if (r != 0 || is_removed || place == u->base->info.n_samples)
			continue;
		r = u->base->tree[place] < u->base->info.n_samples ? put_in_tree(u, &w, u->base->tree[place])
								   : SNAPSHOT_NOT_UPDATED;
	}
	return r == 0 ? builder_end_section(u->b, &w, SNAPSHOT_TREE) : r;
}

/* If names are removed and some names were not image names, the remaining names must be scanned again. */
static void begin_names(struct update *u)
{
	enum snapshot_names names = u->base->info.names;
	uint64_t n_removed = u->changes->n_removed;

	u->names_are_unknown =
	    names == SNAPSHOT_NAMES_UNKNOWN || (names == SNAPSHOT_NAMES_OTHERS && n_removed > 0);
	u->b->header.names =
	    u->names_are_unknown || n_removed == u->base->info.n_samples ? SNAPSHOT_NAMES_UNKNOWN : names;
}

static int write_sections(struct update *u)
{
	int r = write_paths(u);

	if (r == 0)
		r = write_records(u);
	if (r == 0)
		r = write_tree(u);
	if (r == 0)
		r = changes_write_index(u->changes, u->base, u->b);
	if (r == 0)
		r = builder_write_section(u->b, SNAPSHOT_CLASSES, &u->classes);
	if (r == 0)
		r = builder_write_tables(u->b);
	return r == 0 ? builder_write_header(u->b) : r;
}

/* Returns true if the changes are newer than the base. */
static bool come_behind(const struct snapshot_changes *c, const struct snapshot *base)
{
	const struct snapshot_chunk_entry *first = (const struct snapshot_chunk_entry *)c->chunks.data;
	uint64_t n = base->info.n_chunks;

	return c->chunks.bytes == 0 || n == 0 || chunk_id_compare(&base->chunks[n - 1].id, &first->id) < 0;
}

int snapshot_update(const struct snapshot *base, struct snapshot_changes *c,
		    const struct snapshot_target *target, struct error *err)
{
	_cleanup_(update_free) struct update u = {.base = base, .changes = c};
	struct error why = ERROR_INIT;
	int r;

	if (c->too_many || (base->digests != NULL) != (c->digests.bytes > 0) || !come_behind(c, base) ||
	    snapshot_verify_tables(base, NULL) < 0 || snapshot_check_rest(base, NULL) < 0)
		return SNAPSHOT_NOT_UPDATED;
	r = changes_resolve(c, base, &why);
	if (r == -EEXIST)
		return error_set(err, r, "%s", why.text);
	if (r == 0)
		r = snapshot_builder_new(-EBADF, 0, &u.b);
	if (r == 0) {
		builder_begin(u.b, target);
		u.b->header.flags = base->digests ? SNAPSHOT_FLAG_DIGESTS : 0;
		u.b->header.layout = c->has_layout ? c->layout : base->info.layout;
		begin_names(&u);
		r = write_sections(&u);
	}
	return r < 0 ? error_errno(err, r, "cannot write the snapshot of %s", target->origin) : r;
}
