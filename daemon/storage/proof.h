/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a client shows of a dataset: descriptors of its directory and of a snapshot that it opened itself.
 * This module finds out which dataset that is, and makes a sealed copy of the snapshot.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "access.h"
#include "lib/error.h"

/* All that decides which bytes are served, and to whom: if anything here differs, it is another dataset,
 * whose chunks are read anew. */
struct proof_identity {
	dev_t directory_dev, snapshot_dev, chunks_dev;
	ino_t directory_ino, snapshot_ino, chunks_ino;
	struct access_rights rights; /* of the snapshot */
	bool is_fetched; /* processes of the snapshot's owner read the chunks, and nobody else has it */
};

/* What a client showed. */
struct proof {
	struct proof_identity identity;
	bool replaced; /* the directory has it no more, neither as the newest snapshot nor as one that is
			  kept; no harm if it is served already */
	uint64_t mount_id, snapshot_bytes;
	struct access_stamp snapshot; /* of the one that the client opened */
	int chunks_fd, snapshot_fd;   /* the daemon's own, O_PATH */
	char path[PATH_MAX];
};

#define PROOF_INIT ((struct proof){.chunks_fd = -EBADF, .snapshot_fd = -EBADF})

/*
 * The first three touch what a client brought, which may block for ever or be made to crash a
 * parser: they run in a process of their own (opener.h).
 *
 * Checks that the descriptors are what they should be, and finds out which dataset they are of.
 */
int proof_identify(int dir_fd, int snapshot_fd, struct proof *ret, struct error *err);
/* A sealed copy of the snapshot in memory. */
int proof_copy(const struct proof *proof, int snapshot_fd, int *ret_copy_fd, struct error *err);
int proof_verify(const struct proof *proof, int copy_fd, struct error *err);

/* The snapshot's path, for texts. */
void proof_origin(const struct proof *proof, char *text, size_t size);
void proof_close(struct proof *proof);
bool proof_identity_equal(const struct proof_identity *a, const struct proof_identity *b);
