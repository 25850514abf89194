/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Text from outside (file names, command lines, names of threads and functions) made harmless for where it is
 * written. Control characters, and bytes that are not UTF-8, are written as \xHH (lib/utf8.h) unless the
 * format has its own form for them.
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
