/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reports/report.h"

/* Makes an analysis of 10 s, with 5.5 fetch, 0.7 prep, 3.8 device. */
static struct analysis sample(void)
{
	static char command[] =
	    "python3 train.py --a-rather-long-option=1234567890 --another-long-option=abcdefghij";
	struct analysis analysis = {
	    .verdict = ANALYSIS_FETCH_BOUND,
	    .job.command = command,
	    .job.root_tgid = 41,
	    .job.trainer_tgid = 42,
	    .job.trainer_tid = 42,
	    .job.n_trainers = 1,
	    .job.loader = LOADER_WORKERS,
	    .job.method = METHOD_WALK,
	    .recorded.begin_ns = 1000 * NS_PER_S,
	    .recorded.end_ns = 1013 * NS_PER_S,
	    .window.begin_ns = 1002 * NS_PER_S,
	    .window.end_ns = 1012 * NS_PER_S,
	    .window.observed_ns = 10 * NS_PER_S,
	    .window.startup_ns = 2 * NS_PER_S,
	    .window.teardown_ns = 1 * NS_PER_S,
	    .n_steps = 120,
	    .recorded.coverage_ratio = 1,
	    .recorded.self_cost_ratio = 0.004,
	    .workers = {.n = 2, .n_at_once = 2, .fetch_ns = 70, .cpu_ns = 20, .idle_ns = 10},
	    .n_evidence = 1,
	    .evidence = {{"worker", "reading files", 5 * NS_PER_S, true}},
	    .n_actions = 1,
	    .actions = {{.text = "Make reading cheaper: pack the dataset and serve it",
			 .gain_max = 2.22,
			 .confidence = CONFIDENCE_MEDIUM}},
	};

	analysis.share_ns[SHARE_FETCH_STALL] = 5500 * NS_PER_MS;
	analysis.share_ns[SHARE_PREP_STALL] = 700 * NS_PER_MS;
	analysis.share_ns[SHARE_DEVICE] = 3800 * NS_PER_MS;
	return analysis;
}

static char *text_of(const struct analysis *analysis, struct report_text_options options)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	assert_int_equal(report_text(stream, analysis, &options), 0);
	fclose(stream);
	return text;
}

static size_t longest_line(const char *text)
{
	size_t longest = 0, columns = 0;

	for (; *text; text++) {
		if (*text == '\n')
			columns = 0;
		else if (((unsigned char)*text & 0xc0) != 0x80)
			columns++;
		if (columns > longest)
			longest = columns;
	}
	return longest;
}

TEST(a_text_report_says_the_verdict)
{
	struct analysis analysis = sample();
	char *text = text_of(&analysis, (struct report_text_options){.width = 80});

	assert_ptr_equal(
	    strstr(text, "fetch-bound: 62 % of step time is stall: fetch 55, preprocess 7 (120 steps, 0\n"
			 "lost events, tool cost 0.4 % of one CPU)\n"),
	    text);
	assert_null(strchr(text, '\033'));
	assert_int_equal(longest_line(text), 80);
	assert_non_null(strstr(text, "fetch stall  55.0 %"));
	assert_non_null(strstr(text, "At most 2.22x faster"));
	assert_non_null(strstr(text, "2 workers: 70 % fetching, 20 % computing"));
	free(text);
}

TEST(a_text_report_says_what_it_counted_as_steps)
{
	struct analysis analysis = sample();
	char *text;

	analysis.counted = COUNTED_WAITS;
	text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "(about 120 steps counted by data waits, 0 lost events, tool cost"));
	free(text);
}

TEST(text_ascii_and_colour)
{
	struct analysis analysis = sample();
	char *text = text_of(&analysis, (struct report_text_options){.width = 60, .ascii = true});

	for (const char *c = text; *c; c++)
		assert_true((unsigned char)*c < 0x80);
	/* 56 columns: 55 %, 7 %, and the rest */
	assert_non_null(strstr(text, "  ###############################%%%%=====================\n"));
	free(text);
	text = text_of(&analysis, (struct report_text_options){.width = 80, .colour = true});
	assert_non_null(strstr(text, "\033[31m"));
	free(text);
}

TEST(an_insufficient_report_gives_no_advice)
{
	struct analysis analysis = {.insufficient = "no training step was seen"};
	char *text = text_of(&analysis, (struct report_text_options){0});

	assert_ptr_equal(strstr(text, "insufficient data: no training step was seen (0 steps"), text);
	assert_null(strstr(text, "Recommendations"));
	free(text);
}

