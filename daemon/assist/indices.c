/* SPDX-License-Identifier: Apache-2.0 */
#include "indices.h"

#include <errno.h>
#include <stdbool.h>

/* Opcodes of Python's pickletools. */
enum {
	OP_PROTO = 0x80,
	OP_FRAME = 0x95,
	OP_MEMOIZE = 0x94,
	OP_BININT = 'J',
	OP_BININT1 = 'K',
	OP_BININT2 = 'M',
	OP_EMPTY_LIST = ']',
	OP_MARK = '(',
	OP_APPEND = 'a',
	OP_APPENDS = 'e',
	OP_TUPLE2 = 0x86,
	OP_STOP = '.',
};

#define FRAME_BYTES 8

struct index_reader {
	const uint8_t *at, *end;
};

/* Returns the next byte, or -1. */
static int next(struct index_reader *r)
{
	return r->at < r->end ? *r->at++ : -1;
}

static bool skip_if(struct index_reader *r, int op)
{
	if (r->at >= r->end || *r->at != op)
		return false;
	r->at++;
	return true;
}

/* Reads a number: 0, -EBADMSG, or -ERANGE if it is negative. */
static int number(struct index_reader *r, uint32_t *ret)
{
	int op = next(r), n_bytes = op == OP_BININT1 ? 1 : op == OP_BININT2 ? 2 : op == OP_BININT ? 4 : 0;
	uint32_t value = 0;

	if (!n_bytes || r->end - r->at < n_bytes)
		return -EBADMSG;
	for (int i = 0; i < n_bytes; i++)
		value |= (uint32_t)*r->at++ << 8 * i;
	if (value > INT32_MAX)
		return -ERANGE;
	*ret = value;
	return 0;
}

static bool head(struct index_reader *r)
{
	int version;

	if (!skip_if(r, OP_PROTO))
		return false;
	version = next(r);
	if (version < 4 || version > 5)
		return false;
	if (!skip_if(r, OP_FRAME))
		return true;
	if (r->end - r->at < FRAME_BYTES)
		return false;
	r->at += FRAME_BYTES;
	return true;
}

/* Parses one number, or several after a mark. Python writes 1,000 numbers at a time. */
static int append(struct index_reader *r, uint32_t *ret, size_t max, int *n)
{
	bool many = skip_if(r, OP_MARK);
	int code;

	do {
		if ((size_t)*n == max)
			return -ERANGE;
		code = number(r, &ret[*n]);
		if (code < 0)
			return code;
		++*n;
	} while (many && r->at < r->end && *r->at != OP_APPENDS);
	return skip_if(r, many ? OP_APPENDS : OP_APPEND) ? 0 : -EBADMSG;
}

int indices_parse(const uint8_t *bytes, size_t n_bytes, uint32_t *ret, size_t max, uint32_t *ret_number)
{
	struct index_reader r = {.at = bytes, .end = bytes + n_bytes};
	uint32_t batch;
	int n = 0, code;

	if (!head(&r) || number(&r, &batch) < 0 || !skip_if(&r, OP_EMPTY_LIST))
		return -EBADMSG;
	(void)skip_if(&r, OP_MEMOIZE);
	while (r.at < r.end && *r.at != OP_TUPLE2) {
		code = append(&r, ret, max, &n);
		if (code < 0)
			return code;
	}
	if (!skip_if(&r, OP_TUPLE2))
		return -EBADMSG;
	(void)skip_if(&r, OP_MEMOIZE);
	if (!skip_if(&r, OP_STOP) || r.at != r.end || !n)
		return -EBADMSG;
	*ret_number = batch;
	return n;
}
