/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The service manager's store of descriptors (systemd: FileDescriptorStoreMax=): what is put there under a
 * name outlives the process and comes back to the next one, and stays in the store until it is removed.
 * Adding and removing are datagrams as in notify.h, one descriptor each; what comes back is passed as in
 * sd_listen_fds(3).
 *
 * Nobody but who executes the program can pass it anything that way.
 */

#include <stddef.h>
#include <stdint.h>

/* Letters, digits and dashes. Short: all names together must fit in one environment string of 128 KiB. */
#define FD_STORE_NAME_BYTES 16

struct fd_store_item {
	char name[FD_STORE_NAME_BYTES]; /* empty: one that is too long to be of ours */
	int fd;                         /* the owner of the list closes those that are >= 0 */
};

struct fd_store_items {
	struct fd_store_item *items;
	size_t n;
};

/* How many descriptors the store takes ($FDSTORE, which systemd sets since version 254); 0: there is none. */
uint32_t fd_store_max(void);

/* What was passed to this process, close-on-exec from now on, out of its environment. Call it before the
 * first fork and thread. 0, also when nothing was passed, or -ENOMEM. */
int fd_store_take(struct fd_store_items *ret);
/* Closes what is left. */
void fd_store_items_free(struct fd_store_items *items);

/* Never wait: -EAGAIN when the manager has much to do; anything else negative: it cannot be had at all. */
int fd_store_add(const char *name, int fd);
/* All that is stored under this name. */
int fd_store_remove(const char *name);
