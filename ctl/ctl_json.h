/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON text on standard output. */

#include <stddef.h>

/* A string with its quotes. Bytes that are no UTF-8 are written as lib/utf8.h says: lone surrogates, as
 * Python's os.fsdecode() makes them, would be no JSON to most other parsers. */
void ctl_json_string(const char *text, size_t length);
