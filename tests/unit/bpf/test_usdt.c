/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "bpf/symbols/symbol.h"
#include "bpf/symbols/usdt.h"

/* tests/standin/usdt.c, built without and with semaphores */
static const char *libraries[2];

struct seen {
	size_t n, n_ours, n_semaphores;
	uint64_t offsets[32];
};

static int visit(void *user, const struct usdt_probe *probe)
{
	struct seen *seen = user;

	assert_true(seen->n < 32);
	assert_true(strlen(probe->provider) < 1000 && strlen(probe->name) < 1000);
	seen->offsets[seen->n++] = probe->offset;
	seen->n_ours += !strcmp(probe->provider, "diesel") && strstr(probe->name, "forward_");
	seen->n_semaphores += probe->semaphore_offset != 0;
	return 0;
}

static int look(int fd, struct seen *seen)
{
	struct symbol_file *file;
	int r = symbol_file_open(fd, &file);

	if (r < 0)
		return r;
	r = usdt_each(file, visit, seen);
	symbol_file_close(file);
	return r;
}

TEST(every_marker_is_a_nop)
{
	for (size_t i = 0; i < 2; i++) {
		_cleanup_(closep) int fd = open(libraries[i], O_RDONLY);
		struct seen seen = {0};

		assert_true(fd >= 0);
		assert_int_equal(look(fd, &seen), 0);
		assert_int_equal(seen.n_ours, 2);
		assert_true(seen.n >= 5);
		assert_int_equal(seen.n_semaphores, i ? seen.n : 0);
		for (size_t k = 0; k < seen.n; k++) {
			uint8_t code;

			assert_int_equal(pread(fd, &code, 1, (off_t)seen.offsets[k]), 1);
			assert_int_equal(code, 0x90);
		}
	}
}

static int stop(void *user, const struct usdt_probe *probe)
{
	*(int *)user += 1;
	return -EINTR;
}

TEST(visitor_ends_the_walk)
{
	_cleanup_(closep) int fd = open(libraries[0], O_RDONLY);
	struct symbol_file *file;
	int n = 0;

	assert_int_equal(symbol_file_open(fd, &file), 0);
	assert_int_equal(usdt_each(file, stop, &n), -EINTR);
	assert_int_equal(n, 1);
	symbol_file_close(file);
}

TEST(soname_and_no_markers)
{
	_cleanup_(closep) int fd = open("/proc/self/exe", O_RDONLY);
	_cleanup_(closep) int library = open(libraries[0], O_RDONLY);
	struct symbol_file *file;
	struct seen seen = {0};

	assert_int_equal(symbol_file_open(library, &file), 0);
	assert_string_equal(symbol_file_soname(file), "libusdt.so");
	symbol_file_close(file);
	assert_int_equal(symbol_file_open(fd, &file), 0);
	assert_string_equal(symbol_file_soname(file), "");
	symbol_file_close(file);
	assert_int_equal(look(fd, &seen), 0);
	assert_int_equal(seen.n_ours, 0);
}

TEST(damaged_notes_are_read_within_bounds)
{
	_cleanup_(closep) int source = open(libraries[1], O_RDONLY);
	_cleanup_(freep) uint8_t *image = NULL;
	struct stat info;

	assert_int_equal(fstat(source, &info), 0);
	image = malloc((size_t)info.st_size);
	assert_int_equal(pread(source, image, (size_t)info.st_size, 0), info.st_size);
	uint8_t *notes = memmem(image, (size_t)info.st_size, "stapsdt", 8);
	assert_non_null(notes);
	srandom(5);
	for (int i = 0; i < 400; i++) {
		char path[] = "/tmp/diesel-usdt-XXXXXX";
		_cleanup_(closep) int fd = mkstemp(path);
		size_t at = i % 4 ? (size_t)(notes - image) - 12 + (size_t)random() % 600
				  : (size_t)random() % (size_t)info.st_size;
		uint8_t old;
		struct seen seen = {0};
		int r;

		assert_true(fd >= 0);
		unlink(path);
		at %= (size_t)info.st_size;
		old = image[at];
		image[at] = i % 3 ? (uint8_t)random() : 0xff;
		assert_int_equal(write(fd, image, (size_t)info.st_size), info.st_size);
		image[at] = old;
		r = look(fd, &seen);
		assert_true(r == 0 || r == -ENOEXEC);
	}
}

int main(int argc, char **argv)
{
	libraries[0] = getenv("USDT_PLAIN");
	libraries[1] = getenv("USDT_COUNTED");
	if (!libraries[0] || !libraries[1]) {
		puts("skipped: USDT_PLAIN and USDT_COUNTED name no libraries");
		return 77;
	}
	return run_unit_tests(NULL, NULL);
}
