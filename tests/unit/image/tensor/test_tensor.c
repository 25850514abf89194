/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: which recipes are refused, how files are parsed, and where each number goes.
 * tests/integration/loader/test_arrays.py compares values of all types with NumPy. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "image/tensor.h"

/* Returns a recipe of four rows of three columns of two channels. */
static struct recipe rows(void)
{
	return (struct recipe){.kind = RECIPE_BYTES,
			       .flags = RECIPE_ROWS,
			       .tensor = {.layout = RECIPE_HWC, .n_dimensions = 3, .dimensions = {4, 3, 2}}};
}

TEST(good_recipes_pass)
{
	struct recipe r = rows();

	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 24);
	r.shape = RECIPE_RANDOM_CROP;
	r.width = r.height = 2;
	r.type = RECIPE_FLOAT32;
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 2 * 2 * 2 * 4);
	r.kind = RECIPE_NUMPY;
	r.tensor.dimensions[0] = r.tensor.dimensions[1] = 0; /* any sizes that hold the crop */
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 2 * 2 * 2 * 4);
	r = (struct recipe){.kind = RECIPE_NUMPY, .type = RECIPE_INT64, .tensor = {.stored = RECIPE_INT64}};
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 8);
}

#define REFUSED(...)                                                                                         \
	do {                                                                                                 \
		struct recipe r = rows();                                                                    \
		__VA_ARGS__;                                                                                 \
		assert_non_null(recipe_check(&r));                                                           \
	} while (0)

TEST(bad_recipes_are_refused)
{
	REFUSED(r.kind = RECIPE_IMAGE);
	REFUSED(r.kind = RECIPE_BYTES + 1);
	REFUSED(r.damage = RECIPE_N_DAMAGES);
	REFUSED(r.filter = RECIPE_BILINEAR);
	REFUSED(r.shorter = 1);
	REFUSED(r.mean[0] = 1);
	REFUSED(r.scale[1] = 1);
	REFUSED(r.width = 1);
	REFUSED(r.shape = RECIPE_RANDOM_BOX; r.width = r.height = 1);
	REFUSED(r.shape = RECIPE_RANDOM_CROP; r.width = 4; r.height = 4);
	REFUSED(r.shape = RECIPE_RANDOM_CROP; r.width = 3);
	REFUSED(r.shape = RECIPE_MIDDLE; r.width = r.height = 1; r.tensor.dimensions[0] = 0);
	REFUSED(r.flags = 1u << 31);
	REFUSED(r.type = RECIPE_N_TYPES);
	REFUSED(r.type = RECIPE_INT16);
	REFUSED(r.flags |= RECIPE_UNIT);
	REFUSED(r.tensor.stored = RECIPE_FLOAT32);
	REFUSED(r.tensor.stored = RECIPE_N_TYPES);
	REFUSED(r.tensor.layout = RECIPE_N_LAYOUTS);
	REFUSED(r.tensor.layout = RECIPE_HW);
	REFUSED(r.tensor.layout = RECIPE_PLAIN);
	REFUSED(r.tensor.layout = RECIPE_PLAIN; r.flags = 0; r.flip_upright = 0.5);
	REFUSED(r.flip_sideways = NAN);
	REFUSED(r.tensor.n_dimensions = 9);
	REFUSED(r.tensor.n_dimensions = 4);
	REFUSED(r.tensor.dimensions[2] = 0);
	REFUSED(r.tensor.dimensions[3] = 1);
	REFUSED(r.tensor.dimensions[0] = r.tensor.dimensions[1] = UINT32_MAX);
	REFUSED(r.tensor.n_means = 1);
	REFUSED(r.type = RECIPE_FLOAT32; r.flags |= RECIPE_NORMALISE);
	REFUSED(r.type = RECIPE_FLOAT32; r.flags |= RECIPE_NORMALISE; r.tensor.n_means = 1);
	REFUSED(r.type = RECIPE_FLOAT32; r.flags |= RECIPE_NORMALISE; r.tensor.n_means = 3;
		for (int i = 0; i < 3; i++) r.tensor.std[i] = 1);
	REFUSED(r.type = RECIPE_FLOAT32; r.flags |= RECIPE_NORMALISE; r.tensor.n_means = UINT32_MAX);
}

/* Applies the recipe to the numbers 0, 1, ... */
static void made_of_rows(const struct recipe *r, uint8_t *out)
{
	uint8_t data[24];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	assert_null(recipe_check(r));
	assert_int_equal(tensor_make(r, &(struct tensor_visit){1, 2, 3}, data, sizeof(data), out, NULL), 0);
}

TEST(numbers_go_where_they_belong)
{
	static const uint8_t planes[] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
					 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23};
	static const uint8_t mirrored[] = {4,  5,  2,  3,  0,  1,  10, 11, 8,  9,  6,  7,
					   16, 17, 14, 15, 12, 13, 22, 23, 20, 21, 18, 19};
	static const uint8_t middle[] = {6, 8, 12, 14, 7, 9, 13, 15};
	uint8_t out[24];
	struct recipe r = rows();

	made_of_rows(&r, out);
	assert_int_equal(out[23], 23);
	r.flags = 0;
	made_of_rows(&r, out);
	assert_memory_equal(out, planes, sizeof(planes));
	r.shape = RECIPE_MIDDLE;
	r.width = r.height = 2;
	made_of_rows(&r, out);
	assert_memory_equal(out, middle, sizeof(middle));
	r = rows();
	r.flip_sideways = 1;
	made_of_rows(&r, out);
	assert_memory_equal(out, mirrored, sizeof(mirrored));
	r.flip_sideways = 0;
	r.flip_upright = 1;
	made_of_rows(&r, out);
	assert_int_equal(out[0], 18);
	assert_int_equal(out[23], 5);
}

