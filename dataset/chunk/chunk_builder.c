/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/chunk_builder.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "dataset/checksum/checksum.h"
#include "dataset/blocks.h"
#include "dataset/compress.h"
#include "dataset/external.h"
#include "lib/text.h"
#include "lib/units.h"

struct chunk_builder {
	uint64_t target_bytes;
	uint32_t flags;
	uint32_t n_records;
	uint64_t payload_bytes; /* bytes of the samples, without alignment gaps */
	struct buffer records;  /* struct chunk_record; offsets count from the payload's start until finish */
	struct buffer names;
	struct buffer payload;
	struct buffer head;
	int next_level, level; /* level from the next reset on; level of this chunk; 0: not compressed */
	struct compressor *compressor; /* made for that level or an earlier one; NULL: none needed yet */
	struct buffer lengths;         /* stored lengths of the blocks */
	struct buffer stored;          /* the payload as it is in the file, if the chunk is compressed */
	struct columns columns;        /* {0}: the layout has none */
	struct external source;        /* of an external chunk; the range ends where the last sample does */
};

static uint64_t round_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

int chunk_builder_new(uint64_t target_bytes, struct chunk_builder **ret)
{
	if (target_bytes < CHUNK_MIN_BYTES || target_bytes > CHUNK_MAX_BYTES)
		return -EINVAL;
	struct chunk_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->target_bytes = target_bytes;
	*ret = b;
	return 0;
}

void chunk_builder_free(struct chunk_builder *b)
{
	if (!b)
		return;
	buffer_free(&b->records);
	buffer_free(&b->names);
	buffer_free(&b->payload);
	buffer_free(&b->head);
	buffer_free(&b->lengths);
	buffer_free(&b->stored);
	compressor_free(b->compressor);
	free(b);
}

void chunk_builder_reset(struct chunk_builder *b, uint32_t flags)
{
	b->flags = flags;
	b->level = flags & (CHUNK_FLAG_TOMBSTONE | CHUNK_FLAG_EXTERNAL) ? 0 : b->next_level;
	b->n_records = 0;
	b->payload_bytes = 0;
	b->columns = (struct columns){0};
	b->records.bytes = b->names.bytes = b->payload.bytes = b->head.bytes = 0;
}

void chunk_builder_external(struct chunk_builder *b, const struct external *source)
{
	assert(b->flags & CHUNK_FLAG_EXTERNAL);
	b->source = *source;
	b->source.range.name_length = (uint32_t)strlen(source->name);
	b->source.range.offset = b->source.range.bytes = 0;
}

void chunk_builder_end_source(struct chunk_builder *b)
{
	b->source.range.is_last = 1;
}

void chunk_builder_columns(struct chunk_builder *b, struct columns columns)
{
	b->columns = columns;
}

void chunk_builder_compress(struct chunk_builder *b, int level)
{
	b->next_level = level;
}

uint32_t chunk_builder_n_records(const struct chunk_builder *b)
{
	return b->n_records;
}

static uint64_t n_blocks_of(uint64_t payload_bytes)
{
	return (round_up(payload_bytes, CHUNK_ALIGN) + CHUNK_BLOCK_BYTES - 1) / CHUNK_BLOCK_BYTES;
}

/* Returns the offset of the table of blocks, whether or not there is one. */
static uint64_t blocks_offset_with(const struct chunk_builder *b, uint64_t more_records, uint64_t more_names)
{
	return round_up(sizeof(struct chunk_header) +
			    (b->n_records + more_records) * sizeof(struct chunk_record) + b->names.bytes +
			    more_names,
			sizeof(uint32_t));
}

