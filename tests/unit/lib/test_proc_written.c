/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/proc.h"
#include "tests/support.h"

TEST_IN_FOLDER(written_bytes_are_read)
{
	static const char *const damaged[] = {"rchar: 5\n", "rchar: 5\nwrite_bytes: many\n", ""};
	uint64_t bytes = 0;

	write_text(*state, "9/io",
		   "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 7\nwrite_bytes: 8\n"
		   "cancelled_write_bytes: 9\n");
	assert_int_equal(proc_written_read(*state, 9, &bytes), 0);
	assert_int_equal(bytes, 8);
	write_text(*state, "9/io", "char: 5\nwchar: 6\nread_bytes: 7\nwrite_bytes: 9\n"); /* gVisor's names */
	assert_int_equal(proc_written_read(*state, 9, &bytes), 0);
	assert_int_equal(bytes, 9);
	for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
		write_text(*state, "9/io", damaged[i]);
		assert_int_equal(proc_written_read(*state, 9, &bytes), -EBADMSG);
	}
	assert_int_equal(proc_written_read(*state, 10, &bytes), -ENOENT);
}

static bool has(const uint64_t *devices, int n, uint64_t device)
{
	for (int i = 0; i < n; i++)
		if (devices[i] == device)
			return true;
	return false;
}

/* Tests this process. A file system counts only while a file on it is open for writing. */
TEST(a_file_open_for_writing_shows_its_device)
{
	uint64_t devices[PROC_WRITE_DEVICES];
	char base[] = "/dev/shm/diesel-XXXXXX";
	int fd = mkstemp(base), reads;
	struct stat st;
	int n;

	if (fd < 0)
		skip();
	reads = open(base, O_RDONLY | O_CLOEXEC);
	unlink(base);
	assert_true(reads >= 0 && fstat(fd, &st) == 0);
	assert_true((n = proc_write_devices("/proc", getpid(), devices)) >= 0);
	assert_true(has(devices, n, st.st_dev));
	close(fd);
	assert_true((n = proc_write_devices("/proc", getpid(), devices)) >= 0);
	assert_false(has(devices, n, st.st_dev));
	close(reads);
}

TEST_IN_FOLDER(hostile_files_fill_the_given_space_only)
{
	uint64_t devices[PROC_WRITE_DEVICES];
	const char *base = *state;
	char mounts[4096];
	size_t n = 0;

	make_folders(base, "9");
	assert_int_equal(proc_write_devices(base, 9, devices), -ENOENT);
	make_folders(base, "9/fdinfo");
	assert_int_equal(proc_write_devices(base, 9, devices), 0);
	for (unsigned i = 0; i < 30; i++) {
		char name[32];

		snprintf(name, sizeof(name), "9/fdinfo/%u", i);
		write_format(base, name,
			     i % 3 ? "pos:\t0\nflags:\t0100001\nmnt_id:\t%u\n" : "flags: x\nmnt_id:\n%u", i);
		for (unsigned k = 0; k < 2; k++)
			n += (size_t)snprintf(mounts + n, sizeof(mounts) - n,
					      "%u 1 8:%u / / rw - ext4 /dev/sda rw\nnone\n", i, i);
	}
	write_text(base, "9/mountinfo", mounts);
	assert_int_equal(proc_write_devices(base, 9, devices), PROC_WRITE_DEVICES);
}
