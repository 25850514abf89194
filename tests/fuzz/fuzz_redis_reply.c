/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what a Redis server sends, in two pieces; and what comes out as a map of slots, a redirection
 * and an error. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "redis_reader.h"
#include "redis_refusal.h"
#include "redis_slots.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int see(const struct redis_range *range, void *context)
{
	if (range->first > range->last || range->last >= REDIS_N_SLOTS || !range->master.port[0])
		abort();
	return 0;
}

static void use(redisReply *reply)
{
	struct redis_address address;
	struct error err = ERROR_INIT;
	uint16_t slot;

	redis_slots_each(reply, see, NULL);
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
