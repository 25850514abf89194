/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Process that lists parts of the mount's folders, as any program could. The kernel then knows the listed
 * names and need not look them up one by one. The lister is a separate process without the mount's
 * descriptors, since a process that waits for its own mount cannot end before the mount does.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataset/chunk.h"

struct lister_order {
	uint64_t offset; /* offset of the first entry in the folder */
	uint32_t n_entries;
	char folder[CHUNK_NAME_MAX + 1]; /* path relative to the mount; "": the mount itself */
};

/* Starts the lister. Call it before there are threads. where: an absolute path. *ret_fd: for
 * lister_list(). The lister exits when this descriptor is closed, and the mount answers or no longer
 * exists. */
int lister_fork(const char *where, int *ret_fd, pid_t *ret_pid);
/* Waits up to some seconds until the lister has done the order. -ETIMEDOUT, -EPIPE: the lister is unusable
 * from now on. */
int lister_list(int fd, const struct lister_order *order);
