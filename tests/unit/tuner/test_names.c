/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "tuner/tuner.h"

/* Databases hold these numbers, so a new one is appended. */
TEST(stored_numbers_never_change)
{
	assert_string_equal(tuner_rule_name((enum tuner_rule)0), "model");
	assert_string_equal(tuner_rule_name((enum tuner_rule)9), "idle");
	assert_string_equal(tuner_outcome_name((enum tuner_outcome)0), "verified");
	assert_string_equal(tuner_outcome_name((enum tuner_outcome)3), "not-applied");
	assert_string_equal(tuner_phase_name((enum tuner_phase)4), "blind");
}
