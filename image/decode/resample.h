/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pillow's resize() of RGB images, or a part of what it gives: two passes, first along the rows, then along
 *the columns, each pixel a sum with 22-bit fixed-point weights. Bit for bit what Pillow gives, for the same
 *pixels.
 *
 * Rows come one by one, in order, so that nobody needs the whole crop in memory:
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
#include "room.h"

/* Rows that are resized at a time. */
#define RESAMPLE_LANES 8

struct resample_plan {
	enum image_filter filter;
	enum image_layout layout;
	uint32_t width, height; /* of the input; nothing outside has an influence */
	float box[4];           /* left, top, right, bottom, within the input: what becomes the output */
	uint32_t output_width, output_height;
	struct image_box window; /* of the output: what is made of it */
	struct image_box part;   /* of the input: what comes */
	uint32_t row_width;      /* pixels in a row that comes; the part's columns are some of them, */
	uint32_t lead;           /* and these come before */
};

/* How each output pixel of one direction is made. */
struct resample_axis {
	uint32_t n, taps;    /* taps: the most that a pixel has */
	struct room weights; /* int32_t, taps for a pixel */
	struct room spans;   /* struct span */
	struct room scratch; /* double, of one pixel */
};

/* Starts as zeros; resample_free() at the end. */
struct resample {
	struct resample_plan plan;
	struct resample_axis x, y;
	struct room rows;    /* RESAMPLE_LANES rows as they came */
	struct room columns; /* the same, column by column */
	struct room made;    /* of these, by the first pass */
	struct room middle;  /* after the first pass */
	uint32_t n_rows;     /* that came */
	bool copies;         /* the output is the input: nothing is computed */
};

/* Sets plan.part to what the window is made of, and plan.row_width and plan.lead to rows of no more. */
void resample_choose(struct resample_plan *plan);
/* 0 or -ENOMEM. */
int resample_begin(struct resample *resample, const struct resample_plan *plan);
/* Where the next row is to be put. Call it plan.part.height times; each row is complete when the next call
 * comes.
 */
uint8_t *resample_row(struct resample *resample);
void resample_end(struct resample *resample, uint8_t *output);
void resample_free(struct resample *resample);
