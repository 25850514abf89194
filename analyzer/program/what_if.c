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
#include "lib/json_read.h"
#include "lib/text.h"
#include "options.h"
#include "output.h"
#include "reports/what_if.h"
#include "served.h"

/* ---- jobs that dieseld serves ------------------------------------------------------------------------ */

/* Opens such a file. *ret_root: to be freed with json_decref(). -ENOENT and the like, -EINVAL. */
static int served_open(const char *path, json_t **ret_root, struct error *err)
{
	__attribute__((cleanup(json_freep))) json_t *root = NULL;
	int r = served_load(path, &root, err);

	if (r < 0)
		return r;
	if (strcmp(json_string_of(root, "schema"), SERVED_SCHEMA) != 0)
		return error_set(err, -EINVAL,
				 "%s: expected a recording or the output of dieselctl jobs --json", path);
	r = served_check(root, path, err);
	if (r < 0)
		return r;
	*ret_root = steal_pointer(root);
	return 0;
}

/* An answer for one job. */
struct served_answer {
	struct served served;
	const char *unclear; /* NULL: the speed is known */
	double speed;
	enum model_bound bound;
};

static struct served_change change_of(const struct served *served, const struct what_if_question *question)
{
	struct served_change change = {.cores = question->n_cores,
				       .cached_ratio = question->cache_ratio,
				       .storage_factor = 1,
				       .device_factor = 1};

	if (isnan(change.cached_ratio) && served_knows_memory(served))
		change.cached_ratio = fmin(1, served->cached_bytes / served->dataset_bytes);
	if (!isnan(question->storage_factor))
		change.storage_factor = question->storage_factor;
	if (!isnan(question->storage_bytes_per_s))
		change.storage_factor = question->storage_bytes_per_s / served->storage_bytes_per_s;
	if (!isnan(question->device_factor))
		change.device_factor = question->device_factor;
	return change;
}

static struct served_answer answer_make(const json_t *job, const struct what_if_question *question)
{
	const struct served served = served_read(job);
	struct served_answer answer = {
	    .served = served, .unclear = served_why_unclear(&served), .speed = NAN};
	bool reads = !isnan(question->cache_ratio) || !isnan(question->storage_factor) ||
		     !isnan(question->storage_bytes_per_s);
	struct served_change change = change_of(&answer.served, question);

	if (answer.unclear)
		return answer;
	if (reads && !served_knows_memory(&answer.served))
		answer.unclear = "it read nothing from storage, so how slow storage is was not seen";
	else
		answer.speed = served_speed(&answer.served, &change, &answer.bound);
	return answer;
}

static const char *bound_name(enum model_bound bound)
{
	static const char *const names[] = {[MODEL_DEVICE_BOUND] = "device-bound",
					    [MODEL_FETCH_BOUND] = "fetch-bound",
					    [MODEL_PREP_BOUND] = "prep-bound"};

	return names[bound];
}

struct served_report {
	const char *path;
	const json_t *jobs;
	const struct what_if_question *question;
};

static int write_served_text(FILE *stream, const void *user)
{
	const struct served_report *report = user;
	const json_t *job;
	size_t i;

	json_array_foreach(report->jobs, i, job)
	{
		const struct served_answer answer = answer_make(job, report->question);
		char name[200];

		text_printable(name, sizeof(name), answer.served.name, strlen(answer.served.name));
		if (answer.unclear)
			fprintf(stream, "%s: unclear: %s\n", name, answer.unclear);
		else
			fprintf(stream, "%s: %.4g samples/s instead of %.4g; the job is then %s\n", name,
				answer.speed, answer.served.rate, bound_name(answer.bound));
	}
	return ferror(stream) ? (errno ? -errno : -EIO) : 0;
}

static json_t *known(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static int write_served_json(FILE *stream, const void *user)
{
	const struct served_report *report = user;
	__attribute__((cleanup(json_freep))) json_t *list = json_array();
	const json_t *job;
	_cleanup_(freep) char *text = NULL;
	size_t i;

	json_array_foreach(report->jobs, i, job)
	{
		const struct served_answer answer = answer_make(job, report->question);

		json_array_append_new(
		    list, json_pack("{s:s%, s:o, s:o, s:o, s:o}", "name", answer.served.name,
				    strlen(answer.served.name), "samples_per_s", known(answer.speed),
				    "samples_per_s_now", known(answer.served.rate), "bound_by",
				    answer.unclear ? json_null() : json_string(bound_name(answer.bound)),
				    "unclear", answer.unclear ? json_string(answer.unclear) : json_null()));
	}
	__attribute__((cleanup(json_freep))) json_t *root =
	    json_pack("{s:s, s:O}", "schema", "diesel.what-if-served/1", "jobs", list);

	text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	if (!text)
		return -ENOMEM;
	text_put_json(stream, text);
	return ferror(stream) ? (errno ? -errno : -EIO) : 0;
}

static bool has_answer(const struct served_report *report)
{
	const json_t *job;
	size_t i;

	json_array_foreach(report->jobs, i, job)
	{
		if (!answer_make(job, report->question).unclear)
			return true;
	}
	return false;
}

/* Answers a question of what-if for each job of the file. -EINVAL: the question is about something that these
 * figures do not tell; -ENODATA: nothing can be predicted of any job. */
static int served_what_if(const char *path, const struct what_if_question *question, bool json,
			  struct error *err)
{
	__attribute__((cleanup(json_freep))) json_t *root = NULL;
	struct served_report report = {.path = path, .question = question};
	int r;

	if (!isnan(question->n_workers) || !isnan(question->sample_factor) || !isnan(question->n_nodes) ||
	    question->native)
		return error_set(err, -EINVAL,
				 "%s: of jobs that dieseld serves, only --cores, --cache, --storage-mbps, "
				 "--storage-speed and --device-speed can be predicted",
				 path);
	r = served_open(path, &root, err);
	if (r < 0)
		return r;
	report.jobs = json_object_get(root, "jobs");
	r = output_write(NULL, stdout, json ? write_served_json : write_served_text, &report, err);
	return r < 0 || has_answer(&report)
		   ? r
		   : error_set(err, -ENODATA, "%s: no job's speed can be predicted", path);
}

/* ---- recordings -------------------------------------------------------------------------------------- */

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
