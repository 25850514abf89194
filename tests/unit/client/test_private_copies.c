/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that their holder wrote to. The next batch must show in them, and pages that were only read stay
 * mapped. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/private_copies.h"

#define PAGE   4096u
#define LARGE  1024u /* pages, enough for the client to query the kernel which ones were written */
#define SMALL  16u
#define STRIDE 3u /* every third page is written: more regions than one query can return */

static uint8_t *map(uint32_t n_pages, int *ret_fd)
{
	*ret_fd = memfd_create("slots", MFD_CLOEXEC);
	assert_true(*ret_fd >= 0);
	assert_int_equal(ftruncate(*ret_fd, (off_t)n_pages * PAGE), 0);
	uint8_t *data = mmap(NULL, n_pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, *ret_fd, 0);

	assert_ptr_not_equal(data, MAP_FAILED);
	return data;
}

/* Writes the daemon's next batch. */
static void fill(int fd, uint32_t n_pages, uint8_t value)
{
	uint8_t page[PAGE];

	memset(page, value, sizeof(page));
	for (uint32_t i = 0; i < n_pages; i++)
		assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)i * PAGE), sizeof(page));
}

static void all_are(const volatile uint8_t *data, uint32_t n_pages, uint8_t value)
{
	for (uint32_t i = 0; i < n_pages; i++) {
		assert_int_equal(data[(size_t)i * PAGE], value);
		assert_int_equal(data[(size_t)i * PAGE + PAGE - 1], value);
	}
}

static void write_and_drop(uint8_t *data, int fd, uint32_t n_pages)
{
	for (uint8_t batch = 1; batch < 4; batch++) {
		fill(fd, n_pages, batch);
		all_are(data, n_pages, batch);
		for (uint32_t i = 0; i < n_pages; i += STRIDE)
			memset(data + (size_t)i * PAGE, 0xee, PAGE);
		private_copies_drop(data, (size_t)n_pages * PAGE);
	}
	all_are(data, n_pages, 3);
}

TEST(the_next_batch_shows)
{
	for (uint32_t n_pages = SMALL; n_pages <= LARGE; n_pages += LARGE - SMALL) {
		int fd;
		uint8_t *data = map(n_pages, &fd);

		write_and_drop(data, fd, n_pages);
		munmap(data, (size_t)n_pages * PAGE);
		close(fd);
	}
}

/* A forked child has copies of its own, and its parent's copies stay. */
TEST(in_a_forked_child)
{
	int fd, status;
	uint8_t *data = map(LARGE, &fd);

	fill(fd, LARGE, 9);
	memset(data, 7, (size_t)LARGE * PAGE);
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		private_copies_drop(data, (size_t)LARGE * PAGE);
		for (uint32_t i = 0; i < LARGE; i++)
			if (data[(size_t)i * PAGE] != 9)
				_exit(1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	all_are(data, LARGE, 7);
	munmap(data, (size_t)LARGE * PAGE);
	close(fd);
}

static bool kernel_tells(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	assert_int_equal(uname(&name), 0);
	return sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 7));
}

TEST(what_was_only_read_stays_mapped)
{
	uint64_t entries[LARGE];
	int fd, pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (pagemap < 0 || !kernel_tells()) {
		if (pagemap >= 0)
			close(pagemap);
		skip();
	}
	uint8_t *data = map(LARGE, &fd);

	fill(fd, LARGE, 1);
	all_are(data, LARGE, 1);
	data[5 * PAGE] = 2;
	private_copies_drop(data, (size_t)LARGE * PAGE);
	assert_int_equal(pread(pagemap, entries, sizeof(entries), (off_t)((uintptr_t)data / PAGE * 8)),
			 sizeof(entries));
	for (uint32_t i = 0; i < LARGE; i++)
		assert_int_equal(entries[i] >> 63, i != 5);
	munmap(data, (size_t)LARGE * PAGE);
	close(fd);
	close(pagemap);
}
