/* SPDX-License-Identifier: Apache-2.0 */
#include "image/recipe.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Checks of recipes for arrays (RECIPE_NUMPY, RECIPE_BYTES). */

/* Returns true if two objects have the same bits. -0.0 differs from 0. */
static inline bool same_bits(const void *a, const void *b, size_t bytes)
{
	return memcmp(a, b, bytes) == 0;
}

bool recipe_is_tensor(const struct recipe *r)
{
	return r->kind == RECIPE_NUMPY || r->kind == RECIPE_BYTES;
}

uint32_t recipe_type_bytes(enum recipe_type type)
{
	static const uint8_t bytes[RECIPE_N_TYPES] = {
	    [RECIPE_UINT8] = 1,   [RECIPE_FLOAT32] = 4, [RECIPE_FLOAT16] = 2, [RECIPE_BFLOAT16] = 2,
	    [RECIPE_INT8] = 1,    [RECIPE_INT16] = 2,   [RECIPE_INT32] = 4,   [RECIPE_INT64] = 8,
	    [RECIPE_FLOAT64] = 8, [RECIPE_BOOL] = 1,    [RECIPE_UINT16] = 2,  [RECIPE_UINT32] = 4,
	    [RECIPE_UINT64] = 8};

	return bytes[type];
}

void recipe_axes(enum recipe_layout layout, int *ret_height, int *ret_width, int *ret_channels)
{
	static const int axes[RECIPE_N_LAYOUTS][3] = {[RECIPE_PLAIN] = {-1, -1, -1},
						      [RECIPE_HWC] = {0, 1, 2},
						      [RECIPE_CHW] = {1, 2, 0},
						      [RECIPE_HW] = {0, 1, -1}};

	*ret_height = axes[layout][0];
	*ret_width = axes[layout][1];
	*ret_channels = axes[layout][2];
}

/* Returns the length of a dimension of the output, in the stored order. */
static uint64_t side(const struct recipe *r, int i)
{
	int height, width, channels;

	recipe_axes(r->tensor.layout, &height, &width, &channels);
	if (r->shape != RECIPE_WHOLE && i == height)
		return r->height;
	if (r->shape != RECIPE_WHOLE && i == width)
		return r->width;
	return r->tensor.dimensions[i];
}

/* As recipe_item_bytes(), for arrays. */
static uint64_t tensor_bytes(const struct recipe *r)
{
	uint64_t bytes = recipe_type_bytes(r->type);

	for (uint32_t i = 0; i < r->tensor.n_dimensions; i++)
		bytes *= side(r, (int)i);
	return bytes;
}

static bool is_floating(uint32_t type)
{
	return type == RECIPE_FLOAT32 || type == RECIPE_FLOAT16 || type == RECIPE_BFLOAT16 ||
	       type == RECIPE_FLOAT64;
}

static const char *check_types(const struct recipe *r)
{
	uint32_t type = r->type, stored = r->tensor.stored;
	bool computes = r->flags & (RECIPE_UNIT | RECIPE_NORMALISE);

	if (type >= RECIPE_N_TYPES || stored >= RECIPE_N_TYPES)
		return "unknown number type";
	if (type == stored && !computes)
		return NULL;
	if (is_floating(type) && type != RECIPE_FLOAT64)
		return NULL;
	if (type == RECIPE_UINT8 && !is_floating(stored) && !computes)
		return NULL;
	return "the output type must be float32, float16, bfloat16, the stored type, or uint8 for stored "
	       "integers";
}

static const char *check_crop(const struct recipe *r)
{
	const struct recipe_tensor *t = &r->tensor;
	int height, width, channels;

	recipe_axes(t->layout, &height, &width, &channels);
	if (r->shape == RECIPE_WHOLE)
		return r->width || r->height ? "width and height apply only to a crop" : NULL;
	if (r->shape != RECIPE_MIDDLE && r->shape != RECIPE_RANDOM_CROP)
		return "arrays cannot be resized";
	if (height < 0)
		return "a crop needs arrays with a height and a width";
	if (r->width < 1 || r->height < 1 || r->width > RECIPE_MAX_SIDE || r->height > RECIPE_MAX_SIDE)
		return "width and height must be 1 to 16384";
	if ((t->dimensions[height] && t->dimensions[height] < r->height) ||
	    (t->dimensions[width] && t->dimensions[width] < r->width))
		return "a crop must be within the array";
	return NULL;
}

