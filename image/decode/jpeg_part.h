/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Extracts a part of a JPEG image, located by restart markers, as a file of its own. Decoding can restart
 * after a marker. So the rows and columns around a crop need not be decoded, and the pixels of the part stay
 * the same. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/decoder.h"
#include "scratch.h"

/* Layout of an image with one sequential scan and restart intervals, from its header. A "row" is a row of
 * MCUs of all components: 8 * v pixels high. */
struct jpeg_layout {
	uint32_t width, height;
	uint32_t h, v;          /* sampling factors of the component with the most samples */
	size_t height_at;       /* file offset of the height: two bytes, big-endian, followed by the width */
	size_t scan_at;         /* file offset of the end of the header */
	uint32_t mcu_width;     /* pixels */
	bool in_order;          /* a row's MCUs are stored from left to right, one line of MCUs per row */
	uint64_t row_mcus;      /* MCUs in a row */
	uint64_t interval_mcus; /* MCUs between markers, at least 1 */
};

/* Returns false if the header is damaged, or of an image without such a layout: then no part can be
 * extracted. */
bool jpeg_layout_read(const uint8_t *data, size_t bytes, struct jpeg_layout *ret);

struct jpeg_part {
	struct image_box box; /* in pixels, without the padding of the last blocks of the image */
	/* Runs of n intervals that are consecutive in the file. The start of a run is `apart` intervals after
	 * the start of the previous one. */
	uint64_t first, n, apart, n_runs;
};

/* Chooses the smallest part that contains this box, which must be within the image. Returns false if that is
 * the whole image, or leaves out only rows below the box. */
bool jpeg_part_choose(const struct jpeg_layout *layout, const struct image_box *box, struct jpeg_part *ret);

/*
 * Writes a file whose image is the part. *ret_end: where the part ends in the original file. Returns 1; 0: a
 * marker before *ret_end is missing or wrong, so a decoder must start at the top to resynchronise; -ENOMEM.
 */
int jpeg_part_write(const struct jpeg_layout *layout, const struct jpeg_part *part, const uint8_t *data,
		    size_t bytes, struct scratch_buffer *file, size_t *ret_bytes, size_t *ret_end);
