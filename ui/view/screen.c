/* SPDX-License-Identifier: Apache-2.0 */
#include "screen.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/utf8.h"

/* ---- UTF-8 of unknown origin, turned into characters that are safe to draw ---- */

#define REPLACEMENT L'?' /* control characters, what is not UTF-8, and what the terminal cannot show */

struct glyph {
	wchar_t character;
	int width; /* columns: 0 (combining), 1 or 2 */
};

/* Takes the next character of *text. Returns false at the end. */
static bool glyph_next(const char **text, struct charset charset, struct glyph *ret_glyph)
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

/* Returns the character that marks cut text. */
static wchar_t glyph_ellipsis(struct charset charset)
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

struct screen *screen_new(int rows, int cols, struct charset charset)
{
	struct screen *screen = calloc(1, sizeof(*screen));

	if (!screen)
		return NULL;
	screen->rows = rows;
	screen->cols = cols;
	screen->charset = charset;
	screen->cells = calloc((size_t)rows * (size_t)cols + 1, sizeof(*screen->cells));
	if (!screen->cells)
		return screen_free(screen);
	screen_clear(screen);
	return screen;
}

struct screen *screen_free(struct screen *screen)
{
	if (!screen)
		return NULL;
	free(screen->cells);
	free(screen);
	return NULL;
}

void screen_clear(struct screen *screen)
{
	for (size_t i = 0; i < (size_t)screen->rows * (size_t)screen->cols; i++)
		screen->cells[i] = (struct cell){L' ', 0, STYLE_NORMAL};
}

static struct cell *cell_at(struct screen *screen, int y, int x)
{
	if (y < 0 || y >= screen->rows || x < 0 || x >= screen->cols)
		return NULL;
	return &screen->cells[(size_t)y * (size_t)screen->cols + (size_t)x];
}

/* Sets a cell. If this overwrites half of a wide character, the other half becomes blank. */
static void cell_set(struct screen *screen, int y, int x, struct cell value)
{
	struct cell *cell = cell_at(screen, y, x), *left, *right;

	if (!cell)
		return;
	left = cell_at(screen, y, x - 1);
	right = cell_at(screen, y, x + 1);
	if (!cell->base && left && value.base)
		left->base = L' ';
	if (cell->base && right && !right->base)
		right->base = L' ';
	*cell = value;
}

void screen_put(struct screen *screen, int y, int x, enum style style, wchar_t character)
{
	cell_set(screen, y, x, (struct cell){character, 0, (uint32_t)style});
}

void screen_style(struct screen *screen, int y, int x, int width, enum style style)
{
	for (int i = 0; i < width; i++) {
		struct cell *cell = cell_at(screen, y, x + i);

		if (cell)
			cell->style = (uint32_t)style;
	}
}

/* Draws glyphs until the width is used up. Returns the columns used. */
static int draw(struct screen *screen, int y, int x, int width, enum style style, const char *text)
{
	struct glyph glyph;
	int used = 0;

	while (glyph_next(&text, screen->charset, &glyph)) {
		struct cell *before = used ? cell_at(screen, y, x + used - 1) : NULL;

		if (!glyph.width) {
			if (before && before->base && !before->mark)
				before->mark = glyph.character;
			continue;
		}
		if (used + glyph.width > width)
			break;
		if (x + used + glyph.width <= screen->cols) {
			cell_set(screen, y, x + used, (struct cell){glyph.character, 0, (uint32_t)style});
			if (glyph.width == 2) {
				struct cell *half = cell_at(screen, y, x + used + 1);

				if (half)
					*half = (struct cell){0, 0, (uint32_t)style};
			}
		}
		used += glyph.width;
	}
	return used;
}

int screen_text_width(const char *text, struct charset charset)
{
	struct glyph glyph;
	int width = 0;

	while (glyph_next(&text, charset, &glyph))
		width += glyph.width;
	return width;
}

int screen_text(struct screen *screen, int y, int x, int width, enum style style, const char *text)
{
	int used;

	if (width <= 0)
		return 0;
	if (screen_text_width(text, screen->charset) <= width)
		return draw(screen, y, x, width, style, text);
	used = draw(screen, y, x, width - 1, style, text);
	screen_put(screen, y, x + used, style, glyph_ellipsis(screen->charset));
	return used + 1;
}

int screen_print(struct screen *screen, int y, int x, int width, enum style style, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return screen_text(screen, y, x, width, style, text);
}

void screen_text_right(struct screen *screen, int y, int x, int width, enum style style, const char *text)
{
	int used = screen_text_width(text, screen->charset);

	screen_text(screen, y, used < width ? x + width - used : x, width, style, text);
}

char *screen_line(const struct screen *screen, int y)
{
	const struct cell *cells = &screen->cells[(size_t)y * (size_t)screen->cols];
	char *line = malloc((size_t)screen->cols * 2 * 4 + 1);
	size_t n = 0, used = 0;

	if (!line)
		return NULL;
	for (int x = 0; x < screen->cols; x++) {
		if (!cells[x].base)
			continue;
		n += glyph_encode(cells[x].base, line + n);
		if (cells[x].mark)
			n += glyph_encode(cells[x].mark, line + n);
		if (cells[x].base != L' ')
			used = n;
	}
	line[used] = '\0';
	return line;
}
