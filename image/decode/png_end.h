/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks that a PNG file is complete, without decoding what follows the crop. */

#include <stddef.h>
#include <stdint.h>

/* raw_bytes: size of the pixels before compression, filter bytes included. Returns 0: the file is complete by
 * its chunks; decoding shows whether the pixels are intact; 1: the file is cut after the pixels, and *ret,
 * from malloc(), is a complete file with them; -EBADMSG: pixels are missing, or a part of a chunk after them,
 * which Pillow refuses; -ENOMEM. */
int png_end_check(const uint8_t *data, size_t bytes, size_t raw_bytes, uint8_t **ret, size_t *ret_bytes);
