/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot_build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "buffer.h"
#include "checksum.h"
#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "lib/text.h"
#include "path_order.h"
#include "snapshot_format.h"

/* While building, path_offset of a record is an offset in `paths`, where paths lie in the order they came. */
struct snapshot_builder {
	struct buffer chunks;  /* struct snapshot_chunk_entry */
	struct buffer digests; /* struct digest of each chunk; or empty */
	struct buffer records; /* struct snapshot_record */
	struct buffer paths;
	struct buffer classes; /* struct snapshot_class */
};

static struct snapshot_chunk_entry *chunks_of(const struct snapshot_builder *b)
{
	return (struct snapshot_chunk_entry *)b->chunks.data;
}

static size_t n_chunks_of(const struct snapshot_builder *b)
{
	return b->chunks.bytes / sizeof(struct snapshot_chunk_entry);
}

static bool has_digests(const struct snapshot_builder *b)
{
	return b->digests.bytes > 0;
}

static struct snapshot_record *records_of(const struct snapshot_builder *b)
{
	return (struct snapshot_record *)b->records.data;
}

static size_t n_records_of(const struct snapshot_builder *b)
{
	return b->records.bytes / sizeof(struct snapshot_record);
}

int snapshot_builder_new(struct snapshot_builder **ret)
{
	struct snapshot_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	*ret = b;
	return 0;
}

void snapshot_builder_free(struct snapshot_builder *b)
{
	if (!b)
		return;
	buffer_free(&b->chunks);
	buffer_free(&b->digests);
	buffer_free(&b->records);
	buffer_free(&b->paths);
	buffer_free(&b->classes);
	free(b);
}

int snapshot_builder_add_chunk(struct snapshot_builder *b, const struct meta_chunk *chunk)
{
	size_t n = n_chunks_of(b);
	struct snapshot_chunk_entry entry = {
	    .id = chunk->id,
	    .file_bytes = chunk->file_bytes,
	    .payload_offset = chunk->payload_offset,
	    .head_xxh3 = chunk->head_xxh3,
	};

	if ((n && chunk_id_compare(&chunks_of(b)[n - 1].id, &chunk->id) >= 0) || n_records_of(b) ||
	    n >= UINT32_MAX || (n && chunk->has_sha256 != has_digests(b)))
		return -EINVAL;
	int r = buffer_append(&b->chunks, &entry, sizeof(entry));

	return r == 0 && chunk->has_sha256 ? buffer_append(&b->digests, &chunk->sha256, sizeof(chunk->sha256))
					   : r;
}

static int find_chunk(const struct snapshot_builder *b, const struct chunk_id *id, uint32_t *ret)
{
	size_t at = sorted_count(n_chunks_of(b), i, chunk_id_compare(&chunks_of(b)[i].id, id) < 0);

	if (at == n_chunks_of(b) || chunk_id_compare(&chunks_of(b)[at].id, id) != 0)
		return -EINVAL;
	*ret = (uint32_t)at;
	return 0;
}

int snapshot_builder_add_path(struct snapshot_builder *b, const struct meta_path *path)
{
	const struct chunk_record *from = &path->record;
	struct snapshot_record record = {
	    .offset = from->offset,
	    .xxh3 = from->xxh3,
	    .mtime_ns = from->mtime_ns,
	    .path_offset = b->paths.bytes,
	    .record = path->record_index,
	    .bytes = from->bytes,
	    .stored_bytes = from->stored_bytes,
	    .mode = from->mode,
	    .class_index = SNAPSHOT_NO_CLASS,
	    .path_length = (uint16_t)path->path_length,
	    .encoding = from->encoding,
	};
	int r = find_chunk(b, &path->chunk, &record.chunk);

	if (r < 0)
		return r;
	if (!chunk_name_is_valid(path->path, path->path_length))
		return -EINVAL;
	if (n_records_of(b) >= SNAPSHOT_MAX_SAMPLES)
		return -EOVERFLOW;
	r = buffer_append(&b->paths, path->path, path->path_length);
	if (r == 0)
		r = buffer_append(&b->records, &record, sizeof(record));
	if (r == 0)
		chunks_of(b)[record.chunk].n_samples++;
	return r;
}

