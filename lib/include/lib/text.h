/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes text from outside (file names, paths in a dataset) safe for one line of a terminal or a log. Writes
 * invisible characters that steer a terminal (utf8_is_hidden()), and bytes that are not UTF-8, as \xHH. The
 * texts of struct error and all log lines pass through these functions. All other output does so too, or
 * passes through ui/view/screen.h. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_ESCAPE "\\x%02x" /* printf() format of an escaped byte */

/* Copies a name. Backslashes too are written as \xHH, so that no name can be taken for another one. A name
 * that does not fit is cut between characters and ends in "...". size >= 8. Returns buffer. */
char *text_printable(char *buffer, size_t size, const char *text, size_t length);

/* Copies a line whose parts may be untrusted. A line that does not fit is cut between characters.
 * Backslashes stay, because a part may have been made printable already. size >= 8. Returns buffer. */
char *text_line(char *buffer, size_t size, const char *text);

/* Copies a line as text_line(), uncut, to new memory. Caller frees. NULL: no memory. */
char *text_line_new(const char *text);

/* Escapes only bytes that are not UTF-8, for formats that have their own way to write control characters.
 * Caller frees. NULL: no memory. */
char *text_utf8_new(const char *text);

/* Prints whole lines of JSON. Escapes hidden characters, which does not change the meaning. */
void text_put_json(FILE *stream, const char *json);
/* Prints a character of a JSON string as \uHHHH. */
void text_put_json_escape(FILE *stream, uint32_t code);
