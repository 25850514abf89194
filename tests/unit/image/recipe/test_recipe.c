/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: which are refused, which part of an image becomes a sample, and with which numbers. */
#include "tests/unit/test.h"

#include "image/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct recipe random_box(void)
{
	return (struct recipe){.kind = RECIPE_IMAGE,
			       .shape = RECIPE_RANDOM_BOX,
			       .width = 224,
			       .height = 160,
			       .filter = RECIPE_BILINEAR,
			       .scale = {0.08, 1},
			       .ratio = {0.75, 4.0 / 3},
			       .flip_sideways = 0.5};
}

/* ColorJitter(0.4, 0.3, 0.2, 0.1) */
static void jitter(struct recipe *r)
{
	r->jitter = 0.8;
	for (int i = 0; i < 2; i++) {
		r->brightness[i] = i ? 1.4 : 0.6;
		r->contrast[i] = i ? 1.3 : 0.7;
		r->saturation[i] = i ? 1.2 : 0.8;
		r->hue[i] = i ? 0.1 : -0.1;
	}
}

TEST(good_recipes_pass)
{
	struct recipe r = random_box(), none = {0};

	assert_null(recipe_check(&r));
	assert_null(recipe_check(&none));
	assert_int_equal(recipe_item_bytes(&none), 0);
	assert_int_equal(recipe_item_bytes(&r), 224 * 160 * 3);
	r.type = RECIPE_FLOAT32;
	r.flags = RECIPE_UNIT | RECIPE_NORMALISE;
	for (int c = 0; c < 3; c++)
		r.std[c] = 1;
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 224 * 160 * 12);
	jitter(&r);
	r.grey = 1;
	r.flags |= RECIPE_GREY;
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 224 * 160 * 4);
}

#define REFUSED(...)                                                                                         \
	do {                                                                                                 \
		struct recipe r = random_box();                                                              \
		__VA_ARGS__;                                                                                 \
		assert_non_null(recipe_check(&r));                                                           \
	} while (0)

static struct recipe codec(void)
{
	return (struct recipe){.kind = RECIPE_CODEC,
			       .type = RECIPE_FLOAT32,
			       .codec = {.name = "lab.wav-1", .n_dimensions = 2, .dimensions = {2, 16000}}};
}

TEST(recipes_for_codecs)
{
	struct recipe r = codec();

	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 2 * 16000 * 4);
	memset(r.codec.options, 'a', sizeof(r.codec.options) - 1);
	assert_null(recipe_check(&r));
	r.codec.options[sizeof(r.codec.options) - 1] = 'a';
	assert_non_null(recipe_check(&r));
	r = codec();
	r.codec.n_dimensions = 0;
	assert_non_null(recipe_check(&r));
	memset(r.codec.dimensions, 0, sizeof(r.codec.dimensions));
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_item_bytes(&r), 4);
	r = codec();
	r.codec.dimensions[1] = 1u << 27;
	assert_null(recipe_check(&r));
	r.type = RECIPE_FLOAT64;
	assert_non_null(recipe_check(&r));
	r = codec();
	r.codec.n_dimensions = RECIPE_MAX_DIMENSIONS;
	for (int i = 0; i < RECIPE_MAX_DIMENSIONS; i++)
		r.codec.dimensions[i] = UINT32_MAX;
	assert_non_null(recipe_check(&r)); /* also if the product overflows */
	r = codec();
	r.width = 1;
	assert_non_null(recipe_check(&r));
	r = codec();
	strcpy(r.codec.name, "-wav");
	assert_non_null(recipe_check(&r));
	assert_int_not_equal(recipe_seed(1, 2, 3), recipe_seed(1, 2, 4));
	assert_int_not_equal(recipe_seed(1, 2, 3), recipe_seed(1, 3, 3));
	assert_int_equal(recipe_seed(1, 2, 3), recipe_seed(1, 2, 3));
}

