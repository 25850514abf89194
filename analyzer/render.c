/* SPDX-License-Identifier: Apache-2.0 */
#include "render.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/session.h"
#include "analyzer/session_analysis.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/log.h"
#include "reports/report.h"

static void session_closep(struct session **session)
{
	session_close(*session);
}

static void analysis_freep(struct analysis **analysis)
{
	analysis_free(*analysis);
}

static bool wants_json(const struct render_options *options)
{
	const char *extension = options->output ? strrchr(options->output, '.') : NULL;

	if (options->format)
		return !strcmp(options->format, "json");
	return extension && !strcmp(extension, ".json");
}

static int write_report(FILE *stream, const struct analysis *analysis, bool json)
{
	struct report_text_options text = report_text_options_for(stream);
	int r = json ? report_json(stream, analysis, NULL, false) : report_text(stream, analysis, &text);

	if (!r && fflush(stream))
		r = -errno;
	return r;
}

/* By a temporary file, so that a full disk does not leave half a report in place of an old one. */
static int write_file(const char *path, const struct analysis *analysis, bool json, struct error *err)
{
	char temporary[4200];
	FILE *file;
	int r;

	snprintf(temporary, sizeof(temporary), "%s.tmp-%d", path, (int)getpid());
	file = fopen(temporary, "wxe");
	if (!file)
		return error_errno(err, -errno, "cannot write %s", path);
	r = write_report(file, analysis, json);
	if (fclose(file) && !r)
		r = -errno;
	if (!r && rename(temporary, path))
		r = -errno;
	if (r) {
		unlink(temporary);
		return error_errno(err, r, "cannot write %s", path);
	}
	return 0;
}

int render_session(const struct render_options *options, bool *ret_sufficient, struct error *err)
{
	_cleanup_(session_closep) struct session *session = NULL;
	_cleanup_(analysis_freep) struct analysis *analysis = NULL;
	bool json = wants_json(options);
	int r = session_open(options->session, &session, err);

	if (!r)
		r = session_analyze(session,
				    &(struct session_analysis_options){.trainer_tid = options->trainer_tid},
				    &analysis, err);
	if (r)
		return r;
	if (!session_complete(session))
		log_warning(
		    "%s was cut off: the recorder was killed or the file damaged; the report is of what "
		    "is there",
		    options->session);
	if (options->output) {
		r = write_file(options->output, analysis, json, err);
	} else {
		r = write_report(options->stream, analysis, json);
		if (r)
			r = error_errno(err, r, "cannot write the report");
	}
	if (!r)
		*ret_sufficient = analysis->verdict != ANALYSIS_INSUFFICIENT;
	return r;
}
