/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text from outside (file names, paths in a dataset) made fit for one line of a terminal or a log. */

#include <stddef.h>

/* Copies text with control characters and backslashes written as \xHH; what does not fit is cut and ends
 * in "...". Bytes above 0x7f stay (UTF-8). size >= 8. Returns buffer. */
char *text_printable(char *buffer, size_t size, const char *text, size_t length);

/* Copies a line of text whose parts may come from outside: control characters (those of C1 too) and bytes
 * that are no UTF-8 are written as \xHH, so that the result is one line of valid UTF-8; what does not fit is
 * cut between characters. Backslashes stay: a part may have been made printable before. size >= 8. Returns
 * buffer. */
char *text_line(char *buffer, size_t size, const char *text);
