/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A process that lists parts of the mount's folders, as any program could: what is listed the kernel knows
 * from then on, and need not look up name by name. It is a process of its own, without the mount's
 * descriptors, since a process that waits for its own mount cannot end before the mount does.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataset/chunk.h"

struct lister_order {
	uint64_t offset; /* in the folder: of the first entry */
	uint32_t n_entries;
	char folder[CHUNK_NAME_MAX + 1]; /* below the mount; "": itself */
};

/* Before there are threads. where: an absolute path. *ret_fd: for lister_list(); the process ends when it is
 * closed, and the mount answers or is gone. */
int lister_fork(const char *where, int *ret_fd, pid_t *ret_pid);
/* Waits until that is listed, or some seconds. -ETIMEDOUT, -EPIPE: it is of no use any more. */
int lister_list(int fd, const struct lister_order *order);
