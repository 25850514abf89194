/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replies of a Redis server, out of bytes that come in any pieces. What a server can make it hold is bounded,
 * whatever it sends. Not thread-safe. */

#include <stddef.h>

#include <hiredis/hiredis.h>

#define REDIS_READER_BYTES   (64 << 20) /* on the wire, between two calls of redis_reader_begin() */
#define REDIS_READER_OBJECTS (1 << 20)

struct redis_reader;

/* NULL: no memory. */
struct redis_reader *redis_reader_new(void);
void redis_reader_free(struct redis_reader *r);
/* What was read up to now no longer counts. */
void redis_reader_begin(struct redis_reader *r);
/* -EPROTO: more than is wanted, or no memory. */
int redis_reader_feed(struct redis_reader *r, const void *data, size_t bytes);
/* *ret is the next reply, which the caller frees, or NULL if it is not there yet. -EPROTO: not Redis. */
int redis_reader_take(struct redis_reader *r, redisReply **ret);
