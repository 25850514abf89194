/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes pixels of a JPEG image that is stored as planes: one of luma, and two of chroma with half of the
 * columns and rows. The pixels are identical to those of libjpeg's "fancy" upsampling and its conversion to
 * RGB (jdsample.c's h2v2_fancy_upsample(), jdcolor.c's ycc_rgb_convert()).
 */
#include <errno.h>
#include <string.h>

#include "reader.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DIESEL_SANITIZED)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

#define BITS     16
#define HALF     (1 << (BITS - 1))
#define FIXED(x) ((int32_t)((x) * (1 << BITS) + 0.5))

static uint32_t half(uint32_t n)
{
	return n / 2 + n % 2;
}

uint64_t planes_bytes(uint32_t width, uint32_t height)
{
	return (uint64_t)width * height + 2 * (uint64_t)half(width) * half(height);
}

/* Computes the chroma samples of a row, times 4: three parts of the nearer row and one part of the farther
 * one. */
VECTORISED static void blend_rows(int32_t *restrict sums, const uint8_t *restrict near_row,
				  const uint8_t *restrict far_row, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sums[i] = near_row[i] * 3 + far_row[i];
}

/* Computes output columns 2 * first to 2 * end from sums of the adjacent samples; n: length of the whole
 * row. */
static void blend_columns(int32_t *restrict out, const int32_t *restrict sums, uint32_t first, uint32_t end,
			  uint32_t n)
{
	for (uint32_t i = first; i < end; i++) {
		int32_t this = sums[i];
		int32_t last = i > 0 ? sums[i - 1] : this, next = i + 1 < n ? sums[i + 1] : this;

		*out++ = (this * 3 + last + 8) >> 4;
		*out++ = (this * 3 + next + 7) >> 4;
	}
}

static uint8_t clip(int32_t value)
{
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

VECTORISED static void convert(uint8_t *restrict rgb, const uint8_t *restrict luma,
			       const int32_t *restrict blue, const int32_t *restrict red, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int32_t y = luma[i], b = blue[i] - 128, r = red[i] - 128;

		rgb[3 * i] = clip(y + ((FIXED(1.40200) * r + HALF) >> BITS));
		rgb[3 * i + 1] = clip(y + ((-FIXED(0.34414) * b + HALF - FIXED(0.71414) * r) >> BITS));
		rgb[3 * i + 2] = clip(y + ((FIXED(1.77200) * b + HALF) >> BITS));
	}
}

int planes_begin(struct planes *p, const uint8_t *data, uint32_t width, uint32_t height)
{
	p->width = width;
	p->height = height;
	p->luma = data;
	p->chroma[0] = data + (size_t)width * height;
	p->chroma[1] = p->chroma[0] + (size_t)half(width) * half(height);
	return scratch_reserve(&p->sums, half(width), sizeof(int32_t)) < 0 ||
		       scratch_reserve(&p->columns[0], 2 * (size_t)half(width), sizeof(int32_t)) < 0 ||
		       scratch_reserve(&p->columns[1], 2 * (size_t)half(width), sizeof(int32_t)) < 0
		   ? -ENOMEM
		   : 0;
}

void planes_row(struct planes *p, uint32_t x, uint32_t y, uint32_t n, uint8_t *rgb)
{
	uint32_t columns = half(p->width), rows = half(p->height), near_row = y / 2;
	uint32_t far_row = y % 2 ? near_row + 1 : near_row - 1, first = x / 2, end = half(x + n);
	uint32_t from = first > 0 ? first - 1 : 0, to = end < columns ? end + 1 : columns;

	/* At the edges the row itself replaces the missing one. */
	if (y == 0 || far_row >= rows)
		far_row = near_row;
	for (int c = 0; c < 2; c++) {
		const uint8_t *plane = p->chroma[c];
		int32_t *sums = p->sums.bytes;

		blend_rows(sums + from, plane + (size_t)near_row * columns + from,
			   plane + (size_t)far_row * columns + from, to - from);
		blend_columns(p->columns[c].bytes, sums, first, end, columns);
	}
	convert(rgb, p->luma + (size_t)y * p->width + x, (int32_t *)p->columns[0].bytes + x % 2,
		(int32_t *)p->columns[1].bytes + x % 2, n);
}

void planes_free(struct planes *p)
{
	scratch_free(&p->sums);
	scratch_free(&p->columns[0]);
	scratch_free(&p->columns[1]);
}
