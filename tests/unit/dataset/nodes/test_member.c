/* SPDX-License-Identifier: Apache-2.0 */
/* A node's entry in Redis may come from anybody, so an invalid entry is no member. */
#include "tests/unit/test.h"

#include "dataset/nodes/member.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct registry_entry sample(void)
{
	struct registry_entry e = {
	    .key = {.uid = 1000, .job = "train"},
	    .path = "/data/imagenet",
	    .member = {.node = "gpu-07",
		       .address = "10.1.2.3:7077",
		       .incarnation = UINT64_MAX,
		       .weight_bytes = UINT64_C(64) << 30,
		       .lanes = {.lanes = 16, .drift = 4, .n_runs = 2, .runs = {{0, 4}, {8, 9}}}},
	};

	for (int i = 0; i < 16; i++)
		e.key.dataset[i] = (uint8_t)(i * 17);
	registry_group_id(&e.key, &e.group);
	return e;
}

TEST(an_entry_parses_as_formatted)
{
	struct registry_entry e = sample(), found;
	char text[MEMBER_TEXT];

	assert_int_equal(member_parse(text, member_format(&e, text), &found), 0);
	assert_memory_equal(&e, &found, sizeof(e));
	/* a job's name may be anything that a launcher allows */
	strcpy(e.key.job, "\x01\xff%\n\x1b[31m\"\\ caf\xc3\xa9");
	memset(e.path, 0, sizeof(e.path));
	strcpy(e.path, "/da\nta/job=x\npath=y%41");
	memset(e.member.node, 'n', REGISTRY_NAME_BYTES - 1);
	memset(e.member.address, 0, sizeof(e.member.address));
	strcpy(e.member.address, "[fd00::1]:1");
	registry_group_id(&e.key, &e.group);
	assert_int_equal(member_parse(text, member_format(&e, text), &found), 0);
	assert_memory_equal(&e, &found, sizeof(e));
	memset(e.path, '\xff', sizeof(e.path) - 1); /* the longest possible path */
	memset(e.key.job, '\x01', sizeof(e.key.job) - 1);
	e.member.weight_bytes = UINT64_MAX;
	e.member.lanes = (struct owner_lanes){.lanes = UINT32_MAX - 1, .drift = UINT32_MAX};
	for (uint32_t i = 0; i < OWNER_RUNS_MAX; i++)
		owner_lanes_add(&e.member.lanes, UINT32_MAX - 3 - 2 * i, UINT32_MAX - 2 - 2 * i);
	assert_int_equal(e.member.lanes.n_runs, OWNER_RUNS_MAX);
	registry_group_id(&e.key, &e.group);
	assert_true(member_format(&e, text) < MEMBER_TEXT);
	assert_int_equal(member_parse(text, strlen(text), &found), 0);
	assert_true(found.member.weight_bytes == MEMBER_MAX_WEIGHT);
}

/* Parses the sample with one part replaced by another. */
static int with(const char *part, const char *other)
{
	struct registry_entry e = sample(), found;
	char text[MEMBER_TEXT], changed[2 * MEMBER_TEXT];

	member_format(&e, text);
	const char *at = strstr(text, part);
	assert_non_null(at);
	snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, other, at + strlen(part));
	return member_parse(changed, strlen(changed), &found);
}

