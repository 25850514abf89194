/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pillow's resize() of RGB images, or a part of its output: two passes, first along the rows, then along the
 * columns, each pixel a sum with 22-bit fixed-point weights. For the same pixels the output is identical to
 * Pillow's.
 *
 * The caller passes rows one by one, in order, so that the whole crop need not be in memory:
 *
 *	resample_choose(&plan);
 *	r = resample_begin(&resample, &plan);
 *	for (row of plan.part)
 *		read_row(resample_row(&resample)); // plan.row_width pixels
 *	resample_end(&resample, output);
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/decoder.h"
#include "scratch.h"

/* Number of rows that are resized at once. */
#define RESAMPLE_LANES 8

struct resample_plan {
	enum image_filter filter;
	enum image_layout layout;
	uint32_t width, height; /* size of the input; pixels outside have no influence */
	float box[4];           /* box of the input that becomes the output: left, top, right, bottom */
	uint32_t output_width, output_height;
	struct image_box window; /* part of the output that is made */
	struct image_box part;   /* part of the input that is passed in */
	uint32_t row_width;      /* pixels in a row passed in, which includes the part's columns */
	uint32_t lead;           /* number of pixels in a row before the part's columns */
};

/* Weights of each output pixel in one direction. */
struct resample_axis {
	uint32_t n, taps; /* n: number of output pixels; taps: maximum number of weights per pixel */
	struct scratch_buffer weights; /* int32_t; `taps` weights per pixel */
	struct scratch_buffer spans;   /* struct span */
	struct scratch_buffer scratch; /* double; weights of one pixel */
};

/* Initialise with zeros; call resample_free() at the end. */
struct resample {
	struct resample_plan plan;
	struct resample_axis x, y;
	struct scratch_buffer rows;    /* RESAMPLE_LANES rows as passed in */
	struct scratch_buffer columns; /* the same rows, column by column */
	struct scratch_buffer made;    /* the first pass's output for these rows */
	struct scratch_buffer middle;  /* all rows after the first pass */
	uint32_t n_rows;               /* rows passed in so far */
	bool copies;                   /* the output equals the input: nothing is computed */
};

/* Sets plan.part to the input that the window needs, and plan.row_width and plan.lead to rows of just that
 * part. */
void resample_choose(struct resample_plan *plan);
/* 0 or -ENOMEM. */
int resample_begin(struct resample *resample, const struct resample_plan *plan);
/* Returns the buffer for the next row. Call it plan.part.height times; each row must be complete by the next
 * call. */
uint8_t *resample_row(struct resample *resample);
void resample_end(struct resample *resample, uint8_t *output);
void resample_free(struct resample *resample);
