/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text from outside (file names, paths in a dataset) made fit for one line of a terminal or a log: UTF-8
 * without control characters. These, those of C1 too, and bytes that are no UTF-8 are written as \xHH. */

#include <stddef.h>

#define TEXT_ESCAPE "\\x%02x" /* of a byte */

/* Copies a name: backslashes are written as \xHH, too, so that one name is not taken for another; what does
 * not fit is cut between characters and ends in "...". size >= 8. Returns buffer. */
char *text_printable(char *buffer, size_t size, const char *text, size_t length);

/* Copies a line whose parts may come from outside; what does not fit is cut between characters. Backslashes
 * stay: a part may have been made printable before. size >= 8. Returns buffer. */
char *text_line(char *buffer, size_t size, const char *text);

/* The same, uncut, in new memory; the caller frees. NULL: no memory. */
char *text_line_new(const char *text);

/* Only bytes that are no UTF-8 are escaped: for a format that has a form of its own for control characters.
 * In new memory; the caller frees. NULL: no memory. */
char *text_utf8_new(const char *text);
