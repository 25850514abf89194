/* SPDX-License-Identifier: Apache-2.0 */
/* The scale at which a photograph's decoded copy is kept. */
#include "tests/unit/test.h"

#include "daemon/sandboxed/decoded_scale.h"

#include <math.h>

static const struct recipe usual = {
    .kind = RECIPE_IMAGE,
    .shape = RECIPE_RANDOM_BOX,
    .width = 224,
    .height = 224,
    .filter = RECIPE_BILINEAR,
    .scale = {0.08, 1},
    .ratio = {3. / 4, 4. / 3},
};

static struct image_info photograph(uint32_t width, uint32_t height, uint32_t h, uint32_t v)
{
	return (struct image_info){.kind = IMAGE_JPEG,
				   .width = width,
				   .height = height,
				   .h = h,
				   .v = v,
				   .has_planes = h == 2 && v == 2};
}

/* Returns 0 if no decoded copy is kept. */
static uint32_t chosen(const struct recipe *recipe, struct image_info info, bool *ret_is_planes)
{
	struct image_whole whole = {.by = 0};

	if (!decoded_scale_choose(recipe, &info, &whole))
		return 0;
	assert_int_equal(whole.info.width, info.width);
	assert_int_equal(whole.info.h, info.h);
	if (ret_is_planes)
		*ret_is_planes = whole.is_planes;
	return whole.by;
}

TEST(the_scale_that_most_crops_have)
{
	bool is_planes;

	assert_int_equal(chosen(&usual, photograph(500, 375, 2, 2), &is_planes), 1);
	assert_true(is_planes);
	assert_int_equal(chosen(&usual, photograph(500, 375, 1, 1), &is_planes), 1);
	assert_false(is_planes);
	assert_int_equal(chosen(&usual, photograph(2000, 1500, 2, 2), &is_planes), 2);
	assert_false(is_planes);
	assert_int_equal(chosen(&usual, photograph(4000, 3000, 2, 2), NULL), 4);
	assert_int_equal(chosen(&usual, photograph(8000, 6000, 2, 2), NULL), 8);
	/* If chroma has fewer columns than rows, a smaller scale would be visible. */
	assert_int_equal(chosen(&usual, photograph(2000, 1500, 2, 1), NULL), 1);
	assert_int_equal(chosen(&usual, photograph(4000, 3000, 2, 1), NULL), 2);
	/* Images of other formats have one scale. */
	struct image_info png = photograph(4000, 3000, 0, 0);

	png.kind = IMAGE_PNG;
	assert_int_equal(chosen(&usual, png, NULL), 1);
}

/* Returns the share of the crops that are decoded at a scale of 1/by. */
static double share(const struct recipe *recipe, const struct image_info *info, uint32_t by)
{
	const uint32_t n = 20000;
	uint32_t found = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct image_request request;
		struct recipe_place place;

		recipe_place(recipe, 99, i, 7, info->width, info->height, &place);
		request = decoded_scale_request(recipe, &place);
		found += image_scale(info, &request) == by;
	}
	return (double)found / n;
}

TEST(a_choice_for_few_draws_holds_for_many)
{
	uint32_t n_decoded_copies = 0;

	for (uint32_t width = 300; width < 9000; width += width / 7) {
		struct image_info info = photograph(width, width * 3 / 4, 2, 2);
		uint32_t by = chosen(&usual, info, NULL);
		double best = 0;

		for (uint32_t other = 1; other <= 8; other *= 2)
			best = fmax(best, share(&usual, &info, other));
		if (by) {
			n_decoded_copies++;
			assert_true(share(&usual, &info, by) > best - 0.1);
		} else {
			assert_true(best < 0.55);
		}
	}
	assert_true(n_decoded_copies > 15);
}

/* A full-size copy of a photograph that only half of its crops or fewer use takes too much memory for its
 * saving. */
TEST(what_is_not_worth_it)
{
	struct recipe wide = usual;
	struct image_info info = photograph(2000, 1500, 1, 1);

	wide.scale[0] = 0.01;
	wide.scale[1] = 0.9;
	for (uint32_t side = 100; side < 400; side += 10) {
		uint32_t by;
		double at_own_size;

		wide.width = wide.height = side;
		by = chosen(&wide, info, NULL);
		at_own_size = share(&wide, &info, 1);
		if (at_own_size < 0.4)
			assert_int_not_equal(by, 1);
		if (at_own_size > 0.6)
			assert_int_equal(by, 1);
	}
	/* Each of four scales is used by a part of the crops, so the copy is a small one. */
	wide.width = wide.height = 60;
	wide.scale[0] = 0.0005;
	wide.scale[1] = 0.3;
	assert_true(chosen(&wide, info, NULL) >= 2);
}

/* The result depends on neither seed nor sample, and is always the same. */
TEST(nothing_else_counts)
{
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(chosen(&usual, photograph(2600, 1950, 2, 2), NULL), 2);
	assert_int_equal(chosen(&usual, photograph(1, 1, 2, 2), NULL), 1);
	assert_int_equal(chosen(&usual, photograph(65535, 1, 2, 2), NULL), 1);
}
