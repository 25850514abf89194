/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"

#define ACL       "system.posix_acl_access"
#define ACL_BYTES 4096

/* Who gets the copy: the owner of its folder if that is another user, who keeps it; else of each original. */
struct owner {
	bool is_fixed;
	uid_t uid;
	gid_t gid;
	struct timespec since; /* when the copy began */
};

/* Another user may rename any file of the caller's into the folder, to get it. So older files, and all where
 * the file system does not know their age, stay as they are. */
static bool may_change(int fd, const struct owner *owner)
{
	struct statx st;

	return !owner->is_fixed ||
	       (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) == 0 && st.stx_mask & STATX_BTIME &&
		(st.stx_btime.tv_sec > owner->since.tv_sec ||
		 (st.stx_btime.tv_sec == owner->since.tv_sec &&
		  st.stx_btime.tv_nsec >= (uint32_t)owner->since.tv_nsec)));
}

static void give(int to, uid_t uid, gid_t gid)
{
	if (fchown(to, uid, gid) < 0 && fchown(to, (uid_t)-1, gid) < 0)
		errno = 0; /* the caller may not */
}

/* The mode is last: a change of the owner removes bits, and the mode says less than the list. */
static void copy_to(int from, int to, const struct owner *owner)
{
	char acl[ACL_BYTES];
	struct stat st;

	if (owner->is_fixed)
		give(to, owner->uid, owner->gid);
	if (from < 0 || fstat(from, &st) < 0)
		return;
	if (!owner->is_fixed)
		give(to, st.st_uid, st.st_gid);
	(void)fchmod(to, st.st_mode & (S_ISDIR(st.st_mode) ? 07777 : 0777));
	ssize_t n = fgetxattr(from, ACL, acl, sizeof(acl));

	if (n > 0)
		(void)fsetxattr(to, ACL, acl, (size_t)n, 0);
	(void)futimens(to, (const struct timespec[]){st.st_atim, st.st_mtim});
}

static int open_same(int dir_fd, const char *name)
{
	return dir_fd < 0 ? -EBADF
			  : openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static DIR *list(int dir_fd)
{
	int listed = dir_fd < 0 ? -1 : openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = listed < 0 ? NULL : fdopendir(listed);

	if (!dir)
		closep(&listed);
	return dir;
}

static bool is_name_of(int dir_fd, const char *name, const struct stat *st)
{
	struct stat found;

	return fstatat(dir_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_dev == st->st_dev &&
	       found.st_ino == st->st_ino;
}

/* Returns true if the dataset has all names of the file. Else the folder's owner may have linked somebody's
 * file to this name, to get it. Only the newest snapshot has several names. */
static bool is_of_dataset(int dataset_fd, const struct stat *st)
{
	_cleanup_(closep) int kept = open_same(dataset_fd, SNAPSHOT_RETAINED_FOLDER);
	nlink_t n = is_name_of(dataset_fd, SNAPSHOT_FILE, st);
	DIR *dir = st->st_nlink > 1 ? list(kept) : NULL;

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		n += is_name_of(kept, entry->d_name, st);
	if (dir)
		closedir(dir);
	return S_ISREG(st->st_mode) && (st->st_nlink == 1 || st->st_nlink == n);
}

static void copy_folder(int from_fd, int to_fd, const char *name, const struct owner *owner)
{
	_cleanup_(closep) int from = open_same(from_fd, name), to = open_same(to_fd, name);
	DIR *dir = list(to);

	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		_cleanup_(closep) int file = open_same(from, entry->d_name),
				      copy = open_same(to, entry->d_name);
		struct stat st, there;

		if (file >= 0 && (fstat(file, &st) < 0 || !S_ISREG(st.st_mode)))
			continue;
		if (copy >= 0 && fstat(copy, &there) == 0 && is_of_dataset(to_fd, &there) &&
		    may_change(copy, owner))
			copy_to(file, copy, owner);
	}
	closedir(dir);
	if (strcmp(name, ".") == 0 || may_change(to, owner))
		copy_to(from, to, owner);
}

void copy_attributes(int from_fd, int to_fd, const struct timespec *since)
{
	struct owner owner = {0};
	struct stat st;

	if (fstat(to_fd, &st) < 0)
		return;
	if (st.st_uid != geteuid())
		owner = (struct owner){.is_fixed = true, .uid = st.st_uid, .gid = st.st_gid, .since = *since};
	copy_folder(from_fd, to_fd, "chunks", &owner);
	copy_folder(from_fd, to_fd, SNAPSHOT_RETAINED_FOLDER, &owner);
	copy_folder(from_fd, to_fd, ".", &owner);
}
