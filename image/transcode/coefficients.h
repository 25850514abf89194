/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The content of a JPEG image, independent of its encoding: coefficients, and the tables that turn them into
 * pixels. */

#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

/* An image of which jpeg_read_coefficients() has read all. */
struct coefficients {
	struct jpeg_decompress_struct jpeg;
	jvirt_barray_ptr *blocks; /* of each component */
};

/* All bits of all coefficients came. Of others a decoder may guess some, unless all came in one scan. */
bool coefficients_complete(const struct coefficients *c);

/* Every decoder makes the same pixels of both. */
bool coefficients_equal(struct coefficients *a, struct coefficients *b);
