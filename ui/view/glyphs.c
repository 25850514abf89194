/* SPDX-License-Identifier: Apache-2.0 */
#include "glyphs.h"

#include <stdint.h>

#include "lib/utf8.h"

#define REPLACEMENT L'?'

bool glyph_next(const char **text, struct charset charset, struct glyph *ret_glyph)
{
	uint32_t code = 0;
	size_t n;
	int width;

	if (!**text)
		return false;
	n = utf8_decode(*text, SIZE_MAX, &code);
	*text += n ? n : 1;
	*ret_glyph = (struct glyph){REPLACEMENT, 1};
	if (!n || utf8_is_hidden(code))
		return true;
	if (code < 0x7f) {
		ret_glyph->character = (wchar_t)code;
		return true;
	}
	if (!charset.unicode)
		return true;
	width = wcwidth((wchar_t)code); /* uses wcwidth(), by which ncurses counts columns too */
	if (width < 0)
		return true;
	*ret_glyph = (struct glyph){(wchar_t)code, width};
	return true;
}

wchar_t glyph_ellipsis(struct charset charset)
{
	return charset.unicode ? L'…' : L'~';
}

size_t glyph_encode(wchar_t character, char buffer[4])
{
	uint32_t code = (uint32_t)character;
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

	if (n == 1) {
		buffer[0] = (char)code;
		return 1;
	}
	for (size_t i = n - 1; i > 0; i--, code >>= 6)
		buffer[i] = (char)(0x80 | (code & 0x3f));
	buffer[0] = (char)(0xff00 >> n | code);
	return n;
}
