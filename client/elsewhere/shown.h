/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A client's proof to the daemon that its user may read a dataset. */

#include <errno.h>

struct shown {
	int dir_fd;
	int snapshot_fd; /* opened with the caller's own rights */
	int channel_fd;  /* channel to the process that reads the chunks (fetch.h), which ends when all copies
			    of it are closed. Negative: the daemon reads them itself */
};

#define SHOWN_NOTHING ((struct shown){-EBADF, -EBADF, -EBADF})

/* Returns 0 or -errno. The caller closes *ret in both cases. */
int shown_dup(const struct shown *shown, struct shown *ret);
void shown_close(struct shown *shown);
