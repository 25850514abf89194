/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Encoding of the values of a path and of a chunk: numbers, little endian. */

#include "dataset/meta.h"

#define REDIS_PATH_BYTES  58
#define REDIS_CHUNK_BYTES 69

void redis_path_pack(const struct chunk_id *chunk, uint32_t index, const struct chunk_record *record,
		     unsigned char row[REDIS_PATH_BYTES]);
/* Unpacks everything except the path itself. -EBADMSG */
int redis_path_unpack(const unsigned char *data, size_t bytes, struct meta_path *ret);
/* Packs a chunk without its id, which is the field's name. */
void redis_chunk_pack(const struct meta_chunk *chunk, unsigned char row[REDIS_CHUNK_BYTES]);
int redis_chunk_unpack(const void *id, size_t id_bytes, const unsigned char *data, size_t bytes,
		       struct meta_chunk *ret);