TEST(a_random_crop_is_anywhere_in_it)
{
	struct recipe r = rows();
	uint8_t data[24], out[4];
	unsigned seen = 0;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	r.shape = RECIPE_RANDOM_CROP;
	r.width = 2;
	r.height = 1;
	for (uint64_t sample = 0; sample < 100; sample++) {
		assert_int_equal(
		    tensor_make(&r, &(struct tensor_visit){1, 2, sample}, data, sizeof(data), out, NULL), 0);
		assert_int_equal(out[3], out[0] + 3);
		seen |= 1u << out[0];
	}
	/* A row has 6 numbers, and two positions. */
	assert_int_equal(seen,
			 1u << 0 | 1u << 2 | 1u << 6 | 1u << 8 | 1u << 12 | 1u << 14 | 1u << 18 | 1u << 20);
}

/* Makes a file of version 1.0 with this dictionary and 24 bytes of numbers. */
static size_t file_of(const char *header, uint8_t *ret)
{
	size_t length = strlen(header);

	memcpy(ret, "\x93NUMPY\1\0", 8);
	ret[8] = (uint8_t)length;
	ret[9] = 0;
	memcpy(ret + 10, header, length);
	for (uint8_t i = 0; i < 24; i++)
		ret[10 + length + i] = i;
	return 10 + length + 24;
}

TEST(headers_are_read)
{
	static const char *const good[] = {
	    "{'descr': '>u2', 'fortran_order': True, 'shape': (4, 3), }",
	    "{\"shape\":(4L,3L),\"descr\":\">u2\",\"fortran_order\":True} \n",
	};
	uint8_t data[256];
	struct npy npy;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(npy_parse(data, file_of(good[i], data), &npy, NULL), 0);
		assert_int_equal(npy.type, RECIPE_UINT16);
		assert_true(npy.is_big_endian && npy.is_fortran);
		assert_int_equal(npy.n_dimensions, 2);
		assert_int_equal(npy.dimensions[0], 4);
		assert_int_equal(npy.dimensions[1], 3);
		assert_int_equal(npy.offset, 10 + strlen(good[i]));
	}
	assert_int_equal(
	    npy_parse(data, file_of("{'descr':'|b1','fortran_order':False,'shape':()}", data), &npy, NULL),
	    0);
	assert_int_equal(npy.n_dimensions, 0);
}

TEST(damaged_headers_are_named)
{
	static const struct {
		const char *header, *words;
	} bad[] = {
	    {"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "Python objects"},
	    {"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (3,)}", "a structure"},
	    {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", "type is '<c8'"},
	    {"{'descr': '<\x1b\xff\n', 'fortran_order': False, 'shape': (3,)}", "type is '<\?\?\?'"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}", "24 of the 28 bytes"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
	     "more than 8 dimensions"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': 3}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False}", "damaged"},
	    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)", "damaged"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}}", "damaged"},
	    {"{'descr': '<f4", "a structure"},
	    {"", "damaged"},
	};
	uint8_t data[256];
	struct npy npy;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct error err = ERROR_INIT;

		assert_int_equal(npy_parse(data, file_of(bad[i].header, data), &npy, &err), -EBADMSG);
		assert_non_null(strstr(err.text, bad[i].words));
	}
	size_t bytes = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", data);

	/* Every prefix of the file is read from memory of exactly that size, so that sanitizers notice a read
	 * past the end. */
	for (size_t n = 0; n < bytes; n++) {
		uint8_t *part = malloc(n ? n : 1);

		memcpy(part, data, n);
		assert_int_equal(npy_parse(part, n, &npy, NULL), -EBADMSG);
		free(part);
	}
	data[6] = 4;
	assert_int_equal(npy_parse(data, bytes, &npy, NULL), -EBADMSG);
}

TEST(what_does_not_fit_is_named)
{
	struct recipe r = rows();
	struct error err = ERROR_INIT;
	uint8_t data[256] = {0}, out[24];

	assert_int_equal(tensor_make(&r, &(struct tensor_visit){1, 2, 3}, data, 23, out, &err), -EBADMSG);
	assert_string_equal(err.text, "the sample has 23 bytes, but uint8 [4, 3, 2] needs 24");
	r.kind = RECIPE_NUMPY;
	size_t bytes = file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2, 0)}", data);

	assert_int_equal(tensor_make(&r, &(struct tensor_visit){1, 2, 3}, data, bytes, out, &err), -EBADMSG);
	assert_string_equal(err.text, "the array is uint8 [4, 2, 0], but must be uint8 [4, 3, 2]");
	r.shape = RECIPE_RANDOM_CROP;
	r.width = r.height = 2;
	r.tensor.dimensions[0] = r.tensor.dimensions[1] = 0;
	bytes = file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (12, 1, 2)}", data);
	assert_int_equal(tensor_make(&r, &(struct tensor_visit){1, 2, 3}, data, bytes, out, &err), -EBADMSG);
	assert_string_equal(err.text, "the array is uint8 [12, 1, 2], too small for a crop of 2 x 2");
	bytes = file_of("{'descr': '|i1', 'fortran_order': False, 'shape': (4, 3, 2)}", data);
	assert_int_equal(tensor_make(&r, &(struct tensor_visit){1, 2, 3}, data, bytes, out, &err), -EBADMSG);
	assert_string_equal(err.text, "the array is int8 [4, 3, 2], but must be uint8 [any, any, 2]");
}
