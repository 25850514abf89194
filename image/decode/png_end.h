/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How a PNG file ends, of which nobody needs to decode what lies behind the pixels. */

#include <stddef.h>
#include <stdint.h>

/* raw_bytes: what the pixels are before they are compressed, filter bytes among them. Returns 0: by its
 * chunks the file is whole, and whether the pixels are sound shows when they are decoded; 1: it is cut behind
 * the pixels, and *ret, of malloc(), is a whole file with them; -EBADMSG: pixels are missing, or a part of a
 * chunk behind them, which Pillow minds; -ENOMEM. */
int png_end_check(const uint8_t *data, size_t bytes, size_t raw_bytes, uint8_t **ret, size_t *ret_bytes);