static json_t *json_of(const struct analysis *analysis, bool with_steps)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	assert_int_equal(report_json(stream, analysis, NULL, with_steps), 0);
	fclose(stream);
	json_t *root = json_loads(text, 0, NULL);
	assert_non_null(root);
	free(text);
	return root;
}

static double number(json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

TEST(a_json_report_has_schema_and_shares)
{
	struct analysis analysis = sample();
	struct analysis_step step = {1002 * NS_PER_S, 1003 * NS_PER_S, 0, {0}, true, false};
	json_t *root = json_of(&analysis, false), *shares = json_object_get(root, "shares"), *action;

	assert_string_equal(json_string_value(json_object_get(root, "schema")), "diesel.report/1");
	assert_string_equal(json_string_value(json_object_get(root, "verdict")), "fetch-bound");
	assert_true(number(root, "wall_s") == 10);
	assert_true(number(root, "steps") == 120);
	assert_true(number(root, "lost_events") == 0);
	assert_true(number(root, "coverage") == 1);
	assert_true(number(root, "self_cost") == 0.004);
	assert_true(number(root, "startup_s") == 2);
	assert_true(number(root, "teardown_s") == 1);
	assert_true(number(shares, "fetch_stall") == 0.55);
	assert_true(number(shares, "prep_stall") == 0.07);
	assert_true(number(shares, "device") == 0.38);
	assert_true(number(shares, "checkpoint_stall") == 0);
	assert_true(number(shares, "cpu_starved") == 0);
	assert_true(number(shares, "other") == 0);
	assert_true(json_is_null(json_object_get(shares, "gpu_wait")));
	assert_true(number(json_object_get(root, "job"), "tgid") == 41);
	assert_true(number(json_object_get(root, "workers"), "count") == 2);
	assert_int_equal(json_array_size(json_object_get(root, "evidence")), 1);
	assert_int_equal(json_array_size(json_object_get(root, "actions")), 1);
	action = json_array_get(json_object_get(root, "actions"), 0);
	assert_true(number(action, "gain_at_most") == 2.22);
	assert_true(json_is_false(json_object_get(action, "gain_at_most_about")));
	assert_null(json_object_get(root, "step_table"));
	json_decref(root);
	analysis.steps = &step;
	analysis.n_steps = 1;
	analysis.actions[0].gain_max = 0; /* unknown */
	analysis.actions[0].about = true;
	root = json_of(&analysis, true);
	action = json_array_get(json_object_get(root, "actions"), 0);
	assert_true(json_is_null(json_object_get(action, "gain_at_most")));
	assert_true(json_is_true(json_object_get(action, "gain_at_most_about")));
	assert_int_equal(json_array_size(json_object_get(root, "step_table")), 1);
	json_decref(root);
}

TEST(json_insufficient_and_odd_bytes)
{
	char command[] = "caf\xe9 \"x\"\n";
	struct analysis analysis = {.insufficient = "too little", .job.command = command};
	json_t *root = json_of(&analysis, true);

	assert_string_equal(json_string_value(json_object_get(root, "verdict")), "insufficient data");
	assert_true(json_is_null(json_object_get(json_object_get(root, "shares"), "device")));
	assert_string_equal(json_string_value(json_object_get(json_object_get(root, "job"), "command")),
			    "caf\\xe9 \"x\"\n");
	json_decref(root);
}

static char *metrics_of(const struct analysis *analysis)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	assert_int_equal(report_openmetrics(stream, analysis, NULL), 0);
	fclose(stream);
	return text;
}

static char *html_of(const struct analysis *analysis)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	assert_int_equal(report_html(stream, analysis, NULL), 0);
	fclose(stream);
	return text;
}

