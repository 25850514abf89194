/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a Redis server's stream that comes in two pieces. Parses the replies as a map of
 * slots, a redirection, an error, and the value of a path and of a chunk. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/meta/redis_buckets.h"
#include "dataset/redis/redis_reader.h"
#include "dataset/redis/redis_refusal.h"
#include "dataset/meta/redis_rows.h"
#include "dataset/redis/redis_slots.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int see(const struct redis_range *range, void *context)
{
	if (range->first > range->last || range->last >= REDIS_N_SLOTS || !range->master.port[0])
		abort();
	return 0;
}

static void see_value(const redisReply *reply)
{
	const struct redis_view view = {.prefix = "p", .generation = "0", .number = 5};
	unsigned char again[REDIS_PATH_BYTES];
	const unsigned char *data;
	struct meta_chunk chunk;
	struct meta_path path;
	size_t bytes;

	if (redis_bucket_value(reply, &view, &data, &bytes) < 0)
		return;
	if (bytes == 0 || bytes > REDIS_VALUE_MAX)
		abort();
	if (redis_path_unpack(data, bytes, &path) == 0) {
		redis_path_pack(&path.chunk, path.record_index, &path.record, again);
		if (memcmp(again, data, sizeof(again)) != 0)
			abort();
	}
	if (redis_chunk_unpack(data, sizeof(chunk.id.bytes), data, bytes, &chunk) == 0 &&
	    memcmp(chunk.id.bytes, data, sizeof(chunk.id.bytes)) != 0)
		abort();
}

static void use(redisReply *reply)
{
	struct redis_address address;
	struct error err = ERROR_INIT;
	uint16_t slot;

	redis_slots_each(reply, see, NULL);
	see_value(reply);
	if (reply->type == REDIS_REPLY_ERROR) {
		if (redis_slots_redirection(reply, &slot, &address) == 0 && slot >= REDIS_N_SLOTS)
			abort();
		if (redis_refusal(reply, "SERVER", &err) >= 0 || strchr(err.text, '\n') ||
		    strchr(err.text, '\x1b'))
			abort();
		redis_refusal_passes(reply);
	}
	freeReplyObject(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct redis_reader *r = redis_reader_new();
	size_t half = size ? data[0] % size : 0;
	int result = 0;

	if (!r)
		abort();
	for (int part = 0; part < 2 && result == 0; part++) {
		result = redis_reader_feed(r, data + (part ? half : 0), part ? size - half : half);
		for (redisReply *reply = NULL; result == 0; use(reply)) {
			result = redis_reader_take(r, &reply);
			if (result < 0 || !reply)
				break;
		}
	}
	redis_reader_free(r);
	return 0;
}
