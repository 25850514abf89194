/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/file_open.h"
#include "lib/file_safety.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MALLORY 65534
#define ALICE   12345

static char folder[] = "/tmp/diesel-open-XXXXXX";
static char path[96];
static int dir_fd;

static const char *in(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static int make_folder(void **state)
{
	dir_fd = mkdtemp(folder) ? open(folder, O_PATH | O_DIRECTORY) : -1;
	return dir_fd < 0;
}

static int remove_folder(void **state)
{
	char command[96];

	close(dir_fd);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static int closed(int fd)
{
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : fd;
}

static void make_file(const char *name, uid_t uid)
{
	close(open(in(name), O_WRONLY | O_CREAT, 0644));
	if (geteuid() == 0)
		assert_int_equal(chown(in(name), uid, uid), 0);
}

TEST(reading_opens_regular_files_only)
{
	make_file("file", geteuid());
	assert_int_equal(symlink("file", in("link")), 0);
	assert_int_equal(symlink("/dev/zero", in("device")), 0);
	assert_int_equal(mkfifo(in("pipe"), 0600), 0);
	assert_int_equal(closed(file_to_read(dir_fd, "file", false)), 0);
	assert_int_equal(closed(file_to_read(dir_fd, "link", true)), 0);
	assert_int_equal(file_to_read(dir_fd, "link", false), -ELOOP);
	assert_int_equal(file_to_read(dir_fd, "device", true), -EINVAL);
	assert_int_equal(file_to_read(dir_fd, "pipe", true), -EINVAL);
	assert_int_equal(file_to_read(dir_fd, ".", false), -EINVAL);
	assert_int_equal(file_to_read(dir_fd, "none", false), -ENOENT);
}

TEST(writing_follows_no_link)
{
	assert_int_equal(closed(file_to_write(dir_fd, "file", 0, 0)), 0);
	assert_int_equal(file_to_write(dir_fd, "link", O_CREAT, 0600), -ELOOP);
	assert_int_equal(file_to_write(dir_fd, "pipe", O_CREAT, 0600), -EINVAL);
	assert_int_equal(closed(file_to_write(dir_fd, "new", O_CREAT | O_EXCL, 0600)), 0);
	if (geteuid() != 0)
		skip();
	assert_int_equal(link(in("file"), "/tmp/diesel-open-link"), 0);
	assert_int_equal(file_to_write(dir_fd, "file", O_TRUNC, 0600), -EMLINK);
	unlink("/tmp/diesel-open-link");
	make_file("theirs", MALLORY);
	assert_int_equal(file_to_write(dir_fd, "theirs", 0, 0), -EPERM);
	assert_int_equal(chown(folder, MALLORY, MALLORY), 0);
	assert_int_equal(closed(file_to_write(dir_fd, "theirs", 0, 0)), 0);
	assert_int_equal(closed(file_to_write(dir_fd, "file", 0, 0)), 0); /* owned by root */
	assert_int_equal(chown(folder, 0, 0), 0);
}

/* A user's link leads root only into that user's folders. */
TEST(folders_by_links)
{
	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdir(in("roots"), 0755), 0);
	assert_int_equal(mkdir(in("mallorys"), 0755), 0);
	assert_int_equal(chown(in("mallorys"), MALLORY, MALLORY), 0);
	assert_int_equal(symlink("roots", in("to-roots")), 0);
	assert_int_equal(symlink("mallorys", in("to-own")), 0);
	assert_int_equal(symlink("to-roots/", in("chain")), 0);
	assert_int_equal(closed(file_folder_open(in("to-roots"), true)), 0);
	assert_int_equal(closed(file_folder_open(in("chain/../to-own/."), true)), 0);
	assert_int_equal(lchown(in("to-roots"), MALLORY, MALLORY), 0);
	assert_int_equal(lchown(in("to-own"), MALLORY, MALLORY), 0);
	assert_int_equal(file_folder_open(in("to-roots"), true), -ELOOP);
	assert_int_equal(file_folder_open(in("chain"), true), -ELOOP);
	assert_int_equal(closed(file_folder_open(in("to-own//"), true)), 0);
	assert_int_equal(closed(file_folder_open(in("to-roots"), false)), 0);
	assert_int_equal(lchown(in("to-own"), ALICE, ALICE), 0);
	assert_int_equal(file_folder_open(in("to-own"), true), -ELOOP);
	assert_int_equal(symlink("endless", in("endless")), 0);
	assert_int_equal(file_folder_open(in("endless"), true), -ELOOP);
	assert_int_equal(file_folder_open(in("none/more"), true), -ENOENT);
	assert_int_equal(file_folder_open(in("file/more"), true), -ENOTDIR);
	assert_int_equal(file_folder_open("", true), -ENOENT);
}

TEST(a_folder_others_may_write_is_unsafe)
{
	char at[PATH_MAX], real[PATH_MAX];
	struct stat st;

	assert_int_equal(mkdir(in("a"), 0755), 0);
	assert_int_equal(mkdir(in("a/b"), 0755), 0);
	assert_int_equal(file_safety_above(in("a/b"), at, &st), FILE_SAFE);
	assert_int_equal(chmod(in("a"), 0777), 0);
	assert_int_equal(file_safety_above(in("a/b"), at, &st), FILE_OPEN_TO_OTHERS);
	assert_string_equal(at, in("a"));
	assert_int_equal(file_safety_around(in("a/b/c"), real, at, &st), FILE_OPEN_TO_OTHERS);
	assert_string_equal(real, in("a/b"));
	assert_int_equal(chmod(in("a"), 01777), 0);
	assert_int_equal(file_safety_above(in("a/b"), at, &st), FILE_SAFE);
	assert_int_equal(file_safety_around(in("a/b/"), real, at, &st), -EINVAL);
	assert_int_equal(file_safety_above(in("none"), at, &st), -ENOENT);
	if (geteuid() != 0)
		skip();
	assert_int_equal(chown(in("a"), MALLORY, MALLORY), 0);
	assert_int_equal(file_safety_above(in("a/b"), at, &st), FILE_OF_OTHERS);
}

int main(void)
{
	return run_unit_tests(make_folder, remove_folder);
}
