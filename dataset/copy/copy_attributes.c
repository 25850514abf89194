/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define ACL       "system.posix_acl_access"
#define ACL_BYTES 4096

/* The mode is last: a change of the owner removes bits, and the mode says less than the list. */
static void copy_to(int from, int to)
{
	char acl[ACL_BYTES];
	struct stat st;

	if (fstat(from, &st) < 0)
		return;
	if (fchown(to, st.st_uid, st.st_gid) < 0 && fchown(to, (uid_t)-1, st.st_gid) < 0)
		errno = 0; /* the caller may not */
	(void)fchmod(to, st.st_mode & (S_ISDIR(st.st_mode) ? 07777 : 0777));
	ssize_t n = fgetxattr(from, ACL, acl, sizeof(acl));

	if (n > 0)
		(void)fsetxattr(to, ACL, acl, (size_t)n, 0);
	(void)futimens(to, (const struct timespec[]){st.st_atim, st.st_mtim});
}

static int open_same(int dir_fd, const char *name)
{
	return openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static void copy_folder(int from_fd, int to_fd, const char *name)
{
	_cleanup_(closep) int from = open_same(from_fd, name), to = open_same(to_fd, name);
	int listed = to < 0 ? -1 : openat(to, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = listed < 0 ? NULL : fdopendir(listed);

	if (!dir) {
		closep(&listed);
		return;
	}
	for (struct dirent *entry; from >= 0 && (entry = readdir(dir));) {
		_cleanup_(closep) int file = open_same(from, entry->d_name),
				      copy = open_same(to, entry->d_name);
		struct stat st, there;

		if (file >= 0 && copy >= 0 && fstat(file, &st) == 0 && fstat(copy, &there) == 0 &&
		    S_ISREG(st.st_mode) && S_ISREG(there.st_mode))
			copy_to(file, copy);
	}
	closedir(dir);
	if (from >= 0)
		copy_to(from, to);
}

void copy_attributes(int from_fd, int to_fd)
{
	copy_folder(from_fd, to_fd, "chunks");
	copy_folder(from_fd, to_fd, "snapshots");
	copy_folder(from_fd, to_fd, ".");
}
