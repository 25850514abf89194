/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The content of a JPEG image, independent of its encoding: coefficients, and the tables that turn them into
 * pixels. */

#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

/* An image after jpeg_read_coefficients() has read all of it. */
struct coefficients {
	struct jpeg_decompress_struct jpeg;
	jvirt_barray_ptr *blocks; /* blocks of each component */
};

/* Returns true if all bits of all coefficients arrived. A decoder may guess missing ones, unless all came in
 * one scan. */
bool coefficients_complete(const struct coefficients *c);

/* Returns true if every decoder makes the same pixels of both. */
bool coefficients_equal(struct coefficients *a, struct coefficients *b);
