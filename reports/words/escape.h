/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Escapes untrusted text (file names, command lines, names of threads and functions) for an output format.
 * Control characters, and bytes that are not UTF-8, are written as \xHH (lib/utf8.h) unless the format has
 * its own form for them.
 */

#include <stdio.h>

/* Writes text as HTML element content or a quoted attribute. */
void escape_html(FILE *stream, const char *text);

/* Writes a JSON string with its quotes, safe in <script type="application/json">: without '<', '>' and '&'.
 */
void escape_json(FILE *stream, const char *text);

/* Writes text within a quoted label value of OpenMetrics. */
void escape_label(FILE *stream, const char *text);

/* Returns well-formed UTF-8 for a field of a binary format; the caller frees it. NULL: no memory. */
char *escape_utf8(const char *text);
