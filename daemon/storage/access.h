/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the daemon opens on a client's behalf. It may be able to read more than the client (root can read
 * everything), and the client may have arranged what lies below its directory: links, and mounts that only
 * its own mount namespace has. So every open below that directory stays below it, follows no link and crosses
 * no mount; and a chunk is served only to those who could read it themselves (docs/security.md).
 */

#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/error.h"

/* How to open below a client's directory; O_CLOEXEC is added. */
struct open_how access_how(uint64_t flags);
/* A descriptor or a negative errno. May block, as storage does. */
int access_open_beneath(int dir_fd, const char *name, uint64_t flags);
/* Fills *err for an open below a client's directory that failed. Returns code. */
int access_open_error(struct error *err, int code, const char *what);

/* An access control list in the kernel's form (acl(5), system.posix_acl_access): a version, and entries of
 * tag, permissions and id, sorted. */
#define ACCESS_ACL_ENTRIES 32
#define ACCESS_ACL_BYTES   (4 + 8 * ACCESS_ACL_ENTRIES)

struct access_rights {
	uid_t uid;
	gid_t gid;
	mode_t mode;
	uint32_t acl_bytes; /* 0: the mode says all */
	uint8_t acl[ACCESS_ACL_BYTES];
};

/* What clients need of a file below their directory. */
enum access_need {
	ACCESS_READ = 4,
	ACCESS_SEARCH = 1,
};

/* Of an open file, also one opened with O_PATH. A negative errno. May block, as storage does. */
int access_rights_get(int fd, const struct stat *st, const char *what, struct access_rights *ret,
		      struct error *err);

bool access_rights_equal(const struct access_rights *a, const struct access_rights *b);

/*
 * Returns true if whoever may read the snapshot has what is needed of the file: it has no list and everybody
 * may, or both have one owner and one group, the file each bit of the snapshot's, and both no list or lists
 * of the same entries, likewise. With a list the mode alone lies: its bits for the group are the list's mask
 * then, and those for others do not tell who is left out.
 */
bool access_is_no_stricter(const struct access_rights *file, enum access_need need,
			   const struct access_rights *snapshot);

/* Fills *err for a file that is stricter. Returns -EACCES. */
int access_stricter_error(struct error *err, const char *what, const struct access_rights *file,
			  enum access_need need, const struct access_rights *snapshot);

/* What tells that a file is the one that was read, unchanged: nobody but who sets the clock makes another one
 * with the same. */
struct access_stamp {
	uint64_t dev, ino, bytes;
	int64_t changed_s, written_s; /* ctime, mtime */
	uint64_t changed_ns, written_ns;
};

struct access_stamp access_stamp(const struct stat *st);
bool access_stamp_equal(const struct access_stamp *a, const struct access_stamp *b);