TEST(one_wrong_field_is_refused)
{
	static const char *const wrong[][2] = {
	    {"diesel-node 1", "diesel-node 2"},
	    {"diesel-node 1\n", ""},
	    {"node=gpu-07", "node="},
	    {"node=gpu-07", "node=a%0ab"},
	    {"node=gpu-07", "node=%1b[31m"},
	    {"node=gpu-07", "node=%ff"},
	    {"node=gpu-07", "node=%00"},
	    {"node=gpu-07", "node=%4"},
	    {"node=gpu-07", "node=%4G"},
	    {"node=gpu-07", "node=%C3%A9"}, /* digits must be in lower case */
	    {"node=gpu-07", "node=a\tb"},
	    {"node=gpu-07", "node=1234567890123456789012345678901234567890123456789012345678901234"},
	    {"node=gpu-07\n", ""},
	    {"node=gpu-07\n", "node=gpu-07\nnode=gpu-07\n"},
	    {"10.1.2.3:7077", ""},
	    {"10.1.2.3:7077", "10.1.2.3"},
	    {"10.1.2.3:7077", "10.1.2.3:"},
	    {"10.1.2.3:7077", "10.1.2.3:0"},
	    {"10.1.2.3:7077", "10.1.2.3:65536"},
	    {"10.1.2.3:7077", "10.1.2.3:-1"},
	    {"10.1.2.3:7077", "10.1.2.3: 1"},
	    {"10.1.2.3:7077", "10.1.2.3:1x"},
	    {"10.1.2.3:7077", "10.1.2:7077"},
	    {"10.1.2.3:7077", "0.0.0.0:7077"},
	    {"10.1.2.3:7077", "224.0.0.1:7077"},
	    {"10.1.2.3:7077", "255.255.255.255:7077"},
	    {"10.1.2.3:7077", "storage.example.com:7077"},
	    {"10.1.2.3:7077", "fd00::1:7077"},
	    {"10.1.2.3:7077", "[fd00::1:7077"},
	    {"10.1.2.3:7077", "[fd00::1]7077"},
	    {"10.1.2.3:7077", "[]:7077"},
	    {"10.1.2.3:7077", "[::]:7077"},
	    {"10.1.2.3:7077", "[ff02::1]:7077"},
	    {"10.1.2.3:7077", "[10.1.2.3]:7077"},
	    {"10.1.2.3:7077", "[::ffff:10.1.2.3]:7077"},
	    {"incarnation=18446744073709551615", "incarnation=18446744073709551616"},
	    {"incarnation=18446744073709551615", "incarnation="},
	    {"incarnation=18446744073709551615", "incarnation=-1"},
	    {"incarnation=18446744073709551615", "incarnation=99999999999999999999999999999999999999"},
	    {"weight=68719476736", "weight=1125899906842625"}, /* more than 1 PiB */
	    {"weight=68719476736", "weight=1e9"},
	    {"lanes=16", "lanes=8"},
	    {"lanes=16", "lanes=4294967296"},
	    {"drift=4", "drift=-1"},
	    {"serves=0-3 8-8", "serves=0-3  8-8"},
	    {"serves=0-3 8-8", "serves=0-3 8-8 "},
	    {"serves=0-3 8-8", "serves=0-3 8"},
	    {"serves=0-3 8-8", "serves=0-3 8-16"},
	    {"serves=0-3 8-8", "serves=0-3 4-8"}, /* must be one run */
	    {"serves=0-3 8-8", "serves=8-8 0-3"},
	    {"serves=0-3 8-8", "serves=3-0"},
	    {"serves=0-3 8-8", "serves=0-99999999999999999999"},
	    {"serves=0-3 8-8", "serves=-3"},
	    {"uid=1000", "uid=4294967296"},
	    {"uid=1000", "uid= 1000"},
	    {"job=train", "job=1234567890123456789012345678901234567890123456789012345678901234"},
	    {"dataset=00112233", "dataset=0011223"},
	    {"dataset=00112233", "dataset=0011223344"},
	    {"dataset=00112233", "dataset=0011223x"},
	    {"path=/data/imagenet\n", "path=/data/imagenet"},
	    {"path=/data/imagenet\n", "path=/data/imagenet\n\n"},
	    {"path=/data/imagenet\n", "path=/data/imagenet\nmore=1\n"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (with(wrong[i][0], wrong[i][1]) != -EINVAL)
			fail_msg("it passes: %s", wrong[i][1]);
	assert_int_equal(with("node=gpu-07", "node=caf%c3%a9"), 0);
	assert_int_equal(with("job=train", "job="), 0);
}

/* The entry is cut anywhere, has a NUL anywhere, or is too long. */
TEST(a_damaged_entry_is_refused)
{
	struct registry_entry e = sample(), found;
	char text[MEMBER_TEXT], *copy;
	size_t n = member_format(&e, text);

	for (size_t i = 0; i < n; i++) {
		copy = malloc(i + 1); /* a sanitizer notices a read beyond it */
		memcpy(copy, text, i);
		assert_int_equal(member_parse(copy, i, &found), -EINVAL);
		free(copy);
		copy = malloc(n);
		memcpy(copy, text, n);
		copy[i] = '\0';
		assert_int_equal(member_parse(copy, n, &found), -EINVAL);
		free(copy);
	}
	copy = calloc(1, MEMBER_TEXT);
	memset(copy, 'a', MEMBER_TEXT);
	memcpy(copy, text, n);
	assert_int_equal(member_parse(copy, MEMBER_TEXT, &found), -EINVAL);
	free(copy);
}

TEST(equal_jobs_have_one_group_id)
{
	struct registry_group_key a = sample().key, b = a;
	struct registry_group_id id, other;

	memset(b.job + 6, 'x', 10); /* after its terminating NUL */
	registry_group_id(&a, &id);
	registry_group_id(&b, &other);
	assert_string_equal(id.text, other.text);
	assert_int_equal(strspn(id.text, "0123456789abcdef"), 32);
	b = a;
	b.uid++;
	registry_group_id(&b, &other);
	assert_string_not_equal(id.text, other.text);
	b = a;
	b.dataset[15]++;
	registry_group_id(&b, &other);
	assert_string_not_equal(id.text, other.text);
	b = a;
	b.job[0]++;
	registry_group_id(&b, &other);
	assert_string_not_equal(id.text, other.text);
}
