/* SPDX-License-Identifier: Apache-2.0 */
#include "access.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/file_open.h"

#define READ_BITS        (S_IRUSR | S_IRGRP | S_IROTH)
#define EVERYBODY        0111u
#define ACL_ATTRIBUTE    "system.posix_acl_access"
#define ACL_HEADER_BYTES 4

/* Little-endian. */
struct acl_entry {
	uint16_t tag, permissions;
	uint32_t id;
};

struct open_how access_how(uint64_t flags)
{
	return (struct open_how){.flags = flags | O_CLOEXEC,
				 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV |
					    RESOLVE_NO_MAGICLINKS};
}

int access_open_error(struct error *err, int code, const char *what)
{
	if (code == -EXDEV)
		return error_set(
		    err, code,
		    "%s is a separate mount, or leads out of the dataset: dieseld serves only files in the "
		    "same mount as the dataset's directory. Mount the whole directory",
		    what);
	return error_errno(err, code, "dieseld cannot open %s", what);
}

struct access_stamp access_stamp(const struct stat *st)
{
	return (struct access_stamp){.dev = st->st_dev,
				     .ino = st->st_ino,
				     .bytes = (uint64_t)st->st_size,
				     .changed_s = st->st_ctim.tv_sec,
				     .written_s = st->st_mtim.tv_sec,
				     .changed_ns = (uint64_t)st->st_ctim.tv_nsec,
				     .written_ns = (uint64_t)st->st_mtim.tv_nsec};
}

bool access_stamp_equal(const struct access_stamp *a, const struct access_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->bytes == b->bytes && a->changed_s == b->changed_s &&
	       a->written_s == b->written_s && a->changed_ns == b->changed_ns &&
	       a->written_ns == b->written_ns;
}

int access_rights_get(int fd, const struct stat *st, const char *what, struct access_rights *ret,
		      struct error *err)
{
	struct access_rights rights = {.uid = st->st_uid, .gid = st->st_gid, .mode = st->st_mode};
	char path[FD_PATH_BYTES];
	ssize_t n;

	/* Uses a path, because attributes cannot be read through an O_PATH descriptor. */
	fd_path(fd, path);
	n = getxattr(path, ACL_ATTRIBUTE, rights.acl, sizeof(rights.acl));
	if (n < 0 && errno == ERANGE)
		return error_set(err, -EACCES, "%s: the access control list has more than %d entries", what,
				 ACCESS_ACL_ENTRIES);
	if (n < 0 && errno != ENODATA && errno != EOPNOTSUPP)
		return error_errno(err, -errno, "%s: cannot read its access control list", what);
	rights.acl_bytes = n > 0 ? (uint32_t)n : 0;
	*ret = rights;
	return 0;
}

/* Compares entry by entry. That is enough because entries are sorted and both lists must name the same users
 * and groups. */
static bool acl_is_no_stricter(const struct access_rights *file, enum access_need need,
			       const struct access_rights *snapshot)
{
	if (file->acl_bytes != snapshot->acl_bytes || file->acl_bytes > sizeof(file->acl) ||
	    memcmp(file->acl, snapshot->acl, ACL_HEADER_BYTES) != 0)
		return false;
	for (uint32_t i = ACL_HEADER_BYTES; i + sizeof(struct acl_entry) <= file->acl_bytes;
	     i += sizeof(struct acl_entry)) {
		struct acl_entry mine, theirs;

		memcpy(&mine, file->acl + i, sizeof(mine));
		memcpy(&theirs, snapshot->acl + i, sizeof(theirs));
		if (mine.tag != theirs.tag || mine.id != theirs.id)
			return false;
		if ((le16toh(theirs.permissions) & ACCESS_READ) && !(le16toh(mine.permissions) & need))
			return false;
	}
	return true;
}

bool access_is_no_stricter(const struct access_rights *file, enum access_need need,
			   const struct access_rights *snapshot)
{
	mode_t all = need * EVERYBODY, needed = (snapshot->mode & READ_BITS) / ACCESS_READ * need;

	if (!file->acl_bytes && (file->mode & all) == all)
		return true;
	if (file->uid != snapshot->uid || file->gid != snapshot->gid || (file->mode & needed) != needed)
		return false;
	return (!file->acl_bytes && !snapshot->acl_bytes) || acl_is_no_stricter(file, need, snapshot);
}

int access_stricter_error(struct error *err, const char *what, const struct access_rights *file,
			  enum access_need need, const struct access_rights *snapshot)
{
	const char *may = need == ACCESS_READ ? "read" : "entered", *bit = need == ACCESS_READ ? "r" : "x";

	if (file->acl_bytes || snapshot->acl_bytes)
		return error_set(err, -EACCES,
				 "%s: may be %s by fewer users than may read the snapshot, or its access "
				 "control list differs from the snapshot's. Give both the same owner, "
				 "group and list, or run setfacl -b and chmod a+%s on it",
				 what, may, bit);
	return error_set(
	    err, -EACCES,
	    "%s: may be %s by fewer users than may read the snapshot: give it the snapshot's owner "
	    "and group and at least its bits, or run chmod a+%s on it",
	    what, may, bit);
}
