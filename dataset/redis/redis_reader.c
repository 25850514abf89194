/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_reader.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (64 << 10)

/* Since version 1, hiredis counts elements in another type. */
#if HIREDIS_MAJOR < 1
typedef int element_count;
#else
typedef size_t element_count;
#endif

struct redis_reader {
	redisReader *reader;
	redisReplyObjectFunctions bounded;
	const redisReplyObjectFunctions *plain;
	size_t bytes, objects;
};

/* hiredis allocates memory for as many elements as a reply announces, before one of them has arrived. */
static void *create_array(const redisReadTask *task, element_count n)
{
	struct redis_reader *r = task->privdata;

	if ((size_t)n > REDIS_READER_OBJECTS - r->objects)
		return NULL;
	r->objects += (size_t)n;
	return r->plain->createArray(task, n);
}

struct redis_reader *redis_reader_new(void)
{
	struct redis_reader *r = calloc(1, sizeof(*r));

	if (r)
		r->reader = redisReaderCreate();
	if (!r || !r->reader) {
		free(r);
		return NULL;
	}
	r->plain = r->reader->fn;
	r->bounded = *r->plain;
	r->bounded.createArray = create_array;
	r->reader->fn = &r->bounded;
	r->reader->privdata = r;
	return r;
}

void redis_reader_free(struct redis_reader *r)
{
	if (r)
		redisReaderFree(r->reader);
	free(r);
}

void redis_reader_begin(struct redis_reader *r)
{
	r->bytes = r->objects = 0;
}

/* Returns true if the line is too long. hiredis would search an incomplete line from its start each time that
 * more bytes arrive. */
static bool is_endless_line(const redisReader *reader)
{
	return reader->len - reader->pos > LINE_MAX_BYTES &&
	       !memchr(reader->buf + reader->pos, '\n', LINE_MAX_BYTES);
}

int redis_reader_feed(struct redis_reader *r, const void *data, size_t bytes)
{
	r->bytes += bytes;
	return r->bytes <= REDIS_READER_BYTES && !is_endless_line(r->reader) &&
		       redisReaderFeed(r->reader, data, bytes) == REDIS_OK
		   ? 0
		   : -EPROTO;
}

int redis_reader_take(struct redis_reader *r, redisReply **ret)
{
	void *reply = NULL;

	if (redisReaderGetReply(r->reader, &reply) != REDIS_OK)
		return -EPROTO;
	*ret = reply;
	return 0;
}
