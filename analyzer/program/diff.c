/* SPDX-License-Identifier: Apache-2.0 */
#include "diff.h"

#include <errno.h>

#include "analyzer/analysis.h"
#include "analyzer/comparison.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "output.h"
#include "render_source.h"
#include "reports/difference.h"

struct side {
	struct recording *recording;
	struct analysis *analysis;
	struct render_source source;
};

static void side_close(struct side *side)
{
	render_source_free(&side->source);
	analysis_free(side->analysis);
	recording_close(side->recording);
}

static int side_open(const char *path, struct side *side, struct error *err)
{
	int r = recording_open(path, &side->recording, err);

	if (r == 0)
		r = recording_analyze(side->recording, &(struct recording_analysis_options){0},
				      &side->analysis, err);
	if (r < 0)
		return r;
	render_source_load(side->recording, path, &side->source);
	if (side->analysis->verdict == ANALYSIS_INSUFFICIENT)
		return error_set(err, -ENODATA, "%s: %s", path, side->analysis->insufficient);
	return 0;
}

static int write_text(FILE *stream, const void *user)
{
	struct report_text_options options = report_text_options_for(stream);

	return report_difference_text(stream, user, &options);
}

static int write_json(FILE *stream, const void *user)
{
	return report_difference_json(stream, user);
}

int diff_recordings(const struct diff_options *options, struct error *err)
{
	_cleanup_(side_close) struct side a = {0};
	_cleanup_(side_close) struct side b = {0};
	struct report_difference difference;
	struct comparison comparison;
	int r = side_open(options->recording_a, &a, err);

	if (r == 0)
		r = side_open(options->recording_b, &b, err);
	if (r < 0)
		return r;
	r = comparison_make(a.analysis, b.analysis, &comparison);
	if (r < 0)
		return error_errno(err, r, "cannot compare %s and %s", options->recording_a,
				   options->recording_b);
	difference = (struct report_difference){.a = a.analysis,
						.b = b.analysis,
						.source_a = &a.source.report,
						.source_b = &b.source.report,
						.comparison = &comparison};
	return output_write(options->output, options->stream, options->json ? write_json : write_text,
			    &difference, err);
}
