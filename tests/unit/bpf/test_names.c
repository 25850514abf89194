/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "bpf/collector.h"
#include "lib/cleanup.h"
#include "bpf/symbols/names.h"

struct notes {
	size_t n;
	char kind[16];
	uint64_t key;
	uint8_t data[METADATA_FRAME_BYTES_MAX + 64];
	size_t size;
};

static void take(void *user, const char *kind, uint64_t key, const void *data, size_t size)
{
	struct notes *notes = user;

	assert_in_range(size, 1, sizeof(notes->data));
	notes->n++;
	snprintf(notes->kind, sizeof(notes->kind), "%s", kind);
	notes->key = key;
	memcpy(notes->data, data, size);
	notes->size = size;
}

static void names_freep(struct names **names)
{
	names_free(*names);
}

TEST(each_frame_once)
{
	_cleanup_(names_freep) struct names *names = names_new();
	struct notes notes = {0};
	const struct collector_sink sink = {NULL, take, &notes};
	uint64_t key = names_frame(names, FRAME_NATIVE, "libjpeg.so.62", "jpeg_idct", &sink);

	assert_int_equal(notes.n, 1);
	assert_string_equal(notes.kind, METADATA_FRAME);
	assert_int_equal(notes.key, key);
	assert_int_equal(notes.size, 1 + 14 + 10);
	assert_memory_equal(notes.data, "\0libjpeg.so.62\0jpeg_idct", notes.size);
	assert_int_equal(names_frame(names, FRAME_NATIVE, "libjpeg.so.62", "jpeg_idct", &sink), key);
	assert_int_equal(notes.n, 1);
	assert_int_not_equal(names_frame(names, FRAME_PYTHON, "libjpeg.so.62", "jpeg_idct", &sink), key);
	assert_int_not_equal(names_frame(names, FRAME_NATIVE, "libjpeg.so.62", "", &sink), key);
	assert_int_equal(notes.n, 3);
}

/* A job's names of files and functions end up on terminals and in flame graphs. */
TEST(names_are_made_fit)
{
	_cleanup_(names_freep) struct names *names = names_new();
	struct notes notes = {0};
	const struct collector_sink sink = {NULL, take, &notes};
	char endless[2000];

	names_frame(names, FRAME_PYTHON, "a;b\n\033[2J.py", "\xffgr\xc3\xb6\xc3", &sink);
	assert_string_equal((char *)notes.data + 1, "a,b??[2J.py");
	assert_string_equal((char *)notes.data + 1 + 12, "?gr\xc3\xb6?");
	memset(endless, 'x', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	names_frame(names, FRAME_PYTHON, endless, endless, &sink);
	assert_true(notes.size <= METADATA_FRAME_BYTES_MAX);
	assert_int_equal(notes.data[notes.size - 1], 0);
	assert_int_equal(strlen((char *)notes.data + 1) + 2 +
			     strlen((char *)notes.data + 2 + strlen((char *)notes.data + 1)) + 1,
			 notes.size);
}

TEST(a_stack_is_told_once)
{
	_cleanup_(names_freep) struct names *names = names_new();
	struct notes notes = {0};
	const struct collector_sink sink = {NULL, take, &notes};
	const uint64_t frames[] = {11, 22, 33};
	uint64_t key = names_stack(names, frames, 3, &sink);

	assert_int_equal(notes.n, 1);
	assert_string_equal(notes.kind, METADATA_STACK);
	assert_memory_equal(notes.data, frames, sizeof(frames));
	assert_int_equal(names_stack(names, frames, 3, &sink), key);
	assert_int_not_equal(names_stack(names, frames, 2, &sink), key);
	assert_int_equal(names_stack(names, frames, 0, &sink), 0);
	assert_int_equal(notes.n, 2);
	assert_int_not_equal(names_stack(names, frames + 1, 2, NULL), 0);
}

/* A job with an unlimited number of different stacks costs no more memory. The stacks beyond the limit have
 * no names. */
TEST(there_is_a_limit)
{
	_cleanup_(names_freep) struct names *names = names_new();
	uint64_t frame = 0, n_refused = 0, n = 0;

	for (; n < 200000; n++) {
		frame = n + 1;
		n_refused += !names_stack(names, &frame, 1, NULL);
	}
	assert_in_range(n_refused, 1, n - 1);
	frame = 1;
	assert_int_not_equal(names_stack(names, &frame, 1, NULL), 0);
}
