/* SPDX-License-Identifier: Apache-2.0 */
/* Compares signatures with the examples in Amazon's documentation of S3 (GET Object with a range; list). */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "s3/bucket_private.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
/* A single literal, since two of them in a list look like a missing comma. */
#define HASH_HEADER "x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const struct credentials example = {
    .key_id = (char *)"AKIAIOSFODNN7EXAMPLE",
    .secret = (char *)"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
};

static void expect_signature(const struct signing *s, const char *signature)
{
	char *line;

	assert_int_equal(sign_request(s, &line, NULL), 0);
	assert_string_equal(strstr(line, "Signature=") + strlen("Signature="), signature);
	assert_null(strstr(line, example.secret));
	free(line);
}

TEST(a_range_s_signature_is_the_documented_one)
{
	static const char *const headers[] = {"host:examplebucket.s3.amazonaws.com", "range:bytes=0-9",
					      HASH_HEADER, "x-amz-date:20130524T000000Z"};
	const struct signing s = {
	    .method = "GET",
	    .path = "/test.txt",
	    .query = "",
	    .payload_hash = EMPTY,
	    .date = "20130524T000000Z",
	    .region = "us-east-1",
	    .credentials = &example,
	    .headers = headers,
	    .n_headers = 4,
	};

	expect_signature(&s, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(a_query_s_signature_is_the_documented_one)
{
	static const char *const headers[] = {"host:examplebucket.s3.amazonaws.com", HASH_HEADER,
					      "x-amz-date:20130524T000000Z"};
	const struct signing s = {
	    .method = "GET",
	    .path = "/",
	    .query = "max-keys=2&prefix=J",
	    .payload_hash = EMPTY,
	    .date = "20130524T000000Z",
	    .region = "us-east-1",
	    .credentials = &example,
	    .headers = headers,
	    .n_headers = 3,
	};

	expect_signature(&s, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(hash_and_encoding)
{
	struct iovec parts[] = {{(void *)"a", 1}, {NULL, 0}, {(void *)"bc", 2}};
	char hash[HASH_TEXT], *text;

	assert_int_equal(hash_parts(parts, 3, hash), 0);
	assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_int_equal(hash_parts(NULL, 0, hash), 0);
	assert_string_equal(hash, EMPTY);
	text = uri_encode("/a b/\xc3\xbc+=~-_.", true);
	assert_string_equal(text, "/a%20b/%C3%BC%2B%3D~-_.");
	free(text);
	text = uri_encode("a/b", false);
	assert_string_equal(text, "a%2Fb");
	free(text);
}
