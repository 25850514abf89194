/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON text on standard output. */

#include <stddef.h>

/* A string with its quotes. Bytes that are no UTF-8 become lone surrogates U+DC80..U+DCFF, as Python's
 * os.fsdecode() makes them, so that every file name survives the trip. */
void ctl_json_string(const char *text, size_t length);
