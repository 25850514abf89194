/* SPDX-License-Identifier: Apache-2.0 */
#include "decoded_scale.h"

#define N_SCALES 4 /* decode scales: 1/1, 1/2, 1/4, 1/8 */
#define N_DRAWS  256u
#define SEED     UINT64_C(0x77686f6c65)
/* Fraction of the best CPU saving per byte that a decoded copy must reach to be worth its memory. */
#define WORTH 0.5

/* Cost of decoding at a scale, relative to decoding at full size: the entropy decoding is the same. Measured
 * with photographs of 2000 x 1500 pixels, quality 90. */
static const double costs[N_SCALES] = {1, 0.7, 0.6, 0.5};

static enum image_filter filter_of(const struct recipe *r)
{
	return r->filter == RECIPE_BICUBIC ? IMAGE_BICUBIC : IMAGE_BILINEAR;
}

struct image_request decoded_scale_request(const struct recipe *recipe, const struct recipe_place *place)
{
	return (struct image_request){.crop = {place->left, place->top, place->width, place->height},
				      .width = place->made_width,
				      .height = place->made_height,
				      .filter = filter_of(recipe),
				      .layout = IMAGE_HWC,
				      .window = {place->x, place->y, recipe->width, recipe->height}};
}

/* Counts how many of N_DRAWS crops are decoded at each scale. */
static void draw(const struct recipe *recipe, const struct image_info *info, uint32_t n[N_SCALES])
{
	const struct image_request all = {
	    .crop = {0, 0, info->width, info->height}, .width = recipe->width, .height = recipe->height};

	/* If the whole image is decoded at full size, so is every crop: a smaller crop never gets a smaller
	 * scale. */
	if (image_scale(info, &all) == 1) {
		n[0] = N_DRAWS;
		return;
	}
	for (uint32_t i = 0; i < N_DRAWS; i++) {
		struct image_request request;
		struct recipe_place place;

		recipe_place(recipe, SEED, 0, i, info->width, info->height, &place);
		request = decoded_scale_request(recipe, &place);
		n[__builtin_ctz(image_scale(info, &request))]++;
	}
}

static struct image_whole whole_at(const struct image_info *info, uint32_t by)
{
	return (struct image_whole){.info = *info, .by = by, .is_planes = by == 1 && info->has_planes};
}

bool decoded_scale_choose(const struct recipe *recipe, const struct image_info *info, struct image_whole *ret)
{
	const struct image_whole own = whole_at(info, 1);
	double best = costs[0] / (double)image_whole_bytes(&own);
	uint32_t n[N_SCALES] = {0}, most = 0;

	draw(recipe, info, n);
	for (int i = 0; i < N_SCALES; i++) {
		struct image_whole whole = whole_at(info, 1u << i);
		double saved = (double)n[i] / N_DRAWS * costs[i] / (double)image_whole_bytes(&whole);

		if (n[i] >= most && n[i] > 0 && saved >= WORTH * best) {
			most = n[i];
			*ret = whole;
		}
	}
	return most > 0;
}
