/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "symbol.h"

/* A shared library that is there and that no sanitizer puts functions in front of: the test's own. */
static const char *library_path(void)
{
	Dl_info info;

	assert_true(dladdr((void *)(uintptr_t)dlsym(RTLD_DEFAULT, "_assert_true"), &info));
	return info.dli_fname;
}

/* The bytes at the offset found are the function's code in memory, behind an endbr64 at most. */
static void test_offset_is_the_functions_code(void **state)
{
	static const char *const names[] = {"_assert_true", "_fail", "_check_expected",
					    "_cmocka_run_group_tests"};
	_cleanup_(closep) int fd = open(library_path(), O_RDONLY);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const uint8_t *code = dlsym(RTLD_DEFAULT, names[i]);
		uint8_t bytes[16];
		uint64_t offset;

		assert_int_equal(symbol_find(fd, names[i], true, &offset), 0);
		assert_int_equal(pread(fd, bytes, sizeof(bytes), (off_t)offset), sizeof(bytes));
		if (memcmp(bytes, code, sizeof(bytes)))
			assert_memory_equal(bytes, code + 4, sizeof(bytes));
	}
}

static void test_prefix_and_missing(void **state)
{
	_cleanup_(closep) int fd = open(library_path(), O_RDONLY);
	uint64_t offset = 7;

	(void)state;
	assert_int_equal(symbol_find(fd, "_assert_tru", true, &offset), -ENOENT);
	assert_int_equal(offset, 7);
	assert_int_equal(symbol_find(fd, "_assert_tru", false, &offset), 0);
	assert_int_equal(symbol_find(fd, "no_such_function", false, &offset), -ENOENT);
}

static void test_no_elf_file(void **state)
{
	_cleanup_(closep) int text = nameless_file("#!/bin/sh\n", 10);
	_cleanup_(closep) int empty = nameless_file("", 0);
	uint64_t offset;

	(void)state;
	assert_int_equal(symbol_find(text, "main", true, &offset), -ENOEXEC);
	assert_int_equal(symbol_find(empty, "main", true, &offset), -ENOEXEC);
}

/* Libraries come from the job: any bytes may be wrong. Nothing is read outside of the file. */
static void test_damaged_library(void **state)
{
	_cleanup_(closep) int source = open(library_path(), O_RDONLY);
	_cleanup_(freep) uint8_t *image = NULL;
	struct stat info;

	(void)state;
	assert_int_equal(fstat(source, &info), 0);
	image = malloc((size_t)info.st_size);
	assert_int_equal(pread(source, image, (size_t)info.st_size, 0), info.st_size);
	srandom(11);
	for (int i = 0; i < 60; i++) {
		/* Mostly the headers, where the offsets are; sometimes cut as well. */
		size_t at = (size_t)random() % (i % 2 ? 1024 : (size_t)info.st_size);
		size_t length = (size_t)info.st_size >> (i % 3 ? 0 : random() % 12);
		uint8_t old = image[at];
		uint64_t offset;

		image[at] = (uint8_t)random();
		_cleanup_(closep) int fd = nameless_file(image, length);
		int r = symbol_find(fd, "_assert_true", true, &offset);

		assert_true(r == 0 || r == -ENOENT || r == -ENOEXEC);
		image[at] = old;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_offset_is_the_functions_code),
	    cmocka_unit_test(test_prefix_and_missing),
	    cmocka_unit_test(test_no_elf_file),
	    cmocka_unit_test(test_damaged_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
