/* SPDX-License-Identifier: Apache-2.0 */
#include "shown.h"

#include <fcntl.h>

#include "lib/cleanup.h"

static int dup_of(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 ? -errno : copy;
}

int shown_dup(const struct shown *shown, struct shown *ret)
{
	*ret = SHOWN_NOTHING;
	ret->dir_fd = dup_of(shown->dir_fd);
	ret->snapshot_fd = dup_of(shown->snapshot_fd);
	if (shown->channel_fd >= 0)
		ret->channel_fd = dup_of(shown->channel_fd);
	if (ret->dir_fd < 0 || ret->snapshot_fd < 0)
		return ret->dir_fd < 0 ? ret->dir_fd : ret->snapshot_fd;
	return shown->channel_fd >= 0 && ret->channel_fd < 0 ? ret->channel_fd : 0;
}

void shown_close(struct shown *shown)
{
	closep(&shown->dir_fd);
	closep(&shown->snapshot_fd);
	closep(&shown->channel_fd);
	*shown = SHOWN_NOTHING;
}
