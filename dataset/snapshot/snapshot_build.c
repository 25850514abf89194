/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot_build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/chunk_id.h"
#include "dataset/path_order.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/sorted.h"
#include "lib/text.h"
#include "snapshot_parts.h"

#define BLOCK_BYTES (1u << 20)

int section_begin(struct section_writer *w, int fd, uint64_t offset)
{
	*w = (struct section_writer){
	    .fd = fd, .offset = (offset + SNAPSHOT_ALIGN - 1) / SNAPSHOT_ALIGN * SNAPSHOT_ALIGN};
	return checksum_stream_new(&w->sum);
}

static int flush(struct section_writer *w)
{
	int r = fd_write_at(w->fd, w->block.data, w->block.bytes, w->offset + w->bytes - w->block.bytes);

	checksum_stream_add(w->sum, w->block.data, w->block.bytes);
	w->block.bytes = 0;
	return r;
}

int section_add(struct section_writer *w, const void *data, size_t bytes)
{
	int r = buffer_append(&w->block, data, bytes);

	if (r < 0)
		return r;
	w->bytes += bytes;
	return w->block.bytes >= BLOCK_BYTES ? flush(w) : 0;
}

/* Ends the section. *ret is its extent for the header. -errno of the file. */
static int section_end(struct section_writer *w, struct snapshot_extent *ret)
{
	int r = w->block.bytes ? flush(w) : 0;

	if (r < 0)
		return r;
	*ret = (struct snapshot_extent){
	    .offset = w->offset, .bytes = w->bytes, .xxh3 = checksum_stream_xxh3(w->sum)};
	return 0;
}

void section_free(struct section_writer *w)
{
	buffer_free(&w->block);
	checksum_stream_free(w->sum);
	w->sum = NULL;
}

/* Writes the hash index from its first bucket to its last. Equal hashes show names that are both a file and a
 * directory. */

#define MAX_EQUAL (SNAPSHOT_PROBE_MAX * SNAPSHOT_BUCKET_SLOTS)

struct index_writer {
	struct section_writer buckets;
	struct snapshot_bucket bucket;
	uint64_t at; /* the bucket's number */
	/* The samples whose paths have the hash of the last entry. */
	uint64_t hash;
	uint32_t equal[MAX_EQUAL];
	size_t n_equal;
};

/* Writer of the records and modification times, and the current chunk. */
struct record_writer {
	struct section_writer records, times;
	struct buffer places; /* uint32_t each */
	struct buffer mtimes; /* uint64_t each */
	uint64_t chunk;       /* number of the chunk before chunks are dropped */
	size_t n_kept;        /* number of earlier chunks with live samples */
	uint64_t n_samples;   /* samples of all chunks so far */
};

static uint8_t bytes_for(uint64_t value)
{
	uint8_t n = 0;

	for (; value; value >>= 8)
		n++;
	return n;
}

/* Chooses how times are stored: whole seconds, as archives keep them, take half the space. */
static void choose_times(struct snapshot_chunk_entry *c, const uint64_t *mtimes, size_t n)
{
	uint64_t last = mtimes[0];
	bool whole = true;

	c->base_ns = mtimes[0];
	for (size_t i = 0; i < n; i++) {
		c->base_ns = mtimes[i] < c->base_ns ? mtimes[i] : c->base_ns;
		last = mtimes[i] > last ? mtimes[i] : last;
	}
	for (size_t i = 0; i < n && whole; i++)
		whole = (mtimes[i] - c->base_ns) % NS_PER_S == 0;
	c->time_unit = whole ? SNAPSHOT_SECONDS : SNAPSHOT_NANOSECONDS;
	c->time_bytes = bytes_for((last - c->base_ns) / (whole ? NS_PER_S : 1));
}

