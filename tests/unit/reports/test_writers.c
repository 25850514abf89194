/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/words/escape.h"
#include "reports/text/layout.h"
#include "reports/trace/protobuf.h"

typedef void (*escape_fn)(FILE *stream, const char *text);

static void check_escape(escape_fn escape, const char *text, const char *expected)
{
	char *made = NULL;
	size_t size;
	FILE *stream = open_memstream(&made, &size);

	escape(stream, text);
	fclose(stream);
	assert_string_equal(made, expected);
	free(made);
}

TEST(each_format_escapes_its_characters)
{
	check_escape(escape_html, "<a href=\"x\" id='y'>&\n\t",
		     "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;  ");
	check_escape(escape_json, "</script>&\"\\\n", "\"\\u003c/script\\u003e\\u0026\\\"\\\\\\n\"");
	check_escape(escape_label, "a\"b\\c\nd", "a\\\"b\\\\c\\nd");
	check_escape(escape_json, "a\377b", "\"a\\\\xffb\"");
	check_escape(escape_label, "a\377\033", "a\\\\xff\\\\x1b");
	check_escape(escape_html, "caf\xc3\xa9 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xf0\x9f\x98\x80");
}

/* Invalid UTF-8 (RFC 3629) and control characters are escaped byte by byte, and no read goes past the end. */
TEST(bytes_outside_utf8_are_escaped)
{
	static const char *const broken[] = {
	    "\xff", "\xc3", "\xc0\x80", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80",
	    "\x80", "\x01", "\x7f",     "\x1b"};

	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		char expected[32] = "";
		char *made = escape_utf8(broken[i]);

		for (size_t k = 0; k < strlen(broken[i]); k++)
			sprintf(expected + 4 * k, "\\x%02x", (unsigned char)broken[i][k]);
		assert_string_equal(made, expected);
		free(made);
	}
}

TEST(protobuf_fields_have_known_bytes)
{
	/* field 1: 150; field 2: "hi"; field 3: {1: 1}; field 4: fixed64 1; field 5: -1 */
	static const uint8_t expected[] = {0x08, 0x96, 0x01, 0x12, 0x02, 'h',  'i',  0x1a, 0x02, 0x08, 0x01,
					   0x21, 0x01, 0,    0,    0,    0,    0,    0,    0,    0x28, 0xff,
					   0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
	struct protobuf message = {0}, inner = {0};

	protobuf_varint(&message, 1, 150);
	protobuf_string(&message, 2, "hi");
	protobuf_varint(&inner, 1, 1);
	protobuf_message(&message, 3, &inner);
	protobuf_fixed64(&message, 4, 1);
	protobuf_varint(&message, 5, (uint64_t)-1);
	assert_false(message.failed);
	assert_int_equal(message.n, sizeof(expected));
	assert_memory_equal(message.bytes, expected, sizeof(expected));
	protobuf_reset(&message);
	assert_int_equal(message.n, 0);
	for (unsigned int i = 0; i < 1000; i++)
		protobuf_string(&message, 1, "a text that makes it grow");
	assert_int_equal(message.n, 1000 * 27);
	protobuf_free(&message);
	protobuf_free(&inner);
}

static void check_wrap(const char *text, unsigned int at, const char *expected)
{
	char *made = NULL;
	size_t size;
	struct layout layout = {.stream = open_memstream(&made, &size), .options = {.width = 10}};

	layout_wrap(&layout, text, at, 2);
	fclose(layout.stream);
	assert_string_equal(made, expected);
	free(made);
}

TEST(text_wraps_by_columns)
{
	check_wrap("one two three", 0, "one two\n  three\n");
	check_wrap("a one", 8, "a\n  one\n");
	check_wrap("abcdefghijklmnopqrstuvwxyz", 2, "abcdefgh\n  ijklmnop\n  qrstuvwx\n  yz\n");
	check_wrap("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 2,
		   "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n  \xc3\xa9\xc3\xa9\n");
	check_wrap("", 0, "\n");
}
