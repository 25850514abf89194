/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "bpf/symbols/symbol.h"

/* Returns the path of the test's own shared library, before whose functions no sanitizer puts its own. */
static const char *library_path(void)
{
	Dl_info info;

	assert_true(dladdr((void *)(uintptr_t)dlsym(RTLD_DEFAULT, "_assert_true"), &info));
	return info.dli_fname;
}

static int find(int fd, const char *prefix, bool exact, uint64_t *ret_offset)
{
	struct symbol_file *file;
	int r = symbol_file_open(fd, &file);

	if (r < 0)
		return r;
	r = symbol_file_find(file, prefix, exact, ret_offset, NULL);
	symbol_file_close(file);
	return r;
}

/* The bytes at the found offset are the function's code in memory, or follow an endbr64 there. */
TEST(offset_is_the_functions_code)
{
	static const char *const names[] = {"_assert_true", "_fail", "_check_expected",
					    "_cmocka_run_group_tests"};
	_cleanup_(closep) int fd = open(library_path(), O_RDONLY);

	assert_true(fd >= 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const uint8_t *code = dlsym(RTLD_DEFAULT, names[i]);
		uint8_t bytes[16];
		uint64_t offset;

		assert_int_equal(find(fd, names[i], true, &offset), 0);
		assert_int_equal(pread(fd, bytes, sizeof(bytes), (off_t)offset), sizeof(bytes));
		if (memcmp(bytes, code, sizeof(bytes)))
			assert_memory_equal(bytes, code + 4, sizeof(bytes));
	}
}

/* An instruction that the kernel cannot emulate is skipped if nothing of the call is lost and the kernel can
 * emulate the next one. */
TEST(a_cheap_place_loses_nothing_of_the_call)
{
	static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	static const struct {
		uint8_t code[8];
		uint64_t skipped;
		bool cheap;
	} cases[] = {
	    {{0x55, 0x48, 0x89, 0xe5}, 0, true},                          /* push; mov */
	    {{0x48, 0x83, 0xec, 0x68, 0x55}, 0, false},                   /* sub from the stack pointer */
	    {{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 4, true},                    /* endbr64; push */
	    {{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08}, 0, false}, /* endbr64; sub */
	    {{0x80, 0x7f, 0x68, 0x00, 0x74, 0x5a}, 4, true},              /* cmpb $0,0x68(%rdi); je */
	    {{0x80, 0x7f, 0x68, 0x00, 0x48, 0x83, 0xec, 0x08}, 0, false}, /* cmpb; sub */
	    {{0x80, 0x7c, 0x24, 0x08, 0x00, 0x74, 0x5a}, 0, false},       /* cmpb $0,8(%rsp), 5 bytes; je */
	    {{0xf3, 0x0f, 0x1e, 0xfa, 0x80, 0x7f, 0x68, 0x00}, 0, false}, /* endbr64; cmpb */
	};
	_cleanup_(closep) int source = open(library_path(), O_RDONLY);
	_cleanup_(freep) uint8_t *image = NULL;
	struct stat info;
	uint64_t entry;

	assert_int_equal(fstat(source, &info), 0);
	image = malloc((size_t)info.st_size);
	assert_int_equal(pread(source, image, (size_t)info.st_size, 0), info.st_size);
	assert_int_equal(find(source, "_assert_true", true, &entry), 0);
	if (memcmp(image + entry - sizeof(endbr64), endbr64, sizeof(endbr64)) == 0)
		entry -= sizeof(endbr64);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct symbol_file *file;
		uint64_t offset;
		bool cheap;

		memcpy(image + entry, cases[i].code, sizeof(cases[i].code));
		_cleanup_(closep) int fd = nameless_file(image, (size_t)info.st_size);
		assert_int_equal(symbol_file_open(fd, &file), 0);
		assert_int_equal(symbol_file_find(file, "_assert_true", true, &offset, &cheap), 0);
		assert_int_equal(offset, entry + cases[i].skipped);
		assert_int_equal(cheap, cases[i].cheap);
		symbol_file_close(file);
	}
}

