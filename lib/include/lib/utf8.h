/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * UTF-8 of unknown origin. File names, command lines and thread names are bytes, and may be anything.
 *
 * Each byte that is not UTF-8 is written as \xHH (text.h), in logs, reports, JSON, metrics and on terminals
 * alike. So the output is UTF-8, nothing is hidden, and a reader can identify the byte. The only exception is
 * a screen of cells (ui/view/screen.h), which shows '?' for everything that cannot be drawn.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX 4 /* maximum bytes of a character */

/* Returns the length of the well-formed character at text, of which at most left bytes are read. left may be
 * SIZE_MAX where the text ends in NUL. *ret_code (may be NULL) is the character. Returns 0 if left is 0 or
 * the character is not well-formed by RFC 3629, which means cut, overlong, a surrogate, or above U+10FFFF.
 * Then only the first byte counts as not UTF-8, and the next character may begin right after it. */
size_t utf8_decode(const char *text, size_t left, uint32_t *ret_code);

/* Returns true for an invisible character that can steer a terminal or mislead a reader. These are
 * control characters (C0 and C1), marks that turn the direction of text, line separators, characters without
 * width, and fillers. */
bool utf8_is_hidden(uint32_t code);
