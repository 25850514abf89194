/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/text.h"

#include <stdlib.h>
#include <string.h>

static const char *printable(char *buffer, size_t size, const char *text)
{
	memset(buffer, 'X', size);
	return text_printable(buffer, size, text, strlen(text));
}

TEST(control_characters_are_escaped)
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
	/* Covers Latin 1, a control character of C1, and text cut by its length, not by a NUL. */
	assert_string_equal(printable(buffer, sizeof(buffer), "Gr\xfc!"), "Gr\\xfc!");
	assert_string_equal(printable(buffer, sizeof(buffer), "\xc2\x9b"), "\\xc2\\x9b");
	assert_string_equal(text_printable(buffer, sizeof(buffer), "\xc3\xbc", 1), "\\xc3");
}

TEST(a_cut_text_ends_in_dots)
{
	char buffer[8];

	assert_string_equal(printable(buffer, sizeof(buffer), "1234567"), "1234567");
	assert_string_equal(printable(buffer, sizeof(buffer), "12345678"), "1234...");
	assert_string_equal(printable(buffer, sizeof(buffer), "123\n"), "123\\x0a");
	assert_string_equal(printable(buffer, sizeof(buffer), "1234\n"), "1234...");
	assert_string_equal(printable(buffer, sizeof(buffer),
				      "123\xc3\xbc"
				      "456"),
			    "123...");
}

static const char *line(char *buffer, size_t size, const char *text)
{
	memset(buffer, 'X', size);
	return text_line(buffer, size, text);
}

TEST(a_line_keeps_utf8_and_escapes_the_rest)
{
	char buffer[64];

	assert_string_equal(line(buffer, sizeof(buffer), "a\nb\x1b[2J\x7f"), "a\\x0ab\\x1b[2J\\x7f");
	assert_string_equal(line(buffer, sizeof(buffer), "\\x0a"), "\\x0a");
	assert_string_equal(line(buffer, sizeof(buffer), "Gr\xc3\xbc\xc3\x9f"), "Gr\xc3\xbc\xc3\x9f");
	assert_string_equal(line(buffer, sizeof(buffer), "\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
	/* Covers the control sequence introducer of C1, Latin 1, and sequences that are cut, overlong,
	 * surrogates, or beyond Unicode. */
	assert_string_equal(line(buffer, sizeof(buffer), "\xc2\x9b"), "\\xc2\\x9b");
	assert_string_equal(line(buffer, sizeof(buffer), "\xfc!"), "\\xfc!");
	assert_string_equal(line(buffer, sizeof(buffer), "\xe2\x82"), "\\xe2\\x82");
	assert_string_equal(line(buffer, sizeof(buffer), "\xc0\x8a"), "\\xc0\\x8a");
	assert_string_equal(line(buffer, sizeof(buffer), "\xed\xa0\x80"), "\\xed\\xa0\\x80");
	assert_string_equal(line(buffer, sizeof(buffer), "\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(new_texts_are_escaped)
{
	char *line = text_line_new("a\xff\n\\");

	assert_string_equal(line, "a\\xff\\x0a\\");
	free(line);
	line = text_utf8_new("a\xff\n\\");
	assert_string_equal(line, "a\\xff\n\\");
	free(line);
}

TEST(a_cut_line_has_whole_characters)
{
	char buffer[8];

	assert_string_equal(line(buffer, sizeof(buffer), "12345678"), "1234567");
	assert_string_equal(line(buffer, sizeof(buffer), "1234\n"), "1234");
	assert_string_equal(line(buffer, sizeof(buffer), "123456\xc3\xbc"), "123456");
}
