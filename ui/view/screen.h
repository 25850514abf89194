/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A screen of character cells, without a terminal: views draw cells, tests read them, and ui/app.c shows
 * them. Drawing outside of the screen has no effect. Texts are untrusted: anything not printable (control
 * characters, escape sequences, marks that change the direction of writing, bytes that are not UTF-8) becomes
 * '?', so no name of a job reaches the terminal as a command. Wide characters take two cells, and are never
 * drawn by half.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

/* Meaning of a cell. The terminal maps it to colours or attributes. */
enum style {
	STYLE_NORMAL,
	STYLE_DIM,
	STYLE_BOLD,
	STYLE_TITLE,    /* first line */
	STYLE_HEADING,  /* head of a table */
	STYLE_SELECTED, /* the row under the cursor */
	STYLE_KEY,      /* name of a key in the last line, such as F1 */
	STYLE_LABEL,    /* action of a key in the last line */
	STYLE_GOOD,
	STYLE_WARNING,
	STYLE_BAD,
	STYLE_DEVICE, /* the shares, in the order of enum analysis_share */
	STYLE_FETCH,
	STYLE_PREP,
	STYLE_CHECKPOINT,
	STYLE_STARVED,
	STYLE_OTHER,
	STYLE_COMPILING,
	STYLE_COUNT,
};

struct cell {
	wchar_t base;   /* character; 0: the right half of a wide character */
	wchar_t mark;   /* combining character; 0: none */
	uint32_t style; /* enum style. uint32_t leaves no padding, because cells are compared as bytes */
};

_Static_assert(sizeof(struct cell) == 2 * sizeof(wchar_t) + 4, "cells are compared as bytes");

/* Characters and colours that the terminal can show. */
struct charset {
	bool unicode; /* false: only ASCII, and '?' for all other characters */
	bool colour;  /* false: shares are drawn as letters */
};

struct screen {
	int rows, cols;
	struct charset charset;
	struct cell *cells; /* rows * cols */
};

/* Writes a character as UTF-8, up to 4 bytes, not terminated. Returns the length. */
size_t glyph_encode(wchar_t character, char buffer[4]);

/* Creates an empty screen. NULL: no memory. */
struct screen *screen_new(int rows, int cols, struct charset charset);
struct screen *screen_free(struct screen *screen);

/* All blank. */
void screen_clear(struct screen *screen);

/* Draws text from column x on, in at most width columns; a truncated text ends in an ellipsis. Returns the
 * columns used. */
int screen_text(struct screen *screen, int y, int x, int width, enum style style, const char *text);
int screen_print(struct screen *screen, int y, int x, int width, enum style style, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Draws like screen_text(), but the text ends at column x + width. */
void screen_text_right(struct screen *screen, int y, int x, int width, enum style style, const char *text);

/* Draws one character of width 1. */
void screen_put(struct screen *screen, int y, int x, enum style style, wchar_t character);
/* Sets the style of cells and leaves their text. */
void screen_style(struct screen *screen, int y, int x, int width, enum style style);

/* Returns the width of the whole text, in columns. */
int screen_text_width(const char *text, struct charset charset);

/* Returns the line as UTF-8, without trailing blanks. Caller frees; NULL: no memory. For tests and batch
 * mode. */
char *screen_line(const struct screen *screen, int y);
