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
#include <sys/types.h>

#include "lib/error.h"

/* How to open below a client's directory; O_CLOEXEC is added. */
struct open_how access_how(uint64_t flags);
/* A descriptor or a negative errno. May block, as storage does. */
int access_open_beneath(int dir_fd, const char *name, uint64_t flags);
/* Fills *err for an open below a client's directory that failed. Returns code. */
int access_open_error(struct error *err, int code, const char *what);

struct access_rights {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/* Whether whoever may read the snapshot may read the chunk: everybody may, or both have one owner and one
 * group and the chunk every read bit of the snapshot. */
bool access_is_no_stricter(const struct access_rights *chunk, const struct access_rights *snapshot);
