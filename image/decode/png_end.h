/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks that a PNG file is complete, without decoding the data after the crop. */

#include <stddef.h>
#include <stdint.h>

/* Checks the file's chunks. raw_bytes: size of the uncompressed pixels with filter bytes. Returns 0: all
 * chunks are there, and decoding shows whether the pixels are intact; 1: the file is cut after the pixels,
 * and *ret, from malloc(), is a complete file with the same pixels; -EBADMSG: pixels are missing, or the file
 * ends within a later chunk, which Pillow refuses; -ENOMEM. */
int png_end_check(const uint8_t *data, size_t bytes, size_t raw_bytes, uint8_t **ret, size_t *ret_bytes);
