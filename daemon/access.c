/* SPDX-License-Identifier: Apache-2.0 */
#include "access.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_BITS (S_IRUSR | S_IRGRP | S_IROTH)

struct open_how access_how(uint64_t flags)
{
	return (struct open_how){.flags = flags | O_CLOEXEC,
				 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV |
					    RESOLVE_NO_MAGICLINKS};
}

int access_open_beneath(int dir_fd, const char *name, uint64_t flags)
{
	struct open_how how = access_how(flags);
	long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int access_open_error(struct error *err, int code, const char *what)
{
	if (code == -EXDEV)
		return error_set(
		    err, code,
		    "%s is a mount of its own, or a way out of the dataset: dieseld serves only what "
		    "lies in one mount with the dataset's directory; mount the whole directory",
		    what);
	return error_errno(err, code, "dieseld cannot open %s", what);
}

bool access_is_no_stricter(const struct access_rights *chunk, const struct access_rights *snapshot)
{
	mode_t needed = snapshot->mode & READ_BITS;

	if (chunk->uid != snapshot->uid || chunk->gid != snapshot->gid)
		needed = READ_BITS;
	return (chunk->mode & needed) == needed;
}
