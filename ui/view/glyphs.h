/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns UTF-8 of unknown origin into characters that are safe to draw. Control characters, bytes that are not
 * UTF-8, and characters that the terminal cannot show become a '?' of one cell. */

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

#include "screen.h"

struct glyph {
	wchar_t character;
	int width; /* columns: 0 (combining), 1 or 2 */
};

/* Takes the next character of *text. Returns false at the end. */
bool glyph_next(const char **text, struct charset charset, struct glyph *ret_glyph);

/* Returns the character that marks cut text. */
wchar_t glyph_ellipsis(struct charset charset);

/* Writes a character as UTF-8, up to 4 bytes, not terminated. Returns the length. */
size_t glyph_encode(wchar_t character, char buffer[4]);
