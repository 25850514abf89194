/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/error.h"
#include "analyzer/truth/truth_files.h"

#define FILE_BYTES  (1 << 20)
#define TMPFS_MAGIC 0x01021994

static const char *folder;

static char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void make_file(const char *name)
{
	static const char bytes[4096] = "x";
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (size_t i = 0; i < FILE_BYTES / sizeof(bytes); i++)
		assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

static int set_up(void **state)
{
	if (make_folder_below("/var/tmp", state) < 0)
		return -1;
	folder = *state;
	make_folders(folder, "class");
	make_file("b");
	make_file("class/a");
	assert_int_equal(symlink("b", path_of("link")), 0);
	return 0;
}

static void test_files_below_a_folder_are_sorted(void **state)
{
	struct truth_files files;

	assert_int_equal(truth_files_below(folder, &files, NULL), 0);
	assert_int_equal(files.n, 2);
	assert_string_equal(files.paths[0], path_of("b"));
	assert_string_equal(files.paths[1], path_of("class/a"));
	truth_files_free(&files);
	assert_int_equal(files.n, 0);
	truth_files_free(&files);
}

static void test_a_missing_folder_is_named(void **state)
{
	struct truth_files files;
	struct error err = ERROR_INIT;

	assert_int_equal(truth_files_below("/nonexistent", &files, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent"));
}

static void test_a_list_keeps_each_regular_file_once(void **state)
{
	struct truth_files files;
	char text[512];
	int n = snprintf(text, sizeof(text), "%s\n", path_of("class/a"));

	n += snprintf(text + n, sizeof(text) - (size_t)n, "\n%s\n/nonexistent\n", folder);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "%s\n", path_of("b"));
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", path_of("b"));
	assert_int_equal(truth_files_parse(text, &files), 0);
	assert_int_equal(files.n, 2);
	assert_string_equal(files.paths[0], path_of("b"));
	assert_string_equal(files.paths[1], path_of("class/a"));
	truth_files_free(&files);
	assert_int_equal(truth_files_parse("", &files), 0);
	assert_int_equal(files.n, 0);
	truth_files_free(&files);
}

static void test_evict_and_warm(void **state)
{
	struct truth_residence residence;
	struct truth_files files;
	struct statfs system;

	assert_int_equal(statfs(folder, &system), 0);
	if (system.f_type == TMPFS_MAGIC)
		skip(); /* the page cache of this file system cannot be evicted */
	assert_int_equal(truth_files_below(folder, &files, NULL), 0);
	truth_files_evict(&files);
	truth_files_residence(&files, &residence);
	assert_int_equal(residence.bytes, 2 * FILE_BYTES);
	assert_int_equal(residence.cached_bytes, 0);
	truth_files_warm(&files);
	truth_files_residence(&files, &residence);
	assert_int_equal(residence.cached_bytes, 2 * FILE_BYTES);
	assert_int_equal(residence.n_unreadable + residence.n_unknown, 0);
	unlink(path_of("b"));
	truth_files_residence(&files, &residence);
	assert_int_equal(residence.n_unreadable, 1);
	make_file("b");
	truth_files_free(&files);
}

UNIT_TESTS_BETWEEN(set_up, remove_folder, cmocka_unit_test(test_files_below_a_folder_are_sorted),
		   cmocka_unit_test(test_a_missing_folder_is_named),
		   cmocka_unit_test(test_a_list_keeps_each_regular_file_once),
		   cmocka_unit_test(test_evict_and_warm))
