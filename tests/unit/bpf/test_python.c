/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/symbols/python.h"

/* A process's memory from address 4096 on. */
struct memory {
	uint8_t bytes[8192];
};

#define BASE 4096

static int memory_read(void *user, uint64_t address, void *data, size_t size)
{
	struct memory *memory = user;

	if (address < BASE || address - BASE > sizeof(memory->bytes) ||
	    size > sizeof(memory->bytes) - (address - BASE))
		return -EFAULT;
	memcpy(data, memory->bytes + (address - BASE), size);
	return 0;
}

static int describe(uint32_t version, uint64_t runtime, struct memory *memory, struct python *python)
{
	return python_describe(version, runtime, &(struct python_memory){memory_read, memory}, python);
}

static void put(struct memory *memory, uint64_t address, const void *data, size_t size)
{
	memcpy(memory->bytes + (address - BASE), data, size);
}

static void put_u64(struct memory *memory, uint64_t address, uint64_t value)
{
	put(memory, address, &value, sizeof(value));
}

/* Writes a str object as CPython 3.11 lays it out. kind: bytes per character. */
static void put_text(struct memory *memory, uint64_t address, const void *data, uint64_t length,
		     uint32_t kind, bool ascii)
{
	uint32_t state = kind << 2 | 1U << 5 | (uint32_t)ascii << 6;

	put_u64(memory, address + 16, length);
	put(memory, address + 32, &state, sizeof(state));
	put(memory, address + (ascii ? 48 : 72), data, length * kind);
}

#define CODE      4096
#define FILENAME  5000
#define QUALNAME  6000
#define LONG_NAME 6500

static struct python python_311(struct memory *memory)
{
	struct python python;

	assert_int_equal(describe(0x030b, 77, memory, &python), 0);
	assert_int_equal(python.layout.runtime, 77);
	put_u64(memory, CODE + python.code_filename, FILENAME);
	put_u64(memory, CODE + python.code_qualname, QUALNAME);
	return python;
}

static int code_read(const struct python *python, struct memory *memory, uint64_t address,
		     struct python_code *ret)
{
	return python_code_read(python, &(struct python_memory){memory_read, memory}, address, ret);
}

TEST(names_of_code)
{
	static uint16_t long_name[300];
	static const uint16_t greek[] = {0x3b1, 0x3b2};
	static const uint32_t wide[] = {0x1f600, 'x', 0x110000};
	struct memory memory = {0};
	struct python python = python_311(&memory);
	struct python_code code;

	put_text(&memory, FILENAME, "/srv/job/train.py", 17, 1, true);
	put_text(&memory, QUALNAME, "Data.load", 9, 1, true);
	assert_int_equal(code_read(&python, &memory, CODE, &code), 0);
	assert_string_equal(python_code_file(&code), "train.py");
	assert_string_equal(code.function, "Data.load");
	put_text(&memory, QUALNAME, "\xe9t\xe9", 3, 1, false);
	assert_int_equal(code_read(&python, &memory, CODE, &code), 0);
	assert_string_equal(code.function, "été");
	put_text(&memory, QUALNAME, greek, 2, 2, false);
	assert_int_equal(code_read(&python, &memory, CODE, &code), 0);
	assert_string_equal(code.function, "αβ");
	put_text(&memory, QUALNAME, wide, 3, 4, false);
	assert_int_equal(code_read(&python, &memory, CODE, &code), 0);
	assert_string_equal(code.function, "😀x?");
	/* The last characters that fit are complete. */
	for (size_t i = 0; i < 300; i++)
		long_name[i] = 0x3b1;
	put_text(&memory, LONG_NAME, long_name, 300, 2, false);
	put_u64(&memory, CODE + python.code_qualname, LONG_NAME);
	assert_int_equal(code_read(&python, &memory, CODE, &code), 0);
	assert_int_equal(strlen(code.function), 190);
	assert_string_equal(code.function + 188, "α");
}

TEST(hostile_memory_of_python_is_refused)
{
	struct memory memory = {0};
	struct python python = python_311(&memory);
	struct python_code code;

	assert_int_equal(code_read(&python, &memory, 1, &code), -EFAULT);
	assert_int_equal(code_read(&python, &memory, CODE, &code), -EBADMSG);
	put_text(&memory, FILENAME, "a.py", 4, 1, true);
	put_text(&memory, QUALNAME, "f", 1, 1, true);
	put_u64(&memory, QUALNAME + 16, UINT64_MAX);
	assert_int_equal(code_read(&python, &memory, CODE, &code), -EBADMSG);
	srandom(5);
	for (int i = 0; i < 2000; i++) {
		for (size_t k = 0; k < 400; k++)
			memory.bytes[(size_t)random() % sizeof(memory.bytes)] = (uint8_t)random();
		if (i % 2)
			python_311(&memory);
		if (code_read(&python, &memory, CODE, &code) == 0)
			assert_in_range(strlen(code.function), 0, sizeof(code.function) - 1);
	}
}

