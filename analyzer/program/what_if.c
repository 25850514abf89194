/* SPDX-License-Identifier: Apache-2.0 */
#include "what_if.h"

#include <errno.h>
#include <locale.h>
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

struct what_if_question what_if_question_none(void)
{
	return (struct what_if_question){.cache_ratio = NAN,
					 .n_workers = NAN,
					 .n_cores = NAN,
					 .storage_factor = NAN,
					 .storage_bytes_per_s = NAN,
					 .device_factor = NAN,
					 .sample_factor = NAN,
					 .n_nodes = NAN,
					 .decoded_ratio = NAN};
}

/* Parses a number and the suffix after it, regardless of the locale: "0.5" is the same everywhere. */
static bool number(const char *text, const char *suffix, double *ret_value)
{
	locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	char *end;
	double value;

	if (!plain)
		return false;
	value = strtod_l(text, &end, plain);
	freelocale(plain);
	if (end == text || !isfinite(value) || (*end && strcmp(end, suffix) != 0))
		return false;
	*ret_value = value;
	return true;
}

static bool share(const char *text, double *ret_value)
{
	double value;

	if (!number(text, "%", &value))
		return false;
	if (strchr(text, '%'))
		value /= 100;
	if (value < 0 || value > 1)
		return false;
	*ret_value = value;
	return true;
}

static bool factor(const char *text, const char *suffix, double low, double high, double *ret_value)
{
	double value;

	if (!number(text, suffix, &value) || value < low || value > high)
		return false;
	*ret_value = value;
	return true;
}

const char *what_if_set(struct what_if_question *question, enum what_if_option option, const char *text)
{
	int64_t n;

	switch (option) {
	case WHAT_IF_OPTION_CACHE:
		return share(text, &question->cache_ratio)
			   ? NULL
			   : "must be a share of the dataset, such as 50% or 0.5";
	case WHAT_IF_OPTION_WORKERS:
		if (units_parse_integer(text, 0, MODEL_WORKERS_MAX, &n))
			return "must be a number of workers from 0 to 256";
		question->n_workers = (double)n;
		return NULL;
	case WHAT_IF_OPTION_CORES:
		return factor(text, "", MODEL_CORES_MIN, MODEL_CORES_MAX, &question->n_cores)
			   ? NULL
			   : "must be a number of cores from 0.05 to 4096";
	case WHAT_IF_OPTION_STORAGE_MBPS:
		if (!factor(text, "MB/s", 0.001, 1e6, &question->storage_bytes_per_s))
			return "must be a bandwidth in MB/s, such as 200 (0.001 to 1000000)";
		question->storage_bytes_per_s *= 1e6;
		return NULL;
	case WHAT_IF_OPTION_STORAGE_SPEED:
		return factor(text, "x", 0.01, 1000, &question->storage_factor)
			   ? NULL
			   : "must be a multiple of the recorded storage bandwidth, such as 2 (0.01 to 1000)";
	case WHAT_IF_OPTION_DEVICE_SPEED:
		return factor(text, "x", 0.01, 1000, &question->device_factor)
			   ? NULL
			   : "must be a multiple of the recorded device speed, such as 2 (0.01 to 1000)";
	case WHAT_IF_OPTION_SAMPLE_SIZE:
		return factor(text, "x", 0.01, 1000, &question->sample_factor)
			   ? NULL
			   : "must be a multiple of the recorded sample size, such as 0.5 (0.01 to 1000)";
	case WHAT_IF_OPTION_NODES:
		if (units_parse_integer(text, 1, WHAT_IF_NODES_MAX, &n))
			return "must be a number of nodes from 1 to 10000";
		question->n_nodes = (double)n;
		return NULL;
	case WHAT_IF_OPTION_DECODED:
		question->native = true;
		return share(text, &question->decoded_ratio)
			   ? NULL
			   : "must be a share of the samples, such as 50% or 0.5";
	}
	return "unknown";
}

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
