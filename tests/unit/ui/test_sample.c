/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "ui/feed/census.h"
#include "ui/feed/devices.h"
#include "ui/feed/job_fill.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "ui/state/sample.h"
#include "ui/state/sample_json.h"

static struct top_sample *back(const char *json, int expected)
{
	struct top_sample *sample = NULL;
	struct error err = ERROR_INIT;

	assert_int_equal(sample_from_json(json, strlen(json), &sample, &err), expected);
	assert_int_equal(!!err.text[0], !!expected);
	return sample;
}

TEST(json_keeps_what_is_known_and_what_is_not)
{
	struct top_sample *sample = sample_new(), *read;
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	strcpy(job->id, "1.2");
	strcpy(job->name, "\"\\\n\t");
	job->share[SHARE_FETCH_STALL] = 0.25;
	job->n_steps = 0;
	struct hop_sample *hop = sample_add(sample, SAMPLE_HOPS);
	hop->fetch = true;
	sample->time_s = 1.5e9;
	sample->self.n_lost = 7;
	_cleanup_(freep) char *json = sample_to_json(sample, false);
	read = back(json, 0);
	assert_int_equal(read->n_jobs, 1);
	assert_string_equal(read->jobs[0].name, job->name);
	assert_float_equal(read->jobs[0].share[SHARE_FETCH_STALL], 0.25, 0);
	assert_true(isnan(read->jobs[0].share[SHARE_DEVICE]));
	assert_int_equal(read->jobs[0].n_steps, 0);
	assert_true(read->jobs[0].n_workers == SAMPLE_UNKNOWN);
	assert_true(read->hops[0].fetch);
	assert_int_equal(read->self.n_lost, 7);
	assert_float_equal(read->time_s, 1.5e9, 0);
	sample_free(read);
	sample_free(sample);
}

/* A command line can hold any bytes. */
TEST(bytes_that_are_no_utf8)
{
	struct top_sample *sample = sample_new(), *read;
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	strcpy(job->name, "a\377b");
	_cleanup_(freep) char *json = sample_to_json(sample, true);
	read = back(json, 0);
	assert_string_equal(read->jobs[0].name, "a\\xffb");
	sample_free(read);
	sample_free(sample);
}

TEST(json_from_outside)
{
	char text[600];
	struct top_sample *sample;

	back("", -EBADMSG);
	back("[]", -EBADMSG);
	back("{\"schema\": \"diesel.report/1\"}", -EBADMSG);
	back("{\"schema\": \"diesel.top/2\"}", -EPROTONOSUPPORT);
	sample_free(back("{\"schema\": \"diesel.top/1\", \"jobs\": {}, \"host\": [], \"time_s\": \"x\"}", 0));
	sample =
	    back("{\"schema\": \"diesel.top/1\", \"news\": 1, \"jobs\": [3, null, {\"pid\": -1, \"user\": 5, "
		 "\"steps_per_s\": true, \"later\": {}}]}",
		 0);
	assert_int_equal(sample->n_jobs, 3);
	assert_true(sample->jobs[2].pid == SAMPLE_UNKNOWN);
	assert_true(isnan(sample->jobs[2].steps_per_s));
	sample_free(sample);
	/* A text that is too long is cut between characters. */
	strcpy(text, "{\"schema\": \"diesel.top/1\", \"jobs\": [{\"state\": \"");
	for (int i = 0; i < 100; i++)
		strcat(text, "\303\274");
	strcat(text, "\"}]}");
	sample = back(text, 0);
	assert_string_equal(sample->jobs[0].state, "\303\274\303\274\303\274\303\274\303\274");
	sample_free(sample);
}

TEST(analysis_to_job)
{
	struct analysis_step steps[20];
	struct analysis analysis = {.verdict = ANALYSIS_FETCH_BOUND,
				    .job.loader = LOADER_WORKERS,
				    .window.begin_ns = 0,
				    .window.end_ns = 2000000000,
				    .window.observed_ns = 2000000000,
				    .share_ns = {1000000000, 600000000, 400000000},
				    .steps = steps,
				    .n_steps = 20,
				    .workers = {.n_at_once = 3}};
	struct top_sample *sample = sample_new();
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	for (uint64_t i = 0; i < 20; i++)
		steps[i] = (struct analysis_step){.begin_ns = i * 100000000, .end_ns = (i + 1) * 100000000};
	job_fill(&analysis, job);
	assert_float_equal(job->share[SHARE_FETCH_STALL], 0.3, 1e-9);
	assert_float_equal(sample_stall(job), 0.5, 1e-9);
	assert_float_equal(job->steps_per_s, 10, 1e-9);
	assert_float_equal(job->step_p95_s, 0.1, 1e-9);
	assert_string_equal(job->verdict, "fetch-bound");
	assert_int_equal(job->n_workers, 3);
	assert_float_equal(job->share_error, 0, 0);
	sample_free(sample);
}

