/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/chunk_id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checksum.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"

#define COUNTER_MAX UINT16_MAX

static void put_big_endian(uint8_t *out, unsigned n_bytes, uint64_t value)
{
	for (unsigned i = 0; i < n_bytes; i++)
		out[i] = (uint8_t)(value >> (8 * (n_bytes - 1 - i)));
}

char *chunk_id_format(const struct chunk_id *id, char text[CHUNK_ID_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < sizeof(id->bytes); i++) {
		text[2 * i] = digits[id->bytes[i] >> 4];
		text[2 * i + 1] = digits[id->bytes[i] & 15];
	}
	text[CHUNK_ID_TEXT - 1] = '\0';
	return text;
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1; /* upper case is refused, too, so that an id has only one text */
}

int chunk_id_parse(const char *text, struct chunk_id *ret_id)
{
	struct chunk_id id;

	if (strnlen(text, CHUNK_ID_TEXT) != CHUNK_ID_TEXT - 1)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(id.bytes); i++) {
		int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		id.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret_id = id;
	return 0;
}

int chunk_id_compare(const struct chunk_id *a, const struct chunk_id *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

bool chunk_id_is_among(const struct chunk_id *ids, size_t n, const struct chunk_id *id)
{
	size_t at = sorted_count(n, i, chunk_id_compare(&ids[i], id) < 0);

	return at < n && chunk_id_compare(&ids[at], id) == 0;
}

uint64_t chunk_id_time_us(const struct chunk_id *id)
{
	uint64_t time_us = 0;

	for (unsigned i = 0; i < 7; i++)
		time_us = time_us << 8 | id->bytes[i];
	return time_us;
}

void chunk_id_source_init(struct chunk_id_source *source, uint32_t machine, uint32_t process,
			  const struct chunk_id *floor)
{
	*source = (struct chunk_id_source){.machine = machine, .process = process & 0xffffff};
	/* Another machine's id of the same microsecond may sort above ours, so start one later. */
	if (floor) {
		source->time_us = chunk_id_time_us(floor);
		source->counter = COUNTER_MAX;
	}
}

struct chunk_id chunk_id_next(struct chunk_id_source *source, uint64_t realtime_us)
{
	struct chunk_id id;

	if (realtime_us > source->time_us) {
		source->time_us = realtime_us;
		source->counter = 0;
	} else if (source->counter < COUNTER_MAX) {
		source->counter++;
	} else {
		source->time_us++;
		source->counter = 0;
	}
	put_big_endian(id.bytes, 7, source->time_us);
	put_big_endian(id.bytes + 7, 4, source->machine);
	put_big_endian(id.bytes + 11, 3, source->process);
	put_big_endian(id.bytes + 14, 2, source->counter);
	return id;
}

uint32_t chunk_id_local_machine(void)
{
	char text[256] = "";
	_cleanup_(closep) int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, 64) : 0;
	size_t used = n > 0 ? (size_t)n : 0;

	/* Containers of one image share a machine-id; their host names differ. */
	if (gethostname(text + used, sizeof(text) - used - 1) == 0)
		used += strlen(text + used);
	return (uint32_t)checksum_xxh3(text, used);
}