TEST(known_python_versions_are_described)
{
	struct memory memory = {0};
	struct python python;

	for (uint32_t version = 0x0308; version <= 0x030c; version++)
		assert_int_equal(describe(version, 1, &memory, &python), 0);
	assert_int_equal(describe(0x0307, 1, &memory, &python), -ENOTSUP);
	assert_int_equal(describe(0x030f, 1, &memory, &python), -ENOTSUP);
	assert_int_equal(describe(0, 1, &memory, &python), -ENOTSUP);
}

TEST(313_describes_itself)
{
	struct memory memory = {0};
	struct python python;

	assert_int_equal(describe(0x030d, 0, &memory, &python), -EFAULT);
	assert_int_equal(describe(0x030d, BASE, &memory, &python), -ENOTSUP);
	put(&memory, BASE, "xdebugpy", 8);
	put_u64(&memory, BASE + 8, 0x030d00f0);
	put_u64(&memory, BASE + 40, 632);  /* interpreters_head */
	put_u64(&memory, BASE + 72, 7344); /* threads_head */
	put_u64(&memory, BASE + 184, 72);  /* current_frame */
	put_u64(&memory, BASE + 192, 152); /* thread_id */
	put_u64(&memory, BASE + 296, 128); /* co_qualname */
	assert_int_equal(describe(0x030d, BASE, &memory, &python), 0);
	assert_int_equal(python.layout.interpreters_head, 632);
	assert_int_equal(python.layout.threads_head, 7344);
	assert_int_equal(python.layout.thread_frame, 72);
	assert_int_equal(python.layout.thread_id, 152);
	assert_int_equal(python.code_qualname, 128);
	put_u64(&memory, BASE + 72, UINT64_C(1) << 40);
	assert_int_equal(describe(0x030d, BASE, &memory, &python), -ENOTSUP);
	put_u64(&memory, BASE + 72, 7344);
	put_u64(&memory, BASE + 16, 1); /* free-threaded */
	assert_int_equal(describe(0x030d, BASE, &memory, &python), -ENOTSUP);
}

/* The layout is that of CPython 3.14's own header, with made-up numbers. */
TEST(314_describes_itself)
{
	static const struct {
		unsigned word;
		uint64_t offset;
	} offsets[] = {{5, 640}, {9, 7400}, {24, 8},  {26, 80},  {27, 160},
		       {32, 8},  {33, 0},   {36, 74}, {40, 112}, {42, 128}};
	struct memory memory = {0};
	struct python python;

	put(&memory, BASE, "xdebugpy", 8);
	put_u64(&memory, BASE + 8, 0x030e00f0);
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		put_u64(&memory, BASE + 8 * offsets[i].word, offsets[i].offset);
	assert_int_equal(describe(0x030e, BASE, &memory, &python), 0);
	assert_int_equal(python.layout.interpreters_head, 640);
	assert_int_equal(python.layout.threads_head, 7400);
	assert_int_equal(python.layout.thread_next, 8);
	assert_int_equal(python.layout.thread_frame, 80);
	assert_int_equal(python.layout.thread_id, 160);
	assert_int_equal(python.layout.frame_owner, 74);
	assert_int_equal(python.code_filename, 112);
	assert_int_equal(python.code_qualname, 128);
	/* A file that is named after one version may be of another. */
	assert_int_equal(describe(0x030d, BASE, &memory, &python), -ENOTSUP);
	put_u64(&memory, BASE + 16, 1); /* free-threaded */
	assert_int_equal(describe(0x030e, BASE, &memory, &python), -ENOTSUP);
}

TEST(version_in_a_name)
{
	assert_int_equal(python_version_of_name("libpython3.9.so.1.0"), 0x0309);
	assert_int_equal(python_version_of_name("python3.10"), 0x030a);
	assert_int_equal(python_version_of_name("libpython3.7m.so.1.0"), 0);
	assert_int_equal(python_version_of_name("python3"), 0);
	assert_int_equal(python_version_of_name("python3.11-config"), 0);
	assert_int_equal(python_version_of_name("libjpeg.so.62"), 0);
	assert_int_equal(python_version_of_name(""), 0);
}