TEST(bad_recipes_are_refused)
{
	REFUSED(r.kind = 77);
	REFUSED(r.kind = RECIPE_CODEC);
	REFUSED(r.codec.name[0] = 'a');
	REFUSED(r.codec.n_dimensions = 1, r.codec.dimensions[0] = 1);
	REFUSED(r.kind = RECIPE_NONE);
	REFUSED(r.shape = RECIPE_N_SHAPES);
	REFUSED(r.width = 0);
	REFUSED(r.height = RECIPE_MAX_SIDE + 1);
	REFUSED(r.shorter = 300);
	REFUSED(r.filter = 0);
	REFUSED(r.type = RECIPE_N_IMAGE_TYPES);
	REFUSED(r.type = RECIPE_N_TYPES);
	REFUSED(r.flags = 32);
	REFUSED(r.flags = RECIPE_TENSOR_COLOURS);
	REFUSED(r.flags = RECIPE_GREY);
	REFUSED(r.flags = RECIPE_GREY; r.grey = 0.5);
	REFUSED(r.grey = 1.5);
	REFUSED(r.jitter = -0.1);
	REFUSED(r.hue[1] = 0.1);
	REFUSED(jitter(&r); r.jitter = 0);
	REFUSED(jitter(&r); r.hue[1] = 0.6);
	REFUSED(jitter(&r); r.contrast[0] = -0.1);
	REFUSED(jitter(&r); r.brightness[1] = INFINITY);
	REFUSED(jitter(&r); r.saturation[0] = 2);
	REFUSED(r.flags = RECIPE_UNIT);
	REFUSED(r.damage = RECIPE_N_DAMAGES);
	REFUSED(r.reserved = 1);
	REFUSED(r.scale[0] = -0.1);
	REFUSED(r.scale[1] = NAN);
	REFUSED(r.scale[1] = 0.01);
	REFUSED(r.scale[0] = r.scale[1] = 0);
	REFUSED(r.ratio[0] = 0);
	REFUSED(r.ratio[1] = INFINITY);
	REFUSED(r.flip_sideways = 1.1);
	REFUSED(r.flip_upright = NAN);
	REFUSED(r.mean[0] = 1);
	REFUSED(r.type = RECIPE_FLOAT32; r.flags = RECIPE_NORMALISE);
	REFUSED(r.shape = RECIPE_WHOLE);
	REFUSED(r.shape = RECIPE_MIDDLE; r.shorter = 223; memset(r.scale, 0, sizeof(r.scale));
		memset(r.ratio, 0, sizeof(r.ratio)));
}

TEST(a_random_box_is_of_the_image)
{
	static const uint32_t sizes[][2] = {{500, 375}, {375, 500}, {1, 1}, {1, 5000}, {5000, 1}, {224, 160}};
	const struct recipe r = random_box();
	struct recipe_place p;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (uint64_t i = 0; i < 1000; i++) {
			recipe_place(&r, 7, 2, i, sizes[s][0], sizes[s][1], &p);
			assert_true(p.width >= 1 && p.left + p.width <= sizes[s][0]);
			assert_true(p.height >= 1 && p.top + p.height <= sizes[s][1]);
			assert_int_equal(p.made_width, 224);
			assert_int_equal(p.made_height, 160);
			assert_false(p.upright);
		}
	}
}

/* In 20,000 boxes, areas are as uniform as they should be, ratios symmetric, and positions all over the
 * image. */
TEST(random_boxes_are_distributed_as_they_should_be)
{
	const struct recipe r = random_box();
	const int n = 20000;
	double area = 0, ratio = 0, left = 0;
	int flipped = 0;
	struct recipe_place p;

	for (int i = 0; i < n; i++) {
		recipe_place(&r, 1, 0, (uint64_t)i, 1000, 1000, &p);
		area += (double)p.width * p.height / 1e6 / n;
		ratio += log((double)p.width / p.height) / n;
		left += (p.width == 1000 ? 0.5 : (double)p.left / (1000 - p.width)) / n;
		flipped += p.sideways;
	}
	/* Boxes that do not fit are drawn again, and these are large ones, so the mean is less than 0.54. */
	assert_true(area > 0.47 && area < 0.54);
	assert_true(fabs(ratio) < 0.01);
	assert_true(fabs(left - 0.5) < 0.01);
	assert_true(abs(flipped - n / 2) < n / 50);
}

