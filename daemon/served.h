/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset as the daemon serves it: its identity, a sealed copy of its snapshot, and the state of each of
 * its chunks in memory. Shared by all connections that opened it; kept while idle as long as there is room.
 *
 * Permission is by descriptor: a client passes the dataset's directory and a readable descriptor of the
 * snapshot that it opened itself. The daemon opens "snapshot" under that directory (no symbolic links, not
 * outside it) and compares the two: who can read the snapshot may read the dataset.
 */

#include "dataset/snapshot.h"
#include "lib/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct segment;

enum chunk_state {
	CHUNK_ABSENT,
	CHUNK_READING,
	CHUNK_VERIFYING,
	CHUNK_READY,
	CHUNK_BAD, /* quarantined: `error` says why */
};

struct served_chunk {
	enum chunk_state state;
	bool kept;
	uint32_t pins;
	struct segment *segment; /* from READING to READY */
	uint64_t bytes;          /* of a segment for it */
	uint64_t last_use;
	uint64_t retry_ns; /* BAD by a failing read, not by damage: when to try again; 0: never */
	char *error;
	uint32_t distance; /* valid when round is the cache's current one */
	uint64_t round;
};

struct served_identity {
	dev_t directory_dev, snapshot_dev;
	ino_t directory_ino, snapshot_ino;
};

struct served_dataset {
	struct served_dataset *next;
	struct served_identity identity;
	char *path;      /* for texts only */
	int original_fd; /* the snapshot file: keeps its inode number from being used again */
	int copy_fd;     /* sealed memory copy, handed to clients */
	int chunks_fd;
	uint64_t copy_bytes;
	struct snapshot *snapshot;
	struct snapshot_info info;
	/* Segments are of one size, so that one can take over another's place, but for the few chunks that
	 * are much larger than most (a giant sample is a chunk of its own). */
	uint64_t segment_bytes;
	uint64_t n_giants, *giant_bytes; /* [i]: sum of the i largest; n_giants + 1 of them */
	uint64_t all_bytes;              /* of segments for all chunks */
	uint32_t refs;                   /* connections and sessions */
	uint32_t n_sessions;
	uint64_t need_chunks;     /* sum over its sessions */
	uint64_t prefetch_chunks; /* sum over its jobs */
	uint64_t asked_bytes;     /* its jobs' cache; UINT64_MAX: no limit */
	/* The cache's: */
	uint64_t held_bytes, kept_bytes; /* of its segments */
	uint64_t cap_bytes, keep_bytes;  /* the most of each, struct policy_share */
	uint64_t ahead_bytes;
	uint64_t idle_since_ns; /* valid while n_sessions is 0 */
	uint64_t n_cached, n_bad;
	struct served_chunk *chunks;
};

/* Worker thread. Checks that the descriptors are what they should be and who they are. -ESTALE is
 * reported through *ret_replaced: the snapshot in the directory is another one by now, which is no harm if
 * the older one is served already. */
int served_identify(int dir_fd, int snapshot_fd, struct served_identity *ret_identity, bool *ret_replaced,
		    struct error *err);

/* Worker thread. Copies and verifies the snapshot. Takes nothing over: descriptors are duplicated. */
int served_load(int dir_fd, int snapshot_fd, const struct served_identity *identity, uint64_t max_bytes,
		struct served_dataset **ret, struct error *err);

/* Bytes of the largest n segments: n chunks of any choice never take more. */
uint64_t served_largest_bytes(const struct served_dataset *d, uint64_t n);

/* No chunk may have a segment. */
void served_free(struct served_dataset *d);

bool served_identity_equal(const struct served_identity *a, const struct served_identity *b);

/* Lets damaged chunks be tried again: somebody may have repaired them. */
void served_forget_errors(struct served_dataset *d);
