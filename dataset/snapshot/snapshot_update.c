/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "snapshot_changes.h"
#include "snapshot_parts.h"

/* From this place in the paths of the base on, they are written so much farther behind. */
struct shift {
	uint64_t from;
	uint64_t by; /* modulo 2^64 */
};

struct update {
	const struct snapshot *base;
	struct snapshot_changes *changes;
	struct snapshot_builder *b;
	struct buffer shifts; /* struct shift, ascending */
	size_t last_shift;    /* the one that was asked for last, which most others need, too */

	struct section_writer paths;
	uint64_t place,
	    offset;            /* in the base's tree and paths: what lies before is written, or is left out */
	struct buffer classes; /* struct snapshot_class */
	struct path_text last_class;
	uint32_t next_class; /* of the base */

	struct section_writer records, times;
	struct buffer places;   /* uint32_t: of the chunk whose samples are being taken, */
	struct buffer mtimes;   /* uint64_t */
	bool names_are_unknown; /* a name that was no image may be gone */
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

/* The samples from here on, at `offset` in what is written, are of this class. */
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
		if (offset < u->offset) /* what it began with is gone */
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

/* How much farther behind a path of the base is written. */
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

/* The chunk's samples are all taken. Without samples it is left out. */
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

	/* Both grow at once, and how long the first one will be is known. */
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

/* Where names go of which some were of no image, those that stay have to be looked at. */
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
		r = builder_write_section(u->b, SNAPSHOT_CHUNKS, &u->b->chunks);
	if (r == 0)
		r = builder_write_section(u->b, SNAPSHOT_DIGESTS, &u->b->digests);
	return r == 0 ? builder_write_header(u->b) : r;
}

/* Returns true if the changes are newer than the base. */
static bool come_behind(const struct snapshot_changes *c, const struct snapshot *base)
{
	const struct snapshot_chunk_entry *first = (const struct snapshot_chunk_entry *)c->chunks.data;
	uint64_t n = base->info.n_chunks;

	return c->chunks.bytes == 0 || n == 0 || chunk_id_compare(&base->chunks[n - 1].id, &first->id) < 0;
}

int snapshot_update(const struct snapshot *base, struct snapshot_changes *c, uint64_t version,
		    uint64_t created_ns, int fd, const char *origin, struct error *err)
{
	_cleanup_(update_free) struct update u = {.base = base, .changes = c};
	struct error why = ERROR_INIT;
	int r;

	if (base->is_old || c->too_many || (base->digests != NULL) != (c->digests.bytes > 0) ||
	    !come_behind(c, base) || snapshot_verify_tables(base, NULL) < 0 ||
	    snapshot_check_rest(base, NULL) < 0)
		return SNAPSHOT_NOT_UPDATED;
	r = changes_resolve(c, base, &why);
	if (r == -EEXIST)
		return error_set(err, r, "%s", why.text);
	if (r == 0)
		r = snapshot_builder_new(-EBADF, 0, &u.b);
	if (r == 0) {
		builder_begin(u.b, version, created_ns, fd);
		u.b->header.flags = base->digests ? SNAPSHOT_FLAG_DIGESTS : 0;
		begin_names(&u);
		r = write_sections(&u);
	}
	return r < 0 ? error_errno(err, r, "cannot write the snapshot of %s", origin) : r;
}
