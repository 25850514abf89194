/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the header of a .npy file: "\x93NUMPY", a version, the length of the rest, and a Python dictionary
 * such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, followed by spaces and a newline. See
 * numpy.lib.format.
 */
#include <errno.h>
#include <string.h>

#include "image/tensor.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6
#define NAME_BYTES  24 /* length of a type's name in messages */

struct npy_reader {
	const char *at, *end;
};

static void skip_blanks(struct npy_reader *r)
{
	while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
		r->at++;
}

/* Skips this letter and returns true if it is next. */
static bool take(struct npy_reader *r, char letter)
{
	skip_blanks(r);
	if (r->at == r->end || *r->at != letter)
		return false;
	r->at++;
	return true;
}

static bool take_word(struct npy_reader *r, const char *word)
{
	size_t length = strlen(word);

	skip_blanks(r);
	if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
		return false;
	r->at += length;
	return true;
}

/* Reads a string without escapes. */
static bool take_string(struct npy_reader *r, struct npy_reader *ret)
{
	char quote = 0;
	const char *end;

	if (take(r, '\''))
		quote = '\'';
	else if (take(r, '"'))
		quote = '"';
	if (!quote)
		return false;
	end = memchr(r->at, quote, (size_t)(r->end - r->at));
	if (!end)
		return false;
	*ret = (struct npy_reader){r->at, end};
	r->at = end + 1;
	return true;
}

static bool is_string(const struct npy_reader *s, const char *text)
{
	return (size_t)(s->end - s->at) == strlen(text) && memcmp(s->at, text, strlen(text)) == 0;
}

static int refuse_type(const struct npy_reader *s, struct error *err)
{
	char name[NAME_BYTES];
	size_t n = 0;

	for (const char *at = s->at; at < s->end && n < sizeof(name) - 1; at++)
		name[n++] = *at > ' ' && *at < '\x7f' && *at != '\'' ? *at : '?';
	name[n] = '\0';
	if (strchr(name, 'O'))
		return error_set(
		    err, -EBADMSG,
		    "the array has Python objects (dtype object): save it as an array of numbers");
	return error_set(err, -EBADMSG,
			 "the array's type is '%s', but must be integers, bool, float16, float32 or float64",
			 name);
}

static int read_type(struct npy_reader *r, struct npy *ret, struct error *err)
{
	static const struct {
		const char *name; /* code of the type, without the byte order */
		enum recipe_type type;
	} types[] = {{"b1", RECIPE_BOOL},    {"u1", RECIPE_UINT8},   {"i1", RECIPE_INT8},
		     {"u2", RECIPE_UINT16},  {"i2", RECIPE_INT16},   {"u4", RECIPE_UINT32},
		     {"i4", RECIPE_INT32},   {"u8", RECIPE_UINT64},  {"i8", RECIPE_INT64},
		     {"f2", RECIPE_FLOAT16}, {"f4", RECIPE_FLOAT32}, {"f8", RECIPE_FLOAT64}};
	struct npy_reader s, name;

	if (!take_string(r, &s))
		return error_set(
		    err, -EBADMSG,
		    "the array is a structure with fields: save each field as an array of numbers");
	name = s;
	if (name.at < name.end && *name.at && strchr("<>|=", *name.at))
		name.at++;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (is_string(&name, types[i].name)) {
			ret->type = types[i].type;
			ret->is_big_endian = *s.at == '>';
			return 0;
		}
	}
	return refuse_type(&s, err);
}

/* Reads a decimal number below 2^63. A long of Python 2 may have an L after it. */
static bool take_number(struct npy_reader *r, uint64_t *ret)
{
	uint64_t value = 0;
	const char *begin;

	skip_blanks(r);
	for (begin = r->at; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
		if (value > INT64_MAX / 10 - 1)
			return false;
		value = value * 10 + (uint64_t)(*r->at - '0');
	}
	if (r->at == begin)
		return false;
	if (r->at < r->end && *r->at == 'L')
		r->at++;
	*ret = value;
	return true;
}

