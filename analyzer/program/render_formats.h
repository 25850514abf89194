/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The formats of a report, by name and by the extension of the output. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct analysis;
struct report_source;

#define RENDER_EXTENSIONS_MAX 4
#define RENDER_FORMAT_NAMES   "text, json, html, perfetto or openmetrics"

struct render_format {
	const char *name;
	const char *extensions[RENDER_EXTENSIONS_MAX];
	size_t n_lane_segments_max; /* lane segments that its pictures need; 0: none */
	bool binary;                /* must not be written to a terminal */
	int (*write)(FILE *stream, const struct analysis *analysis, const struct report_source *source);
};

/* Both functions return NULL if there is no such format. */
const struct render_format *render_format_by_name(const char *name);
const struct render_format *render_format_by_path(const char *path);

/* Returns the variant of the format with a table of all steps; the format itself if there is none. */
const struct render_format *render_format_with_steps(const struct render_format *format);