TEST(a_place_is_a_function_of_seed_epoch_and_sample)
{
	const struct recipe r = random_box();
	struct recipe_place p, q;

	recipe_place(&r, 1, 2, 3, 500, 375, &p);
	recipe_place(&r, 1, 2, 3, 500, 375, &q);
	assert_memory_equal(&p, &q, offsetof(struct recipe_place, sideways));
	assert_true(p.sideways == q.sideways && p.upright == q.upright);
	for (int k = 0; k < 3; k++) {
		recipe_place(&r, 1 + (k == 0), 2 + (k == 1), 3 + (k == 2), 500, 375, &q);
		assert_memory_not_equal(&p, &q, offsetof(struct recipe_place, made_width));
	}
}

/* The values are those of torchvision 0.14 for Resize(256), CenterCrop(224). */
TEST(the_middle_is_torchvisions)
{
	static const struct {
		uint32_t width, height, made_width, made_height, x, y;
	} cases[] = {
	    {500, 375, 341, 256, 58, 16}, {375, 500, 256, 341, 16, 58}, {333, 333, 256, 256, 16, 16},
	    {257, 256, 257, 256, 16, 16}, {10, 7, 365, 256, 70, 16},
	};
	struct recipe r = random_box();
	struct recipe_place p;

	r.shape = RECIPE_MIDDLE;
	r.height = 224;
	r.shorter = 256;
	memset(r.scale, 0, sizeof(r.scale));
	memset(r.ratio, 0, sizeof(r.ratio));
	assert_null(recipe_check(&r));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		recipe_place(&r, 0, 0, 0, cases[i].width, cases[i].height, &p);
		assert_int_equal(p.width, cases[i].width);
		assert_int_equal(p.height, cases[i].height);
		assert_int_equal(p.made_width, cases[i].made_width);
		assert_int_equal(p.made_height, cases[i].made_height);
		assert_int_equal(p.x, cases[i].x);
		assert_int_equal(p.y, cases[i].y);
	}
}

/* Resize(256), RandomCrop(224) crops the same resized image, with each position equally likely. */
TEST(a_random_crop_is_of_the_resized_image)
{
	unsigned int n_x[118] = {0}, n_y[33] = {0};
	struct recipe r = random_box(), key;
	struct recipe_place p, again;

	r.shape = RECIPE_RANDOM_CROP;
	r.height = r.width = 224;
	assert_non_null(recipe_check(&r)); /* the size to resize to is missing */
	r.shorter = 256;
	memset(r.scale, 0, sizeof(r.scale));
	memset(r.ratio, 0, sizeof(r.ratio));
	assert_null(recipe_check(&r));
	assert_int_equal(recipe_decoded(&r, &key), RECIPE_DECODED_NONE);
	for (uint64_t i = 0; i < 20000; i++) {
		recipe_place(&r, 3, 1, i, 500, 375, &p);
		assert_true(p.width == 500 && p.height == 375 && !p.left && !p.top);
		assert_true(p.made_width == 341 && p.made_height == 256);
		assert_true(p.x <= 341 - 224 && p.y <= 256 - 224);
		n_x[p.x]++;
		n_y[p.y]++;
		recipe_place(&r, 3, 1, i, 500, 375, &again);
		assert_memory_equal(&p, &again, offsetof(struct recipe_place, sideways));
		assert_true(p.sideways == again.sideways && p.upright == again.upright);
	}
	for (size_t i = 0; i < 118; i++)
		assert_in_range(n_x[i], 100, 250);
	for (size_t i = 0; i < 33; i++)
		assert_in_range(n_y[i], 450, 770);
	r.shorter = 223;
	assert_non_null(recipe_check(&r));
	r.shorter = 16384;
	recipe_place(&r, 0, 0, 0, (1 << 18) + 1, 1, &p);
	assert_true(p.made_height == 16384 && p.made_width == UINT32_MAX);
}

/* An image that is refused for its size must not appear to be a small one. */
TEST(what_is_too_long_stays_so)
{
	struct recipe r = random_box();
	struct recipe_place p;

	r.shape = RECIPE_MIDDLE;
	r.shorter = 16384;
	memset(r.scale, 0, sizeof(r.scale));
	memset(r.ratio, 0, sizeof(r.ratio));
	recipe_place(&r, 0, 0, 0, (1 << 18) + 1, 1, &p);
	assert_true(p.made_height == 16384 && p.made_width == UINT32_MAX);
	recipe_place(&r, 0, 0, 0, 1, 1 << 18, &p);
	assert_true(p.made_width == 16384 && p.made_height == UINT32_MAX);
}

