/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Opens files on a client's behalf. The daemon may be able to read more than the client (root can read
 * everything), and the client may have arranged the contents of its directory: links, and mounts that exist
 * only in its own mount namespace. So every open below that directory stays below it, follows no link and
 * crosses no mount. A chunk is served only to users who could read it themselves
 * (docs/explanation/security-datasets.md).
 */

#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/error.h"

/* Returns the openat2() arguments to open below a client's directory, with these flags and O_CLOEXEC. */
struct open_how access_how(uint64_t flags);
/* Fills *err for a failed open below a client's directory. Returns code. */
int access_open_error(struct error *err, int code, const char *what);

/* An access control list in the kernel's form (acl(5), system.posix_acl_access): a version, and entries of
 * tag, permissions and id, sorted. */
#define ACCESS_ACL_ENTRIES 32
#define ACCESS_ACL_BYTES   (4 + 8 * ACCESS_ACL_ENTRIES)

struct access_rights {
	uid_t uid;
	gid_t gid;
	mode_t mode;
	uint32_t acl_bytes; /* 0: no list, only the mode counts */
	uint8_t acl[ACCESS_ACL_BYTES];
};

/* The permission that clients need on a file below their directory. */
enum access_need {
	ACCESS_READ = 4,
	ACCESS_SEARCH = 1,
};

/* Gets the rights of an open file, which may be opened with O_PATH. May block, as storage does. */
int access_rights_get(int fd, const struct stat *st, const char *what, struct access_rights *ret,
		      struct error *err);

/*
 * Returns true if every user who may read the snapshot has the needed permission on the file. That is so if
 * the file has no list and its mode allows everybody. Otherwise both must have the same owner and group, and
 * the file's mode must allow at least the classes that the snapshot's mode allows. Also, either neither has a
 * list, or both lists have the same entries, with the file's allowing as much. With a list the mode alone is
 * not enough: its group bits are then the list's mask, and its bits for others do not show who is excluded.
 */
bool access_is_no_stricter(const struct access_rights *file, enum access_need need,
			   const struct access_rights *snapshot);

/* Fills *err for a file that is stricter than the snapshot. Returns -EACCES. */
int access_stricter_error(struct error *err, const char *what, const struct access_rights *file,
			  enum access_need need, const struct access_rights *snapshot);

/* Identifies a file as the one that was read, unchanged: only a user who can set the clock can make another
 * file with the same stamp. */
struct access_stamp {
	uint64_t dev, ino, bytes;
	int64_t changed_s, written_s; /* ctime, mtime */
	uint64_t changed_ns, written_ns;
};

struct access_stamp access_stamp(const struct stat *st);
bool access_stamp_equal(const struct access_stamp *a, const struct access_stamp *b);
