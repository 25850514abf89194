/* SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"

static uint64_t look(const char *where, uint32_t *ret_minor)
{
	struct statx st;

	if (statx(AT_FDCWD, where, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID,
		  &st) < 0)
		return 0;
	*ret_minor = st.stx_dev_minor;
	return st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0;
}

void connection_find(const char *where, struct mount_connection *ret)
{
	*ret = (struct mount_connection){0};
	snprintf(ret->where, sizeof(ret->where), "%s", where);
	ret->id = look(where, &ret->minor);
}

bool connection_is_mounted(const struct mount_connection *connection)
{
	uint32_t unused;

	return connection->id && look(connection->where, &unused) == connection->id;
}

void connection_abort(const struct mount_connection *connection)
{
	_cleanup_(closep) int fd = -EBADF;
	char path[64];

	if (!connection_is_mounted(connection))
		return;
	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", connection->minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* Not every machine mounts fusectl there. Root needs none, and aborts before it unmounts. */
	if (fd < 0 || write(fd, "1", 1) != 1)
		(void)umount2(connection->where, MNT_FORCE | UMOUNT_NOFOLLOW);
}