static struct path_text record_path(const struct snapshot_builder *b, const struct snapshot_record *r)
{
	return (struct path_text){(const char *)b->paths.data + r->path_offset, r->path_length};
}

static int compare_tree(const void *a, const void *b, void *builder)
{
	const struct snapshot_record *records = records_of(builder);

	return path_order_compare(record_path(builder, &records[*(const uint32_t *)a]),
				  record_path(builder, &records[*(const uint32_t *)b]));
}

static int compare_storage(const void *a, const void *b)
{
	const struct snapshot_record *x = a, *y = b;

	if (x->chunk != y->chunk)
		return x->chunk < y->chunk ? -1 : 1;
	return (x->record > y->record) - (x->record < y->record);
}

/* Drops chunks without live samples, numbers the rest, and puts the records in storage order. */
static void order_storage(struct snapshot_builder *b)
{
	struct snapshot_chunk_entry *chunks = chunks_of(b);
	struct snapshot_record *records = records_of(b);
	struct digest *digests = (struct digest *)b->digests.data;
	size_t n_kept = 0;
	uint64_t first = 0;

	if (n_records_of(b))
		qsort(records, n_records_of(b), sizeof(*records), compare_storage);
	for (size_t i = 0; i < n_chunks_of(b); i++) {
		if (chunks[i].n_samples == 0)
			continue;
		chunks[n_kept] = chunks[i];
		if (has_digests(b))
			digests[n_kept] = digests[i];
		chunks[n_kept].first_sample = first;
		for (uint64_t s = first; s < first + chunks[n_kept].n_samples; s++)
			records[s].chunk = (uint32_t)n_kept;
		first += chunks[n_kept].n_samples;
		n_kept++;
	}
	b->chunks.bytes = n_kept * sizeof(*chunks);
	if (has_digests(b))
		b->digests.bytes = n_kept * sizeof(*digests);
}

/* Numbers the classes in tree order, which sorts them, and copies the paths in that order. */
static int number_classes(struct snapshot_builder *b, const uint32_t *tree, struct buffer *ret_paths)
{
	struct snapshot_record *records = records_of(b);
	struct path_text class_name = {0};
	int32_t class_index = SNAPSHOT_NO_CLASS;

	for (size_t i = 0; i < n_records_of(b); i++) {
		struct snapshot_record *record = &records[tree[i]];
		struct path_text path = record_path(b, record);
		struct path_text top = {path.text, path_top_length(path)};
		uint64_t offset = ret_paths->bytes;

		if (top.length &&
		    (top.length != class_name.length || memcmp(top.text, class_name.text, top.length) != 0)) {
			struct snapshot_class entry = {.name_offset = offset,
						       .name_length = (uint32_t)top.length};

			if (buffer_append(&b->classes, &entry, sizeof(entry)) < 0)
				return -ENOMEM;
			class_name = top;
			class_index++;
		}
		record->class_index = top.length ? class_index : SNAPSHOT_NO_CLASS;
		buffer_append(ret_paths, path.text, path.length); /* reserved by the caller */
	}
	/* Not earlier, because the comparisons above need the old offsets. */
	for (size_t i = 0, offset = 0; i < n_records_of(b); i++) {
		records[tree[i]].path_offset = offset;
		offset += records[tree[i]].path_length;
	}
	return 0;
}

static uint64_t slots_for(uint64_t n_samples)
{
	uint64_t n = 8;

	while (n / 4 * 3 < n_samples)
		n *= 2;
	return n;
}

