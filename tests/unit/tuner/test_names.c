/* SPDX-License-Identifier: Apache-2.0 */
#include "../test.h"

#include <errno.h>

#include "tuner/tuner.h"

static void test_knobs_round_trip(void **state)
{
	(void)state;
	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		enum tuner_knob knob = TUNER_N_KNOBS;

		assert_int_equal(tuner_knob_parse(tuner_knob_name((enum tuner_knob)i), &knob), 0);
		assert_int_equal(knob, i);
	}
}

static void test_unknown(void **state)
{
	enum tuner_knob knob = TUNER_CLIENT_WORKERS;

	(void)state;
	assert_int_equal(tuner_knob_parse("cache_bytes", &knob), -EINVAL);
	assert_int_equal(tuner_knob_parse("", &knob), -EINVAL);
	assert_int_equal(knob, TUNER_CLIENT_WORKERS);
	assert_string_equal(tuner_knob_name((enum tuner_knob)TUNER_N_KNOBS), "?");
}

/* Stored in databases: a new one goes to the end. */
static void test_stored_numbers(void **state)
{
	(void)state;
	assert_string_equal(tuner_rule_name((enum tuner_rule)0), "model");
	assert_string_equal(tuner_rule_name((enum tuner_rule)9), "idle");
	assert_string_equal(tuner_outcome_name((enum tuner_outcome)0), "verified");
	assert_string_equal(tuner_outcome_name((enum tuner_outcome)3), "not-applied");
	assert_string_equal(tuner_phase_name((enum tuner_phase)4), "blind");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_knobs_round_trip),
					   cmocka_unit_test(test_unknown),
					   cmocka_unit_test(test_stored_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