/* A sampled recording does not show how many steps there were, and how much was read. */
TEST(unknown_is_not_zero)
{
	struct analysis analysis = sample();

	analysis.sampled.is = true;
	analysis.n_steps = 0;
	char *text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "Data wait per step: unknown. Files read: unknown."));
	free(text);
	json_t *root = json_of(&analysis, false);
	assert_true(json_is_null(json_object_get(root, "steps")));
	assert_true(json_is_null(json_object_get(root, "steps_per_s")));
	assert_true(json_is_null(json_object_get(root, "wait_mean_s")));
	assert_true(json_is_null(json_object_get(root, "wait_p95_s")));
	assert_true(json_is_null(json_object_get(root, "read_bytes")));
	assert_true(json_is_null(json_object_get(json_object_get(root, "steady"), "steps")));
	json_decref(root);
	text = metrics_of(&analysis);
	assert_null(strstr(text, "diesel_steps"));
	assert_non_null(strstr(text, "diesel_self_cpu_seconds"));
	free(text);
	/* A capability is needed to measure the programs' cost. */
	analysis.recorded.self_cost_ratio = NAN;
	text = metrics_of(&analysis);
	assert_null(strstr(text, "diesel_self_cpu_seconds"));
	free(text);
	root = json_of(&analysis, false);
	assert_true(json_is_null(json_object_get(root, "self_cost")));
	json_decref(root);
	text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "tool cost unknown)"));
	free(text);
	analysis.sampled.n_steps_estimated = 100;
	text = html_of(&analysis);
	assert_null(strstr(text, "read per step"));
	assert_non_null(strstr(text, "data wait per step"));
	free(text);
	text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "Data wait per step: mean 0 us. Files read: unknown."));
	free(text);
	/* No data wait was seen, so its length is unknown. */
	analysis.job.loader = LOADER_NONE;
	root = json_of(&analysis, false);
	assert_true(json_is_null(json_object_get(root, "wait_mean_s")));
	json_decref(root);
	text = html_of(&analysis);
	assert_null(strstr(text, "data wait per step"));
	free(text);
}

/* 30 s, of which one step compiles for 20. */
static struct analysis compiling_sample(struct analysis_step steps[2])
{
	struct analysis analysis = sample();

