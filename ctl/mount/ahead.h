/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Small files for programs that read one after the other, as they are listed: their bytes are put into the
 * page cache before they are asked for, which spares the program the way to this process and back, most of
 * what a small file costs. Only what is in view is given: nothing is read from storage for it.
 *
 * Any thread, but for new and free.
 */

#include <stdint.h>

#include "tree.h"
#include "views.h"

#define AHEAD_FILE_BYTES (256u << 10) /* of longer ones the way is a small part */

struct mount_ahead;

/* Puts bytes into the page cache: the whole of a file of which the kernel has nothing or some. -ENOENT: the
 * kernel does not know the inode, since it has not looked it up. */
typedef int (*ahead_store_fn)(void *user, uint64_t inode, const uint8_t *data, size_t bytes);

/* All are borrowed but lister_fd, which lister_fork() gave; -EBADF: there is none. -ENOMEM, -EAGAIN. */
int ahead_new(const struct tree *tree, struct views *views, int lister_fd, ahead_store_fn store, void *user,
	      struct mount_ahead **ret);
/* NULL is fine. */
void ahead_free(struct mount_ahead *a);
/* The kernel asked for this sample's bytes, all of them. */
void ahead_read(struct mount_ahead *a, uint64_t number, const struct snapshot_sample *sample);
