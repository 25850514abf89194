/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Proof that a client may use a dataset: descriptors of its directory and of a snapshot, which the client
 * opened itself. This module identifies the dataset, and makes a sealed copy of the snapshot.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "access.h"
#include "lib/error.h"

/* Everything that decides which bytes are served, and to whom: if anything here differs, it is another
 * dataset, whose chunks are read again. */
struct proof_identity {
	dev_t directory_dev, snapshot_dev, chunks_dev;
	ino_t directory_ino, snapshot_ino, chunks_ino;
	struct access_rights rights; /* rights on the snapshot */
	bool is_fetched; /* the snapshot owner's processes read the chunks; no other user gets them */
};

/* The descriptors that a client sent, and the results of checking them. */
struct proof {
	struct proof_identity identity;
	bool replaced; /* the directory no longer has the snapshot as its newest or a kept version; harmless
			  if already served */
	uint64_t mount_id, snapshot_bytes;
	struct access_stamp snapshot; /* stamp of the snapshot that the client opened */
	int chunks_fd, snapshot_fd;   /* opened by the daemon, O_PATH */
	char path[PATH_MAX];
};

#define PROOF_INIT ((struct proof){.chunks_fd = -EBADF, .snapshot_fd = -EBADF})

/*
 * Checks that the descriptors are of the expected types, and identifies their dataset.
 *
 * This and the next two functions access a client's files, which may block for ever or be crafted to crash a
 * parser. So they run in a separate process (opener.h).
 */
int proof_identify(int dir_fd, int snapshot_fd, struct proof *ret, struct error *err);
/* Makes a sealed copy of the snapshot in memory. */
int proof_copy(const struct proof *proof, int snapshot_fd, int *ret_copy_fd, struct error *err);
int proof_verify(const struct proof *proof, int copy_fd, struct error *err);

/* Formats the snapshot's path, for messages. */
void proof_origin(const struct proof *proof, char *text, size_t size);
void proof_close(struct proof *proof);
bool proof_identity_equal(const struct proof_identity *a, const struct proof_identity *b);
