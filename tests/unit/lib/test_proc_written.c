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

static void test_written_bytes_are_parsed(void **state)
{
	uint64_t bytes;

	assert_int_equal(proc_written_parse("rchar: 5\nwchar: 6\nread_bytes: 7\nwrite_bytes: 8\n"
					    "cancelled_write_bytes: 9\n",
					    &bytes),
			 0);
	assert_int_equal(bytes, 8);
	assert_int_equal(proc_written_parse("rchar: 5\n", &bytes), -EBADMSG);
	assert_int_equal(proc_written_parse("rchar: 5\nwrite_bytes: many\n", &bytes), -EBADMSG);
	assert_int_equal(proc_written_parse("", &bytes), -EBADMSG);
}

static bool has(const uint64_t *devices, int n, uint64_t device)
{
	for (int i = 0; i < n; i++)
		if (devices[i] == device)
			return true;
	return false;
}

/* Tests this process. A file system counts only while a file on it is open for writing. */
static void test_a_file_open_for_writing_shows_its_device(void **state)
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

static void test_hostile_files_fill_the_given_space_only(void **state)
{
	uint64_t devices[PROC_WRITE_DEVICES];
	char base[] = "/tmp/diesel-proc-XXXXXX", path[128], line[200];

	assert_non_null(mkdtemp(base));
	snprintf(path, sizeof(path), "%s/9", base);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(proc_write_devices(base, 9, devices), -ENOENT);
	snprintf(path, sizeof(path), "%s/9/fdinfo", base);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(proc_write_devices(base, 9, devices), 0);
	for (unsigned i = 0; i < 30; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/9/fdinfo/%u", base, i);
		f = fopen(path, "w");
		assert_non_null(f);
		fprintf(f, i % 3 ? "pos:\t0\nflags:\t0100001\nmnt_id:\t%u\n" : "flags: x\nmnt_id:\n%u", i);
		fclose(f);
		snprintf(path, sizeof(path), "%s/9/mountinfo", base);
		f = fopen(path, "a");
		assert_non_null(f);
		for (unsigned k = 0; k < 2; k++)
			fprintf(f, "%u 1 8:%u / / rw - ext4 /dev/sda rw\nnone\n", i, i);
		fclose(f);
	}
	assert_int_equal(proc_write_devices(base, 9, devices), PROC_WRITE_DEVICES);
	snprintf(line, sizeof(line), "rm -r %s", base);
	assert_int_equal(system(line), 0);
}

UNIT_TESTS(cmocka_unit_test(test_written_bytes_are_parsed),
	   cmocka_unit_test(test_a_file_open_for_writing_shows_its_device),
	   cmocka_unit_test(test_hostile_files_fill_the_given_space_only))
