/* SPDX-License-Identifier: Apache-2.0 */
#include "image/tensor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"

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
