/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a client shows the daemon of a dataset: the proof that its user may read it. */

#include <errno.h>

struct shown {
	int dir_fd;
	int snapshot_fd; /* opened with the caller's own rights */
	int channel_fd;  /* of the process that reads the chunks (fetch.h), which ends when all who have it
			    have closed it. Negative: the daemon reads them itself */
};

#define SHOWN_NOTHING ((struct shown){-EBADF, -EBADF, -EBADF})

/* 0 or -errno, and *ret is to be closed in any case. */
int shown_dup(const struct shown *shown, struct shown *ret);
void shown_close(struct shown *shown);
