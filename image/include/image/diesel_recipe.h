/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recipe: what becomes of a stored image, or of a stored array, on its way to the trainer. It is what
 * torchvision's transforms say, as numbers: which part of the image at which size, mirrored or not, as which
 * numbers in which order.
 *
 * What comes out is a pure function of (recipe, seed, epoch, number of the sample, its bytes): neither batch
 * size, nor ranks, nor who does the work change it.
 *
 * This is part of a message of the wire protocol: fixed fields, no padding. It is installed next to diesel.h;
 * a recipe starts as all zeros, and diesel_session_open() says what in it is out of range.
 */

#include <stdint.h>

#define RECIPE_MAX_SIDE 16384u /* pixels of what comes out */

enum recipe_kind {
	RECIPE_NONE = 0, /* samples as they are stored; all other fields are 0 */
	RECIPE_IMAGE = 1,
	RECIPE_CODEC = 2, /* what a plug-in makes of them: type, damage and codec count, all else is 0 */
	/* Arrays of numbers: `tensor` says which; shape, width, height, flips, type, flags and damage count
	 * as of images, all else is 0. */
	RECIPE_NUMPY = 3, /* .npy files, of versions 1 to 3 */
	RECIPE_BYTES = 4, /* the numbers alone, little-endian, the last dimension fastest */
};

/* Which part of the image becomes width x height pixels. */
enum recipe_shape {
	RECIPE_WHOLE = 0, /* all of it */
	/* A random box of `scale` of its area and a ratio of width to height of `ratio`: torchvision's
	 * RandomResizedCrop. */
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

enum recipe_type { /* of a number that comes out */
		   RECIPE_UINT8 = 0,
		   RECIPE_FLOAT32 = 1,
		   RECIPE_FLOAT16 = 2,
		   RECIPE_BFLOAT16 = 3,
		   RECIPE_N_IMAGE_TYPES, /* those from here on are not made of images */
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
	RECIPE_ROWS = 1 << 0,      /* [height, width, channels]; else [channels, height, width] */
	RECIPE_UNIT = 1 << 1,      /* 0 to 1; else 0 to 255. Not for uint8 */
	RECIPE_NORMALISE = 1 << 2, /* then minus mean, divided by std. Not for uint8 */
	RECIPE_GREY = 1 << 3,      /* one channel instead of three; then `grey` is 1 */
	/* Colours change as torchvision's kernels for uint8 tensors change them; else as those for PIL
	   images. */
	RECIPE_TENSOR_COLOURS = 1 << 4,
};

#define RECIPE_KNOWN_FLAGS 31u

enum recipe_damage {                          /* what becomes of a sample that cannot be decoded */
		     RECIPE_DAMAGE_ERROR = 0, /* its batch is an error that names it */
		     RECIPE_DAMAGE_SKIP = 1,  /* it is left out of its batch, and counted */
		     RECIPE_DAMAGE_ZERO = 2,  /* it is all zeros, and counted */
		     RECIPE_N_DAMAGES,
};

enum recipe_layout {                   /* of a stored array */
		     RECIPE_PLAIN = 0, /* no dimension has a meaning */
		     RECIPE_HWC = 1,   /* height, width, channels */
		     RECIPE_CHW = 2,   /* channels, height, width */
		     RECIPE_HW = 3,    /* height, width */
		     RECIPE_N_LAYOUTS,
};

#define RECIPE_TENSOR_DIMENSIONS 8
#define RECIPE_TENSOR_CHANNELS   16
#define RECIPE_TENSOR_BYTES      (UINT64_C(1) << 30) /* the most that comes out of one */

/*
 * RECIPE_NUMPY and RECIPE_BYTES alone. What comes out is of the same dimensions, or of the crop's height and
 * width; where RECIPE_ROWS and the layout differ, in the other layout. The type is the stored one, or a
 * floating point type of images, or uint8 of integers, modulo 256. Floating point is computed in single
 * precision: RECIPE_UNIT divides by the greatest number of an integer type.
 */
struct recipe_tensor {
	uint32_t stored;       /* enum recipe_type */
	uint32_t layout;       /* enum recipe_layout */
	uint32_t n_dimensions; /* 0: a single number */
	uint32_t
	    dimensions[RECIPE_TENSOR_DIMENSIONS]; /* as stored; height and width 0: any that hold the crop */
	uint32_t n_means; /* RECIPE_NORMALISE: 1 for all numbers, or one for each channel; else 0 */
	float mean[RECIPE_TENSOR_CHANNELS], std[RECIPE_TENSOR_CHANNELS];
};

#define RECIPE_NAME_BYTES     32
#define RECIPE_OPTIONS_BYTES  448
#define RECIPE_MAX_DIMENSIONS 7
#define RECIPE_MAX_BYTES      (UINT64_C(1) << 30) /* that a plug-in makes of a sample */

/* RECIPE_CODEC alone. The texts are terminated, and zero behind their ends; dimensions are from 1 up, and 0
 * behind the last one. */
struct recipe_codec {
	char name[RECIPE_NAME_BYTES]; /* small letters, digits, and -_. between them */
	char options[RECIPE_OPTIONS_BYTES];
	uint32_t n_dimensions; /* 0: a sample becomes a single number */
	uint32_t dimensions[RECIPE_MAX_DIMENSIONS];
};

struct recipe {
	uint32_t kind, shape;
	uint32_t width, height; /* of what comes out, in pixels */
	uint32_t shorter;       /* RECIPE_MIDDLE and RECIPE_RANDOM_CROP alone */
	uint32_t filter, type, flags, damage;
	uint32_t reserved;
	double scale[2], ratio[2];          /* RECIPE_RANDOM_BOX alone: from, to */
	double flip_sideways, flip_upright; /* probabilities */
	float mean[3], std[3];              /* RECIPE_NORMALISE alone */
	/* Colours, once the image has its size: torchvision's ColorJitter, with the probability that it is
	 * applied at all; then grey, with its own. A range from 1 to 1 (hue: 0 to 0) leaves out what it is
	 * of; where jitter is 0, all ranges are 0. */
	double brightness[2], contrast[2], saturation[2], hue[2]; /* from, to */
	double jitter, grey;                                      /* probabilities */
	struct recipe_tensor tensor;
	struct recipe_codec codec;
};
