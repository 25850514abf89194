/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * UTF-8 of unknown origin. Names of files, command lines, names of threads are bytes, and may be anything.
 *
 * The one policy for bytes that are no UTF-8: each is written as \xHH (text.h), in logs, reports, JSON,
 * metrics and on terminals alike, so that what is written is UTF-8, nothing is hidden, and a reader can tell
 * which byte it was. The exception is a screen of cells (ui/view/glyphs.h): a byte there is one '?', like all
 * else that cannot be drawn.
 */

#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX 4 /* bytes of a character */

/* How many bytes the well-formed character at text has, of which left may be read; where the text ends in
 * NUL, left may be SIZE_MAX. 0: there is none (RFC 3629: cut, overlong, a surrogate, above U+10FFFF), or left
 * is 0; the first byte is then one that is no UTF-8, and the next character is looked for behind it.
 * *ret_code (may be NULL) is the character. */
size_t utf8_decode(const char *text, size_t left, uint32_t *ret_code);
