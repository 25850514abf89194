/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/psi.h"

/* Reads a pressure file with this text. */
static int read_pressure(void **state, const char *text, struct psi *ret)
{
	_cleanup_(freep) char *path = path_in(*state, "io");

	write_text(*state, "io", text);
	return psi_read(path, ret);
}

TEST_IN_FOLDER(both_lines_of_pressure_are_read)
{
	struct psi psi;

	assert_int_equal(read_pressure(state,
				       "some avg10=1.50 avg60=2.00 avg300=25.00 total=123\n"
				       "full avg10=0.00 avg60=0.50 avg300=0.00 total=7\n",
				       &psi),
			 0);
	assert_true(psi.some.avg10_ratio > 0.0149 && psi.some.avg10_ratio < 0.0151);
	assert_true(psi.some.avg300_ratio == 0.25);
	assert_int_equal(psi.some.total_ns, 123000);
	assert_true(psi.has_full);
	assert_int_equal(psi.full.total_ns, 7000);
}

TEST_IN_FOLDER(cpu_without_full)
{
	struct psi psi;

	assert_int_equal(read_pressure(state, "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n", &psi), 0);
	assert_false(psi.has_full);
	assert_int_equal(psi.full.total_ns, 0);
}

TEST_IN_FOLDER(damaged_pressure_is_refused)
{
	static const char *const texts[] = {
	    "",
	    "some",
	    "some ",
	    "full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
	    "some avg10=0.00 avg60=0.00 avg300=0.00",
	    "some avg10=x avg60=0.00 avg300=0.00 total=1\n",
	    "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct psi psi = {.some.total_ns = 99};

		assert_int_equal(read_pressure(state, texts[i], &psi), -EBADMSG);
		assert_int_equal(psi.some.total_ns, 99);
	}
}

TEST(missing_pressure_is_an_error)
{
	struct psi psi;

	assert_int_equal(psi_read("/nonexistent/pressure", &psi), -ENOENT);
}
