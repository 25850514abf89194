/* SPDX-License-Identifier: Apache-2.0 */
#include "../test.h"

#include "lib/text.h"

#include <string.h>

static const char *printable(char *buffer, size_t size, const char *text)
{
	memset(buffer, 'X', size);
	return text_printable(buffer, size, text, strlen(text));
}

static void test_escapes(void **state)
{
	char buffer[64];

	assert_string_equal(printable(buffer, sizeof(buffer), "cat/a b.jpg"), "cat/a b.jpg");
	assert_string_equal(printable(buffer, sizeof(buffer), "a\nb\x1b[2J"), "a\\x0ab\\x1b[2J");
	assert_string_equal(printable(buffer, sizeof(buffer), "\\"), "\\x5c");
	assert_string_equal(printable(buffer, sizeof(buffer),
				      "Gr\xc3\xbc\xc3\x9f"
				      "e"),
			    "Gr\xc3\xbc\xc3\x9f"
			    "e");
	assert_string_equal(printable(buffer, sizeof(buffer), ""), "");
}

static void test_cut(void **state)
{
	char buffer[8];

	assert_string_equal(printable(buffer, sizeof(buffer), "1234567"), "1234567");
	assert_string_equal(printable(buffer, sizeof(buffer), "12345678"), "1234...");
	assert_string_equal(printable(buffer, sizeof(buffer), "123\n"), "123\\x0a");
	assert_string_equal(printable(buffer, sizeof(buffer), "1234\n"), "1234...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_escapes),
	    cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
