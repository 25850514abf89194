/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "daemon/control/settings.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const struct settings machine = {
    .space = {.memory_bytes = 16 * GIB, .cache_bytes = 4 * GIB, .n_cpus = 4}};

/* Applies one setting as a message. */
static int set(struct settings *s, uint64_t job, enum wire_setting_key key, uint64_t value, struct error *err)
{
	const struct wire_set m = {.job = job, .n_settings = 1, .settings = {{.key = key, .value = value}}};

	return settings_apply(s, &m, err);
}

static int set_auto(struct settings *s, uint64_t job, enum wire_setting_key key)
{
	const struct wire_set m = {
	    .job = job, .n_settings = 1, .settings = {{.key = key, .flags = WIRE_SETTING_AUTO}}};

	return settings_apply(s, &m, NULL);
}

TEST(defaults_are_the_configuration_s)
{
	assert_int_equal(settings_get(&machine, WIRE_SET_TUNE), WIRE_TUNE_ON);
	assert_int_equal(settings_get(&machine, WIRE_SET_CACHE_MAX), 4 * GIB);
	assert_int_equal(settings_get(&machine, WIRE_SET_WORKERS_MAX), 4);
	assert_int_equal(settings_check(&machine, NULL), 0);
}

/* Each row has one impossible setting. None of the message may hold. */
TEST(a_refused_setting_changes_nothing)
{
	static const struct {
		uint64_t job;
		enum wire_setting_key key;
		uint64_t value;
		const char *says;
	} wishes[] = {
	    {3, WIRE_SET_WORKERS, 0, "from 1 to 64"},
	    {3, WIRE_SET_WORKERS, 65, "from 1 to 64"},
	    {3, WIRE_SET_WORKERS, 5, "raise workers-max first"},
	    {3, WIRE_SET_CACHE, MIB, "from 16 MiB"},
	    {3, WIRE_SET_CACHE, 32 * GIB, "exceeds the 16 GiB"},
	    {3, WIRE_SET_CACHE, 5 * GIB, "raise cache-max first"},
	    {3, WIRE_SET_PREFETCH, 65, "raise prefetch-max first"},
	    {3, WIRE_SET_WORKERS_MAX, 2, "without a job"},
	    {0, WIRE_SET_TUNE, 3, "from 0 to 2"},
	    {0, WIRE_SET_CACHE_MIN, 5 * GIB, "more than cache-max"},
	    {0, WIRE_SET_READ_WEIGHT, 200, "applies to one job"},
	    {3, WIRE_SET_READ_WEIGHT, 0, "from 1 to 10000"},
	    {3, WIRE_SET_READ_WEIGHT, 10001, "from 1 to 10000"},
	    {0, WIRE_SET_READ_LIMIT, 1000, "0 (no limit) or from 1.0 MiB"},
	    {0, WIRE_SET_READ_OPS_LIMIT, 65537, "0 (no limit) or from 1 to 65536"},
	    {3, WIRE_SET_READ_LIMIT, 1 << 30, "whole daemon"},
	};

	for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
		struct settings s = machine;
		struct error err = ERROR_INIT;

		assert_int_equal(set(&s, wishes[i].job, wishes[i].key, wishes[i].value, &err), -EINVAL);
		if (!strstr(err.text, wishes[i].says))
			fail_msg("%zu: %s", i, err.text);
		assert_memory_equal(&s, &machine, sizeof(s));
	}
}

TEST(all_or_nothing)
{
	struct settings s = machine;
	const struct wire_set good = {
	    .job = 0,
	    .n_settings = 2,
	    .settings = {{.key = WIRE_SET_WORKERS, .value = 8}, {.key = WIRE_SET_WORKERS_MAX, .value = 8}}};
	struct wire_set bad = good;

	bad.settings[1].value = 99;
	assert_int_equal(settings_apply(&s, &bad, NULL), -EINVAL);
	assert_memory_equal(&s, &machine, sizeof(s));
	/* The limit is raised before the pin is checked against it, whatever the order in the message. */
	assert_int_equal(settings_apply(&s, &good, NULL), 0);
	assert_int_equal(settings_get(&s, WIRE_SET_WORKERS_MAX), 8);
}