int builder_add_times(struct snapshot_chunk_entry *c, struct section_writer *times,
		      const struct buffer *places, const struct buffer *mtimes)
{
	static const unsigned char zeros[SNAPSHOT_TIMES_ALIGN];
	const uint64_t *ns = (const uint64_t *)mtimes->data;
	size_t n = c->n_samples;
	uint64_t at = times->bytes / SNAPSHOT_TIMES_ALIGN;
	int r = 0;

	choose_times(c, ns, n);
	/* Places ascend: if none is missing, each equals its index. */
	c->has_places = ((const uint32_t *)places->data)[n - 1] != n - 1;
	if (at > UINT32_MAX)
		return -EOVERFLOW;
	c->times_offset = (uint32_t)at;
	if (c->has_places)
		r = section_add(times, places->data, places->bytes);
	for (size_t i = 0; i < n && r == 0 && c->time_bytes; i++) {
		uint64_t time = (ns[i] - c->base_ns) / (c->time_unit == SNAPSHOT_SECONDS ? NS_PER_S : 1);

		r = section_add(times, &time, c->time_bytes);
	}
	return r < 0 ? r : section_add(times, zeros, -times->bytes % SNAPSHOT_TIMES_ALIGN);
}

/* Keeps the chunk, once all of its samples are taken. */
static int end_chunk(struct snapshot_builder *b, struct record_writer *w)
{
	struct snapshot_chunk_entry *chunks = builder_chunks(b), *kept = &chunks[w->n_kept];
	struct digest *digests = (struct digest *)b->digests.data;

	*kept = chunks[w->chunk];
	if (digests)
		digests[w->n_kept] = digests[w->chunk];
	kept->first_sample = w->n_samples - kept->n_samples;
	int r = builder_add_times(kept, &w->times, &w->places, &w->mtimes);

	w->n_kept++;
	w->mtimes.bytes = w->places.bytes = 0;
	return r;
}

/* Counts one path of a pass over all of them, for progress. */
static void builder_step(struct snapshot_builder *b)
{
	if (b->progress)
		b->progress("snapshot", ++b->n_done, b->n_steps, 0, b->progress_context);
}

/* Takes the next record in storage order. */
static int take_record(struct snapshot_builder *b, struct record_writer *w, uint64_t place,
		       const struct stored_entry *e)
{
	uint64_t sample = w->n_samples;
	uint32_t in_chunk = (uint32_t)place;
	int r = 0;

	if (place >> 32 != w->chunk && sample)
		r = end_chunk(b, w);
	w->chunk = place >> 32;
	w->n_samples++;
	builder_step(b);
	if (r == 0)
		r = section_add(&w->records, &e->record, sizeof(e->record));
	if (r == 0)
		r = buffer_append(&w->places, &in_chunk, sizeof(in_chunk));
	if (r == 0)
		r = buffer_append(&w->mtimes, &e->mtime_ns, sizeof(e->mtime_ns));
	if (r == 0)
		r = spill_sort_add(b->names, e->hash, &sample, sizeof(sample));
	return r < 0 ? r : spill_sort_add(b->tree, e->tree_place, &(uint32_t){(uint32_t)sample}, 4);
}

static int write_in_storage_order(struct snapshot_builder *b, struct record_writer *w)
{
	struct spill_entry e;
	struct stored_entry stored;
	int r;

	while ((r = spill_sort_next(b->stored, &e)) == SPILL_SORT_ENTRY) {
		memcpy(&stored, e.data, sizeof(stored));
		r = take_record(b, w, e.key, &stored);
		if (r < 0)
			return r;
	}
	if (r == 0 && w->n_samples)
		r = end_chunk(b, w);
	b->chunks.bytes = w->n_kept * sizeof(struct snapshot_chunk_entry);
	if (b->digests.bytes)
		b->digests.bytes = w->n_kept * sizeof(struct digest);
	return r;
}

static void record_writer_free(struct record_writer *w)
{
	section_free(&w->records);
	section_free(&w->times);
	buffer_free(&w->places);
	buffer_free(&w->mtimes);
}

/* Writes records and times, and drops chunks without live samples. -errno. */
static int builder_write_records(struct snapshot_builder *b)
{
	_cleanup_(record_writer_free) struct record_writer w = {0};
	int r = builder_begin_section(b, &w.records);

	/* Both sections grow at the same time; the second begins where the first will end, since its length
	 * is known. */
	if (r == 0)
		r = section_begin(&w.times, b->fd,
				  w.records.offset + b->header.n_samples * sizeof(struct snapshot_record));
	if (r == 0)
		r = write_in_storage_order(b, &w);
	if (r == 0)
		r = builder_end_section(b, &w.records, SNAPSHOT_RECORDS);
	if (r == 0)
		r = builder_end_section(b, &w.times, SNAPSHOT_TIMES);
	spill_sort_free(steal_pointer(b->stored));
	return r;
}

