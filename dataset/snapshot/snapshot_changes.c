/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot_changes.h"

#include <errno.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "lib/text.h"

#define N_AT_ONCE 256u

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

void snapshot_changes_columns(struct snapshot_changes *c, struct columns columns)
{
	c->columns = columns;
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

int changes_resolve(struct snapshot_changes *c, const struct snapshot *base, struct error *err)
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
