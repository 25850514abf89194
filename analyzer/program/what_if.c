/* SPDX-License-Identifier: Apache-2.0 */
#include "what_if.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "analyzer/model.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/cleanup.h"
#include "lib/units.h"
#include "options.h"
#include "output.h"
#include "reports/what_if.h"
#include "served.h"

static void recording_closep(struct recording **recording)
{
	recording_close(*recording);
}

static void analysis_freep(struct analysis **analysis)
{
	analysis_free(*analysis);
}

static int write_text(FILE *stream, const void *user)
{
	return report_what_if_text(stream, user);
}

static int write_json(FILE *stream, const void *user)
{
	return report_what_if_json(stream, user);
}

int what_if_run(const struct options *options, struct error *err)
{
	const char *path = options->recordings[0];
	_cleanup_(recording_closep) struct recording *recording = NULL;
	_cleanup_(analysis_freep) struct analysis *analysis = NULL;
	struct report_what_if report;
	int r;

	if (served_is_json(path) == 1)
		return served_what_if(path, &options->what_if, options->json, err);
	r = recording_open(path, &recording, err);
	if (r == 0)
		r = recording_analyze(recording,
				      &(struct recording_analysis_options){
					  .what_if = options->what_if_asked ? &options->what_if : NULL},
				      &analysis, err);
	if (r < 0)
		return r;
	if (analysis->verdict == ANALYSIS_INSUFFICIENT)
		return error_set(err, -ENODATA, "%s: %s", path, analysis->insufficient);
	if (!analysis->predictions && analysis->no_predictions[0])
		return error_set(err, -ENODATA, "%s: no prediction: %s%s", path, analysis->no_predictions,
				 analysis->job.loader == LOADER_WORKERS ||
					 analysis->job.loader == LOADER_INLINE
				     ? "; record again, for longer or with less load on the machine"
				     : "");
	if (!analysis->predictions)
		return error_set(err, -ENODATA,
				 "%s: no prediction, because the job was sampled without privilege. Record "
				 "it as root (sudo), or see diesel-analyze check",
				 path);
	if (!isnan(options->what_if.storage_bytes_per_s) &&
	    !(analysis->predictions->storage_bytes_per_s.value > 0))
		return error_set(err, -ENODATA,
				 "%s: the job read nothing from storage while it was recorded, so the "
				 "storage's bandwidth is unknown. Evict the job's files from the page cache, "
				 "and record again",
				 path);
	if (options->what_if.native && isnan(analysis->predictions->native.part.value))
		return error_set(err, -ENODATA, "%s: --%s: %s", path,
				 isnan(options->what_if.decoded_ratio) ? "native" : "decoded-cache",
				 analysis->profile
				     ? "the recording's stack samples show almost no decoding of "
				       "JPEG, PNG or WebP images"
				     : "the recording has no stack samples, so the functions "
				       "that prepare the data are unknown");
	report =
	    (struct report_what_if){.recording = path, .analysis = analysis, .question = options->what_if};
	return output_write(NULL, stdout, options->json ? write_json : write_text, &report, err);
}
