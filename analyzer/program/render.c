/* SPDX-License-Identifier: Apache-2.0 */
#include "render.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/log.h"
#include "output.h"
#include "render_source.h"
#include "reports/report.h"

#define RENDER_EXTENSIONS_MAX 4

struct render_format {
	const char *name;
	const char *extensions[RENDER_EXTENSIONS_MAX];
	size_t n_lane_segments_max; /* lane segments that the format's pictures need; 0: none */
	bool binary;                /* must not be written to a terminal */
	int (*write)(FILE *stream, const struct analysis *analysis, const struct report_source *source);
};

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

/* Returns the variant of the format with a table of all steps; the format itself if there is none. */
static const struct render_format *render_format_with_steps(const struct render_format *format)
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

static const struct render_format *render_format_by_path(const char *path)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		for (size_t k = 0; k < RENDER_EXTENSIONS_MAX && formats[i].extensions[k]; k++)
			if (ends_with(path, formats[i].extensions[k]))
				return &formats[i];
	return NULL;
}

static const struct render_format *format_of(const struct render_options *options)
{
	const struct render_format *format = NULL;

	if (options->format)
		format = render_format_by_name(options->format);
	else if (options->output)
		format = render_format_by_path(options->output);
	if (!format)
		format = render_format_by_name("text");
	return options->steps ? render_format_with_steps(format) : format;
}

struct render_job {
	const struct render_format *format;
	const struct analysis *analysis;
	const struct report_source *source;
};

static int write_report(FILE *stream, const void *user)
{
	const struct render_job *job = user;

	return job->format->write(stream, job->analysis, job->source);
}

int render_recording(const struct render_options *options, bool *ret_sufficient, struct error *err)
{
	_cleanup_(recording_closep) struct recording *recording = NULL;
	_cleanup_(analysis_freep) struct analysis *analysis = NULL;
	_cleanup_(render_source_free) struct render_source source = {0};
	struct render_job job = {.format = format_of(options)};
	struct recording_analysis_options how = {.trainer_tid = options->trainer_tid,
						 .checkpoint_overhead_max = options->checkpoint_overhead_max,
						 .n_lane_segments_max = job.format->n_lane_segments_max};
	int r;

	if (job.format->binary && !options->output && isatty(fileno(options->stream)))
		return error_set(err, -EINVAL, "%s is a binary format: write it to a file with -o FILE",
				 job.format->name);
	r = recording_open(options->recording, &recording, err);
	if (r == 0)
		r = recording_analyze(recording, &how, &analysis, err);
	if (r < 0)
		return r;
	render_source_load(recording, options->recording, &source);
	job.analysis = analysis;
	job.source = &source.report;
	if (recording_under_way(recording))
		log_warning("%s is still being recorded: the report covers the events so far",
			    options->recording);
	else if (source.report.cut_off)
		log_warning("%s was cut off: the recorder was killed or the file damaged. The report covers "
			    "the part before the cut.",
			    options->recording);
	r = output_write(options->output, options->stream, write_report, &job, err);
	if (r == 0)
		*ret_sufficient = analysis->verdict != ANALYSIS_INSUFFICIENT;
	return r;
}
