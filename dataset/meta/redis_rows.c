/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_rows.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static unsigned char *put(unsigned char *at, uint64_t value, size_t bytes)
{
	value = htole64(value);
	memcpy(at, &value, bytes);
	return at + bytes;
}

static uint64_t get(const unsigned char **at, size_t bytes)
{
	uint64_t value = 0;

	memcpy(&value, *at, bytes);
	*at += bytes;
	return le64toh(value);
}

void redis_path_pack(const struct chunk_id *chunk, uint32_t index, const struct chunk_record *record,
		     unsigned char row[REDIS_PATH_BYTES])
{
	unsigned char *at = row;

	memcpy(at, chunk->bytes, sizeof(chunk->bytes));
	at = put(at + sizeof(chunk->bytes), index, 4);
	at = put(at, record->offset, 8);
	at = put(at, record->bytes, 4);
	at = put(at, record->stored_bytes, 4);
	at = put(at, record->encoding, 2);
	at = put(at, record->xxh3, 8);
	at = put(at, record->mtime_ns, 8);
	put(at, record->mode, 4);
}

int redis_path_unpack(const unsigned char *data, size_t bytes, struct meta_path *ret)
{
	const unsigned char *at = data + sizeof(ret->chunk.bytes);

	if (bytes != REDIS_PATH_BYTES)
		return -EBADMSG;
	memcpy(ret->chunk.bytes, data, sizeof(ret->chunk.bytes));
	ret->record_index = (uint32_t)get(&at, 4);
	ret->record = (struct chunk_record){0};
	ret->record.offset = get(&at, 8);
	ret->record.bytes = (uint32_t)get(&at, 4);
	ret->record.stored_bytes = (uint32_t)get(&at, 4);
	ret->record.encoding = (uint16_t)get(&at, 2);
	ret->record.xxh3 = get(&at, 8);
	ret->record.mtime_ns = get(&at, 8);
	ret->record.mode = (uint32_t)get(&at, 4);
	return 0;
}

void redis_chunk_pack(const struct meta_chunk *chunk, unsigned char row[REDIS_CHUNK_BYTES])
{
	unsigned char *at = row;

	at = put(at, chunk->file_bytes, 8);
	at = put(at, chunk->created_ns, 8);
	at = put(at, chunk->head_xxh3, 8);
	at = put(at, chunk->n_records, 4);
	at = put(at, chunk->payload_offset, 4);
	at = put(at, chunk->flags, 4);
	at = put(at, chunk->has_sha256, 1);
	memcpy(at, chunk->sha256.bytes, sizeof(chunk->sha256.bytes));
}

int redis_chunk_unpack(const void *id, size_t id_bytes, const unsigned char *data, size_t bytes,
		       struct meta_chunk *ret)
{
	const unsigned char *at = data;

	if (bytes != REDIS_CHUNK_BYTES || id_bytes != sizeof(ret->id.bytes))
		return -EBADMSG;
	memcpy(ret->id.bytes, id, id_bytes);
	ret->file_bytes = get(&at, 8);
	ret->created_ns = get(&at, 8);
	ret->head_xxh3 = get(&at, 8);
	ret->n_records = (uint32_t)get(&at, 4);
	ret->payload_offset = (uint32_t)get(&at, 4);
	ret->flags = (uint32_t)get(&at, 4);
	ret->has_sha256 = get(&at, 1) != 0;
	memcpy(ret->sha256.bytes, at, sizeof(ret->sha256.bytes));
	return 0;
}