	memset(steps, 0, 2 * sizeof(*steps));
	steps[0] = (struct analysis_step){.begin_ns = analysis.window.begin_ns,
					  .end_ns = analysis.window.begin_ns + 20 * NS_PER_S,
					  .excluded = true};
	steps[0].share_ns[SHARE_COMPILING] = 20 * NS_PER_S;
	steps[1] =
	    (struct analysis_step){.begin_ns = steps[0].end_ns, .end_ns = steps[0].end_ns + 10 * NS_PER_S};
	memcpy(steps[1].share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.steps = steps;
	analysis.n_steps = 2;
	analysis.steady.n_excluded_steps = 1;
	analysis.steady.ns = 10 * NS_PER_S;
	analysis.share_ns[SHARE_COMPILING] = 20 * NS_PER_S;
	analysis.compiling = (struct analysis_excluded){.known = true, .ns = 21 * NS_PER_S, .n_steps = 1};
	analysis.validation = (struct analysis_excluded){.known = true, .ns = NS_PER_S, .n_steps = 1};
	analysis.window.end_ns = analysis.window.begin_ns + 30 * NS_PER_S;
	analysis.window.observed_ns = 30 * NS_PER_S;
	return analysis;
}

/* Compiling is a share of all time, and not of the steps that come again. */
TEST(compiling_is_a_share_of_all_time)
{
	struct analysis_step steps[2];
	struct analysis analysis = compiling_sample(steps);
	char *text = text_of(&analysis, (struct report_text_options){.width = 80});
	_cleanup_(freep) char *metrics = metrics_of(&analysis), *html = html_of(&analysis);
	json_t *root = json_of(&analysis, true);
	json_t *shares = json_object_get(root, "shares"), *rows = json_object_get(root, "step_table");
	double sum = 0;
	const char *key;
	json_t *value;

	assert_non_null(strstr(text, "Over all 30.0 s: fetch stall 18 %, compiling 67 %, device 13 %."));
	assert_non_null(strstr(text, "Compiling took 21.0 s, once. Validation: 1 pass, 1.0 s"));
	assert_null(strstr(text, "▚ compiling"));
	assert_non_null(strstr(text, "fetch stall  55.0 %"));
	assert_non_null(strstr(metrics, "stall=\"compiling\"} 20\n"));
	assert_non_null(
	    strstr(metrics, "diesel_validation_seconds_total{training_job=\"train.py\",rank=\"0\"} 1\n"));
	assert_non_null(
	    strstr(metrics, "diesel_step_duration_seconds_count{training_job=\"train.py\",rank=\"0\"} 1\n"));
	assert_non_null(strstr(html, "Over all 30.0 s: fetch stall 18 %, compiling 67 %"));
	assert_non_null(strstr(html, "Validation: 1 pass"));
	assert_float_equal(number(shares, "compiling"), 2.0 / 3, 1e-6);
	json_object_foreach(shares, key, value) sum += json_number_value(value);
	assert_float_equal(sum, 1, 1e-6);
	assert_float_equal(number(json_object_get(json_object_get(root, "steady"), "shares"), "compiling"), 0,
			   0);
	assert_float_equal(number(json_array_get(rows, 0), "compiling_s"), 20, 0);
	assert_true(json_is_true(json_object_get(json_array_get(rows, 0), "excluded")));
	assert_true(json_is_false(json_object_get(json_array_get(rows, 1), "excluded")));
	json_decref(root);
	free(text);
}

/* Without Python stacks it is unknown whether the job compiled. That is not 0. */
TEST(unseen_compiling_is_no_zero)
{
	struct analysis analysis = sample();
	struct analysis_rank rank = {.tgid = 42, .window_ns = NS_PER_S};
	char *text, *metrics, *html;

	analysis.ranks = &rank;
	analysis.n_ranks = 1;
	analysis.sampled.is = true;
	text = text_of(&analysis, (struct report_text_options){.width = 80});
	metrics = metrics_of(&analysis);
	html = html_of(&analysis);
	json_t *root = json_of(&analysis, false);
	assert_non_null(strstr(text, "compiling         ?"));
	assert_non_null(strstr(html, "not seen: no Python stacks"));
	assert_null(strstr(metrics, "stall=\"compiling\""));
	assert_true(json_is_null(json_object_get(json_object_get(root, "shares"), "compiling")));
	assert_true(json_is_null(
	    json_object_get(json_object_get(json_object_get(root, "steady"), "shares"), "compiling")));
	assert_null(json_object_get(json_object_get(root, "share_intervals"), "compiling"));
	assert_true(json_is_null(json_object_get(
	    json_object_get(json_array_get(json_object_get(root, "ranks"), 0), "shares"), "compiling")));
	json_decref(root);
	free(text);
	free(metrics);
	free(html);
}

/* A prediction is more useful than a bound. A bound beyond all sense is shown without decimals. */
TEST(a_gain_is_told_with_its_range)
{
	struct analysis analysis = sample();

	analysis.actions[0].gain = (struct estimate){1.55, 1.41, 1.63};
	char *text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "Predicted 1.55x faster (1.41 to 1.63); confidence: medium."));
	assert_null(strstr(text, "t most"));
	free(text);
	analysis.actions[0].gain = (struct estimate){0};
	analysis.actions[0].gain_max = 33.78;
	text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "At most 34x faster; confidence: medium."));
	free(text);
	analysis.actions[0].about = true; /* sampled */
	text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "Up to about 34x faster; confidence: medium."));
	free(text);
	analysis.actions[0].gain = (struct estimate){1.2, 0.9, 1.5};
	text = text_of(&analysis, (struct report_text_options){.width = 200});
	assert_non_null(strstr(text, "Predicted 1.20x faster (0.90 to 1.50), or no gain; confidence"));
	free(text);
}

TEST(a_full_disk_fails_a_report)
{
	struct analysis analysis = sample();
	struct report_text_options options = {.width = 80};
	FILE *full = fopen("/dev/full", "w");

	if (!full)
		skip();
	assert_int_equal(report_json(full, &analysis, NULL, false), -ENOSPC);
	clearerr(full);
	assert_int_equal(report_text(full, &analysis, &options), -ENOSPC);
	fclose(full);
}

TEST(a_bar_has_all_its_columns)
{
	static const double cases[][6] = {{0.55, 0.07, 0.38, 0, 0, 0},
					  {0.166, 0.166, 0.167, 0.167, 0.167, 0.167},
					  {1, 0, 0, 0, 0, 0},
					  {0.004, 0.004, 0.004, 0.004, 0.004, 0.98},
					  {0.0131, 0.0132, 0.0133, 0.0134, 0.0135, 0.9335}};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct analysis analysis = sample();
		size_t n = 0;

		for (size_t i = 0; i < 6; i++)
			analysis.share_ns[i] = (uint64_t)(cases[c][i] * 1e4 + 0.5) * (NS_PER_S / 1000);
		_cleanup_(freep) char *text =
		    text_of(&analysis, (struct report_text_options){.width = 80, .ascii = true});

		/* The bar is the only line with a word of more than 60 characters. */
		for (const char *word = text; n < 60 && *word; word += n + strspn(word + n, " \n"))
			n = strcspn(word, " \n");
		assert_int_equal(n, 76);
	}
}
