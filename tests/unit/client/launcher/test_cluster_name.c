/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/session.h"

#define LONGEST "123456789012345678901234567890123456789012345678901234567890123"

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

TEST(where_the_name_comes_from)
{
	static const struct {
		const char *option, *run, *job, *step;
		uint32_t world;
		const char *name;
	} cases[] = {
	    {NULL, NULL, NULL, NULL, 2, ""},
	    {NULL, "run", NULL, NULL, 2, "run"},
	    {NULL, "run", NULL, NULL, 1, ""},
	    {NULL, "none", NULL, NULL, 2, ""}, /* torchrun's default, which every such job has */
	    {NULL, "none", "12", "3", 2, "12.3"},
	    {NULL, "", "12", "3", 2, "12.3"},
	    {NULL, "run", "12", "3", 2, "run"},
	    {NULL, NULL, "12", NULL, 2, ""}, /* several job steps of a job are several jobs */
	    {NULL, "a\nb", "12", "3", 2, "12.3"},
	    {NULL, LONGEST "4", NULL, NULL, 2, ""},
	    {NULL, LONGEST, NULL, NULL, 2, LONGEST},
	    {"mine", "run", "12", "3", 2, "mine"},
	    {"none", "run", NULL, NULL, 2, "none"},
	    {"", "run", "12", "3", 2, ""},
	    {"mine", NULL, NULL, NULL, 1, ""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct diesel_session_options o = {.cluster = cases[i].option, .world = cases[i].world};
		char name[WIRE_CLUSTER_BYTES];
		struct error err = ERROR_INIT;

		set("TORCHELASTIC_RUN_ID", cases[i].run);
		set("SLURM_JOB_ID", cases[i].job);
		set("SLURM_STEP_ID", cases[i].step);
		memset(name, 'x', sizeof(name));
		assert_int_equal(session_cluster_name(&o, name, &err), 0);
		assert_string_equal(name, cases[i].name);
	}
}

TEST(names_that_are_refused)
{
	static const char *const names[] = {"a\nb", "\xff", LONGEST "4", "\x7f"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct diesel_session_options o = {.cluster = names[i], .world = 2};
		char name[WIRE_CLUSTER_BYTES];
		struct error err = ERROR_INIT;

		assert_int_equal(session_cluster_name(&o, name, &err), -EINVAL);
		assert_non_null(strstr(err.text, "at most 63 bytes"));
	}
}
