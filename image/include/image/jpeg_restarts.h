/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Restart markers for a JPEG file: the same image with a marker every few blocks, and before each row of
 * them, from which decoding can begin, so that a reader of a crop skips the data above and next to it
 * without decoding that.
 *
 * Nothing of the image is lost: coefficients, quantisation tables and sampling are those of the file, which
 * is checked before the new bytes are handed out. So every decoder gives the same pixels. Markers with data
 * of others (APPn, such as EXIF and colour profiles; comments) are copied, and so is what follows the image's
 * end. Only how coefficients are written changes: Huffman-coded, in one scan, with codes made for this image.
 * Files with progressive or arithmetic coding become sequential ones, because in those nothing can be
 * found alone.
 *
 * The files are taken as foreign: any bytes may come.
 */

#include <stddef.h>

#include "lib/error.h"

enum jpeg_restarts {
	JPEG_RESTARTS_ADDED,
	JPEG_RESTARTS_THERE, /* the file has them as often: what this function makes, it leaves alone */
	JPEG_RESTARTS_OTHER, /* no JPEG file */
	JPEG_RESTARTS_KEPT,  /* damaged, or of a kind that would not stay what it is: *ret_why says */
};

/* Takes as much memory as the image has coefficients, twice. JPEG_RESTARTS_ADDED sets *ret to memory that
 * free() frees; the other results set neither it nor *ret_bytes. -ENOMEM. */
int jpeg_restarts_add(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_why);
