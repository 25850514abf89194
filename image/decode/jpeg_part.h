/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Extracts a part of a JPEG image as a file of its own, as far as restart markers locate it. Decoding can
 * restart after a marker: so rows and columns next to a crop need not be decoded, and the rest is decoded as
 * if they had been. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/decoder.h"
#include "scratch.h"

/* Layout of an image with one sequential scan and restart intervals, from its header. A row is one of MCUs of
 * all components: 8 * v pixels. */
struct jpeg_layout {
	uint32_t width, height;
	uint32_t h, v;          /* sampling factors of the component with the most samples */
	size_t height_at;       /* in the file: two bytes, big endian, and behind them the width */
	size_t scan_at;         /* the header ends here */
	uint32_t mcu_width;     /* pixels */
	bool in_order;          /* the MCUs of a row come from left to right, once */
	uint64_t row_mcus;      /* of one row */
	uint64_t interval_mcus; /* between markers, at least 1 */
};

/* Returns false if the header is of another kind, or damaged: then nothing can be left out. */
bool jpeg_layout_read(const uint8_t *data, size_t bytes, struct jpeg_layout *ret);

struct jpeg_part {
	struct image_box box; /* pixels, without those that pad the last blocks of the image */
	/* Runs of n intervals that are consecutive in the file. The start of a run is `apart` intervals after
	 * the start of the previous one. */
	uint64_t first, n, apart, n_runs;
};

/* The least part that has this box, which is within the image. Returns false if that is all of the image, or
 * only misses what is below the box. */
bool jpeg_part_choose(const struct jpeg_layout *layout, const struct image_box *box, struct jpeg_part *ret);

/*
 * Writes a file of which the image is the part. *ret_end: where the part ends in the original file. 1; 0: the
 * markers from the beginning of the scan to there are not those that should be there: then a decoder would
 * look for its way, which only begins at the top; -ENOMEM.
 */
int jpeg_part_write(const struct jpeg_layout *layout, const struct jpeg_part *part, const uint8_t *data,
		    size_t bytes, struct scratch *file, size_t *ret_bytes, size_t *ret_end);
