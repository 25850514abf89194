/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a chunk whose every sample the metadata knows: laid out as chunk_builder.c does, and right if
 * its checksum is the one that the metadata has. */
#include "repair_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "dataset/chunk_id.h"
#include "lib/cleanup.h"

struct known_record {
	uint32_t index;
	size_t path_offset, path_length; /* in the names collected */
	struct chunk_record record;
};

struct collect {
	const struct broken *chunk;
	struct buffer records, names;
};

static int take_path(const struct meta_path *path, void *context)
{
	struct collect *c = context;
	struct known_record known = {
	    .index = path->record_index,
	    .path_offset = c->names.bytes,
	    .path_length = path->path_length,
	    .record = path->record,
	};

	if (chunk_id_compare(&path->chunk, &c->chunk->id) != 0)
		return 0;
	if (buffer_append(&c->names, path->path, path->path_length) < 0 ||
	    buffer_append(&c->records, &known, sizeof(known)) < 0)
		return -ENOMEM;
	return 0;
}

static int compare_records(const void *a, const void *b)
{
	const struct known_record *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

/* Of files that were rewritten the chunk has their own length, too, which the metadata has not. */
static uint32_t source_bytes_of(const struct repair *r, const char *path, size_t length)
{
	uint64_t bytes;

	for (size_t i = 1; i < r->n_origins; i++)
		if (!r->origins[i].store && repair_origin_size(&r->origins[i], path, length, &bytes) == 0)
			return (uint32_t)bytes;
	return 0;
}

static int lay_out(const struct repair *r, const struct collect *c, bool rewritten, unsigned char *head)
{
	const struct meta_chunk *meta = &c->chunk->meta;
	const struct known_record *known = (const struct known_record *)c->records.data;
	struct chunk_header *header = (struct chunk_header *)head;
	struct chunk_record *records = (struct chunk_record *)(header + 1);
	size_t names_offset = sizeof(*header) + (size_t)meta->n_records * sizeof(*records), names = 0;

	if (names_offset + c->names.bytes > meta->payload_offset)
		return -ENODATA;
	*header = (struct chunk_header){
	    .magic = CHUNK_MAGIC,
	    .version = CHUNK_VERSION,
	    .flags = meta->flags,
	    .id = meta->id,
	    .n_records = meta->n_records,
	    .names_offset = (uint32_t)names_offset,
	    .payload_offset = meta->payload_offset,
	    .file_bytes = meta->file_bytes,
	    .created_ns = meta->created_ns,
	    .head_xxh3 = meta->head_xxh3,
	};
	for (uint32_t i = 0; i < meta->n_records; i++) {
		const char *path = (const char *)c->names.data + known[i].path_offset;

		if (known[i].index != i)
			return -ENODATA;
		records[i] = known[i].record;
		records[i].name_offset = (uint32_t)names;
		records[i].name_length = (uint16_t)known[i].path_length;
		records[i].source_bytes = rewritten ? source_bytes_of(r, path, known[i].path_length) : 0;
		memcpy(head + names_offset + names, path, known[i].path_length);
		names += known[i].path_length;
		header->payload_bytes += records[i].stored_bytes;
	}
	return checksum_xxh3_gap(head, meta->payload_offset, offsetof(struct chunk_header, head_xxh3)) ==
		       meta->head_xxh3
		   ? 0
		   : -ENODATA;
}

int repair_head_from_meta(struct repair *r, const struct broken *b, void **ret, struct error *err)
{
	struct collect c = {.chunk = b};
	_cleanup_(freep) unsigned char *head = NULL;
	int result = -ENODATA;

	/* Replaced and deleted samples are in the chunk, and not in the metadata. */
	if (b->has_meta && r->meta && b->meta.payload_offset <= CHUNK_MAX_BYTES)
		result = meta_each_path(r->meta, take_path, &c, err);
	if (result == 0 && c.records.bytes != b->meta.n_records * sizeof(struct known_record))
		result = -ENODATA;
	if (result == 0) {
		head = calloc(1, b->meta.payload_offset ? b->meta.payload_offset : 1);
		result = head ? 0 : -ENOMEM;
	}
	if (result == 0 && c.records.bytes)
		qsort(c.records.data, b->meta.n_records, sizeof(struct known_record), compare_records);
	if (result == 0)
		result = lay_out(r, &c, false, head);
	if (result == -ENODATA && head && r->options->rewrite)
		result = lay_out(r, &c, true, head);
	buffer_free(&c.records);
	buffer_free(&c.names);
	if (result == 0)
		*ret = steal_pointer(head);
	return result;
}