/* libdiesel's own marker is called four times per batch. */
TEST(our_marker_is_cheap)
{
	_cleanup_(closep) int fd = open(getenv("DIESEL_LIBRARY"), O_RDONLY);
	struct symbol_file *file;
	uint64_t offset;
	bool cheap;

	assert_true(fd >= 0);
	assert_int_equal(symbol_file_open(fd, &file), 0);
	assert_int_equal(symbol_file_find(file, "diesel_mark", true, &offset, &cheap), 0);
	assert_true(cheap);
	symbol_file_close(file);
}

TEST(prefix_and_missing)
{
	_cleanup_(closep) int fd = open(library_path(), O_RDONLY);
	uint64_t offset = 7;

	assert_int_equal(find(fd, "_assert_tru", true, &offset), -ENOENT);
	assert_int_equal(offset, 7);
	assert_int_equal(find(fd, "_assert_tru", false, &offset), 0);
	assert_int_equal(find(fd, "no_such_function", false, &offset), -ENOENT);
}

TEST(no_elf_file)
{
	_cleanup_(closep) int text = nameless_file("#!/bin/sh\n", 10);
	_cleanup_(closep) int empty = nameless_file("", 0);
	uint64_t offset;

	assert_int_equal(find(text, "main", true, &offset), -ENOEXEC);
	assert_int_equal(find(empty, "main", true, &offset), -ENOEXEC);
}

TEST(a_damaged_library_is_read_within_bounds)
{
	_cleanup_(closep) int source = open(library_path(), O_RDONLY);
	_cleanup_(freep) uint8_t *image = NULL;
	struct stat info;

	assert_int_equal(fstat(source, &info), 0);
	image = malloc((size_t)info.st_size);
	assert_int_equal(pread(source, image, (size_t)info.st_size, 0), info.st_size);
	srandom(11);
	for (int i = 0; i < 60; i++) {
		/* Most flips hit the headers, where the offsets are. Some files are cut as well. */
		size_t at = (size_t)random() % (i % 2 ? 1024 : (size_t)info.st_size);
		size_t length = (size_t)info.st_size >> (i % 3 ? 0 : random() % 12);
		uint8_t old = image[at];
		uint64_t offset;

		image[at] = (uint8_t)random();
		_cleanup_(closep) int fd = nameless_file(image, length);
		int r = find(fd, "_assert_true", true, &offset);

		assert_true(r == 0 || r == -ENOENT || r == -ENOEXEC);
		image[at] = old;
	}
}

/* Opens the test's own library with one section header changed. */
static int with_section(uint32_t type, void (*change)(Elf64_Shdr *section), uint64_t grow_bytes)
{
	_cleanup_(closep) int source = open(library_path(), O_RDONLY);
	_cleanup_(freep) uint8_t *image = NULL;
	struct stat info;

	assert_int_equal(fstat(source, &info), 0);
	image = malloc((size_t)info.st_size);
	assert_int_equal(pread(source, image, (size_t)info.st_size, 0), info.st_size);
	Elf64_Ehdr *head = (Elf64_Ehdr *)image;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image + head->e_shoff);
	for (size_t i = 0; i < head->e_shnum; i++)
		if (sections[i].sh_type == type)
			change(&sections[i]);
	int fd = nameless_file(image, (size_t)info.st_size);
	assert_int_equal(ftruncate(fd, info.st_size + (off_t)grow_bytes), 0);
	return fd;
}

#define HUGE_BYTES (UINT64_C(1) << 30)

static void make_huge(Elf64_Shdr *section)
{
	section->sh_size = HUGE_BYTES;
}

static void make_compressed(Elf64_Shdr *section)
{
	section->sh_flags |= SHF_COMPRESSED;
}

/* A sparse file costs its owner nothing, so its length must not be the cost of reading it. */
TEST(sections_larger_than_any_librarys)
{
	static const uint32_t types[] = {SHT_DYNSYM, SHT_STRTAB};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		_cleanup_(closep) int huge = with_section(types[i], make_huge, 2 * HUGE_BYTES);
		_cleanup_(closep) int compressed = with_section(types[i], make_compressed, 0);
		uint64_t offset;

		assert_int_equal(find(huge, "_assert_true", true, &offset), -ENOEXEC);
		assert_int_equal(find(compressed, "_assert_true", true, &offset), -ENOEXEC);
	}
}
