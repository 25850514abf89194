/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/symbols/elf_symbols.h"
#include "lib/cleanup.h"

static void elf_symbols_closep(struct elf_symbols **symbols)
{
	elf_symbols_close(*symbols);
}

/* Returns the offset in its file of an address in this process. */
static uint64_t file_offset_of(const void *address, char *path, size_t size)
{
	uint64_t at = (uintptr_t)address, begin, end, offset;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4400];
	int n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %n", &begin, &end, &offset, &n) < 3 || at < begin ||
		    at >= end)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, size, "%s", line + n);
		fclose(maps);
		return at - begin + offset;
	}
	fail_msg("no mapping of %p", address);
	return 0;
}

int elf_symbols_test_variable = 5;
int elf_symbols_test_function(int n);

__attribute__((noinline)) int elf_symbols_test_function(int n)
{
	return n * elf_symbols_test_variable;
}

/* The function is not exported, so only the full symbol table has it. */
__attribute__((noinline, used)) static int local_function(int n)
{
	return n + elf_symbols_test_variable;
}

static struct elf_symbols *open_at(const void *address, uint64_t *ret_offset)
{
	struct elf_symbols *symbols = NULL;
	char path[4200];

	*ret_offset = file_offset_of(address, path, sizeof(path));
	assert_int_equal(elf_symbols_open(open(path, O_RDONLY | O_CLOEXEC), NULL, &symbols), 0);
	return symbols;
}

TEST(a_program_s_own_functions_have_names)
{
	_cleanup_(elf_symbols_closep) struct elf_symbols *symbols = NULL;
	uint64_t offset, local;
	char name[64];

	symbols = open_at((const void *)(uintptr_t)elf_symbols_test_function, &offset);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(elf_symbols_function(symbols, offset + i, name, sizeof(name)), 0);
		assert_string_equal(name, "elf_symbols_test_function");
	}
	local = file_offset_of((const void *)(uintptr_t)local_function, (char[4200]){0}, 4200);
	assert_int_equal(elf_symbols_function(symbols, local, name, sizeof(name)), 0);
	assert_string_equal(name, "local_function");
	assert_int_equal(elf_symbols_function(symbols, UINT64_MAX, name, sizeof(name)), -ENOENT);
	assert_int_equal(elf_symbols_function(symbols, 0, name, sizeof(name)), -ENOENT);
	assert_int_equal(elf_symbols_function(symbols, offset, name, 8), 0);
	assert_string_equal(name, "elf_sym");
}

TEST(where_a_variable_is)
{
	_cleanup_(elf_symbols_closep) struct elf_symbols *symbols = NULL;
	const char *code = (const char *)(uintptr_t)elf_symbols_test_function;
	int64_t distance;
	uint64_t offset;

	symbols = open_at(code, &offset);
	assert_int_equal(elf_symbols_distance(symbols, "elf_symbols_test_variable", offset, &distance), 0);
	assert_ptr_equal(code + distance, &elf_symbols_test_variable);
	assert_int_equal(elf_symbols_distance(symbols, "no_such_variable", offset, &distance), -ENOENT);
	assert_int_equal(elf_symbols_distance(symbols, "elf_symbols_test_function", offset, &distance),
			 -ENOENT);
}

/* In a library without a symbol table, only exported names are known. Other code does not get the nearest
 * exported name. */
TEST(exported_names_reach_no_further_than_their_size)
{
	_cleanup_(elf_symbols_closep) struct elf_symbols *symbols = NULL;
	const void *code = dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests");
	uint64_t offset;
	char name[64];

	assert_non_null(code);
	symbols = open_at(code, &offset);
	assert_int_equal(elf_symbols_function(symbols, offset + 1, name, sizeof(name)), 0);
	assert_string_equal(name, "_cmocka_run_group_tests");
	if (elf_symbols_function(symbols, offset - 1, name, sizeof(name)) == 0)
		assert_string_not_equal(name, "_cmocka_run_group_tests");
}

TEST(no_elf_file)
{
	struct elf_symbols *symbols = NULL;
	int pipes[2];

	assert_int_equal(elf_symbols_open(nameless_file("#!/bin/sh\n", 10), NULL, &symbols), -ENOEXEC);
	assert_int_equal(elf_symbols_open(nameless_file("", 0), NULL, &symbols), -ENOEXEC);
	assert_int_equal(elf_symbols_open(open("/dev/null", O_RDONLY), NULL, &symbols), -ENOEXEC);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(elf_symbols_open(pipes[0], NULL, &symbols), -ENOEXEC);
	close(pipes[1]);
	assert_null(symbols);
}

TEST(damaged_symbols_do_no_harm)
{
	_cleanup_(freep) uint8_t *image = NULL;
	struct stat info;
	char path[4200];
	uint64_t offset = file_offset_of(dlsym(RTLD_DEFAULT, "_assert_true"), path, sizeof(path));

	int source = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(source, &info), 0);
	image = malloc((size_t)info.st_size);
	assert_int_equal(pread(source, image, (size_t)info.st_size, 0), info.st_size);
	close(source);
	srandom(3);
	for (int i = 0; i < 300; i++) {
		/* The headers at both ends hold the offsets, so most flips hit them. */
		size_t range = i % 3 == 2 ? (size_t)info.st_size : 2048;
		size_t at = i % 3 == 1 ? (size_t)info.st_size - 1 - (size_t)random() % range
				       : (size_t)random() % range;
		size_t length = (size_t)info.st_size >> (i % 5 ? 0 : random() % 12);
		uint8_t old = image[at];
		struct elf_symbols *symbols = NULL;
		int64_t distance;
		char name[40];

		image[at] = (uint8_t)random();
		if (elf_symbols_open(nameless_file(image, length), NULL, &symbols) == 0) {
			for (uint64_t k = 0; k < 20; k++)
				if (elf_symbols_function(symbols, offset + k * 4096, name, sizeof(name)) == 0)
					assert_in_range(strlen(name), 1, sizeof(name) - 1);
			elf_symbols_distance(symbols, "stdout", offset, &distance);
		}
		elf_symbols_close(symbols);
		image[at] = old;
	}
}
