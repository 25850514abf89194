/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/bucket_private.h"
#include "lib/cleanup.h"

static int parse(const char *text, struct xml_list *ret)
{
	return xml_parse_list(text, strlen(text), ret);
}

TEST(a_list_of_objects_is_parsed)
{
	struct xml_list l;

	assert_int_equal(
	    parse(
		"<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
		"<IsTruncated>true</IsTruncated><EncodingType>url</EncodingType><Owner><Key>no</Key></Owner>"
		"<NextContinuationToken>to&amp;ken</NextContinuationToken>"
		"<Contents><Key>a/b</Key><Size>17</Size><Owner><ID>x</ID></Owner></Contents>"
		"<Contents><Size>0</Size><Key>c</Key></Contents></ListBucketResult>",
		&l),
	    0);
	assert_int_equal(l.n, 2);
	assert_string_equal(l.objects[0].key, "a/b");
	assert_int_equal(l.objects[0].bytes, 17);
	assert_string_equal(l.objects[1].key, "c");
	assert_string_equal(l.next, "to&ken");
	assert_true(l.truncated && l.url_encoded);
	xml_list_free(&l);
	assert_int_equal(parse("<ListBucketResult/>", &l), 0);
	assert_int_equal(l.n, 0);
	assert_false(l.truncated);
	xml_list_free(&l);
}

TEST(what_is_no_list_is_refused)
{
	static const char *const texts[] = {
	    "",
	    "<",
	    "<html></html>",
	    "<ListBucketResult>",
	    "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
	    "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
	    "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
	    "<ListBucketResult><Contents><Key>a</Key><Size>99999999999999999999</Size></Contents></"
	    "ListBucketResult>",
	    "<!DOCTYPE x [<!ENTITY e \"aaaa\">]><ListBucketResult><Prefix>&e;</Prefix></ListBucketResult>",
	    "<ListBucketResult><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></"
	    "a></a></a></a>"
	    "</a></a></a></a></a></ListBucketResult>",
	};
	struct xml_list l;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(parse(texts[i], &l), -EBADMSG);
}

TEST(a_value_too_long_is_refused)
{
	_cleanup_(freep) char *text = malloc(20000);
	struct xml_list l;
	int n = sprintf(text, "<ListBucketResult><Prefix>");

	memset(text + n, 'x', 9000);
	strcpy(text + n + 9000, "</Prefix></ListBucketResult>");
	assert_int_equal(parse(text, &l), -EBADMSG);
}

TEST(an_element_is_found_at_its_depth)
{
	static const char text[] = "<Error><Resource><Code>no</Code></Resource><Code>SlowDown</Code></Error>";
	char code[9], cut[5];

	assert_true(xml_find(text, strlen(text), "Error", "Code", code, sizeof(code)));
	assert_string_equal(code, "SlowDown");
	assert_true(xml_find(text, strlen(text), "Error", "Code", cut, sizeof(cut)));
	assert_string_equal(cut, "Slow");
	assert_false(xml_find(text, strlen(text), "Other", "Code", code, sizeof(code)));
	assert_false(xml_find(text, strlen(text), "Error", "Message", code, sizeof(code)));
}
