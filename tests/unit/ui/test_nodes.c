/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes' reports about their jobs may come from anybody. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui/feed/node_report.h"
#include "ui/state/sample.h"

static struct top_sample *filled(const char *json, double age_s)
{
	struct top_sample *s = sample_new();

	assert_non_null(s);
	assert_int_equal(node_report_fill(json, "gpu-07", age_s, s), 0);
	assert_int_equal(s->n_nodes, 1);
	assert_string_equal(s->nodes->name, "gpu-07");
	return s;
}

TEST(a_node_s_report_fills_jobs)
{
	struct top_sample *s =
	    filled("{\"schema\": \"diesel.node/1\", \"version\": \"0.1.0\", \"uptime_s\": "
		   "60.5, \"omitted\": 2, \"jobs\": ["
		   "{\"id\": 3, \"pid\": 1234, \"uid\": 1000, \"name\": \"python3 train.py "
		   "--x\", \"job\": \"4711\", \"age_s\": 9,"
		   " \"dataset\": \"/data/x\", \"measured_s\": 8, \"stall_s\": 2.5, "
		   "\"source\": \"bpf\", \"samples_per_s\": 640,"
		   " \"steps_per_s\": null, \"shares\": {\"fetch_stall\": 0.5, "
		   "\"prep_stall\": 0.1, \"checkpoint_stall\": null}},"
		   "{\"id\": 4, \"name\": \"a.py\", \"job\": null, \"dataset\": null, "
		   "\"measured_s\": 0, \"stall_s\": null}]}",
		   1.5);
	const struct job_sample *job = s->jobs;

	assert_string_equal(s->nodes->state, "up");
	assert_string_equal(s->nodes->version, "0.1.0");
	assert_int_equal(s->nodes->n_jobs, 4);
	assert_int_equal(s->nodes->n_omitted, 2);
	assert_int_equal(s->n_jobs, 2);
	assert_string_equal(job->node, "gpu-07");
	assert_string_equal(job->name, "4711 (train.py)");
	assert_string_equal(job->user, "1000");
	assert_string_equal(job->dataset, "/data/x");
	assert_string_equal(job->state, "running");
	assert_string_equal(job->verdict, "fetch-bound");
	assert_int_equal(job->pid, 1234);
	assert_true(job->stall_s == 2.5 && job->measured_s == 8 && job->served.samples_per_s == 640 &&
		    job->age_s == 1.5);
	assert_true(isnan(job->steps_per_s) && isnan(job->share[SHARE_CHECKPOINT_STALL]));
	assert_string_not_equal(job[0].id, job[1].id);
	/* An unknown value is not zero. */
	assert_true(isnan(job[1].stall_s) && isnan(job[1].served.samples_per_s));
	assert_string_equal(job[1].name, "a.py");
	sample_free(s);
	s = filled("{\"schema\": \"diesel.node/1\", \"jobs\": [{\"id\": 1}]}", NODE_SILENT_S + 1);
	assert_string_equal(s->nodes->state, "silent");
	assert_string_equal(s->jobs->state, "silent");
	sample_free(s);
}

TEST(jobs_of_two_nodes_differ_by_id)
{
	struct top_sample *s = sample_new();
	static const char report[] = "{\"schema\": \"diesel.node/1\", \"jobs\": [{\"id\": 1}]}";

	assert_int_equal(node_report_fill(report, "a", 0, s), 0);
	assert_int_equal(node_report_fill(report, "b", 0, s), 0);
	assert_int_equal(s->n_jobs, 2);
	assert_string_not_equal(s->jobs[0].id, s->jobs[1].id); /* two nodes have jobs with the same number */
	sample_free(s);
}

TEST(hostile_reports_leave_unknowns)
{
	static const char *const not_known[] = {
	    "",
	    "x",
	    "[]",
	    "{}",
	    "{\"schema\": \"diesel.node/2\", \"jobs\": [{\"id\": 1}]}",
	    "{\"schema\": 5}",
	    "null",
	    "[[[[",
	    "\"\\u0000\"",
	};
	static const char *const strange[] = {
	    "{\"schema\": \"diesel.node/1\"}",
	    "{\"schema\": \"diesel.node/1\", \"jobs\": 5}",
	    "{\"schema\": \"diesel.node/1\", \"jobs\": [5, null, [], \"x\"]}",
	    "{\"schema\": \"diesel.node/1\", \"omitted\": -5, \"uptime_s\": 1e300, \"version\": 7, \"jobs\": "
	    "[{\"id\": -1, \"pid\": -7, "
	    "\"uid\": 1e30, \"name\": 5, \"stall_s\": -1, \"measured_s\": \"x\", \"samples_per_s\": 1e200, "
	    "\"shares\": "
	    "{\"fetch_stall\": 7, \"prep_stall\": -1, \"device\": [], \"cpu_starved\": 1e400}}]}",
	};
	char long_name[8192];
	struct top_sample *s;

	for (size_t i = 0; i < sizeof(not_known) / sizeof(not_known[0]); i++) {
		s = filled(not_known[i], 0);
		assert_string_equal(s->nodes->state, "unknown");
		assert_int_equal(s->n_jobs, 0);
		sample_free(s);
	}
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		s = filled(strange[i], 0);
		for (size_t k = 0; k < s->n_jobs; k++) {
			const struct job_sample *job = &s->jobs[k];

			assert_true(isnan(job->stall_s) && isnan(job->measured_s) &&
				    isnan(job->served.samples_per_s));
			for (int share = 0; share < SHARE_COUNT; share++)
				assert_true(isnan(job->share[share]));
			assert_int_equal(job->pid, SAMPLE_UNKNOWN);
			assert_string_equal(job->user, "");
		}
		sample_free(s);
	}
	snprintf(long_name, sizeof(long_name),
		 "{\"schema\": \"diesel.node/1\", \"jobs\": [{\"id\": 1, \"name\": \"%04000d\", \"job\": "
		 "\"%03000d\"}]}",
		 1, 2);
	s = filled(long_name, 0);
	assert_true(strlen(s->jobs->name) < sizeof(s->jobs->name));
	sample_free(s);
}

TEST(too_many_jobs_are_cut)
{
	char *json = malloc(40 + 12 * 100000), *at = json;

	at += sprintf(at, "{\"schema\": \"diesel.node/1\", \"jobs\": [{\"id\":0}");
	for (int i = 1; i < 50000; i++)
		at += sprintf(at, ",{\"id\":%d}", i);
	strcpy(at, "]}");
	struct top_sample *s = filled(json, 0);
	assert_int_equal(s->n_jobs, 256);
	sample_free(s);
	free(json);
}
