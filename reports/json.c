/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"

/* json_object_set_new() takes a NULL value as a failure and keeps it as the return value: one sum of all
 * results tells whether memory ran out anywhere. */
static json_t *seconds(uint64_t ns)
{
	return json_real((double)ns / (double)NS_PER_S);
}

static json_t *count(uint64_t n)
{
	return json_integer((json_int_t)n);
}

/* Command lines are bytes: what is not UTF-8 is shown as '?'. */
static json_t *text(const char *bytes)
{
	json_t *string = json_string(bytes);
	char *copy;

	if (string)
		return string;
	copy = strdup(bytes);
	for (char *c = copy; c && *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	string = json_string(copy);
	free(copy);
	return string;
}

static bool judged(const struct analysis *analysis)
{
	return analysis->verdict != ANALYSIS_INSUFFICIENT;
}

static int set_shares(json_t *root, const struct analysis *analysis)
{
	json_t *shares = json_object();
	uint64_t wall_ns = analysis->window_end_ns - analysis->window_begin_ns;
	int r = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		r |= json_object_set_new(
		    shares, analysis_share_name((enum analysis_share)i),
		    judged(analysis) ? json_real(analysis_share_ratio(analysis, (enum analysis_share)i))
				     : json_null());
	r |= json_object_set_new(shares, "gpu_wait",
				 judged(analysis) && analysis->gpu_wait_known && wall_ns
				     ? json_real((double)analysis->gpu_wait_ns / (double)wall_ns)
				     : json_null());
	return r | json_object_set_new(root, "shares", shares);
}

static int set_job(json_t *root, const struct analysis *analysis)
{
	json_t *job = json_object();
	int r = 0;

	r |= json_object_set_new(job, "command", analysis->command ? text(analysis->command) : json_null());
	r |= json_object_set_new(job, "attached", json_boolean(analysis->attached));
	r |= json_object_set_new(job, "tgid", count(analysis->root_tgid));
	r |= json_object_set_new(job, "trainer_tgid", count(analysis->trainer_tgid));
	r |= json_object_set_new(job, "trainer_tid", count(analysis->trainer_tid));
	r |= json_object_set_new(job, "trainers", count(analysis->n_trainers));
	r |= json_object_set_new(job, "cpus", count(analysis->n_cpus));
	return r | json_object_set_new(root, "job", job);
}

static int set_workers(json_t *root, const struct analysis *analysis)
{
	const struct analysis_workers *from = &analysis->workers;
	json_t *workers = json_object();
	int r = 0;

	r |= json_object_set_new(workers, "count", count(from->n_at_once));
	r |= json_object_set_new(workers, "processes", count(from->n));
	r |= json_object_set_new(workers, "fetch_s", seconds(from->fetch_ns));
	r |= json_object_set_new(workers, "cpu_s", seconds(from->cpu_ns));
	r |= json_object_set_new(workers, "queue_s", seconds(from->queue_ns));
	r |= json_object_set_new(workers, "idle_s", seconds(from->idle_ns));
	r |= json_object_set_new(workers, "blocked_s", seconds(from->blocked_ns));
	return r | json_object_set_new(root, "workers", workers);
}

static int set_evidence(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_evidence; i++) {
		const struct analysis_evidence *from = &analysis->evidence[i];
		json_t *item = json_object();

		r |= json_object_set_new(item, "role", json_string(from->role));
		r |= json_object_set_new(item, "what", json_string(from->what));
		r |= json_object_set_new(item, "seconds", seconds(from->ns));
		r |= json_object_set_new(item, "kind", json_string(from->fetch ? "fetch" : "prep"));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "evidence", list);
}

static int set_actions(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_actions; i++) {
		const struct analysis_action *from = &analysis->actions[i];
		json_t *item = json_object();

		r |= json_object_set_new(item, "text", json_string(from->text));
		r |= json_object_set_new(item, "gain_at_most", json_real(from->gain_max));
		r |= json_object_set_new(item, "confidence",
					 json_string(analysis_confidence_name(from->confidence)));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "actions", list);
}

static int set_steps(json_t *root, const struct analysis *analysis)
{
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < analysis->n_steps; i++) {
		const struct analysis_step *from = &analysis->steps[i];
		json_t *item = json_object();

		r |=
		    json_object_set_new(item, "begin_s", seconds(from->begin_ns - analysis->window_begin_ns));
		r |= json_object_set_new(item, "wall_s", seconds(from->end_ns - from->begin_ns));
		for (size_t k = 0; k < SHARE_COUNT; k++) {
			char key[32];

			snprintf(key, sizeof(key), "%s_s", analysis_share_name((enum analysis_share)k));
			r |= json_object_set_new(item, key, seconds(from->share_ns[k]));
		}
		r |= json_object_set_new(item, "complete", json_boolean(from->complete));
		r |= json_array_append_new(list, item);
	}
	return r | json_object_set_new(root, "step_table", list);
}

static int set_figures(json_t *root, const struct analysis *analysis)
{
	int r = 0;

	r |= json_object_set_new(root, "verdict", json_string(analysis_verdict_name(analysis->verdict)));
	r |= json_object_set_new(root, "insufficient",
				 judged(analysis) ? json_null() : json_string(analysis->insufficient));
	r |= json_object_set_new(root, "note", analysis->note[0] ? json_string(analysis->note) : json_null());
	r |=
	    json_object_set_new(root, "wall_s", seconds(analysis->window_end_ns - analysis->window_begin_ns));
	r |= json_object_set_new(root, "recorded_s", seconds(analysis->end_ns - analysis->begin_ns));
	r |= json_object_set_new(root, "startup_s", seconds(analysis->startup_ns));
	r |= json_object_set_new(root, "teardown_s", seconds(analysis->teardown_ns));
	r |= json_object_set_new(root, "steps", count(analysis->n_steps));
	r |= json_object_set_new(root, "incomplete_steps", count(analysis->n_incomplete));
	r |= json_object_set_new(root, "loader", json_string(analysis_loader_name(analysis->loader)));
	r |= json_object_set_new(root, "method", json_string(analysis_method_name(analysis->method)));
	r |= json_object_set_new(root, "wait_mean_s", seconds(analysis->wait_mean_ns));
	r |= json_object_set_new(root, "wait_p95_s", seconds(analysis->wait_p95_ns));
	r |= json_object_set_new(root, "read_bytes", count(analysis->read_bytes));
	r |= json_object_set_new(root, "steal_s", seconds(analysis->steal_ns));
	r |= json_object_set_new(root, "lost_events", count(analysis->n_lost));
	r |= json_object_set_new(root, "malformed_events", count(analysis->n_malformed));
	r |= json_object_set_new(root, "coverage", json_real(analysis->coverage_ratio));
	r |= json_object_set_new(root, "self_cost", json_real(analysis->self_cost_ratio));
	return r;
}

int report_json(FILE *stream, const struct analysis *analysis, bool with_steps)
{
	json_t *root = json_object();
	int r = 0;

	r |= json_object_set_new(root, "schema", json_string("diesel.report/1"));
	r |= set_job(root, analysis);
	r |= set_figures(root, analysis);
	r |= set_shares(root, analysis);
	r |= set_workers(root, analysis);
	r |= set_evidence(root, analysis);
	r |= set_actions(root, analysis);
	if (with_steps)
		r |= set_steps(root, analysis);
	if (r) {
		json_decref(root);
		return -ENOMEM;
	}
	errno = 0;
	r = json_dumpf(root, stream, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	json_decref(root);
	if (r || fputc('\n', stream) == EOF || fflush(stream))
		return errno ? -errno : -EIO;
	return 0;
}