static bool read_shape(struct npy_reader *r, struct npy *ret)
{
	uint64_t side;

	ret->n_dimensions = 0;
	if (!take(r, '('))
		return false;
	while (!take(r, ')')) {
		if (ret->n_dimensions == RECIPE_TENSOR_DIMENSIONS || !take_number(r, &side))
			return false;
		ret->dimensions[ret->n_dimensions++] = side;
		if (take(r, ','))
			continue;
		return take(r, ')');
	}
	return true;
}

enum {
	DESCR = 1 << 0,
	FORTRAN_ORDER = 1 << 1,
	SHAPE = 1 << 2,
	ALL = 7,
};

static int damaged(struct error *err)
{
	return error_set(err, -EBADMSG,
			 "the header of the .npy file is damaged, or its array has more than %d dimensions",
			 RECIPE_TENSOR_DIMENSIONS);
}

/* Reads the dictionary: each of its entries once, in any order. */
static int read_header(struct npy_reader *r, struct npy *npy, struct error *err)
{
	unsigned seen = 0;

	if (!take(r, '{'))
		return damaged(err);
	while (!take(r, '}')) {
		struct npy_reader key;
		unsigned entry = 0;
		int result = 0;

		if (!take_string(r, &key) || !take(r, ':'))
			return damaged(err);
		if (is_string(&key, "descr")) {
			entry = DESCR;
			result = read_type(r, npy, err);
		} else if (is_string(&key, "fortran_order")) {
			entry = FORTRAN_ORDER;
			npy->is_fortran = take_word(r, "True");
			if (!npy->is_fortran && !take_word(r, "False"))
				return damaged(err);
		} else if (is_string(&key, "shape") && read_shape(r, npy)) {
			entry = SHAPE;
		}
		if (result < 0)
			return result;
		if (!entry || seen & entry)
			return damaged(err);
		seen |= entry;
		if (!take(r, ',')) {
			if (!take(r, '}'))
				return damaged(err);
			break;
		}
	}
	skip_blanks(r);
	return seen == ALL && r->at == r->end ? 0 : damaged(err);
}

/* Finds the header's dictionary. */
static int find_header(const uint8_t *data, size_t bytes, struct npy_reader *ret, struct error *err)
{
	size_t begin, length;

	if (bytes < MAGIC_BYTES || memcmp(data, MAGIC, MAGIC_BYTES) != 0)
		return error_set(err, -EBADMSG, "not a .npy file, judging by its first bytes");
	begin = bytes > MAGIC_BYTES && data[MAGIC_BYTES] == 1 ? 10 : 12;
	if (bytes < begin)
		return error_set(err, -EBADMSG, "the .npy file is truncated: its %zu bytes end in the header",
				 bytes);
	if (data[6] < 1 || data[6] > 3 || data[7] != 0)
		return error_set(err, -EBADMSG, "the .npy file has version %u.%u, but must have 1.0 to 3.0",
				 data[6], data[7]);
	length = data[8] | (size_t)data[9] << 8;
	if (begin == 12)
		length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
	if (length > bytes - begin)
		return error_set(err, -EBADMSG, "the .npy file is truncated: its %zu bytes end in the header",
				 bytes);
	*ret = (struct npy_reader){(const char *)data + begin, (const char *)data + begin + length};
	return 0;
}

int npy_parse(const void *data, size_t bytes, struct npy *ret, struct error *err)
{
	struct npy npy = {.n_dimensions = 0};
	struct npy_reader r;
	uint64_t wanted;
	int result = find_header(data, bytes, &r, err);

	if (result == 0)
		result = read_header(&r, &npy, err);
	if (result < 0)
		return result;
	npy.offset = (size_t)(r.end - (const char *)data);
	wanted = recipe_type_bytes(npy.type);
	for (uint32_t i = 0; i < npy.n_dimensions; i++) {
		if (__builtin_mul_overflow(wanted, npy.dimensions[i], &wanted))
			return damaged(err);
	}
	if (wanted > bytes - npy.offset)
		return error_set(err, -EBADMSG,
				 "the .npy file is truncated: it has %llu of the %llu bytes of its array",
				 (unsigned long long)(bytes - npy.offset), (unsigned long long)wanted);
	*ret = npy;
	return 0;
}
