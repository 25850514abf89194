/* SPDX-License-Identifier: Apache-2.0 */
#include "render_formats.h"

#include <string.h>

#include "reports/report.h"

static int write_text(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	struct report_text_options options = report_text_options_for(stream);

	return report_text(stream, analysis, &options);
}

static int write_json(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	return report_json(stream, analysis, source, false);
}

static int write_json_steps(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	return report_json(stream, analysis, source, true);
}

/* Limits of lane segments: they keep an HTML page to a few MB, and a trace to a few 10 MB. */
static const struct render_format formats[] = {
    {.name = "text", .extensions = {".txt"}, .write = write_text},
    {.name = "json", .extensions = {".json"}, .write = write_json},
    {.name = "html", .extensions = {".html", ".htm"}, .n_lane_segments_max = 60000, .write = report_html},
    {.name = "perfetto",
     .extensions = {".pftrace", ".perfetto.gz", ".perfetto-trace"},
     .n_lane_segments_max = 1000000,
     .binary = true,
     .write = report_perfetto},
    {.name = "openmetrics", .extensions = {".prom", ".om"}, .write = report_openmetrics},
};

#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

static const struct render_format json_with_steps = {.name = "json", .write = write_json_steps};

const struct render_format *render_format_with_steps(const struct render_format *format)
{
	return format->write == write_json ? &json_with_steps : format;
}

const struct render_format *render_format_by_name(const char *name)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (!strcmp(formats[i].name, name))
			return &formats[i];
	return NULL;
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), end_length = strlen(end);

	return length > end_length && !strcmp(text + length - end_length, end);
}

const struct render_format *render_format_by_path(const char *path)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		for (size_t k = 0; k < RENDER_EXTENSIONS_MAX && formats[i].extensions[k]; k++)
			if (ends_with(path, formats[i].extensions[k]))
				return &formats[i];
	return NULL;
}
