/* SPDX-License-Identifier: Apache-2.0 */
/* Translates a device and a path within its file system to a path of this machine. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/symbols/mounts.h"

#define DEVICE(major, minor) ((major) << 20 | (minor))

static struct mounts *parse(const char *text)
{
	char path[] = "/tmp/diesel-mounts-XXXXXX";
	int fd = mkstemp(path);
	struct mounts *mounts;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	assert_int_equal(mounts_read(path, &mounts), 0);
	unlink(path);
	return mounts;
}

static void check(const struct mounts *mounts, uint32_t device, const char *inner, const char *wanted)
{
	char path[64];

	assert_int_equal(mounts_path(mounts, device, inner, path, sizeof(path)), 0);
	assert_string_equal(path, wanted);
}

TEST(a_path_is_found_below_its_mount)
{
	struct mounts *mounts = parse("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
				      "30 22 8:1 / /mnt/my\\040data rw - xfs /dev/sda1 rw\n"
				      "31 22 8:2 /sub/tree /data rw - xfs /dev/sdb rw\n"
				      "32 22 8:2 /sub /wide rw - xfs /dev/sdb rw\n"
				      "broken line\n"
				      "33 22 x:y / /none rw - xfs /dev/sdb rw\n");
	char path[64];

	check(mounts, DEVICE(254, 0), "/home/file", "/home/file");
	check(mounts, DEVICE(254, 0), "/", "/");
	check(mounts, DEVICE(8, 1), "/a/b", "/mnt/my data/a/b");
	check(mounts, DEVICE(8, 1), "/", "/mnt/my data");
	/* If two mount points fit, the one that shows more of the file system is used. A name that only
	 * begins alike is not inside. */
	check(mounts, DEVICE(8, 2), "/sub/tree/x", "/wide/tree/x");
	assert_int_equal(mounts_path(mounts, DEVICE(8, 2), "/subway/x", path, sizeof(path)), -ENOENT);
	assert_string_equal(path, "/subway/x");
	assert_int_equal(mounts_path(mounts, DEVICE(9, 9), "/x", path, sizeof(path)), -ENOENT);
	assert_int_equal(mounts_path(NULL, DEVICE(9, 9), "/x", path, sizeof(path)), -ENOENT);
	assert_int_equal(mounts_path(mounts, DEVICE(8, 1), "/a/b", path, 5), 0);
	assert_string_equal(path, "/mnt");
	assert_string_equal(mounts_type(mounts, 22, 0), "ext4");
	assert_string_equal(mounts_type(mounts, 31, DEVICE(254, 0)), "xfs");
	assert_null(mounts_type(mounts, 33, 0));
	assert_string_equal(mounts_type(mounts, 33, DEVICE(254, 0)), "ext4");
	assert_null(mounts_type(mounts, 33, DEVICE(9, 9)));
	assert_null(mounts_type(NULL, 33, DEVICE(9, 9)));
	mounts_free(mounts);
	mounts_free(NULL);
}

TEST(a_missing_mount_table_is_an_error)
{
	struct mounts *mounts;

	assert_int_equal(mounts_read("/nonexistent", &mounts), -ENOENT);
}

static bool is_fuse(const char *type)
{
	return !strncmp(type, "fuse", 4);
}

TEST(mounts_on_a_path)
{
	struct mounts *mounts = parse("22 1 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw\n"
				      "30 22 0:40 / /home/me/a\\040b rw - fuse.sshfs me@host: rw\n");

	assert_true(mounts_path_meets(mounts, "/home/me/a b/lib.so", is_fuse));
	assert_true(mounts_path_meets(mounts, "/home/me/a b", is_fuse));
	assert_false(mounts_path_meets(mounts, "/home/me/a bc/lib.so", is_fuse));
	assert_false(mounts_path_meets(mounts, "/home/lib.so", is_fuse));
	assert_false(mounts_path_meets(NULL, "/home/lib.so", is_fuse));
	mounts_free(mounts);
}
