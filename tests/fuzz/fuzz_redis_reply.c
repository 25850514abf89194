/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a Redis server's stream that comes in two pieces. Parses the replies as a map of
 * slots, a redirection, an error, and the value of a path and of a chunk. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataset/meta/redis_buckets.h"
#include "dataset/redis/redis_conn.h"
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
	}
	freeReplyObject(reply);
}

_Static_assert(N_REDIS_SCRIPTS == 3, "the greeting below has a reply to each");

#define N_COMMANDS 64
#define SHA        "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n"

/* Sends as much as fits into the socket. */
static void send_part(int fd, const void *data, size_t bytes)
{
	if (bytes && write(fd, data, bytes) < 0)
		return;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char greeting[] = "$0\r\n\r\n" SHA SHA SHA;
	const struct redis_login login = {
	    .user = "", .password = "", .text = "SERVER", .silence_ns = UINT32_MAX};
	size_t half = size ? data[0] % size : 0;
	struct redis_facts facts;
	struct redis_conn *c;
	uint64_t until_ns;
	struct pollfd p;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
		abort();
	send_part(ends[1], greeting, sizeof(greeting) - 1);
	if (redis_conn_open(ends[0], &login, &c, &facts, NULL) < 0)
		abort();
	redis_conn_begin(c);
	for (size_t i = 0; i < N_COMMANDS; i++)
		redis_conn_add_text(c, 1, (const char *[]){"PING"});
	send_part(ends[1], data, half);
	int r = redis_conn_step(c, &p, &until_ns);

	send_part(ends[1], data + half, size - half);
	shutdown(ends[1], SHUT_WR);
	if (r == 0 && redis_conn_run(c) == -EAGAIN)
		abort();
	for (size_t i = 0; i < N_COMMANDS; i++) {
		redisReply *reply = redis_conn_take(c, i);

		if (reply)
			use(reply);
	}
	redis_conn_close(c);
	close(ends[1]);
	return 0;
}
