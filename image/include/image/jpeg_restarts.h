/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Adds restart markers to a JPEG file: one every few blocks, and one before each row of blocks. Decoding can
 * begin at a marker, so a reader of a crop skips the data above and next to it without decoding.
 *
 * The change is lossless: coefficients, quantisation tables and sampling stay the same. This is checked
 * before the new file is returned. So every decoder gives the same pixels. Application data (APPn, such as
 * EXIF and colour profiles) and comments are copied, and so is data after the image's end. Only the coding of
 * the coefficients changes, to one Huffman-coded scan with codes made for this image. Files with progressive
 * or arithmetic coding become sequential, because their parts cannot be decoded on their own.
 *
 * The files are untrusted: any bytes may come.
 */

#include <stddef.h>

#include "lib/error.h"

enum jpeg_restarts {
	JPEG_RESTARTS_ADDED,
	JPEG_RESTARTS_THERE, /* the file has enough markers, as all output of jpeg_restarts_add() does */
	JPEG_RESTARTS_OTHER, /* not a JPEG file */
	JPEG_RESTARTS_KEPT,  /* damaged, or the image would change: *ret_why says why */
};

/* Returns a result above, or -ENOMEM. Uses memory for two copies of all coefficients.
 * JPEG_RESTARTS_ADDED sets *ret to memory that the caller must free(); other results set neither *ret nor
 * *ret_bytes. */
int jpeg_restarts_add(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_why);
