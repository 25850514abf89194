/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/units.h"

#include <errno.h>

TEST(sizes_have_units_of_two_kinds)
{
	static const struct {
		const char *text;
		int result;
		uint64_t bytes;
	} cases[] = {
	    {"0", 0, 0},
	    {"4096", 0, 4096},
	    {"8M", 0, 8 << 20},
	    {"8MiB", 0, 8 << 20},
	    {"8mb", 0, 8000000},
	    {"1.5G", 0, UINT64_C(1610612736)},
	    {"", -EINVAL, 0},
	    {"-1", -EINVAL, 0},
	    {"0x10", -EINVAL, 0},
	    {"8 M", -EINVAL, 0},
	    {"8Q", -EINVAL, 0},
	    {"nan", -EINVAL, 0},
	    {"99999999999T", -ERANGE, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 12345;

		assert_int_equal(units_parse_bytes(cases[i].text, &bytes), cases[i].result);
		assert_int_equal(bytes, cases[i].result ? 12345 : cases[i].bytes);
	}
}

TEST(durations_have_units)
{
	uint64_t ns;

	assert_int_equal(units_parse_duration("30s", &ns), 0);
	assert_int_equal(ns, UINT64_C(30000000000));
	assert_int_equal(units_parse_duration("1.5", &ns), 0);
	assert_int_equal(ns, UINT64_C(1500000000));
	assert_int_equal(units_parse_duration("250ms", &ns), 0);
	assert_int_equal(ns, 250000000);
	assert_int_equal(units_parse_duration("2h", &ns), 0);
	assert_int_equal(ns, UINT64_C(7200000000000));
	assert_int_equal(units_parse_duration("soon", &ns), -EINVAL);
}

TEST(integers_must_be_within_their_range)
{
	int64_t value;

	assert_int_equal(units_parse_integer("17", 1, 64, &value), 0);
	assert_int_equal(value, 17);
	assert_int_equal(units_parse_integer("65", 1, 64, &value), -ERANGE);
	assert_int_equal(units_parse_integer("1x", 1, 64, &value), -EINVAL);
	assert_int_equal(units_parse_integer("", 1, 64, &value), -EINVAL);
	assert_int_equal(units_parse_integer("99999999999999999999", 1, INT64_MAX, &value), -ERANGE);
}

TEST(sizes_and_durations_are_printed_with_units)
{
	char buffer[32];

	assert_string_equal(units_format_bytes(buffer, sizeof(buffer), 512), "512 B");
	assert_string_equal(units_format_bytes(buffer, sizeof(buffer), 8 << 20), "8.0 MiB");
	assert_string_equal(units_format_bytes(buffer, sizeof(buffer), 115 << 10), "115 KiB");
	assert_string_equal(units_format_duration(buffer, sizeof(buffer), 310000), "310 us");
	assert_string_equal(units_format_duration(buffer, sizeof(buffer), 4200000), "4.2 ms");
	assert_string_equal(units_format_duration(buffer, sizeof(buffer), UINT64_C(200000000000)),
			    "3 min 20 s");
	assert_string_equal(units_plural(0), "s");
	assert_string_equal(units_plural(1), "");
	assert_string_equal(units_plural(2), "s");
}