static const uint8_t pixels[] = {0, 1, 2, 3, 4, 5, 250, 251, 255, 7, 8, 9}; /* 2 x 2 */

static void store(struct recipe *r, bool sideways, bool upright, void *out)
{
	struct recipe_place place = {.sideways = sideways, .upright = upright};
	struct recipe_table table;

	r->width = r->height = 2;
	assert_null(recipe_check(r));
	recipe_table_make(r, &table);
	recipe_store(r, &table, &place, pixels, out);
}

TEST(pixels_are_stored_by_channel_or_by_row)
{
	static const uint8_t rows[] = {250, 251, 255, 7, 8, 9, 0, 1, 2, 3, 4, 5};
	static const uint8_t mirrored[] = {3, 0, 7, 250, 4, 1, 8, 251, 5, 2, 9, 255};
	struct recipe r = random_box();
	uint8_t out[12];

	store(&r, true, false, out);
	assert_memory_equal(out, mirrored, sizeof(out));
	r.flags = RECIPE_ROWS;
	store(&r, false, true, out);
	assert_memory_equal(out, rows, sizeof(out));
}

TEST(one_channel_is_stored_alone)
{
	static const uint8_t mirrored[] = {3, 0, 7, 250};
	struct recipe r = random_box();
	uint8_t out[4];

	r.grey = 1;
	for (int rows = 0; rows < 2; rows++) {
		r.flags = RECIPE_GREY | (rows ? RECIPE_ROWS : 0);
		store(&r, true, false, out);
		assert_memory_equal(out, mirrored, sizeof(out));
	}
}

/* In 20,000 draws, each order of the four is equally frequent, factors are uniform, and probabilities are as
 * requested. */
TEST(colours_are_drawn_as_torchvision_draws_them)
{
	struct recipe r = random_box();
	int n_applied = 0, n_grey = 0, orders[256] = {0}, n_orders = 0, n = 20000;
	double sum[RECIPE_N_COLOURS] = {0}, least[RECIPE_N_COLOURS] = {1, 1, 1, 1},
	       most[RECIPE_N_COLOURS] = {0};
	struct recipe_colours c;

	jitter(&r);
	r.grey = 0.2;
	for (int i = 0; i < n; i++) {
		int order = 0;

		recipe_draw_colours(&r, 1, 0, (uint64_t)i, &c);
		n_grey += c.grey;
		n_applied += c.n > 0;
		assert_true(c.n == 0 || c.n == 4);
		for (uint32_t k = 0; k < c.n; k++) {
			order = order << 2 | (int)c.order[k];
			sum[c.order[k]] += c.factor[k];
			least[c.order[k]] = fmin(least[c.order[k]], c.factor[k]);
			most[c.order[k]] = fmax(most[c.order[k]], c.factor[k]);
		}
		orders[order] += c.n > 0;
	}
	assert_true(abs(n_applied - n * 4 / 5) < n / 100 && abs(n_grey - n / 5) < n / 100);
	for (int i = 0; i < 256; i++) {
		n_orders += orders[i] > 0;
		assert_true(!orders[i] || abs(orders[i] - n_applied / 24) < n_applied / 24 / 5);
	}
	assert_int_equal(n_orders, 24);
	for (int k = 0; k < RECIPE_N_COLOURS; k++) {
		double reach = k == RECIPE_HUE ? 0.1 : 0.4 - 0.1 * k, middle = k == RECIPE_HUE ? 0 : 1;

		assert_true(fabs(sum[k] / n_applied - middle) < 0.01);
		assert_true(least[k] >= (float)(middle - reach) && least[k] < middle - 0.98 * reach);
		assert_true(most[k] <= (float)(middle + reach) && most[k] > middle + 0.98 * reach);
	}
}