static int too_many(struct error *err)
{
	return error_set(err, -E2BIG,
			 "the names of too many samples have the same checksum, which does not happen by "
			 "accident: rename them");
}

/* Ends the bucket, and begins the next one. */
static int next_bucket(struct index_writer *w)
{
	int r = section_add(&w->buckets, &w->bucket, sizeof(w->bucket));

	w->bucket = (struct snapshot_bucket){0};
	w->at++;
	return r;
}

/* Adds a sample to its bucket. Hashes ascend, and so do the buckets that they belong to. */
static int take_sample(struct snapshot_builder *b, struct index_writer *w, uint64_t hash, uint32_t sample,
		       struct error *err)
{
	uint64_t home = snapshot_bucket_of(hash, b->header.n_buckets);
	int r = 0;

	while (r == 0 && (w->at < home || w->bucket.n_taken == SNAPSHOT_BUCKET_SLOTS))
		r = next_bucket(w);
	if (r < 0)
		return r;
	if (w->at - home >= SNAPSHOT_PROBE_MAX || w->n_equal == MAX_EQUAL)
		return too_many(err);
	w->bucket.tags[w->bucket.n_taken] = (uint8_t)hash;
	w->bucket.samples[w->bucket.n_taken++] = sample;
	w->equal[w->n_equal++] = sample;
	return 0;
}

static int read_path(const struct snapshot_builder *b, uint64_t word, char path[CHUNK_NAME_MAX],
		     size_t *ret_length)
{
	size_t length = word >> SNAPSHOT_PATH_OFFSET_BITS & CHUNK_NAME_MAX, done = 0;
	uint64_t offset = word & ((UINT64_C(1) << SNAPSHOT_PATH_OFFSET_BITS) - 1);
	int r = fd_read_at(b->fd, path, length, b->header.sections[SNAPSHOT_PATHS].offset + offset, &done);

	if (r == 0 && done < length)
		r = -EIO;
	if (r == 0)
		*ret_length = length;
	return r;
}

/* Checks that a directory's name is not also a file's, which a file system could not show. */
static int check_directory(const struct snapshot_builder *b, const struct index_writer *w, uint64_t word,
			   struct error *err)
{
	char directory[CHUNK_NAME_MAX], path[CHUNK_NAME_MAX], text[200];
	size_t length = 0, path_length = 0, done = 0;
	int r = w->n_equal ? read_path(b, word, directory, &length) : 0;

	for (size_t i = 0; i < w->n_equal && r == 0; i++) {
		struct snapshot_record record;

		r = fd_read_at(b->fd, &record, sizeof(record),
			       b->header.sections[SNAPSHOT_RECORDS].offset + w->equal[i] * sizeof(record),
			       &done);
		if (r == 0 && done < sizeof(record))
			r = -EIO;
		if (r == 0)
			r = read_path(b, record.path, path, &path_length);
		if (r == 0 && path_length == length && memcmp(path, directory, length) == 0)
			return error_set(err, -EEXIST,
					 "'%s' would be a file and a directory; remove one of them first",
					 text_printable(text, sizeof(text), directory, length));
	}
	return r;
}

static int take_name(struct snapshot_builder *b, struct index_writer *w, uint64_t hash, uint64_t value,
		     struct error *err)
{
	if (hash != w->hash)
		w->n_equal = 0;
	w->hash = hash;
	if (value & NAME_IS_DIRECTORY)
		return check_directory(b, w, value, err);
	return take_sample(b, w, hash, (uint32_t)value, err);
}

/* Compares two names. Directories, which have the highest bit set, come after the samples of the same hash.
 */
