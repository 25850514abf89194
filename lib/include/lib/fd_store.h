/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The service manager's store of descriptors (systemd: FileDescriptorStoreMax=). A descriptor stored under a
 * name outlives the process, is passed to the next process, and stays in the store until it is removed. A
 * datagram as in notify.h adds or removes a descriptor. The next process gets all of them as in
 * sd_listen_fds(3).
 *
 * Only the program's executor can pass descriptors this way.
 */

#include <stddef.h>
#include <stdint.h>

/* Names consist of letters, digits and dashes. They are short, because all names together must fit in one
 * environment string of 128 KiB. */
#define FD_STORE_NAME_BYTES 16

struct fd_store_item {
	char name[FD_STORE_NAME_BYTES]; /* "": no name, or one too long to be ours */
	int fd;                         /* >= 0: the owner of the list closes it */
};

struct fd_store_items {
	struct fd_store_item *items;
	size_t n;
};

/* Returns the maximum number of descriptors in the store ($FDSTORE, which systemd sets since version 254); 0:
 * there is no store. */
uint32_t fd_store_max(void);

/* Takes the descriptors passed to this process: makes them close-on-exec, and removes the variables that
 * announced them from the environment. Call it before the first fork and thread. 0, also when none were
 * passed, or -ENOMEM. */
int fd_store_take(struct fd_store_items *ret);
/* Removes the first descriptor of this name from the list and returns it, for the caller to close; -EBADF:
 * none. */
int fd_store_steal(struct fd_store_items *items, const char *name);
/* Closes the descriptors left in the list. */
void fd_store_items_free(struct fd_store_items *items);

/* Adds a descriptor to the store, without waiting. -EAGAIN: the manager is busy, so try again later. Any
 * other error: the manager cannot be reached. */
int fd_store_add(const char *name, int fd);
/* Removes all descriptors of this name from the store. Errors as fd_store_add(). */
int fd_store_remove(const char *name);