TEST(what_has_no_range_is_left_out)
{
	struct recipe r = random_box();
	struct recipe_colours c, d;

	recipe_draw_colours(&r, 1, 2, 3, &c);
	assert_true(c.n == 0 && !c.grey);
	jitter(&r);
	r.jitter = 1;
	r.contrast[0] = r.contrast[1] = 1;
	r.hue[0] = r.hue[1] = 0;
	r.saturation[0] = r.saturation[1] = 1.25; /* always this factor */
	recipe_draw_colours(&r, 1, 2, 3, &c);
	assert_int_equal(c.n, 2);
	for (int i = 0; i < 2; i++) {
		assert_true(c.order[i] == RECIPE_BRIGHTNESS || c.order[i] == RECIPE_SATURATION);
		assert_true(c.order[i] == RECIPE_BRIGHTNESS || c.factor[i] == 1.25f);
	}
	recipe_draw_colours(&r, 1, 2, 4, &d);
	assert_true(c.factor[0] != d.factor[0] || c.factor[1] != d.factor[1]);
}

/* The values are those of Pillow 9.4 and 12 for ImageEnhance, and for turning the hue in HSV; and those of
 * torchvision 0.28's kernels for tensors. */
TEST(colours_are_those_of_pillow_and_of_torchvision)
{
	static const uint8_t original[] = {0,  0,   0,  200, 30, 90,  255, 255, 255,
					   17, 140, 60, 90,  91, 250, 128, 128, 127};
	static const struct {
		enum recipe_colour colour;
		float factor;
		uint8_t wanted[2][sizeof(original)]; /* Pillow's, torchvision's */
	} cases[] = {
	    {RECIPE_BRIGHTNESS,
	     0.7f,
	     {{0, 0, 0, 140, 21, 63, 178, 178, 178, 11, 98, 42, 63, 63, 175, 89, 89, 88},
	      {0, 0, 0, 140, 21, 63, 178, 178, 178, 11, 98, 42, 63, 63, 175, 89, 89, 88}}},
	    {RECIPE_BRIGHTNESS,
	     1.4f,
	     {{0, 0, 0, 255, 42, 126, 255, 255, 255, 23, 196, 84, 126, 127, 255, 179, 179, 177},
	      {0, 0, 0, 255, 42, 126, 255, 255, 255, 23, 196, 84, 126, 127, 255, 179, 179, 177}}},
	    {RECIPE_CONTRAST,
	     0.5f,
	     {{56, 56, 56, 156, 71, 101, 183, 183, 183, 64, 126, 86, 101, 101, 181, 120, 120, 119},
	      {55, 55, 55, 155, 70, 100, 183, 183, 183, 64, 125, 85, 100, 101, 180, 119, 119, 119}}},
	    {RECIPE_CONTRAST,
	     1.9f,
	     {{0, 0, 0, 255, 0, 70, 255, 255, 255, 0, 165, 13, 70, 72, 255, 142, 142, 140},
	      {0, 0, 0, 255, 0, 70, 255, 255, 255, 0, 165, 13, 70, 72, 255, 142, 142, 140}}},
	    {RECIPE_SATURATION,
	     0.0f,
	     {{0, 0, 0, 88, 88, 88, 255, 255, 255, 94, 94, 94, 109, 109, 109, 128, 128, 128},
	      {0, 0, 0, 87, 87, 87, 254, 254, 254, 94, 94, 94, 108, 108, 108, 127, 127, 127}}},
	    {RECIPE_SATURATION,
	     0.6f,
	     {{0, 0, 0, 155, 53, 89, 255, 255, 255, 47, 121, 73, 97, 98, 193, 128, 128, 127},
	      {0, 0, 0, 154, 52, 88, 254, 254, 254, 47, 121, 73, 97, 97, 193, 127, 127, 127}}},
	    {RECIPE_SATURATION,
	     1.7f,
	     {{0, 0, 0, 255, 0, 91, 255, 255, 255, 0, 172, 36, 76, 78, 255, 128, 128, 126},
	      {0, 0, 0, 255, 0, 92, 255, 255, 255, 0, 172, 36, 77, 79, 255, 128, 128, 127}}},
	    {RECIPE_HUE,
	     0.0f,
	     {{0, 0, 0, 200, 31, 90, 255, 255, 255, 17, 140, 58, 90, 94, 250, 128, 128, 127},
	      {0, 0, 0, 200, 30, 90, 255, 255, 255, 17, 140, 60, 90, 91, 250, 128, 128, 127}}},
	    {RECIPE_HUE,
	     0.25f,
	     {{0, 0, 0, 182, 200, 31, 255, 255, 255, 17, 40, 140, 250, 90, 177, 127, 128, 128},
	      {0, 0, 0, 175, 200, 30, 255, 255, 255, 17, 35, 140, 250, 90, 171, 127, 128, 127}}},
	    {RECIPE_HUE,
	     -0.4f,
	     {{0, 0, 0, 31, 158, 200, 255, 255, 255, 140, 17, 23, 158, 250, 90, 128, 127, 128},
	      {0, 0, 0, 30, 158, 200, 255, 255, 255, 140, 17, 23, 155, 250, 90, 128, 127, 128}}},
	};
	uint8_t made[sizeof(original)];

	for (int of_tensors = 0; of_tensors < 2; of_tensors++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			const struct recipe_colours c = {.n = 1,
							 .of_tensors = of_tensors,
							 .order = {cases[i].colour},
							 .factor = {cases[i].factor}};

			memcpy(made, original, sizeof(made));
			recipe_colour(&c, made, sizeof(made) / 3);
			assert_memory_equal(made, cases[i].wanted[of_tensors], sizeof(made));
		}
		const struct recipe_colours grey = {.grey = true, .of_tensors = of_tensors};

		recipe_colour(&grey, memcpy(made, original, sizeof(made)), 2);
		assert_memory_equal(made, of_tensors ? "\0\0\0\x57\x57\x57" : "\0\0\0\x58\x58\x58", 6);
		assert_memory_equal(made + 6, original + 6, sizeof(made) - 6);
	}
}

