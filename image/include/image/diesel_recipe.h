/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recipe: how a stored image or a stored array is transformed on its way to the trainer. It expresses
 * torchvision's transforms as numbers: which part of the image, at which size, mirrored or not, in which type
 * and order of numbers.
 *
 * The output is a pure function of (recipe, seed, epoch, number of the sample, its bytes). It does not depend
 * on batch size, ranks, or the process that does the work.
 *
 * This is part of a message of the wire protocol: fixed fields, no padding. It is installed next to diesel.h;
 * a recipe starts as all zeros, and diesel_session_open() says what in it is out of range.
 */

#include <stdint.h>

#define RECIPE_MAX_SIDE 16384u /* maximum side of the output, in pixels */

enum recipe_kind {
	RECIPE_NONE = 0, /* samples as stored; all other fields are 0 */
	RECIPE_IMAGE = 1,
	RECIPE_CODEC = 2, /* output of a plug-in: type, damage and codec are used, all other fields are 0 */
	/* Arrays of numbers, which `tensor` describes. shape, width, height, flips, type, flags and damage
	 * are used as for images; all other fields are 0. */
	RECIPE_NUMPY = 3, /* .npy files, of versions 1 to 3 */
	RECIPE_BYTES = 4, /* only the numbers, little-endian, the last dimension fastest */
};

/* Which part of the image becomes width x height pixels. */
enum recipe_shape {
	RECIPE_WHOLE = 0, /* the whole image */
	/* A random box, as torchvision's RandomResizedCrop draws it: `scale` is the range of the part of the
	   image's area, `ratio` the range of width to height. */
	RECIPE_RANDOM_BOX = 1,
	/* The middle of the image, after its shorter side is made `shorter` pixels long: Resize, CenterCrop.
	 * For arrays: the middle of the array. */
	RECIPE_MIDDLE = 2,
	/* As RECIPE_MIDDLE, but at a random position: Resize, RandomCrop. For arrays: width x height at a
	 * random position. */
	RECIPE_RANDOM_CROP = 3,
	RECIPE_N_SHAPES,
};

enum recipe_filter { /* Pillow's numbers */
		     RECIPE_BILINEAR = 2,
		     RECIPE_BICUBIC = 3,
};

enum recipe_type { /* type of the output's numbers */
		   RECIPE_UINT8 = 0,
		   RECIPE_FLOAT32 = 1,
		   RECIPE_FLOAT16 = 2,
		   RECIPE_BFLOAT16 = 3,
		   RECIPE_N_IMAGE_TYPES, /* the types from here on are not available for images */
		   RECIPE_INT8 = RECIPE_N_IMAGE_TYPES,
		   RECIPE_INT16 = 5,
		   RECIPE_INT32 = 6,
		   RECIPE_INT64 = 7,
		   RECIPE_FLOAT64 = 8,
		   RECIPE_BOOL = 9, /* a byte, 0 or 1 */
		   RECIPE_UINT16 = 10,
		   RECIPE_UINT32 = 11,
		   RECIPE_UINT64 = 12,
		   RECIPE_N_TYPES,
};

enum recipe_flag {
	RECIPE_ROWS = 1 << 0,      /* order [height, width, channels]; else [channels, height, width] */
	RECIPE_UNIT = 1 << 1,      /* scaled to 0 to 1; else 0 to 255. Not for uint8 */
	RECIPE_NORMALISE = 1 << 2, /* then (value - mean) / std. Not for uint8 */
	RECIPE_GREY = 1 << 3,      /* one channel instead of three; then `grey` is 1 */
	/* Changes colours as torchvision does for uint8 tensors; else as it does for PIL images. */
	RECIPE_TENSOR_COLOURS = 1 << 4,
};

#define RECIPE_KNOWN_FLAGS 31u

enum recipe_damage {                          /* treatment of a sample that cannot be decoded */
		     RECIPE_DAMAGE_ERROR = 0, /* the sample's batch becomes an error that names the sample */
		     RECIPE_DAMAGE_SKIP = 1,  /* the sample is left out of its batch, and counted */
		     RECIPE_DAMAGE_ZERO = 2,  /* the sample becomes zeros, and is counted */
		     RECIPE_N_DAMAGES,
};

enum recipe_layout {                   /* layout of a stored array */
		     RECIPE_PLAIN = 0, /* no dimension is a height, width or channel */
		     RECIPE_HWC = 1,   /* height, width, channels */
		     RECIPE_CHW = 2,   /* channels, height, width */
		     RECIPE_HW = 3,    /* height, width */
		     RECIPE_N_LAYOUTS,
};

#define RECIPE_TENSOR_DIMENSIONS 8
#define RECIPE_TENSOR_CHANNELS   16
#define RECIPE_TENSOR_BYTES      (UINT64_C(1) << 30) /* maximum output of one sample */

/*
 * Only for RECIPE_NUMPY and RECIPE_BYTES. The output has the stored dimensions, but the crop's height and
 * width. If RECIPE_ROWS and the stored layout differ, the output has the other layout. The output's type is
 * the stored one, a floating-point type of images, or, for integers, uint8 modulo 256. Floating point is
 * computed in single precision: RECIPE_UNIT divides by the maximum of an integer type.
 */
struct recipe_tensor {
	uint32_t stored;                               /* enum recipe_type */
	uint32_t layout;                               /* enum recipe_layout */
	uint32_t n_dimensions;                         /* 0: a single number */
	uint32_t dimensions[RECIPE_TENSOR_DIMENSIONS]; /* as stored. A height and width of 0 stand for any
							  that hold the crop */
	uint32_t n_means; /* RECIPE_NORMALISE: 1 for all numbers, or one for each channel; else 0 */
	float mean[RECIPE_TENSOR_CHANNELS], std[RECIPE_TENSOR_CHANNELS];
};

#define RECIPE_NAME_BYTES     32
#define RECIPE_OPTIONS_BYTES  448
#define RECIPE_MAX_DIMENSIONS 7
#define RECIPE_MAX_BYTES      (UINT64_C(1) << 30) /* maximum output of a plug-in for a sample */

/* Only for RECIPE_CODEC. The texts are NUL-terminated, and zero after their ends. Dimensions are at least 1,
 * and 0 after the last one. */
struct recipe_codec {
	char name[RECIPE_NAME_BYTES]; /* lower-case letters, digits, and -_. except at the start */
	char options[RECIPE_OPTIONS_BYTES];
	uint32_t n_dimensions; /* 0: a sample becomes a single number */
	uint32_t dimensions[RECIPE_MAX_DIMENSIONS];
};

struct recipe {
	uint32_t kind, shape;
	uint32_t width, height; /* size of the output, in pixels */
	uint32_t shorter;       /* only for RECIPE_MIDDLE and RECIPE_RANDOM_CROP */
	uint32_t filter, type, flags, damage;
	uint32_t reserved;
	double scale[2], ratio[2];          /* only for RECIPE_RANDOM_BOX: from, to */
	double flip_sideways, flip_upright; /* probabilities */
	float mean[3], std[3];              /* only for RECIPE_NORMALISE */
	/* Colour changes after resizing: torchvision's ColorJitter, applied with probability `jitter`, then
	 * grey, with probability `grey`. A range from 1 to 1 (hue: 0 to 0) leaves out its step. If jitter is
	 * 0, all ranges are 0. */
	double brightness[2], contrast[2], saturation[2], hue[2]; /* from, to */
	double jitter, grey;                                      /* probabilities */
	struct recipe_tensor tensor;
	struct recipe_codec codec;
};