/* Returns the head's length with these additions. payload_bytes includes the sample to add. */
static uint64_t head_bytes_with(const struct chunk_builder *b, uint64_t more_records, uint64_t more_names,
				uint64_t payload_bytes)
{
	uint64_t table = b->level ? n_blocks_of(payload_bytes) * sizeof(uint32_t) : 0;

	if (b->flags & CHUNK_FLAG_EXTERNAL)
		table = sizeof(struct chunk_external) + b->source.range.name_length;
	table = round_up(table, sizeof(uint32_t)) + b->columns.bytes;
	return round_up(blocks_offset_with(b, more_records, more_names) + table, CHUNK_ALIGN);
}

/* As buffer_reserve(), aligned for writes that bypass the page cache. */
static int reserve_aligned(struct buffer *b, size_t capacity)
{
	size_t grown = b->capacity + b->capacity / 2;

	if (capacity <= b->capacity)
		return 0;
	grown = round_up(grown < capacity ? capacity : grown, CHUNK_ALIGN);
	unsigned char *data = aligned_alloc(CHUNK_ALIGN, grown);

	if (!data)
		return -ENOMEM;
	if (b->bytes)
		memcpy(data, b->data, b->bytes);
	free(b->data);
	b->data = data;
	b->capacity = grown;
	return 0;
}

