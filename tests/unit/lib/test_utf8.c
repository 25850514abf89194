/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/utf8.h"

#include <stdlib.h>
#include <string.h>

TEST(each_length_of_character_is_decoded)
{
	static const struct {
		const char *text;
		uint32_t code;
	} good[] = {
	    {"A", 'A'},
	    {"\x7f", 0x7f},
	    {"\xc2\x80", 0x80},
	    {"\xdf\xbf", 0x7ff},
	    {"\xe0\xa0\x80", 0x800},
	    {"\xed\x9f\xbf", 0xd7ff},
	    {"\xee\x80\x80", 0xe000},
	    {"\xef\xbf\xbf", 0xffff},
	    {"\xf0\x90\x80\x80", 0x10000},
	    {"\xf4\x8f\xbf\xbf", 0x10ffff},
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		size_t n = strlen(good[i].text);
		uint32_t code = 0;

		assert_int_equal(utf8_decode(good[i].text, SIZE_MAX, &code), n);
		assert_int_equal(code, good[i].code);
		assert_int_equal(utf8_decode(good[i].text, n, NULL), n);
	}
}

TEST(bad_sequences_are_refused)
{
	static const char *const bad[] = {
	    "\x80",
	    "\xbf",
	    "\xff",
	    "\xfe",
	    "\xfc\x84\x80\x80\x80\x80",
	    "\xf8\x88\x80\x80\x80", /* not a first byte */
	    "\xc0\x80",
	    "\xc1\xbf",
	    "\xe0\x80\x80",
	    "\xe0\x9f\xbf",
	    "\xf0\x80\x80\x80", /* overlong */
	    "\xf0\x8f\xbf\xbf", /* overlong */
	    "\xed\xa0\x80",
	    "\xed\xad\xbf",
	    "\xed\xae\x80",
	    "\xed\xbf\xbf", /* surrogates */
	    "\xf4\x90\x80\x80",
	    "\xf5\x80\x80\x80",
	    "\xf7\xbf\xbf\xbf", /* above U+10FFFF */
	    "\xc3",
	    "\xe2\x82",
	    "\xf0\x9f\x98", /* cut */
	    "\xc3(",
	    "\xe2(\x80",
	    "\xe2\x82(",
	    "\xf0(\x98\x80",
	    "\xf0\x9f(\x80",
	    "\xf0\x9f\x98(",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		/* The text lies on the heap, where a sanitizer notices a read past the end. */
		size_t n = strlen(bad[i]);
		char *text = strdup(bad[i]), *bytes = malloc(n);
		uint32_t code = 1;

		memcpy(bytes, text, n);
		assert_int_equal(utf8_decode(text, SIZE_MAX, &code), 0);
		assert_int_equal(utf8_decode(bytes, n, &code), 0);
		assert_int_equal(code, 1);
		free(text);
		free(bytes);
	}
}

TEST(what_is_left)
{
	uint32_t code = 1;

	assert_int_equal(utf8_decode("", 0, &code), 0);
	assert_int_equal(utf8_decode("\xc3\xbc", 1, &code), 0);
	assert_int_equal(code, 1);
	assert_int_equal(utf8_decode("\0", 1, &code), 1); /* NUL is a character like any other */
	assert_int_equal(code, 0);
}
