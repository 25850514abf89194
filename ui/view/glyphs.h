/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From UTF-8 of unknown origin to characters that are safe to draw. What cannot be drawn is one '?', so that
 * it takes one cell: control characters, bytes that are no UTF-8, and what the terminal does not know. */

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

#include "screen.h"

struct glyph {
	wchar_t character;
	int width; /* 0 (combining), 1, 2 */
};

/* The next character of *text, which moves on. false: the end. */
bool glyph_next(const char **text, struct charset charset, struct glyph *ret_glyph);

/* Stands for what was cut off. */
wchar_t glyph_ellipsis(struct charset charset);

/* UTF-8 of a character, up to 4 bytes, not terminated. */
size_t glyph_encode(wchar_t character, char buffer[4]);