static int check_sample(const struct chunk_sample *sample, struct error *err)
{
	char path[160], size[24], limit[24];

	text_printable(path, sizeof(path), sample->path, sample->path_length);
	if (!chunk_name_is_valid(sample->path, sample->path_length))
		return error_set(err, -EINVAL,
				 "invalid sample path '%s': must have 1 to %u bytes and be relative, without "
				 ". and .. components",
				 path, CHUNK_NAME_MAX);
	if (sample->bytes > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(err, -EFBIG, "'%s' has %s, but a sample can have at most %s: split it", path,
				 units_format_bytes(size, sizeof(size), sample->bytes),
				 units_format_bytes(limit, sizeof(limit), CHUNK_SAMPLE_MAX_BYTES));
	return 0;
}

static int add_record(struct chunk_builder *b, const struct chunk_sample *sample, struct chunk_record record,
		      struct error *err)
{
	record.bytes = record.stored_bytes = (uint32_t)sample->bytes;
	record.mtime_ns = sample->mtime_ns;
	record.mode = sample->mode;
	record.name_offset = (uint32_t)b->names.bytes;
	record.name_length = (uint16_t)sample->path_length;
	record.encoding = CHUNK_ENCODING_RAW;
	record.source_bytes = (uint32_t)sample->source_bytes;
	if (buffer_append(&b->names, sample->path, sample->path_length) < 0)
		return error_errno(err, -ENOMEM, "chunk");
	if (buffer_append(&b->records, &record, sizeof(record)) < 0) {
		b->names.bytes -= sample->path_length;
		return error_errno(err, -ENOMEM, "chunk");
	}
	b->payload_bytes += sample->bytes;
	b->n_records++;
	return 0;
}

/* Adds a range of the source. The chunk's range begins with the first sample. It has whole pages of the
 * source, so that it can be read past the page cache. */
static int add_range(struct chunk_builder *b, const struct chunk_sample *sample, struct error *err)
{
	struct chunk_external *range = &b->source.range;
	uint64_t begin = b->n_records ? range->offset : sample->offset - sample->offset % CHUNK_ALIGN;
	uint64_t end = begin + range->bytes,
		 sample_end = round_up(sample->offset + sample->bytes, CHUNK_ALIGN);
	int r;

	assert(sample->offset >= begin && sample->offset + sample->bytes <= range->source_bytes);
	end = end > sample_end ? end : sample_end;
	end = end < range->source_bytes ? end : range->source_bytes;
	if (b->n_records &&
	    head_bytes_with(b, 1, sample->path_length, 0) + round_up(end - begin, CHUNK_ALIGN) >
		b->target_bytes)
		return CHUNK_BUILDER_FULL;
	r = add_record(b, sample, (struct chunk_record){.offset = sample->offset - begin}, err);
	if (r < 0)
		return r;
	range->offset = begin;
	range->bytes = end - begin;
	return 0;
}

int chunk_builder_add(struct chunk_builder *b, const struct chunk_sample *sample, struct error *err)
{
	bool tombstone = b->flags & CHUNK_FLAG_TOMBSTONE;
	uint64_t offset = round_up(b->payload.bytes, CHUNK_SAMPLE_ALIGN);
	struct chunk_record record = {0};
	int r = check_sample(sample, err);

	assert(!tombstone || sample->bytes == 0);
	if (r < 0)
		return r;
	if (b->flags & CHUNK_FLAG_EXTERNAL)
		return add_range(b, sample, err);
	if (b->n_records && head_bytes_with(b, 1, sample->path_length, offset + sample->bytes) +
				    round_up(offset + sample->bytes, CHUNK_ALIGN) >
				b->target_bytes)
		return CHUNK_BUILDER_FULL;

	if (!tombstone) {
		record.offset = offset;
		record.xxh3 = checksum_xxh3(sample->data, sample->bytes);
	}
	if (reserve_aligned(&b->payload, round_up(offset + sample->bytes, CHUNK_ALIGN)) < 0)
		return error_errno(err, -ENOMEM, "chunk");
	r = add_record(b, sample, record, err);
	if (r < 0)
		return r;
	buffer_zero_to(&b->payload, offset);
	buffer_append(&b->payload, sample->data, sample->bytes); /* reserved above */
	return 0;
}

static int get_compressor(struct chunk_builder *b)
{
	if (b->compressor && compressor_level(b->compressor) == b->level)
		return 0;
	compressor_free(b->compressor);
	b->compressor = NULL;
	return compressor_new(b->level, &b->compressor);
}

/* Adds the next block. The buffer has space for the rest of the payload. */
static int add_block(struct chunk_builder *b, const unsigned char *from, size_t bytes)
{
	unsigned char *to = b->stored.data + b->stored.bytes;
	long n = compressor_block(b->compressor, to, from, bytes);
	uint32_t length = n > 0 ? (uint32_t)n : (uint32_t)bytes;

	if (n < 0)
		return (int)n;
	if (n == 0)
		memcpy(to, from, bytes);
	b->stored.bytes += length;
	return buffer_append(&b->lengths, &length, sizeof(length));
}

/* Compresses the payload. Returns 1 if that makes the file shorter. */
static int compress(struct chunk_builder *b, uint64_t head_bytes)
{
	int r = b->level && head_bytes <= CHUNK_COMPRESSED_HEAD_MAX ? get_compressor(b) : 0;

	if (r < 0 || !b->level || head_bytes > CHUNK_COMPRESSED_HEAD_MAX || !b->payload.bytes)
		return r;
	b->stored.bytes = b->lengths.bytes = 0;
	r = reserve_aligned(&b->stored, b->payload.bytes);
	for (size_t at = 0; at < b->payload.bytes && r == 0; at += CHUNK_BLOCK_BYTES) {
		size_t left = b->payload.bytes - at;

		r = add_block(b, b->payload.data + at, left < CHUNK_BLOCK_BYTES ? left : CHUNK_BLOCK_BYTES);
	}
	if (r < 0 || round_up(b->stored.bytes, CHUNK_ALIGN) >= b->payload.bytes)
		return r;
	buffer_zero_to(&b->stored, round_up(b->stored.bytes, CHUNK_ALIGN));
	return 1;
}

/* Appends the table of blocks to the head, after the names, which end at head_bytes. */
static void add_table(struct chunk_builder *b, uint64_t head_bytes)
{
	struct chunk_header *header = (struct chunk_header *)b->head.data;

	buffer_zero_to(&b->head, blocks_offset_with(b, 0, 0));
	header->flags |= CHUNK_FLAG_COMPRESSED;
	header->stored_bytes = head_bytes + b->stored.bytes;
	header->blocks_offset = (uint32_t)b->head.bytes;
	header->block_bytes = CHUNK_BLOCK_BYTES;
	header->level = (uint8_t)b->level;
	buffer_append(&b->head, b->lengths.data, b->lengths.bytes); /* head_bytes_with() has reserved space */
}

static void add_source(struct chunk_builder *b, uint64_t head_bytes)
{
	struct chunk_header *header = (struct chunk_header *)b->head.data;
	const struct external *source = &b->source;

	buffer_zero_to(&b->head, blocks_offset_with(b, 0, 0));
	header->stored_bytes = head_bytes;
	header->file_bytes = head_bytes + round_up(source->range.bytes, CHUNK_ALIGN);
	header->blocks_offset = (uint32_t)b->head.bytes;
	/* head_bytes_with() has reserved space */
	buffer_append(&b->head, &source->range, sizeof(source->range));
	buffer_append(&b->head, source->name, source->range.name_length);
}

static void add_columns(struct chunk_builder *b)
{
	buffer_zero_to(&b->head, round_up(b->head.bytes, sizeof(uint32_t)));
	((struct chunk_header *)b->head.data)->columns_offset = (uint32_t)b->head.bytes;
	buffer_append(&b->head, b->columns.data, b->columns.bytes); /* head_bytes_with() has reserved space */
}

int chunk_builder_finish(struct chunk_builder *b, const struct chunk_id *id, uint64_t created_ns,
			 struct iovec ret_parts[2], struct error *err)
{
	uint64_t head_bytes = head_bytes_with(b, 0, 0, b->payload.bytes);
	bool tombstone = b->flags & CHUNK_FLAG_TOMBSTONE;
	int r;

	assert(b->n_records > 0);
	b->head.bytes = 0;
	if (buffer_reserve(&b->head, head_bytes) < 0)
		return error_errno(err, -ENOMEM, "chunk");
	buffer_zero_to(&b->payload, round_up(b->payload.bytes, CHUNK_ALIGN)); /* reserved by add */
	r = compress(b, head_bytes);
	if (r < 0)
		return error_errno(err, r, "cannot compress a chunk");

	struct chunk_header header = {
	    .magic = CHUNK_MAGIC,
	    .version = CHUNK_VERSION,
	    .flags = b->flags,
	    .id = *id,
	    .n_records = b->n_records,
	    .names_offset = (uint32_t)(sizeof(header) + b->records.bytes),
	    .payload_offset = (uint32_t)head_bytes,
	    .file_bytes = head_bytes + b->payload.bytes,
	    .payload_bytes = b->payload_bytes,
	    .created_ns = created_ns,
	};

	buffer_append(&b->head, &header, sizeof(header));
	buffer_append(&b->head, b->records.data, b->records.bytes);
	buffer_append(&b->head, b->names.data, b->names.bytes);
	if (r > 0)
		add_table(b, head_bytes);
	if (b->flags & CHUNK_FLAG_EXTERNAL)
		add_source(b, head_bytes);
	if (b->columns.bytes)
		add_columns(b);
	buffer_zero_to(&b->head, head_bytes);

	struct chunk_record *records = (struct chunk_record *)(b->head.data + sizeof(header));

	for (uint32_t i = 0; i < b->n_records && !tombstone; i++)
		records[i].offset += head_bytes;
	((struct chunk_header *)b->head.data)->head_xxh3 =
	    checksum_xxh3_gap(b->head.data, head_bytes, offsetof(struct chunk_header, head_xxh3));
	ret_parts[0] = (struct iovec){b->head.data, head_bytes};
	ret_parts[1] = r > 0 ? (struct iovec){b->stored.data, b->stored.bytes}
			     : (struct iovec){b->payload.data, b->payload.bytes};
	return 0;
}

void chunk_builder_plain(const struct chunk_builder *b, struct iovec ret_parts[2])
{
	ret_parts[0] = (struct iovec){b->head.data, b->head.bytes};
	ret_parts[1] = (struct iovec){b->payload.data, b->payload.bytes};
}