/* Returns false if a search would take more than SNAPSHOT_PROBE_MAX slots. */
static bool fill_hash(const struct snapshot_builder *b, struct snapshot_slot *slots, uint64_t n_slots)
{
	for (uint32_t i = 0; i < n_records_of(b); i++) {
		struct path_text path = record_path(b, &records_of(b)[i]);
		uint64_t hash = checksum_xxh3(path.text, path.length), probe = 0;

		while (slots[(hash + probe) & (n_slots - 1)].sample_plus_1)
			probe++;
		if (probe >= SNAPSHOT_PROBE_MAX)
			return false;
		slots[(hash + probe) & (n_slots - 1)] =
		    (struct snapshot_slot){.sample_plus_1 = i + 1, .tag = (uint32_t)(hash >> 32)};
	}
	return true;
}

/* Refuses a name that is both a file and a directory, which no file system could show. In tree order a file
 * that has a directory's name comes before the directory, but not always right before it, so look it up. */
static int check_conflicts(const struct snapshot_builder *b, const struct snapshot_slot *slots,
			   uint64_t n_slots, struct error *err)
{
	struct path_text last_directory = {0};

	for (size_t i = 0; i < n_records_of(b); i++) {
		struct path_text path = record_path(b, &records_of(b)[i]);

		for (size_t end = path.length; end-- > 0;) {
			if (path.text[end] != '/')
				continue;
			struct path_text directory = {path.text, end};

			if (directory.length == last_directory.length &&
			    memcmp(directory.text, last_directory.text, end) == 0)
				break;
			last_directory = directory;
			uint64_t hash = checksum_xxh3(path.text, end);

			for (uint64_t at = hash & (n_slots - 1); slots[at].sample_plus_1;
			     at = (at + 1) & (n_slots - 1)) {
				struct path_text other =
				    record_path(b, &records_of(b)[slots[at].sample_plus_1 - 1]);
				char text[200];

				if (other.length == end && memcmp(other.text, path.text, end) == 0)
					return error_set(
					    err, -EEXIST,
					    "'%s' would be a file and a directory; remove one of them first",
					    text_printable(text, sizeof(text), path.text, end));
			}
		}
	}
	return 0;
}

static void summarize(const struct snapshot_builder *b, struct snapshot_header *h)
{
	const struct snapshot_record *records = records_of(b);

	h->n_samples = n_records_of(b);
	h->n_chunks = n_chunks_of(b);
	h->n_classes = (uint32_t)(b->classes.bytes / sizeof(struct snapshot_class));
	h->names = h->n_samples ? SNAPSHOT_NAMES_IMAGES : SNAPSHOT_NAMES_UNKNOWN;
	for (size_t i = 0; i < h->n_samples; i++) {
		struct path_text path = record_path(b, &records[i]);

		if (!snapshot_name_is_image(path.text, path.length))
			h->names = SNAPSHOT_NAMES_OTHERS;
		h->total_bytes += records[i].bytes;
		if (records[i].bytes > h->max_bytes)
			h->max_bytes = records[i].bytes;
	}
	if (h->n_samples && (uint64_t)h->max_bytes * h->n_samples == h->total_bytes)
		h->equal_bytes = h->max_bytes;
	for (size_t i = 0; i < h->n_chunks; i++)
		if (chunks_of(b)[i].file_bytes > h->max_chunk_file_bytes)
			h->max_chunk_file_bytes = chunks_of(b)[i].file_bytes;
}

static uint64_t round_up(uint64_t offset)
{
	return (offset + SNAPSHOT_ALIGN - 1) / SNAPSHOT_ALIGN * SNAPSHOT_ALIGN;
}

