/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the rows of a JPEG image begin in its file, as far as restart markers say. Behind a marker decoding
 * begins anew: so what lies above a crop need not be decoded, and the rest is decoded as if it had been.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a header says of an image with one sequential scan and restart intervals. A row is one of MCUs of all
 * components: 8 * v pixels. */
struct jpeg_rows {
	uint32_t width, height;
	uint32_t h, v;          /* how often the component that has most samples is sampled */
	size_t height_at;       /* in the file: two bytes, big endian */
	size_t scan_at;         /* what comes before is the header */
	uint64_t row_mcus;      /* of one row */
	uint64_t interval_mcus; /* between markers, at least 1 */
};

/* Returns false if the header is of another kind, or damaged: then nothing can be left out. */
bool jpeg_rows_read(const uint8_t *data, size_t bytes, struct jpeg_rows *ret);

/* Where the file goes on for those who begin with this row. */
struct jpeg_rows_start {
	uint32_t row;
	size_t at;
	unsigned marker; /* the number, 0 to 7, of the next restart marker */
};

/*
 * The last row at or above `first` that begins behind a marker. Returns false if that is the first one of
 * all, or if the markers from the beginning of the scan to row `end` are not those that should be there: then
 * a decoder would look for its way, which only begins at the top.
 */
bool jpeg_rows_find(const struct jpeg_rows *rows, const uint8_t *data, size_t bytes, uint32_t first,
		    uint32_t end, struct jpeg_rows_start *ret);