static int compare_values(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

/* Creates the sort for `names`. -ENOMEM. */
static int builder_new_names(int dir_fd, size_t budget, struct spill_sort **ret)
{
	return spill_sort_new(dir_fd, budget, compare_values, ret);
}

static void index_writer_free(struct index_writer *w)
{
	section_free(&w->buckets);
}

/* Writes the hash index. -EEXIST, -E2BIG: err says why; else -errno, and err is as it was. */
static int builder_write_index(struct snapshot_builder *b, struct error *err)
{
	_cleanup_(index_writer_free) struct index_writer w = {0};
	struct spill_entry e;
	uint64_t value;
	int r = builder_begin_section(b, &w.buckets);

	b->header.n_buckets = b->header.n_samples / SNAPSHOT_BUCKET_LOAD + 1;
	while (r == 0 && (r = spill_sort_next(b->names, &e)) == SPILL_SORT_ENTRY) {
		memcpy(&value, e.data, sizeof(value));
		r = take_name(b, &w, e.key, value, err);
	}
	while (r == 0 && (w.at < b->header.n_buckets || w.bucket.n_taken))
		r = next_bucket(&w);
	return r < 0 ? r : builder_end_section(b, &w.buckets, SNAPSHOT_HASH);
}

/* passes over all paths: to add them, and to take them out in tree order and in storage order */
#define N_PASSES 3

/* A path that was added; the path's bytes follow the entry. */
struct path_entry {
	uint64_t place; /* chunk << 32 | place in the chunk */
	uint64_t xxh3;
	uint64_t mtime_ns;
	uint64_t offset;
	uint32_t bytes;
	uint16_t mode;
	uint16_t path_length : 15;
	uint16_t is_delete : 1; /* deletes the path, unless a later entry adds it again */
};

static struct path_text path_of(const void *data)
{
	struct path_entry e;

	memcpy(&e, data, sizeof(e));
	return (struct path_text){(const char *)data + sizeof(e), e.path_length};
}

static uint64_t place_of(const void *data)
{
	struct path_entry e;

	memcpy(&e, data, sizeof(e));
	return e.place;
}

static int compare_paths(const void *a, const void *b)
{
	int order = path_order_compare(path_of(a), path_of(b));

	return order ? order : compare_numbers(place_of(a), place_of(b));
}

int snapshot_builder_new(int dir_fd, size_t budget, struct snapshot_builder **ret)
{
	struct snapshot_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->dir_fd = dir_fd;
	b->budget = budget;
	/* At most two of them grow at a time: while paths are taken out, what is stored where; while that is
	 * taken out, names and tree. */
	if (spill_sort_new(dir_fd, budget / 2, compare_paths, &b->paths) < 0 ||
	    spill_sort_new(dir_fd, budget / 4, NULL, &b->stored) < 0 ||
	    builder_new_names(dir_fd, budget / 8, &b->names) < 0 ||
	    spill_sort_new(dir_fd, budget / 16, NULL, &b->tree) < 0 ||
	    spill_sort_new(dir_fd, budget / 16, NULL, &b->classes) < 0) {
		snapshot_builder_free(b);
		return -ENOMEM;
	}
	*ret = b;
	return 0;
}

void snapshot_builder_show(struct snapshot_builder *b, uint64_t n_paths, progress_callback *progress,
			   void *context)
{
	b->progress = progress;
	b->progress_context = context;
	b->n_done = b->n_added;
	b->n_steps = N_PASSES * (n_paths > b->n_added ? n_paths : b->n_added);
}

void snapshot_builder_free(struct snapshot_builder *b)
{
	if (!b)
		return;
	buffer_free(&b->chunks);
	buffer_free(&b->digests);
	spill_sort_free(b->paths);
	spill_sort_free(b->stored);
	spill_sort_free(b->names);
	spill_sort_free(b->tree);
	spill_sort_free(b->classes);
	free(b);
}

static bool has_digests(const struct snapshot_builder *b)
{
	return b->digests.bytes > 0;
}

static int add_chunk(struct snapshot_builder *b, const struct snapshot_chunk_entry *entry, uint32_t flags,
		     const struct digest *sha256)
{
	size_t n = builder_n_chunks(b);

	if ((n && chunk_id_compare(&builder_chunks(b)[n - 1].id, &entry->id) >= 0) || n >= UINT32_MAX ||
	    (n && (sha256 != NULL) != has_digests(b)))
		return -EINVAL;
	if (!(flags & CHUNK_FLAG_TOMBSTONE))
		b->layout = chunk_layout_of(flags);
	int r = buffer_append(&b->chunks, entry, sizeof(*entry));

	return r == 0 && sha256 ? buffer_append(&b->digests, sha256, sizeof(*sha256)) : r;
}

int snapshot_builder_add_chunk(struct snapshot_builder *b, const struct meta_chunk *chunk)
{
	struct snapshot_chunk_entry entry = {
	    .id = chunk->id,
	    .file_bytes = chunk->file_bytes,
	    .payload_offset = chunk->payload_offset,
	    .form = snapshot_form_of(chunk->flags),
	    .head_xxh3 = chunk->head_xxh3,
	};

	return b->n_added ? -EINVAL
			  : add_chunk(b, &entry, chunk->flags, chunk->has_sha256 ? &chunk->sha256 : NULL);
}

static int find_chunk(const struct snapshot_builder *b, const struct chunk_id *id, uint64_t *ret)
{
	const struct snapshot_chunk_entry *chunks = builder_chunks(b);
	size_t n = builder_n_chunks(b);
	size_t at = sorted_count(n, i, chunk_id_compare(&chunks[i].id, id) < 0);

	if (at == n || chunk_id_compare(&chunks[at].id, id) != 0)
		return -EINVAL;
	*ret = at;
	return 0;
}

/* Returns true if a snapshot can store the record's location, as it can for all records of valid chunks. */
static bool can_be_stored(const struct chunk_record *r)
{
	return r->encoding == CHUNK_ENCODING_RAW && r->bytes == r->stored_bytes &&
	       r->bytes <= CHUNK_SAMPLE_MAX_BYTES && r->offset < UINT64_C(1) << SNAPSHOT_OFFSET_BITS;
}

static int add_path(struct snapshot_builder *b, uint64_t chunk, uint32_t place, struct path_text path,
		    const struct chunk_record *from, bool is_delete)
{
	unsigned char data[sizeof(struct path_entry) + CHUNK_NAME_MAX];
	struct path_entry entry = {
	    .place = chunk << 32 | place,
	    .xxh3 = from->xxh3,
	    .mtime_ns = from->mtime_ns,
	    .offset = from->offset,
	    .bytes = from->bytes,
	    .mode = (uint16_t)from->mode,
	    .path_length = path.length & CHUNK_NAME_MAX,
	    .is_delete = is_delete,
	};

	if (!chunk_name_is_valid(path.text, path.length) || !can_be_stored(from))
		return -EINVAL;
	if (b->n_added >= SNAPSHOT_MAX_SAMPLES)
		return -EOVERFLOW;
	b->n_added++;
	builder_step(b);
	memcpy(data, &entry, sizeof(entry));
	memcpy(data + sizeof(entry), path.text, path.length);
	return spill_sort_add(b->paths, 0, data, (uint32_t)(sizeof(entry) + path.length));
}

int snapshot_builder_add_path(struct snapshot_builder *b, const struct meta_path *path)
{
	uint64_t chunk;
	int r = find_chunk(b, &path->chunk, &chunk);

	return r < 0 ? r
		     : add_path(b, chunk, path->record_index,
				(struct path_text){path->path, path->path_length}, &path->record, false);
}

int snapshot_builder_replay(struct snapshot_builder *b, const struct chunk_view *view,
			    const struct digest *sha256)
{
	const struct chunk_header *h = view->header;
	uint64_t chunk = builder_n_chunks(b);
	struct snapshot_chunk_entry entry = {
	    .id = h->id,
	    .file_bytes = h->file_bytes,
	    .payload_offset = h->payload_offset,
	    .form = snapshot_form_of(h->flags),
	    .head_xxh3 = h->head_xxh3,
	};
	int r = add_chunk(b, &entry, h->flags, sha256);

	for (uint32_t i = 0; i < h->n_records && r == 0; i++) {
		const struct chunk_record *record = &view->records[i];
		struct path_text path = {view->names + record->name_offset, record->name_length};

		r = add_path(b, chunk, i, path, record, h->flags & CHUNK_FLAG_TOMBSTONE);
	}
	return r;
}

int builder_begin_section(const struct snapshot_builder *b, struct section_writer *w)
{
	return section_begin(w, b->fd, b->end);
}

int builder_end_section(struct snapshot_builder *b, struct section_writer *w, enum snapshot_section section)
{
	struct snapshot_extent *e = &b->header.sections[section];
	int r = section_end(w, e);

	if (r == 0)
		b->end = e->offset + e->bytes;
	return r;
}

static int write_parts(struct snapshot_builder *b, enum snapshot_section section, const struct buffer *from,
		       struct columns columns)
{
	_cleanup_(section_free) struct section_writer w = {0};
	int r = builder_begin_section(b, &w);

	if (r == 0)
		r = section_add(&w, from->data, from->bytes);
	if (r == 0)
		r = section_add(&w, columns.data, columns.bytes);
	return r < 0 ? r : builder_end_section(b, &w, section);
}

int builder_write_section(struct snapshot_builder *b, enum snapshot_section section,
			  const struct buffer *from)
{
	return write_parts(b, section, from, (struct columns){0});
}

int builder_write_tables(struct snapshot_builder *b)
{
	bool has_columns = chunk_layout_has_columns((enum chunk_layout)b->header.layout);
	int r = write_parts(b, SNAPSHOT_CHUNKS, &b->chunks, has_columns ? b->columns : (struct columns){0});

	return r < 0 ? r : builder_write_section(b, SNAPSHOT_DIGESTS, &b->digests);
}

/* Writes the data of all entries, one after another. */
static int write_sorted(struct snapshot_builder *b, enum snapshot_section section, struct spill_sort *from)
{
	_cleanup_(section_free) struct section_writer w = {0};
	struct spill_entry e;
	int r = builder_begin_section(b, &w);

	while (r == 0 && (r = spill_sort_next(from, &e)) == SPILL_SORT_ENTRY)
		r = section_add(&w, e.data, e.bytes);
	return r < 0 ? r : builder_end_section(b, &w, section);
}

/* The section of paths, and the last path written to it. */
struct path_writer {
	struct section_writer paths;
	char last[CHUNK_NAME_MAX];
	size_t last_length;
};

/* Records each directory of which this is the first path. None of them may be a file. */
static int add_directories(struct snapshot_builder *b, const struct path_writer *w, struct path_text path)
{
	size_t common = 0;
	int r = 0;

	while (common < path.length && common < w->last_length && path.text[common] == w->last[common])
		common++;
	for (size_t end = common; end < path.length && r == 0; end++) {
		uint64_t value = NAME_IS_DIRECTORY | builder_path_word(w->paths.bytes, end);

		if (path.text[end] == '/')
			r = spill_sort_add(b->names, checksum_xxh3(path.text, end), &value, sizeof(value));
	}
	return r;
}

static int add_class(struct snapshot_builder *b, const struct path_writer *w, struct path_text path)
{
	size_t top = path_top_length(path);
	struct snapshot_class class = {.name_offset = w->paths.bytes, .name_length = (uint32_t)top};
	struct path_text last = {w->last, w->last_length};

	if (top == 0 || (path_top_length(last) == top && memcmp(last.text, path.text, top) == 0))
		return 0;
	return spill_sort_add(b->classes, b->header.n_classes++, &class, sizeof(class));
}

/* Takes the next path in tree order. */
static int take_path(struct snapshot_builder *b, struct path_writer *w, const struct path_entry *e,
		     struct path_text path)
{
	struct stored_entry stored = {
	    .record = builder_record(e->xxh3, e->bytes, e->offset, e->mode,
				     builder_path_word(w->paths.bytes, path.length)),
	    .mtime_ns = e->mtime_ns,
	    .hash = checksum_xxh3(path.text, path.length),
	    .tree_place = b->header.n_samples,
	};

	if (w->paths.bytes + path.length >= UINT64_C(1) << SNAPSHOT_PATH_OFFSET_BITS)
		return -EOVERFLOW;
	int r = add_directories(b, w, path);

	if (r == 0)
		r = add_class(b, w, path);
	if (r == 0)
		r = spill_sort_add(b->stored, e->place, &stored, sizeof(stored));
	if (r == 0)
		r = section_add(&w->paths, path.text, path.length);
	if (r < 0)
		return r;
	builder_step(b);
	builder_count_sample(&b->header, e->bytes);
	builder_count_name(&b->header, path);
	builder_chunks(b)[e->place >> 32].n_samples++;
	memcpy(w->last, path.text, path.length);
	w->last_length = path.length;
	return 0;
}

/* Writes the paths. Of entries with the same path, takes the last one, which is known once the next path
 * differs. */
static int write_in_tree_order(struct snapshot_builder *b, struct path_writer *w)
{
	_cleanup_(buffer_free) struct buffer held = {0};
	struct spill_entry e;
	struct path_entry entry;
	int r = 0;

	for (;;) {
		r = spill_sort_next(b->paths, &e);
		if (r < 0)
			return r;
		if (held.bytes &&
		    (r == SPILL_SORT_END || path_order_compare(path_of(held.data), path_of(e.data)) != 0)) {
			memcpy(&entry, held.data, sizeof(entry));
			int taken = entry.is_delete ? 0 : take_path(b, w, &entry, path_of(held.data));

			if (taken < 0)
				return taken;
		}
		if (r == SPILL_SORT_END)
			return 0;
		held.bytes = 0;
		r = buffer_append(&held, e.data, e.bytes);
		if (r < 0)
			return r;
	}
}

static void path_writer_freep(struct path_writer **w)
{
	if (*w)
		section_free(&(*w)->paths);
	free(*w);
}

static int write_paths(struct snapshot_builder *b)
{
	_cleanup_(path_writer_freep) struct path_writer *w = calloc(1, sizeof(*w));
	int r = w ? builder_begin_section(b, &w->paths) : -ENOMEM;

	if (r == 0)
		r = write_in_tree_order(b, w);
	if (r == 0)
		r = builder_end_section(b, &w->paths, SNAPSHOT_PATHS);
	spill_sort_free(steal_pointer(b->paths));
	return r;
}

void builder_begin(struct snapshot_builder *b, const struct snapshot_target *target)
{
	b->fd = target->fd;
	b->columns = target->columns;
	b->end = sizeof(b->header);
	b->header = (struct snapshot_header){
	    .magic = SNAPSHOT_MAGIC,
	    .format = SNAPSHOT_FORMAT,
	    .n_sections = SNAPSHOT_N_SECTIONS,
	    .version = target->version,
	    .created_ns = target->created_ns,
	    .layout = b->layout,
	    .flags = has_digests(b) ? SNAPSHOT_FLAG_DIGESTS : 0, /* set even if no chunk is left at the end */
	};
}

int builder_write_header(struct snapshot_builder *b)
{
	struct snapshot_header *h = &b->header;

	h->n_chunks = builder_n_chunks(b);
	h->file_bytes = b->end;
	if (h->n_samples && (uint64_t)h->max_bytes * h->n_samples == h->total_bytes)
		h->equal_bytes = h->max_bytes;
	for (size_t i = 0; i < h->n_chunks; i++) {
		const struct snapshot_chunk_entry *c = &builder_chunks(b)[i];

		if (c->file_bytes > h->max_chunk_file_bytes)
			h->max_chunk_file_bytes = c->file_bytes;
		if (c->form == SNAPSHOT_FORM_COMPRESSED)
			h->flags |= SNAPSHOT_FLAG_COMPRESSED;
		if (c->form == SNAPSHOT_FORM_EXTERNAL)
			h->flags |= SNAPSHOT_FLAG_EXTERNAL;
	}
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
	/* Set the file's length, since the last sections may end in a gap or be empty. */
	if (ftruncate(b->fd, (off_t)h->file_bytes) < 0)
		return -errno;
	return fd_write_at(b->fd, h, sizeof(*h), 0);
}

int snapshot_builder_finish(struct snapshot_builder *b, const struct snapshot_target *target,
			    struct error *err)
{
	struct error why = ERROR_INIT;

	builder_begin(b, target);
	int r = write_paths(b);

	if (r == 0)
		r = builder_write_records(b);
	if (r == 0)
		r = write_sorted(b, SNAPSHOT_TREE, b->tree);
	if (r == 0)
		r = builder_write_index(b, &why);
	if (r == -EEXIST || r == -E2BIG)
		return error_set(err, r, "%s", why.text);
	if (r == 0)
		r = write_sorted(b, SNAPSHOT_CLASSES, b->classes);
	if (r == 0)
		r = builder_write_tables(b);
	if (r == 0)
		r = builder_write_header(b);
	return r < 0 ? error_errno(err, r, "cannot write the snapshot of %s", target->origin) : 0;
}
