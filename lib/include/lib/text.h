/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text from outside (file names, paths in a dataset) made fit for one line of a terminal or a log. */

#include <stddef.h>

/* Copies text with control characters and backslashes written as \xHH; what does not fit is cut and ends
 * in "...". Bytes above 0x7f stay (UTF-8). size >= 8. Returns buffer. */
char *text_printable(char *buffer, size_t size, const char *text, size_t length);
