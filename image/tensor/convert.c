/* SPDX-License-Identifier: Apache-2.0 */
/* Converts an array in pieces that fit in the L1 cache: gathers, converts to single precision, computes,
 * stores. */
#include "convert.h"

#include <string.h>

#include "image/recipe/numbers.h"

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

void convert(const struct recipe *r, const struct lie *lie, uint8_t *out)
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