TEST(a_flag_chooses_the_colours_of_tensors)
{
	struct recipe_colours c;
	struct recipe r = random_box();

	jitter(&r);
	recipe_draw_colours(&r, 1, 2, 3, &c);
	assert_false(c.of_tensors);
	r.flags = RECIPE_TENSOR_COLOURS;
	recipe_draw_colours(&r, 1, 2, 3, &c);
	assert_true(c.of_tensors);
}

TEST(numbers_are_those_of_their_type)
{
	struct recipe r = random_box();
	uint16_t half[12];
	float full[12];

	r.type = RECIPE_FLOAT32;
	store(&r, false, false, full);
	assert_true(full[2] == 250.0f && full[8 + 2] == 255.0f);
	r.flags = RECIPE_UNIT | RECIPE_NORMALISE;
	for (int c = 0; c < 3; c++) {
		r.mean[c] = 0.485f;
		r.std[c] = 0.229f;
	}
	store(&r, false, false, full);
	assert_true(full[0] == (0.0f / 255.0f - 0.485f) / 0.229f);
	assert_true(full[8 + 2] == (255.0f / 255.0f - 0.485f) / 0.229f);
	r.type = RECIPE_FLOAT16;
	store(&r, false, false, half);
	assert_int_equal(half[0], 0xc03c); /* -2.1179 */
	r.type = RECIPE_BFLOAT16;
	store(&r, false, false, half);
	assert_int_equal(half[0], 0xc008);
	r.type = RECIPE_FLOAT16;
	r.flags = RECIPE_UNIT;
	memset(r.mean, 0, sizeof(r.mean));
	memset(r.std, 0, sizeof(r.std));
	store(&r, false, false, half);
	assert_int_equal(half[8 + 2], 0x3c00); /* 1 */
	assert_int_equal(half[4], 0x1c04);     /* 1 / 255 */
	assert_int_equal(half[0], 0);
	r.flags = RECIPE_NORMALISE; /* too small or too large for its exponent */
	for (int c = 0; c < 3; c++)
		r.std[c] = c ? 1e-6f : 1e8f;
	store(&r, false, false, half);
	assert_int_equal(half[1], 0x0001); /* 3e-8 rounds to 6e-8 */
	assert_int_equal(half[4], 0x7c00); /* infinite */
}
