/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_slots.h"

#include <errno.h>
#include <string.h>

#include "lib/units.h"

/* Computes CRC-16/XMODEM, as Redis Cluster's specification requires. */
static uint16_t crc16(const char *data, size_t bytes)
{
	unsigned crc = 0;

	for (size_t i = 0; i < bytes; i++) {
		crc ^= (unsigned)(unsigned char)data[i] << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
	}
	return (uint16_t)crc;
}

uint16_t redis_slot(const char *key, size_t bytes)
{
	const char *open = memchr(key, '{', bytes);
	const char *close = open ? memchr(open, '}', bytes - (size_t)(open - key)) : NULL;

	if (close && close > open + 1)
		return crc16(open + 1, (size_t)(close - open - 1)) % REDIS_N_SLOTS;
	return crc16(key, bytes) % REDIS_N_SLOTS;
}

static int range_of(const redisReply *row, struct redis_range *ret)
{
	const redisReply *master, *host;
	struct redis_range range;
	int r = -EPROTO;

	if (row->type != REDIS_REPLY_ARRAY || row->elements < 3)
		return -EPROTO;
	master = row->element[2];
	if (row->element[0]->type != REDIS_REPLY_INTEGER || row->element[1]->type != REDIS_REPLY_INTEGER ||
	    row->element[0]->integer < 0 || row->element[1]->integer < row->element[0]->integer ||
	    row->element[1]->integer >= REDIS_N_SLOTS || master->type != REDIS_REPLY_ARRAY ||
	    master->elements < 2 || master->element[1]->type != REDIS_REPLY_INTEGER)
		return -EPROTO;
	host = master->element[0];
	range.first = (uint16_t)row->element[0]->integer;
	range.last = (uint16_t)row->element[1]->integer;
	if (host->type == REDIS_REPLY_NIL)
		r = redis_address_of("", 0, master->element[1]->integer, &range.master);
	else if (host->type == REDIS_REPLY_STRING)
		r = redis_address_of(host->str, host->len, master->element[1]->integer, &range.master);
	if (r == 0)
		*ret = range;
	return r;
}

int redis_slots_each(const redisReply *reply, redis_range_callback *callback, void *context)
{
	int r = reply->type == REDIS_REPLY_ARRAY ? 0 : -EPROTO;

	for (size_t i = 0; r == 0 && i < reply->elements; i++) {
		struct redis_range range;

		r = range_of(reply->element[i], &range);
		if (r == 0)
			r = callback(&range, context);
	}
	return r;
}

int redis_slots_redirection(const redisReply *error, uint16_t *ret_slot, struct redis_address *ret)
{
	const char *slot = memchr(error->str, ' ', error->len), *host = slot ? strchr(slot + 1, ' ') : NULL;
	const char *colon = host ? strrchr(host, ':') : NULL;
	char digits[8] = "";
	int64_t number, port;
	int r;

	if (!colon || host - slot > 7)
		return -EPROTO;
	memcpy(digits, slot + 1, (size_t)(host - slot - 1));
	if (units_parse_integer(digits, 0, REDIS_N_SLOTS - 1, &number) < 0 ||
	    units_parse_integer(colon + 1, 1, 65535, &port) < 0)
		return -EPROTO;
	r = redis_address_of(host + 1, (size_t)(colon - host - 1), port, ret);
	if (r == 0)
		*ret_slot = (uint16_t)number;
	return r;
}
