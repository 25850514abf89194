/* SPDX-License-Identifier: Apache-2.0 */
#include "image/tensor.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "image/recipe.h"
#include "image/recipe/numbers.h"

/* Copies numbers from a stored array to the output, in the recipe's layout and type, in pieces that fit in
 * the L1 cache: gathers, converts to single precision, computes, stores. */

/* Layout of the numbers in memory, in the order of the output. */
struct lie {
	const uint8_t *data;
	int64_t at; /* offset of the first number, in bytes */
	uint32_t n_dimensions;
	uint64_t size[RECIPE_TENSOR_DIMENSIONS];
	int64_t stride[RECIPE_TENSOR_DIMENSIONS]; /* distance between items of a dimension, in bytes; may be
						     negative */
	int channels;                             /* which dimension holds the channels; -1: none */
	bool is_swapped;                          /* numbers are big-endian */
};

#define PIECE 1024 /* numbers */

/* Iterates over the numbers in the order of the output. */
struct element_cursor {
	const uint8_t *data;
	uint32_t n, bytes; /* number of dimensions; size of a number */
	uint64_t size[RECIPE_TENSOR_DIMENSIONS + 1];
	int64_t stride[RECIPE_TENSOR_DIMENSIONS + 1];
	uint64_t index[RECIPE_TENSOR_DIMENSIONS + 1];
	int64_t at;
};

/* Merges dimensions that are contiguous in memory, so that rows are as long as possible. */
static struct element_cursor cursor_of(const struct lie *lie, uint32_t bytes)
{
	struct element_cursor w = {
	    .data = lie->data, .at = lie->at, .bytes = bytes, .n = 1, .size = {1}, .stride = {bytes}};

	for (uint32_t i = 0; i < lie->n_dimensions; i++) {
		uint64_t size = lie->size[i];
		int64_t stride = lie->stride[i];

		if (size == 1)
			continue;
		if (w.size[w.n - 1] == 1 || w.stride[w.n - 1] == stride * (int64_t)size)
			w.size[w.n - 1] *= size;
		else
			w.size[w.n++] = size;
		w.stride[w.n - 1] = stride;
	}
	return w;
}

/* Numbers are copied in and out, because the compiler cannot rely on their type or alignment. */
#define GATHER(size)                                                                                         \
	for (size_t i = 0; i < n; i++)                                                                       \
		memcpy(out + i * (size), from + (ptrdiff_t)i * stride, size);                                \
	break

/* Gathers the numbers of one row. */
static void gather_row(const uint8_t *from, int64_t stride, uint32_t bytes, size_t n, uint8_t *out)
{
	if (stride == bytes) {
		memcpy(out, from, n * bytes);
		return;
	}
	switch (bytes) {
	case 1: GATHER(1);
	case 2: GATHER(2);
	case 4: GATHER(4);
	case 8: GATHER(8);
	}
}

/* Moves to the next row. */
static void step(struct element_cursor *w)
{
	for (uint32_t i = w->n - 1; i-- > 0;) {
		w->at += w->stride[i];
		if (++w->index[i] < w->size[i])
			return;
		w->at -= (int64_t)w->size[i] * w->stride[i];
		w->index[i] = 0;
	}
}

/* Gathers the next n numbers. */
static void gather(struct element_cursor *w, size_t n, uint8_t *out)
{
	uint32_t row = w->n - 1;

	while (n > 0) {
		uint64_t left = w->size[row] - w->index[row];
		size_t now = left < n ? (size_t)left : n;

		gather_row(w->data + w->at + (int64_t)w->index[row] * w->stride[row], w->stride[row],
			   w->bytes, now, out);
		out += now * w->bytes;
		n -= now;
		w->index[row] += now;
		if (w->index[row] == w->size[row]) {
			w->index[row] = 0;
			step(w);
		}
	}
}

#define SWAP(type, swapped)                                                                                  \
	for (size_t i = 0; i < n; i++) {                                                                     \
		type v;                                                                                      \
                                                                                                             \
		memcpy(&v, raw + i * sizeof(v), sizeof(v));                                                  \
		v = swapped(v);                                                                              \
		memcpy(raw + i * sizeof(v), &v, sizeof(v));                                                  \
	}

static void swap(uint8_t *raw, uint32_t bytes, size_t n)
{
	switch (bytes) {
	case 2: SWAP(uint16_t, __builtin_bswap16); break;
	case 4: SWAP(uint32_t, __builtin_bswap32); break;
	case 8: SWAP(uint64_t, __builtin_bswap64); break;
	}
}

