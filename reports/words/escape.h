/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Text from outside (file names, command lines, names of threads and functions) made harmless for where it is
 * written. Bytes that are no UTF-8 and control characters become U+FFFD, whatever the place.
 */

#include <stdio.h>

/* Element content and quoted attributes of HTML. */
void escape_html(FILE *stream, const char *text);

/* A JSON string with its quotes, fit for <script type="application/json">: without '<', '>' and '&'. */
void escape_json(FILE *stream, const char *text);

/* Within a quoted label value of OpenMetrics. */
void escape_label(FILE *stream, const char *text);

/* Well-formed UTF-8 for a field of a binary format; the caller frees. NULL: no memory. */
char *escape_utf8(const char *text);
