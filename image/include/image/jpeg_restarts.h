/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Adds restart markers to a JPEG file: the same image with a marker every few blocks, and before each row of
 * them. Decoding can begin at a marker, so a reader of a crop skips the data above and next to it without
 * decoding.
 *
 * The change is lossless: coefficients, quantisation tables and sampling stay the same, which is checked
 * before the new file is returned. So every decoder gives the same pixels. Application data (APPn, such as
 * EXIF and colour profiles) and comments are copied, and so is data after the image's end. Only the coding of
 * the coefficients changes: Huffman-coded, in one scan, with codes made for this image. Files with
 * progressive or arithmetic coding become sequential, because parts of those cannot be decoded on their own.
 *
 * The files are untrusted: any bytes may come.
 */

#include <stddef.h>

#include "lib/error.h"

enum jpeg_restarts {
	JPEG_RESTARTS_ADDED,
	JPEG_RESTARTS_THERE, /* the file has markers often enough, as all output of this function does */
	JPEG_RESTARTS_OTHER, /* not a JPEG file */
	JPEG_RESTARTS_KEPT,  /* damaged, or the image would change: *ret_why says why */
};

/* Returns a result above, or -ENOMEM. Takes memory for all coefficients of the image, twice.
 * JPEG_RESTARTS_ADDED sets *ret to memory that the caller must free(); other results set neither *ret nor
 * *ret_bytes. */
int jpeg_restarts_add(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_why);
