/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Plain-text layout on a stream: wrapped paragraphs and styled words. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "reports/report.h"

enum layout_style {
	STYLE_PLAIN,
	STYLE_BOLD,
	STYLE_DIM,
	STYLE_RED,
	STYLE_YELLOW,
	STYLE_GREEN,
	STYLE_MAGENTA,
	STYLE_CYAN,
	STYLE_BLUE,
};

struct layout {
	FILE *stream;
	struct report_text_options options; /* its width is never 0 */
};

/* Switches a style on; STYLE_PLAIN switches all styles off. Prints nothing if colour is off. */
void layout_style(const struct layout *layout, enum layout_style style);

/* Prints an empty line and a heading on a line of its own. */
void layout_heading(const struct layout *layout, const char *text);

#define LAYOUT_MARGIN 2

/* Prints a wrapped paragraph within the margin. */
void layout_line(const struct layout *layout, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes untrusted text safe for the stream: removes control characters and bytes that the stream cannot show.
 * Returns buffer. */
char *layout_printable(const struct layout *layout, char *buffer, size_t size, const char *text);

/* Prints text wrapped to the width, and a newline. The first line continues at column `at`, the others
 * begin at `indent`. A word that is longer than a line is cut in pieces. Columns are counted in
 * characters, so the text may be UTF-8. */
void layout_wrap(const struct layout *layout, const char *text, unsigned int at, unsigned int indent);
