/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON text on standard output. */

#include <stddef.h>

/* A string with its quotes. Bytes that are not UTF-8 are written as lib/utf8.h says: most other parsers would
 * refuse lone surrogates, which Python's os.fsdecode() makes of them. */
void ctl_json_string(const char *text, size_t length);
