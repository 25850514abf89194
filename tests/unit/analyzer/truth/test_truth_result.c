/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>

#include "analyzer/truth/truth_result.h"

#define LINE(steps, seconds) COMPILING_LINE(steps, seconds, "0.000000")
#define COMPILING_LINE(steps, seconds, compiling)                                                            \
	"steps " steps " seconds " seconds " wait 0.5 loaders 1 mode clock truncated 1 compiling " compiling \
	" pid 7\n"

static void test_a_clock_s_line_is_parsed(void **state)
{
	struct truth_clock clock;

	assert_int_equal(truth_clock_parse(LINE("60", "4.25"), &clock), 0);
	assert_int_equal(clock.n_steps, 60);
	assert_true(clock.seconds == 4.25 && clock.wait == 0.5 && clock.truncated);
	assert_int_equal(clock.n_processes, 1);
	assert_int_equal(truth_clock_parse(COMPILING_LINE("60", "4.25", "1.5"), &clock), 0);
	assert_true(clock.compiling == 1.5);
	assert_int_equal(truth_clock_parse(COMPILING_LINE("60", "4.25", "nan"), &clock), 0);
	assert_true(isnan(clock.compiling));
}

static void test_the_slowest_rank_counts(void **state)
{
	struct truth_clock clock;

	assert_int_equal(truth_clock_parse(LINE("60", "4.0") LINE("60", "5.0") LINE("60", "4.5"), &clock), 0);
	assert_int_equal(clock.n_processes, 3);
	assert_true(clock.seconds == 5.0);
}

static void test_bad_lines_are_refused(void **state)
{
	static const char *const lines[] = {
	    "steps\n",
	    "\n",
	    "steps x seconds 1 wait 1 loaders 1 mode clock truncated 0 compiling 0 pid 1\n",
	    "steps 9 seconds 1 wait 1 loaders 1 mode clock truncated 0 pid 1\n",
	    COMPILING_LINE("60", "4", "-1"),
	    COMPILING_LINE("60", "4", "5"),
	    LINE("60", "nan"),
	    LINE("60", "inf"),
	    LINE("60", "-1"),
	    LINE("60", "1") "half a li"};
	struct truth_clock clock;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_int_equal(truth_clock_parse(lines[i], &clock), -EBADMSG);
	assert_int_equal(truth_clock_parse("", &clock), -ENODATA);
}

static struct truth_round round_of(double synthetic, double cached, double cold)
{
	return (struct truth_round){.runs = {
					[TRUTH_SYNTHETIC] = {.n_steps = 50, .seconds = synthetic},
					[TRUTH_CACHED] = {.n_steps = 50, .seconds = cached},
					[TRUTH_COLD] = {.n_steps = 50, .seconds = cold},
				    }};
}

static void test_shares_are_differences_of_runs(void **state)
{
	struct truth_round round = round_of(2, 5, 10);
	struct truth_result result;

	truth_result_compute(&round, 1, true, &result);
	assert_float_equal(result.device, 0.2, 1e-9);
	assert_float_equal(result.prep, 0.3, 1e-9);
	assert_float_equal(result.fetch, 0.5, 1e-9);
	assert_true(result.spread == 0);
	assert_int_equal(result.n_steps, 50);
}

/* The time of compiling is not the device's, however long the runs are. It is a one-time cost. */
static void test_compiling_is_no_share_of_the_device(void **state)
{
	struct truth_round round = round_of(42, 45, 60);
	struct truth_result result;

	for (size_t kind = 0; kind < TRUTH_KINDS; kind++)
		round.runs[kind].compiling = 40;
	round.runs[TRUTH_COLD].n_steps = 100; /* 20 s of steps */
	truth_result_compute(&round, 1, true, &result);
	assert_float_equal(result.compiling, 0.8, 1e-9);
	assert_float_equal(result.device, 0.04, 1e-9);
	assert_float_equal(result.prep, 0.06, 1e-9);
	assert_float_equal(result.fetch, 0.1, 1e-9);
	round.runs[TRUTH_COLD].compiling = NAN;
	truth_result_compute(&round, 1, true, &result);
	assert_true(isnan(result.compiling) && isfinite(result.device) && isfinite(result.fetch));
}

static void test_runs_of_different_length_are_compared_by_step(void **state)
{
	struct truth_round round = round_of(2, 5, 20);
	struct truth_result result;

	round.runs[TRUTH_COLD].n_steps = 100;
	truth_result_compute(&round, 1, true, &result);
	assert_int_equal(result.n_steps, 50);
	assert_float_equal(result.seconds[TRUTH_COLD], 10, 1e-9);
	assert_float_equal(result.fetch, 0.5, 1e-9);
}

static void test_rounds_give_means_and_spread(void **state)
{
	struct truth_round rounds[] = {round_of(2, 5, 10), round_of(2, 6, 10)};
	struct truth_result result;

	truth_result_compute(rounds, 2, true, &result);
	assert_float_equal(result.prep, 0.35, 1e-9);
	assert_float_equal(result.fetch, 0.45, 1e-9);
	assert_float_equal(result.spread, 0.1, 1e-9);
}

static void test_a_run_without_time_has_no_shares(void **state)
{
	struct truth_round round = round_of(0, 0, 0);
	struct truth_result result;

	truth_result_compute(&round, 1, true, &result);
	assert_true(result.device == 0 && result.prep == 0 && result.fetch == 0);
}

/* The cold and the cached run are the same, so their difference is chance. */
static void test_without_files_nothing_tells_fetching_from_preparing(void **state)
{
	struct truth_round rounds[] = {round_of(2, 3, 5), round_of(2, 5, 3)};
	struct truth_result result;

	truth_result_compute(rounds, 2, false, &result);
	assert_float_equal(result.device, 0.5, 1e-9);
	assert_float_equal(result.wait, 0.5, 1e-9);
	assert_true(isnan(result.fetch) && isnan(result.prep));
	assert_true(result.spread == 0);
}

UNIT_TESTS(cmocka_unit_test(test_a_clock_s_line_is_parsed),
	   cmocka_unit_test(test_compiling_is_no_share_of_the_device),
	   cmocka_unit_test(test_the_slowest_rank_counts), cmocka_unit_test(test_bad_lines_are_refused),
	   cmocka_unit_test(test_shares_are_differences_of_runs),
	   cmocka_unit_test(test_runs_of_different_length_are_compared_by_step),
	   cmocka_unit_test(test_rounds_give_means_and_spread),
	   cmocka_unit_test(test_a_run_without_time_has_no_shares),
	   cmocka_unit_test(test_without_files_nothing_tells_fetching_from_preparing))