static const char *check_dimensions(const struct recipe *r)
{
	const struct recipe_tensor *t = &r->tensor;
	static const uint32_t wanted[RECIPE_N_LAYOUTS] = {
	    [RECIPE_HWC] = 3, [RECIPE_CHW] = 3, [RECIPE_HW] = 2};
	int height, width, channels;
	uint64_t bytes = 1;

	recipe_axes(t->layout, &height, &width, &channels);
	if (t->n_dimensions > RECIPE_TENSOR_DIMENSIONS)
		return "an array must have at most 8 dimensions";
	if (t->layout && t->n_dimensions != wanted[t->layout])
		return "an array with a height and a width must have two dimensions, or three with channels";
	for (int i = 0; i < RECIPE_TENSOR_DIMENSIONS; i++) {
		bool is_any =
		    r->kind == RECIPE_NUMPY && r->shape != RECIPE_WHOLE && (i == height || i == width);

		if (i >= (int)t->n_dimensions ? t->dimensions[i] > 0 : !t->dimensions[i] && !is_any)
			return "a dimension must be at least 1";
	}
	for (uint32_t i = 0; i < t->n_dimensions; i++) {
		bytes *= side(r, (int)i); /* no overflow: both factors are below 2^32 */
		if (bytes > RECIPE_TENSOR_BYTES)
			return "an array must be at most 1 GiB";
	}
	return bytes * recipe_type_bytes(r->type) > RECIPE_TENSOR_BYTES ? "an array must be at most 1 GiB"
									: NULL;
}

static const char *check_means(const struct recipe *r)
{
	const struct recipe_tensor *t = &r->tensor;
	uint32_t n = r->flags & RECIPE_NORMALISE ? t->n_means : 0;
	int height, width, channels;

	recipe_axes(t->layout, &height, &width, &channels);
	if (r->flags & RECIPE_NORMALISE ? n < 1 || n > RECIPE_TENSOR_CHANNELS : t->n_means > 0)
		return "normalising needs one mean for all channels, or one for each of at most 16 channels";
	if (n > 1 && (channels < 0 || t->dimensions[channels] != n))
		return "the number of means must be 1 or the number of channels";
	for (uint32_t i = 0; i < RECIPE_TENSOR_CHANNELS; i++) {
		if (i < n ? !isfinite(t->mean[i]) || !isfinite(t->std[i]) || !(t->std[i] > 0)
			  : t->mean[i] != 0 || t->std[i] != 0)
			return "mean must be finite, and std above 0";
	}
	return NULL;
}

static bool is_probability(double p)
{
	return p >= 0 && p <= 1;
}

/* As recipe_check(), for the fields that do not concern images. */
static const char *tensor_check(const struct recipe *r)
{
	struct recipe plain = {.kind = r->kind,
			       .shape = r->shape,
			       .width = r->width,
			       .height = r->height,
			       .type = r->type,
			       .flags = r->flags,
			       .damage = r->damage,
			       .flip_sideways = r->flip_sideways,
			       .flip_upright = r->flip_upright,
			       .tensor = r->tensor};
	const char *wrong;

	if (!same_bits(r, &plain, sizeof(plain)))
		return "a recipe for arrays must not set fields for images";
	if (r->tensor.layout >= RECIPE_N_LAYOUTS)
		return "unknown layout";
	if (r->flags & ~(RECIPE_ROWS | RECIPE_UNIT | RECIPE_NORMALISE))
		return "unknown flag";
	if (r->flags & RECIPE_ROWS && r->tensor.layout != RECIPE_HWC && r->tensor.layout != RECIPE_CHW)
		return "the order of channels applies only to arrays with height, width and channels";
	if (!is_probability(r->flip_sideways) || !is_probability(r->flip_upright))
		return "a probability must be from 0 to 1";
	if (!r->tensor.layout && (r->flip_sideways > 0 || r->flip_upright > 0))
		return "flips need arrays with a height and a width";
	wrong = check_types(r);
	if (!wrong)
		wrong = check_crop(r);
	if (!wrong)
		wrong = check_dimensions(r);
	return wrong ? wrong : check_means(r);
}

#define FACTOR_MAX 1e6 /* maximum brightness, contrast and saturation; equals FACTOR_MAX in plan.py */

static bool is_range(const double *range, double least, double most)
{
	return isfinite(range[0]) && isfinite(range[1]) && range[0] >= least && range[0] <= range[1] &&
	       range[1] <= most;
}

