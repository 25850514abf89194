/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/error.h"

#include <errno.h>
#include <string.h>

TEST(set_returns_code_and_keeps_text)
{
	struct error err = ERROR_INIT;

	assert_int_equal(error_set(&err, 7, "chunk %s", "a"), 7);
	assert_int_equal(err.code, 7);
	assert_string_equal(err.text, "chunk a");
	assert_int_equal(error_set(NULL, -EIO, "nobody listens"), -EIO);
}

/* A name in an error text cannot control the terminal, for example by reversing the text. */
TEST(names_steer_nothing)
{
	struct error err = ERROR_INIT;

	error_set(&err, -EIO, "no %s", "a\033[2J\u202eb\u200b");
	assert_string_equal(err.text, "no a\\x1b[2J\\xe2\\x80\\xaeb\\xe2\\x80\\x8b");
	error_prefix(&err, "%s", "\u2066");
	assert_memory_equal(err.text, "\\xe2\\x81\\xa6: no a", 18);
}

TEST(errno_appends_its_text)
{
	struct error err = ERROR_INIT;

	assert_int_equal(error_errno(&err, -ENOENT, "cannot open %s", "/x"), -ENOENT);
	assert_string_equal(err.text, "cannot open /x: No such file or directory");
	error_errno(&err, -9999, "cannot open %s", "/x");
	assert_string_equal(err.text, "cannot open /x: Unknown error 9999");
}

TEST(prefix_keeps_itself_whole_when_too_long)
{
	struct error err = ERROR_INIT;

	char longish[500];

	memset(longish, 'x', sizeof(longish) - 1);
	longish[sizeof(longish) - 1] = '\0';
	error_set(&err, -EIO, "%s", longish);
	error_prefix(&err, "while packing %s", "/data");
	assert_memory_equal(err.text, "while packing /data: xxx", 24);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}
