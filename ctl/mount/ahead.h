/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Prefetches small files into the page cache for programs that read files in the listed order. This saves the
 * round trip to this process, which is most of the cost of a small file. Prefetches only files of chunks in
 * view, so it reads nothing from storage.
 *
 * Thread-safe, except ahead_new(), ahead_end() and ahead_free().
 */

#include <stdbool.h>
#include <stdint.h>

#include "tree.h"
#include "views.h"

#define AHEAD_FILE_BYTES (256u << 10) /* for longer files, the round trip is a small part of the cost */

struct mount_ahead;

/* Puts a whole file into the page cache, which may already have parts of it. -ENOENT: the kernel has not
 * looked up the inode. */
typedef int (*ahead_store_fn)(void *user, uint64_t inode, const uint8_t *data, size_t bytes);

/* Borrows all arguments but lister_fd, a descriptor from lister_fork(), or -EBADF: none. -ENOMEM, -EAGAIN. */
int ahead_new(const struct tree *tree, struct views *views, int lister_fd, ahead_store_fn store, void *user,
	      struct mount_ahead **ret);
/* Ends the prefetch. NULL is fine. Returns false if it did not end within a second: it waits for the kernel.
 */
bool ahead_end(struct mount_ahead *a);
/* Call it after ahead_end(); waits for the end. NULL is fine. */
void ahead_free(struct mount_ahead *a);
/* Records that the kernel asked for all bytes of this sample. */
void ahead_read(struct mount_ahead *a, uint64_t number, const struct snapshot_sample *sample);