static const char *check_box(const struct recipe *r)
{
	static const double none[2];

	if (r->shape != RECIPE_RANDOM_BOX)
		return same_bits(r->scale, none, sizeof(none)) && same_bits(r->ratio, none, sizeof(none))
			   ? NULL
			   : "scale and ratio apply only to a random box";
	if (!is_range(r->scale, 0, 1e6) || r->scale[1] <= 0)
		return "scale must be two fractions of the area, the smaller one first";
	if (!is_range(r->ratio, 1e-6, 1e6))
		return "ratio must be two ratios of width to height, the smaller one first";
	return NULL;
}

static const char *check_numbers(const struct recipe *r)
{
	if (r->type >= RECIPE_N_IMAGE_TYPES)
		return "unknown number type";
	if (r->flags & ~RECIPE_KNOWN_FLAGS)
		return "unknown flag";
	if (r->type == RECIPE_UINT8 && r->flags & (RECIPE_UNIT | RECIPE_NORMALISE))
		return "integers cannot be normalised";
	for (int c = 0; c < 3; c++) {
		if (r->flags & RECIPE_NORMALISE) {
			if (!isfinite(r->mean[c]) || !isfinite(r->std[c]) || !(r->std[c] > 0))
				return "mean must be finite, and std above 0";
		} else if (r->mean[c] != 0 || r->std[c] != 0) {
			return "mean and std apply only to normalised numbers";
		}
	}
	return NULL;
}

static bool is_none(const double *range)
{
	return range[0] == 0 && range[1] == 0;
}

static const char *check_colours(const struct recipe *r)
{
	if (!is_probability(r->jitter) || !is_probability(r->grey))
		return "a probability must be from 0 to 1";
	if (r->flags & RECIPE_GREY && r->grey != 1)
		return "an image with one channel is always grey";
	if (r->flags & RECIPE_TENSOR_COLOURS && r->jitter == 0 && r->grey == 0)
		return "colour options apply only to recipes that change colours";
	if (r->jitter == 0)
		return is_none(r->brightness) && is_none(r->contrast) && is_none(r->saturation) &&
			       is_none(r->hue)
			   ? NULL
			   : "colour ranges apply only if the probability of jitter is above 0";
	if (!is_range(r->brightness, 0, FACTOR_MAX) || !is_range(r->contrast, 0, FACTOR_MAX) ||
	    !is_range(r->saturation, 0, FACTOR_MAX))
		return "brightness, contrast and saturation must each be two factors, the smaller one first";
	return is_range(r->hue, -0.5, 0.5)
		   ? NULL
		   : "hue must be two numbers from -0.5 to 0.5, the smaller one first";
}

static const char *check_shape(const struct recipe *r)
{
	bool cut = r->shape == RECIPE_MIDDLE || r->shape == RECIPE_RANDOM_CROP;

	if (r->shape >= RECIPE_N_SHAPES)
		return "unknown shape";
	if (r->width < 1 || r->height < 1 || r->width > RECIPE_MAX_SIDE || r->height > RECIPE_MAX_SIDE)
		return "width and height must be 1 to 16384 pixels";
	/* Ensures that the crop fits in the resized image, whose other side is never shorter. */
	if (cut && (r->shorter < r->width || r->shorter < r->height || r->shorter > RECIPE_MAX_SIDE))
		return "the shorter side must not be shorter than the crop";
	if (!cut && r->shorter)
		return "the shorter side applies only to an image that is cropped";
	if (r->filter != RECIPE_BILINEAR && r->filter != RECIPE_BICUBIC)
		return "the filter must be bilinear or bicubic";
	if (!is_probability(r->flip_sideways) || !is_probability(r->flip_upright))
		return "a probability must be from 0 to 1";
	return NULL;
}

/* Returns true if the text is NUL-terminated, and zero after its end. */
static bool is_text(const char *text, size_t size)
{
	size_t length = strnlen(text, size);

	for (size_t i = length; i < size; i++) {
		if (text[i])
			return false;
	}
	return length < size;
}

const char *recipe_check_name(const struct recipe_codec *c)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789", marks[] = "-_.";

	if (!is_text(c->name, sizeof(c->name)) || !c->name[0] || strchr(marks, c->name[0]))
		return "a codec's name must be 1 to 31 lower-case letters or digits, or -_. after the first "
		       "one";
	for (const char *at = c->name; *at; at++) {
		if (!strchr(letters, *at) && !strchr(marks, *at))
			return "a codec's name must be 1 to 31 lower-case letters or digits, or -_. after "
			       "the first one";
	}
	if (!is_text(c->options, sizeof(c->options)))
		return "a codec's options must be a text of at most 447 bytes";
	return NULL;
}

