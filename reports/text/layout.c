/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <stdarg.h>
#include <string.h>

#include "lib/text.h"

void layout_style(const struct layout *layout, enum layout_style style)
{
	static const char *const codes[] = {
	    [STYLE_PLAIN] = "0",    [STYLE_BOLD] = "1",    [STYLE_DIM] = "2",
	    [STYLE_RED] = "31",     [STYLE_YELLOW] = "33", [STYLE_GREEN] = "32",
	    [STYLE_MAGENTA] = "35", [STYLE_CYAN] = "36",   [STYLE_BLUE] = "34",
	};

	if (layout->options.colour)
		fprintf(layout->stream, "\033[%sm", codes[style]);
}

/* Counts the characters of UTF-8 text: the bytes that do not continue one. */
static unsigned int columns_of(const char *text, size_t n_bytes)
{
	unsigned int n = 0;

	for (size_t i = 0; i < n_bytes; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

void layout_heading(const struct layout *layout, const char *text)
{
	fputc('\n', layout->stream);
	layout_style(layout, STYLE_BOLD);
	fputs(text, layout->stream);
	layout_style(layout, STYLE_PLAIN);
	fputc('\n', layout->stream);
}

void layout_line(const struct layout *layout, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(layout->stream, "%*s", LAYOUT_MARGIN, "");
	layout_wrap(layout, text, LAYOUT_MARGIN, LAYOUT_MARGIN);
}

char *layout_printable(const struct layout *layout, char *buffer, size_t size, const char *text)
{
	text_printable(buffer, size, text, strlen(text));
	for (char *c = buffer; layout->options.ascii && *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	return buffer;
}

/* Counts the bytes of the characters that fill at most `columns` columns; takes at least one character. */
static size_t bytes_of(const char *text, size_t n_bytes, unsigned int columns)
{
	size_t n = 0;

	while (n < n_bytes) {
		bool begins = ((unsigned char)text[n] & 0xc0) != 0x80;

		if (begins && n && !columns)
			break;
		columns -= begins && columns;
		n++;
	}
	return n;
}

void layout_wrap(const struct layout *layout, const char *text, unsigned int at, unsigned int indent)
{
	bool line_empty = true;
	unsigned int width = layout->options.width > indent ? layout->options.width : indent + 1;

	while (*text) {
		size_t n = strcspn(text, " ");
		unsigned int columns = columns_of(text, n);

		if (!line_empty && at + 1 + columns > width) {
			fprintf(layout->stream, "\n%*s", (int)indent, "");
			at = indent;
			line_empty = true;
		}
		if (line_empty && at + columns > width) {
			n = bytes_of(text, n, width > at ? width - at : 1);
			columns = columns_of(text, n);
		}
		fprintf(layout->stream, "%s%.*s", line_empty ? "" : " ", (int)n, text);
		at += columns + !line_empty;
		line_empty = false;
		text += n;
		if (*text && *text != ' ') { /* the rest of a long word */
			fprintf(layout->stream, "\n%*s", (int)indent, "");
			at = indent;
			line_empty = true;
		}
		text += strspn(text, " ");
	}
	fputc('\n', layout->stream);
}
