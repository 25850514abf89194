/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The file system's replies to the kernel's requests. */

#define FUSE_USE_VERSION 314

#include <fuse3/fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>

#include "ahead.h"
#include "tree.h"
#include "views.h"

enum files_checked { CHECKED_NOT, CHECKED_RIGHT, CHECKED_WRONG };

struct files {
	struct tree tree;
	struct views *views;
	struct mount_ahead *ahead; /* NULL: none */
	void (*say)(const char *line);
	pthread_mutex_t lock; /* serialises files_check() */
	_Atomic(enum files_checked) checked;
	bool without_open; /* the kernel no longer sends open() and release() */
};

/* Verifies the snapshot's checksums, once. This takes a while for a large snapshot, so the file
 * system is mounted first, and look-ups wait until verification is done. Thread-safe. -EIO: the snapshot is
 * damaged; the reason is reported once, in err or, if err is NULL, by say(). */
int files_check(struct files *f, struct error *err);

/* An ahead_store_fn whose user is a struct fuse_session. */
int files_store(void *session, uint64_t inode, const uint8_t *data, size_t bytes);

/* Its user data is a struct files. */
extern const struct fuse_lowlevel_ops files_operations;