#define EACH(type, expression)                                                                               \
	for (size_t i = 0; i < n; i++) {                                                                     \
		type v;                                                                                      \
                                                                                                             \
		memcpy(&v, raw + i * sizeof(v), sizeof(v));                                                  \
		out[i] = expression;                                                                         \
	}                                                                                                    \
	break

static void to_floats(enum recipe_type type, const uint8_t *raw, size_t n, float *out)
{
	switch (type) {
	case RECIPE_BOOL: EACH(uint8_t, v ? 1.0f : 0.0f);
	case RECIPE_UINT8: EACH(uint8_t, (float)v);
	case RECIPE_INT8: EACH(int8_t, (float)v);
	case RECIPE_UINT16: EACH(uint16_t, (float)v);
	case RECIPE_INT16: EACH(int16_t, (float)v);
	case RECIPE_UINT32: EACH(uint32_t, (float)v);
	case RECIPE_INT32: EACH(int32_t, (float)v);
	case RECIPE_UINT64: EACH(uint64_t, (float)v);
	case RECIPE_INT64: EACH(int64_t, (float)v);
	case RECIPE_FLOAT16: EACH(uint16_t, number_of_half(v));
	case RECIPE_BFLOAT16: EACH(uint16_t, number_of_brain(v));
	case RECIPE_FLOAT32: EACH(float, v);
	case RECIPE_FLOAT64: EACH(double, (float)v);
	case RECIPE_N_TYPES: break;
	}
}

/* Converts integers modulo 256, and true to 1. */
static void to_bytes(enum recipe_type type, const uint8_t *raw, size_t n, uint8_t *out)
{
	switch (type == RECIPE_BOOL ? 0 : recipe_type_bytes(type)) {
	case 0: EACH(uint8_t, v ? 1 : 0);
	case 1: EACH(uint8_t, v);
	case 2: EACH(uint16_t, (uint8_t)v);
	case 4: EACH(uint32_t, (uint8_t)v);
	case 8: EACH(uint64_t, (uint8_t)v);
	}
}

/* Returns the value that RECIPE_UNIT scales to 1; 0: values of this type are not scaled. */
static float greatest(enum recipe_type type)
{
	switch (type) {
	case RECIPE_UINT8: return UINT8_MAX;
	case RECIPE_INT8: return INT8_MAX;
	case RECIPE_UINT16: return UINT16_MAX;
	case RECIPE_INT16: return INT16_MAX;
	case RECIPE_UINT32: return (float)UINT32_MAX;
	case RECIPE_INT32: return (float)INT32_MAX;
	case RECIPE_UINT64: return (float)UINT64_MAX;
	case RECIPE_INT64: return (float)INT64_MAX;
	case RECIPE_BOOL:
	case RECIPE_FLOAT16:
	case RECIPE_BFLOAT16:
	case RECIPE_FLOAT32:
	case RECIPE_FLOAT64:
	case RECIPE_N_TYPES: break;
	}
	return 0;
}

static void normalise(float *values, size_t n, float mean, float std)
{
	for (size_t i = 0; i < n; i++)
		values[i] = (values[i] - mean) / std;
}

/* Normalises n numbers. Number `first` of the output is the first one; number i has channel i / apart %
 * n_means. */
static void normalise_all(const struct recipe *r, uint64_t apart, uint64_t first, float *values, size_t n)
{
	const struct recipe_tensor *t = &r->tensor;

	if (t->n_means == 1) {
		normalise(values, n, t->mean[0], t->std[0]);
		return;
	}
	while (n > 0) {
		uint64_t channel = first / apart % t->n_means, left = apart - first % apart;
		size_t now = left < n ? (size_t)left : n;

		normalise(values, now, t->mean[channel], t->std[channel]);
		values += now;
		first += now;
		n -= now;
	}
}

#define STORE(function)                                                                                      \
	for (size_t i = 0; i < n; i++) {                                                                     \
		uint16_t v = function(values[i]);                                                            \
                                                                                                             \
		memcpy(out + i * sizeof(v), &v, sizeof(v));                                                  \
	}

static void store_floats(enum recipe_type type, const float *values, size_t n, uint8_t *out)
{
	switch ((int)type) {
	case RECIPE_FLOAT32: memcpy(out, values, n * sizeof(float)); break;
	case RECIPE_FLOAT16: STORE(number_half); break;
	case RECIPE_BFLOAT16: STORE(number_brain); break;
	}
}

