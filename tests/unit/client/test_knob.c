/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>

#include "client/knob.h"

TEST(names_and_keys_lead_back_to_knobs)
{
	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		enum tuner_knob knob = TUNER_N_KNOBS;

		assert_int_equal(tuner_knob_parse(tuner_knob_name((enum tuner_knob)i), &knob), 0);
		assert_int_equal(knob, i);
		knob = TUNER_N_KNOBS;
		assert_int_equal(tuner_knob_of_key(tuner_knob_table[i].key, &knob), 0);
		assert_int_equal(knob, i);
	}
}

TEST(unknown_names_are_no_knobs)
{
	enum tuner_knob knob = TUNER_CLIENT_WORKERS;

	assert_int_equal(tuner_knob_parse("cache_bytes", &knob), -EINVAL);
	assert_int_equal(tuner_knob_parse("", &knob), -EINVAL);
	assert_int_equal(tuner_knob_of_key(WIRE_SET_TUNE, &knob), -EINVAL);
	assert_int_equal(tuner_knob_of_key(WIRE_SET_CACHE_MAX, &knob), -EINVAL);
	assert_int_equal(knob, TUNER_CLIENT_WORKERS);
	assert_string_equal(tuner_knob_name((enum tuner_knob)TUNER_N_KNOBS), "?");
}

/* Databases, recordings and the state for a restart hold these names, so a new one is appended. */
TEST(stored_names_never_change)
{
	static const struct {
		const char *name, *saved;
		enum wire_setting_key key;
	} stored[] = {{"cache-bytes", "cache", 1},
		      {"prefetch-chunks", "prefetch", 2},
		      {"daemon-workers", "workers", 3},
		      {"client-workers", "client_workers", 4}};

	for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
		assert_string_equal(tuner_knob_table[i].name, stored[i].name);
		assert_string_equal(tuner_knob_table[i].saved, stored[i].saved);
		assert_int_equal(tuner_knob_table[i].key, stored[i].key);
	}
}

/* A new row that is incomplete fails here. */
TEST(rows_are_whole)
{
	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		const struct tuner_knob_info *knob = &tuner_knob_table[i];
		enum tuner_knob other;

		assert_true(knob->name && knob->setting && knob->saved);
		assert_true(knob->free == (knob->bytes ? TUNER_FREE_BYTES : TUNER_FREE_NUMBER));
		assert_in_range(knob->key, 1, WIRE_N_SETTINGS - 1);
		assert_in_range(knob->limit, 1, WIRE_N_SETTINGS - 1);
		assert_int_equal(tuner_knob_of_key(knob->limit, &other), -EINVAL);
	}
}