static uint64_t codec_bytes(uint32_t type, const struct recipe_codec *c)
{
	uint64_t bytes = recipe_type_bytes(type);

	for (uint32_t i = 0; i < c->n_dimensions; i++)
		bytes *= c->dimensions[i];
	return bytes;
}

const char *recipe_check_output(uint32_t type, const struct recipe_codec *c)
{
	uint64_t bytes = 1;

	if (type > RECIPE_FLOAT64)
		return "unknown number type of a codec's output";
	if (c->n_dimensions > RECIPE_MAX_DIMENSIONS)
		return "a codec's output must have at most 7 dimensions";
	for (uint32_t i = 0; i < RECIPE_MAX_DIMENSIONS; i++) {
		if ((i < c->n_dimensions) != (c->dimensions[i] > 0))
			return "a dimension of a codec's output must be at least 1";
		bytes *= i < c->n_dimensions ? c->dimensions[i] : 1;
		if (bytes > RECIPE_MAX_BYTES)
			return "a codec's output must be at most 1 GiB";
	}
	return codec_bytes(type, c) > RECIPE_MAX_BYTES ? "a codec's output must be at most 1 GiB" : NULL;
}

static const char *check_codec(const struct recipe *r)
{
	struct recipe plain = {.kind = r->kind, .type = r->type, .damage = r->damage, .codec = r->codec};
	const char *wrong = recipe_check_name(&r->codec);

	if (!same_bits(r, &plain, sizeof(plain)))
		return "a recipe for a codec must not set fields for images";
	return wrong ? wrong : recipe_check_output(r->type, &r->codec);
}

const char *recipe_check(const struct recipe *r)
{
	static const struct recipe_tensor no_tensor;
	static const struct recipe_codec no_codec;
	static const struct recipe none;
	const char *wrong;

	if (r->kind == RECIPE_NONE)
		return same_bits(r, &none, sizeof(none)) ? NULL : "an empty recipe must not set any fields";
	if (r->kind != RECIPE_IMAGE && r->kind != RECIPE_CODEC && !recipe_is_tensor(r))
		return "unknown kind of recipe";
	if (r->damage >= RECIPE_N_DAMAGES || r->reserved)
		return "unknown action for damaged samples";
	if (r->kind == RECIPE_CODEC)
		return check_codec(r);
	if (!same_bits(&r->codec, &no_codec, sizeof(no_codec)))
		return "a recipe without a codec must not set fields for a codec";
	if (recipe_is_tensor(r))
		return tensor_check(r);
	if (!same_bits(&r->tensor, &no_tensor, sizeof(no_tensor)))
		return "a recipe for images must not set fields for arrays";
	wrong = check_shape(r);
	if (!wrong)
		wrong = check_box(r);
	if (!wrong)
		wrong = check_colours(r);
	return wrong ? wrong : check_numbers(r);
}

uint32_t recipe_channels(const struct recipe *r)
{
	return r->flags & RECIPE_GREY ? 1 : 3;
}

uint64_t recipe_item_bytes(const struct recipe *r)
{
	switch ((enum recipe_kind)r->kind) {
	case RECIPE_NONE: break;
	case RECIPE_IMAGE:
		return (uint64_t)r->width * r->height * recipe_channels(r) * recipe_type_bytes(r->type);
	case RECIPE_CODEC: return codec_bytes(r->type, &r->codec);
	case RECIPE_NUMPY:
	case RECIPE_BYTES: return tensor_bytes(r);
	}
	return 0;
}

enum recipe_decoded recipe_decoded(const struct recipe *r, struct recipe *ret_key)
{
	*ret_key = (struct recipe){.kind = r->kind};
	/* In the next epoch, a random crop may need a part that is left out now. */
	if (r->kind != RECIPE_IMAGE || r->shape == RECIPE_RANDOM_CROP)
		return RECIPE_DECODED_NONE;
	ret_key->shape = r->shape;
	ret_key->width = r->width;
	ret_key->height = r->height;
	/* Kept in the key: the scale at which images are cached depends on the sizes of crops and output. */
	if (r->shape == RECIPE_RANDOM_BOX) {
		memcpy(ret_key->scale, r->scale, sizeof(r->scale));
		memcpy(ret_key->ratio, r->ratio, sizeof(r->ratio));
		return RECIPE_DECODED_WHOLE;
	}
	ret_key->shorter = r->shorter;
	ret_key->filter = r->filter;
	return RECIPE_DECODED_MADE;
}