/* Returns the distance between channels in the output, in numbers. */
static uint64_t between_channels(const struct lie *lie)
{
	uint64_t apart = 1;

	for (uint32_t i = (uint32_t)(lie->channels + 1); lie->channels >= 0 && i < lie->n_dimensions; i++)
		apart *= lie->size[i];
	return apart;
}

/* Writes all numbers to out. The caller ensures that all numbers that the sizes and strides address are
 * within data. */
static void convert(const struct recipe *r, const struct lie *lie, uint8_t *out)
{
	enum recipe_type stored = r->tensor.stored, type = r->type;
	uint32_t bytes = recipe_type_bytes(stored), out_bytes = recipe_type_bytes(type);
	struct element_cursor w = cursor_of(lie, bytes);
	uint64_t total = 1, apart = between_channels(lie);
	bool as_stored =
	    type == stored && !(r->flags & (RECIPE_UNIT | RECIPE_NORMALISE)) && type != RECIPE_BOOL;
	float unit = r->flags & RECIPE_UNIT ? greatest(stored) : 0;

	for (uint32_t i = 0; i < w.n; i++)
		total *= w.size[i];
	for (uint64_t done = 0; done < total; done += PIECE, out += (size_t)PIECE * out_bytes) {
		uint8_t raw[PIECE * sizeof(uint64_t)];
		float values[PIECE];
		size_t n = total - done < PIECE ? (size_t)(total - done) : PIECE;

		gather(&w, n, raw);
		if (lie->is_swapped)
			swap(raw, bytes, n);
		if (as_stored) {
			memcpy(out, raw, n * bytes);
		} else if (out_bytes == 1) {
			to_bytes(stored, raw, n, out);
		} else {
			to_floats(stored, raw, n, values);
			for (size_t i = 0; unit > 0 && i < n; i++)
				values[i] /= unit;
			if (r->flags & RECIPE_NORMALISE)
				normalise_all(r, apart, done, values, n);
			store_floats(type, values, n, out);
		}
	}
}

#define SHAPE_BYTES 192

static const char *type_name(enum recipe_type type)
{
	static const char *const names[RECIPE_N_TYPES] = {
	    [RECIPE_UINT8] = "uint8",       [RECIPE_FLOAT32] = "float32", [RECIPE_FLOAT16] = "float16",
	    [RECIPE_BFLOAT16] = "bfloat16", [RECIPE_INT8] = "int8",       [RECIPE_INT16] = "int16",
	    [RECIPE_INT32] = "int32",       [RECIPE_INT64] = "int64",     [RECIPE_FLOAT64] = "float64",
	    [RECIPE_BOOL] = "bool",         [RECIPE_UINT16] = "uint16",   [RECIPE_UINT32] = "uint32",
	    [RECIPE_UINT64] = "uint64"};

	return names[type];
}

/* Writes "uint8 [3, 32, 32]"; dimensions of 0 are written as `none`. */
static void describe(enum recipe_type type, uint32_t n, const uint64_t *dimensions, const char *none,
		     char text[SHAPE_BYTES])
{
	size_t used = (size_t)snprintf(text, SHAPE_BYTES, "%s [", type_name(type));

	for (uint32_t i = 0; i < n && used < SHAPE_BYTES; i++) {
		const char *comma = i > 0 ? ", " : "";

		used +=
		    (size_t)(dimensions[i] ? snprintf(text + used, SHAPE_BYTES - used, "%s%llu", comma,
						      (unsigned long long)dimensions[i])
					   : snprintf(text + used, SHAPE_BYTES - used, "%s%s", comma, none));
	}
	if (used < SHAPE_BYTES)
		snprintf(text + used, SHAPE_BYTES - used, "]");
}

/* Returns the array that the recipe describes. */
static struct npy expected(const struct recipe *r)
{
	struct npy npy = {.type = r->tensor.stored, .n_dimensions = r->tensor.n_dimensions};

	for (uint32_t i = 0; i < npy.n_dimensions; i++)
		npy.dimensions[i] = r->tensor.dimensions[i];
	return npy;
}

