/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of permission: what a client may and may not pass. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "served.h"

struct fixture {
	char directory[64];
	int dir_fd;
};

static int make(struct fixture *f, const char *name)
{
	int fd = openat(f->dir_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "not a snapshot", 14), 14);
	return fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->directory, "/tmp/diesel-served-XXXXXX");
	assert_non_null(mkdtemp(f->directory));
	f->dir_fd = open(f->directory, O_RDONLY | O_DIRECTORY);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)unlinkat(f->dir_fd, "snapshot", 0);
	(void)unlinkat(f->dir_fd, "other", 0);
	(void)unlinkat(f->dir_fd, "chunks", AT_REMOVEDIR);
	rmdir(f->directory);
	close(f->dir_fd);
	free(f);
	return 0;
}

static int identify(struct fixture *f, int snapshot_fd, bool *ret_replaced)
{
	struct served_identity identity;
	struct error err = ERROR_INIT;
	int r = served_identify(f->dir_fd, snapshot_fd, &identity, ret_replaced, &err);

	assert_int_equal(err.text[0] != '\0', r < 0);
	return r;
}

static void test_a_readable_snapshot_is_proof(void **state)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), readable = openat(f->dir_fd, "snapshot", O_RDONLY);
	bool replaced = true;

	assert_int_equal(identify(f, readable, &replaced), 0);
	assert_false(replaced);
	close(readable);
	close(fd);
}

static void test_no_proof(void **state)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), path = openat(f->dir_fd, "snapshot", O_PATH),
	    writer = openat(f->dir_fd, "snapshot", O_WRONLY), pipes[2];
	bool replaced;

	/* Both can be had without the right to read. */
	assert_int_equal(identify(f, path, &replaced), -EACCES);
	assert_int_equal(identify(f, writer, &replaced), -EACCES);
	assert_int_equal(identify(f, f->dir_fd, &replaced), -EACCES);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(identify(f, pipes[0], &replaced), -EACCES);
	close(pipes[0]);
	close(pipes[1]);
	close(writer);
	close(path);
	close(fd);
}

static void test_another_file_is_not_this_dataset(void **state)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), other = make(f, "other");
	bool replaced = false;

	assert_int_equal(identify(f, other, &replaced), 0);
	assert_true(replaced);
	close(other);
	close(fd);
}

static void test_links_are_not_followed(void **state)
{
	struct fixture *f = *state;
	int other = make(f, "other");
	bool replaced;

	assert_int_equal(symlinkat("other", f->dir_fd, "snapshot"), 0);
	assert_int_equal(identify(f, other, &replaced), -ELOOP);
	close(other);
}

static void test_damaged_snapshot_is_refused(void **state)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot");
	struct served_identity identity;
	struct served_dataset *d;
	struct error err = ERROR_INIT;
	bool replaced;

	assert_int_equal(mkdirat(f->dir_fd, "chunks", 0700), 0);
	assert_int_equal(served_identify(f->dir_fd, fd, &identity, &replaced, &err), 0);
	assert_int_equal(served_load(f->dir_fd, fd, &identity, 4, &d, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "--cache"));
	assert_int_equal(served_load(f->dir_fd, fd, &identity, 1 << 20, &d, &err), -EBADMSG);
	assert_non_null(strstr(err.text, f->directory));
	served_free(NULL);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_readable_snapshot_is_proof, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_proof, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_another_file_is_not_this_dataset, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_links_are_not_followed, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_damaged_snapshot_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