/* Lays the sections out behind the header and copies them. */
static int assemble(const struct snapshot_builder *b, const struct snapshot_header *summary,
		    const struct iovec sections[SNAPSHOT_N_SECTIONS], void **ret_image, size_t *ret_bytes)
{
	struct snapshot_header h = *summary;
	uint64_t offset = sizeof(h);

	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++) {
		offset = round_up(offset);
		h.sections[i] = (struct snapshot_extent){
		    .offset = offset,
		    .bytes = sections[i].iov_len,
		    .xxh3 = checksum_xxh3(sections[i].iov_base, sections[i].iov_len),
		};
		offset += sections[i].iov_len;
	}
	if (h.format == SNAPSHOT_VERSION_DIGESTS) {
		offset = round_up(offset);
		h.digests_offset = offset;
		h.digests_xxh3 = checksum_xxh3(b->digests.data, b->digests.bytes);
		offset += b->digests.bytes;
	}
	h.file_bytes = offset;
	h.header_xxh3 = checksum_xxh3_gap(&h, sizeof(h), offsetof(struct snapshot_header, header_xxh3));
	unsigned char *image = calloc(1, offset);

	if (!image)
		return -ENOMEM;
	memcpy(image, &h, sizeof(h));
	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++)
		if (sections[i].iov_len)
			memcpy(image + h.sections[i].offset, sections[i].iov_base, sections[i].iov_len);
	if (b->digests.bytes)
		memcpy(image + h.digests_offset, b->digests.data, b->digests.bytes);
	*ret_image = image;
	*ret_bytes = offset;
	return 0;
}

int snapshot_builder_finish(struct snapshot_builder *b, uint64_t version, uint64_t created_ns,
			    void **ret_image, size_t *ret_bytes, struct error *err)
{
	size_t n = n_records_of(b);
	uint64_t n_slots = slots_for(n);
	_cleanup_(freep) uint32_t *tree = calloc(n + 1, sizeof(*tree));
	_cleanup_(freep) struct snapshot_slot *slots = calloc(n_slots, sizeof(*slots));
	_cleanup_(buffer_free) struct buffer paths = {0};

	if (!tree || !slots || buffer_reserve(&paths, b->paths.bytes) < 0)
		return error_errno(err, -ENOMEM, "snapshot of %zu samples", n);
	bool digests = has_digests(b); /* asked now, because no chunk may be left below */

	order_storage(b);
	for (size_t i = 0; i < n; i++)
		tree[i] = (uint32_t)i;
	qsort_r(tree, n, sizeof(*tree), compare_tree, b);
	b->classes.bytes = 0;
	if (number_classes(b, tree, &paths) < 0)
		return error_errno(err, -ENOMEM, "snapshot of %zu samples", n);
	struct buffer unordered = b->paths;

	b->paths = paths;
	paths = unordered;
	if (!fill_hash(b, slots, n_slots))
		return error_set(
		    err, -E2BIG,
		    "the names of more than %u samples have one checksum, which no accident does: "
		    "rename them",
		    SNAPSHOT_PROBE_MAX);
	int r = check_conflicts(b, slots, n_slots, err);

	if (r < 0)
		return r;
	struct snapshot_header h = {
	    .magic = SNAPSHOT_MAGIC,
	    .format = digests ? SNAPSHOT_VERSION_DIGESTS : SNAPSHOT_VERSION_PLAIN,
	    .n_sections = SNAPSHOT_N_SECTIONS,
	    .version = version,
	    .created_ns = created_ns,
	};
	const struct iovec sections[SNAPSHOT_N_SECTIONS] = {
	    [SNAPSHOT_CHUNKS] = {b->chunks.data, b->chunks.bytes},
	    [SNAPSHOT_RECORDS] = {b->records.data, b->records.bytes},
	    [SNAPSHOT_HASH] = {slots, n_slots * sizeof(*slots)},
	    [SNAPSHOT_TREE] = {tree, n * sizeof(*tree)},
	    [SNAPSHOT_PATHS] = {b->paths.data, b->paths.bytes},
	    [SNAPSHOT_CLASSES] = {b->classes.data, b->classes.bytes},
	};

	summarize(b, &h);
	if (assemble(b, &h, sections, ret_image, ret_bytes) < 0)
		return error_errno(err, -ENOMEM, "snapshot of %zu samples", n);
	return 0;
}
