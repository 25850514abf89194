/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "lib/huge_pages.h"
#include "lib/kernel_calls.h"

#define BYTES (3 * HUGE_PAGE_BYTES + 12345)

static int new_memory(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	return fd;
}

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

static uint8_t *new_data(void)
{
	uint8_t *data = malloc(BYTES);

	assert_non_null(data);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = pattern(i);
	return data;
}

static void check(int fd, size_t from, size_t to)
{
	_cleanup_(freep) uint8_t *data = malloc(BYTES);
	size_t done = 0, wrong = 0;

	assert_int_equal(fd_read_at(fd, data, BYTES, 0, &done), 0);
	assert_int_equal(done, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		wrong += data[i] != (i >= from && i < to ? pattern(i) : 0);
	assert_int_equal(wrong, 0);
}

TEST(is_mapped_where_huge_pages_fit)
{
	int fd = new_memory();
	uint8_t *data = huge_map(fd, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED), *after;

	assert_ptr_not_equal(data, MAP_FAILED);
	assert_int_equal((uintptr_t)data % HUGE_PAGE_BYTES, 0);
	data[BYTES - 1] = pattern(BYTES - 1);
	check(fd, BYTES - 1, BYTES);
	/* Address space that was used to find the position is released. */
	after = mmap(data + (BYTES + 4095) / 4096 * 4096, 4096, PROT_READ,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_not_equal(after, MAP_FAILED);
	munmap(after, 4096);
	munmap(data, BYTES);
	assert_ptr_equal(huge_map(-1, BYTES, PROT_READ, MAP_SHARED), MAP_FAILED);
	assert_int_equal(errno, EBADF);
	close(fd);
}

static void write_and_check(uint8_t *data, size_t from, size_t to)
{
	int fd = new_memory();

	assert_int_equal(huge_write_at(fd, data + from, to - from, from), 0);
	check(fd, from, to);
	close(fd);
}

TEST(writes_what_a_call_would_write)
{
	_cleanup_(freep) uint8_t *data = new_data();

	write_and_check(data, 0, BYTES);
	write_and_check(data, 0, 0);
	write_and_check(data, 1, BYTES);
	write_and_check(data, HUGE_PAGE_BYTES - 1, 2 * HUGE_PAGE_BYTES + 1);
	write_and_check(data, HUGE_PAGE_BYTES, 2 * HUGE_PAGE_BYTES);
	write_and_check(data, HUGE_PAGE_BYTES + 4096, 2 * HUGE_PAGE_BYTES);
}

TEST(cannot_write_where_it_may_not)
{
	_cleanup_(freep) uint8_t *data = new_data();
	int fd = new_memory(), reader;
	char path[FD_PATH_BYTES];

	fd_path(fd, path);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(huge_write_at(reader, data, BYTES, 0), -EBADF);
	check(fd, 0, 0);
	close(reader);
	close(fd);
}

/* Returns whether `at` lies in a huge page, by the kernel's count. */
static bool is_huge(const uint8_t *at)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	char line[256];
	unsigned long from, to, kib = 0;
	bool here = false;

	assert_non_null(maps);
	(void)*(const volatile uint8_t *)at;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)at >= from && (uintptr_t)at < to;
		else if (here && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
			break;
	}
	fclose(maps);
	return kib > 0;
}

/* The memory has holes, and others map it. */
TEST(huge_pages_hold_what_was_there)
{
	uint8_t *data = new_data(), *ours, *theirs;
	int fd = new_memory();

	assert_int_equal(fd_write_at(fd, data + 5000, 3000, 5000), 0);
	ours = huge_map(fd, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED);
	theirs = huge_map(fd, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	assert_true(ours != MAP_FAILED && theirs != MAP_FAILED);
	theirs[5000] = 77; /* private from now on */
	huge_pages_make(ours + 1, BYTES - 1, false);
	huge_pages_make(ours, BYTES, false);
	check(fd, 5000, 8000);
	assert_int_equal(theirs[5000], 77);
	assert_int_equal(theirs[5001], pattern(5001));
	if (kernel_collapse(ours, HUGE_PAGE_BYTES) == 0)
		assert_true(is_huge(ours));
	ours[5001] = 5;
	assert_int_equal(theirs[HUGE_PAGE_BYTES + 1], 0);
	munmap(ours, BYTES);
	munmap(theirs, BYTES);
	close(fd);
	free(data);
}
