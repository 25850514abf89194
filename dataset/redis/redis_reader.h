/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Parses replies of a Redis server from bytes that arrive in any pieces. Its memory is bounded, whatever a
 * server sends. Not thread-safe. */

#include <stddef.h>

#include <hiredis/hiredis.h>

#define REDIS_READER_BYTES   (64 << 20) /* maximum bytes received between two calls of redis_reader_begin() */
#define REDIS_READER_OBJECTS (1 << 20)

struct redis_reader;

/* NULL: no memory. */
struct redis_reader *redis_reader_new(void);
void redis_reader_free(struct redis_reader *r);
/* Resets the counts of bytes and objects read, which are limited. */
void redis_reader_begin(struct redis_reader *r);
/* Adds received bytes. -EPROTO: more than the limit, or no memory. */
int redis_reader_feed(struct redis_reader *r, const void *data, size_t bytes);
/* Returns in *ret the next reply, which the caller frees, or NULL if it is incomplete. -EPROTO: not Redis. */
int redis_reader_take(struct redis_reader *r, redisReply **ret);