TEST(own_pin_goes_first)
{
	struct settings s = machine;
	uint64_t value = 0;

	assert_false(settings_find_pin(&s, 3, TUNER_DAEMON_WORKERS, &value));
	s.is_configured[WIRE_SET_WORKERS] = true;
	s.configured[WIRE_SET_WORKERS] = 1;
	assert_true(settings_find_pin(&s, 3, TUNER_DAEMON_WORKERS, &value));
	assert_int_equal(value, 1);
	assert_int_equal(set(&s, 3, WIRE_SET_WORKERS, 3, NULL), 0);
	assert_int_equal(set(&s, 0, WIRE_SET_WORKERS, 2, NULL), 0);
	assert_true(settings_find_pin(&s, 3, TUNER_DAEMON_WORKERS, &value));
	assert_int_equal(value, 3);
	assert_true(settings_find_pin(&s, 4, TUNER_DAEMON_WORKERS, &value));
	assert_int_equal(value, 2);
	assert_int_equal(set_auto(&s, 3, WIRE_SET_WORKERS), 0);
	assert_true(settings_find_pin(&s, 3, TUNER_DAEMON_WORKERS, &value));
	assert_int_equal(value, 2);
	settings_forget_job(&s, 3);
	assert_int_equal(s.n_pins, 1);
}

TEST(settings_fill_the_tuner_s_limits)
{
	struct tuner_config config = tuner_config_default();
	struct settings s = machine;

	s.is_configured[WIRE_SET_PREFETCH] = true;
	s.configured[WIRE_SET_PREFETCH] = 5;
	assert_int_equal(set(&s, 0, WIRE_SET_CACHE_MAX, GIB, NULL), 0);
	assert_int_equal(set(&s, 7, WIRE_SET_CLIENT_WORKERS, 0, NULL), 0);
	settings_fill(&s, &config);
	assert_int_equal(config.cache_bytes_max, GIB);
	assert_int_equal(config.n_pins, 2);
	assert_int_equal(config.pins[0].job, 7);
	assert_int_equal(config.pins[0].knob, TUNER_CLIENT_WORKERS);
	assert_int_equal(config.pins[1].knob, TUNER_PREFETCH_CHUNKS);
	assert_int_equal(config.pins[1].value, 5);
	/* A pin for all jobs has priority over the configured value. */
	assert_int_equal(set(&s, 0, WIRE_SET_PREFETCH, 6, NULL), 0);
	settings_fill(&s, &config);
	assert_int_equal(config.n_pins, 2);
	assert_int_equal(config.pins[1].value, 6);
}

/* A pin outlives a limit that is lowered below it, also over a restart. The smaller of both is in force. */
TEST(limit_below_a_pin)
{
	struct settings s = machine, restarted = machine;

	assert_int_equal(set(&s, 0, WIRE_SET_WORKERS_MAX, 8, NULL), 0);
	assert_int_equal(set(&s, 3, WIRE_SET_WORKERS, 6, NULL), 0);
	assert_int_equal(settings_pin_in_force(&s, &s.pins[0]), 6);
	assert_int_equal(set(&s, 0, WIRE_SET_WORKERS_MAX, 2, NULL), 0);
	assert_int_equal(settings_pin_in_force(&s, &s.pins[0]), 2);
	assert_int_equal(set(&restarted, 0, WIRE_SET_WORKERS_MAX, 2, NULL), 0);
	assert_int_equal(settings_restore_pin(&restarted, &s.pins[0], NULL), 0);
	assert_int_equal(settings_pin_in_force(&restarted, &restarted.pins[0]), 2);
	assert_int_equal(set(&restarted, 0, WIRE_SET_WORKERS_MAX, 8, NULL), 0);
	assert_int_equal(settings_pin_in_force(&restarted, &restarted.pins[0]), 6);
	s.pins[0].value = 0; /* a number that was never set */
	assert_int_equal(settings_restore_pin(&restarted, &s.pins[0], NULL), -EINVAL);
}

TEST(number_of_pins)
{
	struct settings s = machine;
	uint64_t job = 1;

	while (set(&s, job, WIRE_SET_WORKERS, 1, NULL) == 0)
		job++;
	assert_int_equal(set(&s, job, WIRE_SET_WORKERS, 1, NULL), -ENOSPC);
	/* another value takes no additional entry */
	assert_int_equal(set(&s, 1, WIRE_SET_WORKERS, 2, NULL), 0);
	assert_int_equal(set_auto(&s, 1, WIRE_SET_WORKERS), 0);
	assert_int_equal(set(&s, job, WIRE_SET_WORKERS, 1, NULL), 0);
}