/* A sampled job shows neither steps nor how much was read. */
TEST(what_is_hidden_is_unknown)
{
	struct analysis analysis = {.verdict = ANALYSIS_PREP_BOUND,
				    .sampled.is = true,
				    .job.loader = LOADER_WORKERS,
				    .window.end_ns = 2000000000,
				    .window.observed_ns = 2000000000,
				    .share_ns = {1000000000, 600000000, 400000000}};
	struct top_sample *sample = sample_new();
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	job_fill(&analysis, job);
	assert_true(isnan(job->wait_mean_s));
	assert_true(isnan(job->read_bytes_per_s));
	assert_true(isnan(job->steps_per_s));
	analysis.sampled.n_steps_estimated = 10;
	analysis.window.read_bytes_known = true;
	job_fill(&analysis, job);
	assert_float_equal(job->wait_mean_s, 0, 0);
	assert_float_equal(job->read_bytes_per_s, 0, 0);
	sample_free(sample);
}

/* With too few steps, there are no shares, which differs from shares of 0. */
TEST(an_insufficient_analysis_has_no_shares)
{
	struct analysis analysis = {.verdict = ANALYSIS_INSUFFICIENT, .insufficient = "only 1 step"};
	struct top_sample *sample = sample_new();
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	job_fill(&analysis, job);
	assert_true(isnan(job->share[SHARE_DEVICE]));
	assert_true(isnan(job->steps_per_s));
	assert_string_equal(job->remark, "only 1 step");
	assert_string_equal(job->verdict, "");
	sample_free(sample);
}

/* A step that compiles does not count for the speed. An unknown speed is not 0. */
TEST(a_compiling_step_has_no_speed)
{
	struct analysis_step steps[] = {{.end_ns = 10 * NS_PER_S, .excluded = true},
					{.begin_ns = 10 * NS_PER_S, .end_ns = 11 * NS_PER_S}};
	struct analysis analysis = {.verdict = ANALYSIS_DEVICE_BOUND,
				    .steps = steps,
				    .n_steps = 2,
				    .window.observed_ns = 11 * NS_PER_S,
				    .window.end_ns = 11 * NS_PER_S};
	struct top_sample *sample = sample_new();
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	analysis.share_ns[SHARE_COMPILING] = 11 * NS_PER_S / 2;
	job_fill(&analysis, job);
	assert_true(isnan(job->share[SHARE_COMPILING]));
	analysis.compiling.known = true;
	job_fill(&analysis, job);
	assert_float_equal(job->share[SHARE_COMPILING], 0.5, 1e-9);
	assert_float_equal(job->step_p95_s, 1, 1e-9);
	assert_float_equal(job->steps_per_s, 1, 1e-9);
	sample_free(sample);
}

TEST(names_of_jobs)
{
	static const char *const cases[][2] = {
	    {"/usr/bin/python3 /home/me/train.py --lr 0.1", "train.py"},
	    {"python -u -m torch.distributed.run train.py", "torch.distributed.run"},
	    {"/opt/bin/trainer --x a/b", "trainer"},
	    {"python3 -c import", "python3"},
	    {"", ""},
	    {"a/", "a/"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char name[64];

		process_name(cases[i][0], name, sizeof(name));
		assert_string_equal(name, cases[i][1]);
	}
}

/* Disks without I/O, and lines that are none of diskstats, are left out. */
TEST_IN_FOLDER(disks_have_the_rates_between_two_samples)
{
	_cleanup_(devices_free) struct devices devices = {0};
	struct top_sample *sample = sample_new();
	const struct device_sample *disk;

	write_text(*state, "diskstats",
		   " 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n"
		   " 254  0 vda 100 5 2048 30 200 6 4096 40 0 50 70 0 0 0 0 1 2\n\nnonsense\n");
	assert_int_equal(devices_sample(&devices, *state, NS_PER_S, sample), 0);
	assert_int_equal(sample->n_devices, 1);
	assert_string_equal(sample->devices[0].name, "vda");
	assert_true(isnan(sample->devices[0].read_bytes_per_s));
	sample_free(sample);
	sample = sample_new();
	write_text(*state, "diskstats", " 254  0 vda 110 5 4048 50 200 6 8096 40 0 550 1570 0 0 0 0 1 2\n");
	assert_int_equal(devices_sample(&devices, *state, 2 * NS_PER_S, sample), 0);
	disk = &sample->devices[0];
	assert_float_equal(disk->read_bytes_per_s, 2000 * 512, 0);
	assert_float_equal(disk->write_bytes_per_s, 4000 * 512, 0);
	assert_float_equal(disk->reads_per_s, 10, 0);
	assert_float_equal(disk->await_s, 0.002, 1e-9);
	assert_float_equal(disk->queue, 1.5, 1e-9);
	assert_float_equal(disk->busy_ratio, 0.5, 1e-9);
	sample_free(sample);
}