static int check(const struct recipe *r, const struct npy *npy, struct error *err)
{
	struct npy wanted = expected(r);
	bool is_it = npy->type == wanted.type && npy->n_dimensions == wanted.n_dimensions;
	char text[SHAPE_BYTES], wanted_text[SHAPE_BYTES];
	int height, width, channels;

	for (uint32_t i = 0; is_it && i < wanted.n_dimensions; i++)
		is_it = !wanted.dimensions[i] || npy->dimensions[i] == wanted.dimensions[i];
	describe(npy->type, npy->n_dimensions, npy->dimensions, "0", text);
	describe(wanted.type, wanted.n_dimensions, wanted.dimensions, "any", wanted_text);
	if (!is_it)
		return error_set(err, -EBADMSG, "the array is %s, but must be %s", text, wanted_text);
	recipe_axes(r->tensor.layout, &height, &width, &channels);
	/* Without a crop, the recipe's sides are 0. Positions have 32 bits. */
	if (height >= 0 && (npy->dimensions[height] < r->height || npy->dimensions[width] < r->width))
		return error_set(err, -EBADMSG, "the array is %s, too small for a crop of %u x %u", text,
				 r->height, r->width);
	if (height >= 0 && (npy->dimensions[height] > INT32_MAX || npy->dimensions[width] > INT32_MAX))
		return error_set(err, -EBADMSG, "the array is %s: each side must be below 2^31", text);
	return 0;
}

/* Returns the layout of the stored array, in the order of its dimensions. */
static struct lie lie_of(const struct npy *npy, const uint8_t *data)
{
	struct lie lie = {.data = data, .at = (int64_t)npy->offset, .n_dimensions = npy->n_dimensions};
	int64_t stride = recipe_type_bytes(npy->type);

	lie.is_swapped = npy->is_big_endian;
	for (uint32_t k = 0; k < npy->n_dimensions; k++) {
		uint32_t i = npy->is_fortran ? k : npy->n_dimensions - 1 - k;

		lie.size[i] = npy->dimensions[i];
		lie.stride[i] = stride;
		stride *= (int64_t)npy->dimensions[i];
	}
	return lie;
}

static void cut(struct lie *lie, int axis, uint32_t begin, uint32_t size)
{
	lie->at += begin * lie->stride[axis];
	lie->size[axis] = size;
}

static void mirror(struct lie *lie, int axis)
{
	lie->at += (int64_t)(lie->size[axis] - 1) * lie->stride[axis];
	lie->stride[axis] = -lie->stride[axis];
}

/* Moves the dimension `from` to `to`; the dimensions in between shift. */
static void move(struct lie *lie, int from, int to)
{
	uint64_t size = lie->size[from];
	int64_t stride = lie->stride[from];
	int way = from < to ? 1 : -1;

	for (int i = from; i != to; i += way) {
		lie->size[i] = lie->size[i + way];
		lie->stride[i] = lie->stride[i + way];
	}
	lie->size[to] = size;
	lie->stride[to] = stride;
	lie->channels = to;
}

static void arrange(const struct recipe *r, const struct recipe_place *place, struct lie *lie)
{
	enum recipe_layout wanted = r->flags & RECIPE_ROWS ? RECIPE_HWC : RECIPE_CHW;
	int height, width, channels;

	recipe_axes(r->tensor.layout, &height, &width, &channels);
	lie->channels = channels;
	if (height < 0)
		return;
	if (r->shape != RECIPE_WHOLE) {
		cut(lie, height, place->top, place->height);
		cut(lie, width, place->left, place->width);
	}
	if (place->upright)
		mirror(lie, height);
	if (place->sideways)
		mirror(lie, width);
	if (channels >= 0 && wanted != r->tensor.layout)
		move(lie, channels, wanted == RECIPE_HWC ? 2 : 0);
}

int tensor_make(const struct recipe *r, const struct tensor_visit *visit, const void *data, size_t bytes,
		void *out, struct error *err)
{
	struct recipe_place place = {.left = 0};
	struct npy npy = expected(r);
	int height, width, channels, result = 0;
	struct lie lie;

	if (r->kind == RECIPE_NUMPY) {
		result = npy_parse(data, bytes, &npy, err);
	} else {
		uint64_t wanted = recipe_type_bytes(npy.type);
		char text[SHAPE_BYTES];

		for (uint32_t i = 0; i < npy.n_dimensions; i++)
			wanted *= npy.dimensions[i];
		describe(npy.type, npy.n_dimensions, npy.dimensions, "0", text);
		if (bytes != wanted)
			result = error_set(err, -EBADMSG, "the sample has %zu bytes, but %s needs %llu",
					   bytes, text, (unsigned long long)wanted);
	}
	if (result == 0)
		result = check(r, &npy, err);
	if (result < 0)
		return result;
	recipe_axes(r->tensor.layout, &height, &width, &channels);
	if (height >= 0)
		recipe_place(r, visit->seed, visit->epoch, visit->sample, (uint32_t)npy.dimensions[width],
			     (uint32_t)npy.dimensions[height], &place);
	lie = lie_of(&npy, data);
	arrange(r, &place, &lie);
	convert(r, &lie, out);
	return 0;
}
