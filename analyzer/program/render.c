/* SPDX-License-Identifier: Apache-2.0 */
#include "render.h"

#include <errno.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/log.h"
#include "output.h"
#include "render_formats.h"
#include "render_source.h"

static void recording_closep(struct recording **recording)
{
	recording_close(*recording);
}

static void analysis_freep(struct analysis **analysis)
{
	analysis_free(*analysis);
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
		return error_set(err, -EINVAL, "%s is a binary format: give a file with -o",
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
		log_warning("%s is being recorded: the report is of what is there by now",
			    options->recording);
	else if (source.report.cut_off)
		log_warning(
		    "%s was cut off: the recorder was killed or the file damaged; the report is of what "
		    "is there",
		    options->recording);
	r = output_write(options->output, options->stream, write_report, &job, err);
	if (r == 0)
		*ret_sufficient = analysis->verdict != ANALYSIS_INSUFFICIENT;
	return r;
}
