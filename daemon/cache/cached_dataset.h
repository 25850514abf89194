/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset as the daemon serves it: its identity, a sealed copy of its snapshot, and the state of each of
 * its chunks in memory. Shared by all connections that opened it; kept while idle, as long as there is
 * space.
 *
 * Permission is by descriptor: a client passes the dataset's directory and a readable descriptor of the
 * snapshot that the client opened itself. The daemon opens "snapshot" under that directory (access.h) and
 * compares the two. Whoever can read the snapshot may read those chunks that are no stricter than it.
 */

#include "daemon/storage/access.h"
#include "daemon/node/cache_quota.h"
#include "dataset/snapshot.h"
#include "daemon/fetch/fetcher.h"
#include "lib/error.h"
#include "daemon/storage/place.h"
#include "policy.h"
#include "daemon/storage/proof.h"
#include "residents.h"
#include "daemon/cache/sources/stage_pace.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct decoded_cache;
struct group;
struct membership;
struct reader_process;
struct segment;
struct subset;

enum chunk_state {
	CHUNK_ABSENT,
	CHUNK_RESTORED, /* absent, but in memory from before a restart (handover.h), which saves a read */
	CHUNK_READING,
	CHUNK_VERIFYING,
	CHUNK_READY,
	CHUNK_BAD, /* quarantined: `error` has the reason */
};

/* Source of a chunk, reported to sessions that wait for the chunk. */
enum chunk_from {
	CHUNK_FROM_STORAGE, /* storage, or a copy in this node's memory */
	CHUNK_FROM_STAGING,
	CHUNK_FROM_NODE,
};

struct cached_chunk {
	enum chunk_state state;
	bool kept;
	bool is_foreign; /* in memory; its owner is another node of the jobs that use it (peers/memberships.h)
			  */
	bool is_taken;   /* in memory; dealt to a lane of another node, and that node has the chunk */
	int failure;     /* if BAD: -EBADMSG: damaged; else not read: -EACCES, -ENOENT or -EIO */
	enum chunk_from from; /* source of the chunk, while READING */
	uint32_t pins;
	struct segment *segment; /* set from READING to READY; if RESTORED, the restored segment */
	uint64_t *part;          /* NULL: all samples are in memory; else one bit per sample (load.c) */
	uint64_t bytes;          /* size of the segment that the chunk takes */
	uint64_t last_use;       /* value of cache.clock at the latest use */
	uint64_t retry_ns; /* if BAD because it was not read: time of the next attempt; 0: damaged, never */
	char *error;
	uint32_t distance; /* valid only if round is the cache's current round */
	uint64_t round;
};

/* A session's position in its order, while the order is known. */
struct cached_cursor {
	struct cached_cursor *next;
	struct policy_cursor place;
	uint64_t seed, epoch; /* seed and epoch of the order; whole: the order is not that of a subset */
	bool whole, shuffled;
	uint32_t lanes, drift;
	uint64_t first_lane, end_lane; /* lanes that the session takes samples from */
	bool double_of; /* another session has the same position: only one of many ranks counts */
};

/* Segments to evict, in this order. Built once for many evictions; each entry is checked again before it
 * is evicted. */
struct victim_list {
	struct victim {
		uint32_t segment; /* the segment's id */
		uint32_t rank;
		uint64_t chunk;
	} * victims;
	uint32_t n, size, next;
	bool own; /* only segments of the dataset itself */
	bool beyond_quotas;
	bool is_spare; /* see struct candidates */
};

/* The dataset's slot in the handover index (handover.c); slot 0: none. */
struct dataset_slot {
	uint32_t slot, n_chunks;
};

/* A sealed in-memory copy of the snapshot, whose descriptors clients get, and the file that was copied. */
struct snapshot_copy {
	/* The snapshot file, O_PATH: keeps its inode number from being used again. Negative: the dataset was
	 * restored after a restart, and no client has shown the file since then. */
	int original_fd;
	int chunks_fd; /* the dataset's folder of chunks, O_PATH; negative: unknown, as original_fd */
	struct access_stamp original; /* stamp of the snapshot file */
	int fd;
	uint64_t bytes;
	/* is_borrowed: a client got the copy; uid is the user of the latest such client. is_held: a process
	 * still has the copy, although no client is connected. */
	bool is_borrowed, is_held;
	uint32_t uid;
};

/* Chunks that are much larger than most: a giant sample is a chunk of its own. */
struct giant_chunks {
	uint64_t n, *bytes; /* [i]: sum of the i largest; n + 1 entries */
};

/* Sets of payers: bit i stands for payer i (cache_quota.h). */
struct dataset_payers {
	uint32_t open;    /* payers that have the dataset open, or were the last to receive its copy */
	uint32_t serving; /* payers with a session; 0: not known yet */
	uint64_t need_bytes[CACHE_QUOTA_PAYERS]; /* [payer]: the part of need_bytes that the payer's sessions
						    cause */
};

/* Chunks that are being loaded. */
struct dataset_loads {
	uint64_t n_bad; /* chunks whose last load found damage, or failed */
	uint64_t bytes;
	uint32_t n, n_verifying; /* n: chunks being loaded; n_verifying: those of n that are already read */
	uint32_t n_asking, n_for_peers; /* parts of n: requested from another node; loaded for another node */
};

/* Measured speed of the dataset's storage and of staging. */
struct dataset_pace {
	struct stage_pace staging; /* owned by staging (stage.h) */
	struct stage_mean reading; /* time between the arrivals of awaited chunks */
	uint64_t read_done_ns;     /* time when the last such chunk arrived */
	bool from_staging;         /* some chunks came from staging */
};

struct cached_dataset {
	struct cached_dataset *next;
	struct proof_identity identity;
	char *path; /* for messages only */
	struct snapshot_copy copy;
	struct place_list places; /* places that the clients with the dataset open have brought */
	struct snapshot *snapshot;
	struct snapshot_info info;
	/* All segments but those of giants have this size, so that each can be reused for any chunk but a
	 * giant. */
	uint64_t segment_bytes;
	struct giant_chunks giants;
	uint64_t all_bytes; /* size of segments for all chunks */
	uint32_t refs;      /* references of connections and sessions */
	uint32_t n_sessions;
	struct group *groups;           /* daemon/serve/group.h */
	struct membership *memberships; /* peers/memberships.h */
	uint64_t need_chunks;           /* chunks that its sessions need, summed */
	uint64_t need_bytes;            /* bytes that its sessions need, summed: cached_need_bytes() */
	uint64_t prefetch_chunks;       /* chunks that its jobs prefetch, summed */
	uint64_t asked_bytes; /* the largest request of its jobs' cache knobs; UINT64_MAX: no limit */
	struct dataset_payers payers;
	/* The members below belong to the cache. */
	uint64_t held_bytes, kept_bytes;  /* total size of its segments, and of the kept ones */
	uint64_t claim_bytes;             /* claimed by its jobs */
	uint64_t space_bytes, keep_bytes; /* space_bytes: claim plus what the dataset may borrow; keep_bytes:
					     part of it for kept chunks */
	uint64_t idle_since_ns;           /* valid while n_sessions is 0 */
	uint64_t pinned_bytes;
	struct dataset_loads loads;
	struct dataset_slot restored;  /* owned by handover.c */
	struct reader_process *reader; /* NULL: none */
	struct fetchers fetchers;      /* used instead of reader if identity.is_fetched */
	uint64_t n_cached;
	uint64_t *base; /* list of chunks that lanes are cut out of; NULL: no session has needed it */
	struct cached_cursor *cursors; /* positions of its sessions that have a known order */
	bool evicts; /* chunks are evicted for others, so the time of their next use matters */
	struct victim_list victims, mapped_victims;
	struct dataset_pace pace;
	struct decoded_cache *decoded_cache; /* decoded copies of its samples: decoded.h */
	struct residents residents;
	struct cached_chunk *chunks;
};

/* Makes a dataset from a verified copy. Takes ownership of the copy and of the proof's snapshot descriptor.
 * Worker thread. */
int cached_new(struct proof *proof, int copy_fd, struct cached_dataset **ret, struct error *err);

/* Returns the storage on which the dataset's reads take turns: the device of `chunks`, or for a bucket a
 * number that stands for its user's network. */
static inline uint64_t cached_storage(const struct cached_dataset *d)
{
	return d->identity.is_fetched ? UINT64_MAX - d->identity.rights.uid : d->identity.chunks_dev;
}

/* Returns true if a client has the dataset open, or a process still holds the copy of its snapshot. */
static inline bool cached_is_used(const struct cached_dataset *d)
{
	return d->refs > 0 || d->copy.is_held;
}

/* Returns true if the dataset has sessions, and has no more in memory than space_bytes. */
static inline bool cached_is_paid(const struct cached_dataset *d)
{
	return d->n_sessions > 0 && d->held_bytes <= d->space_bytes;
}

/* Returns true if the dataset is the one that the proof, which has the same identity, describes. While
 * nothing holds the inode number, another file may have received that number. If true, the dataset holds the
 * number from now on. */
bool cached_is_still(struct cached_dataset *d, struct proof *proof);

/* Makes `base`, unless it exists. Returns 0 or -ENOMEM. */
int cached_list_base(struct cached_dataset *d);

/* Returns true if the chunk can be loaded: it is not in memory yet. */
static inline bool cached_is_missing(const struct cached_chunk *chunk)
{
	return chunk->state == CHUNK_ABSENT || chunk->state == CHUNK_RESTORED;
}

/* Finds the number of the chunk with this id. Returns 0 or -ENOENT. */
int cached_find_chunk(const struct cached_dataset *d, const struct chunk_id *id, uint64_t *ret);

/* Returns true if the chunk is being read or verified. */
static inline bool cached_is_loading(const struct cached_chunk *chunk)
{
	return chunk->state == CHUNK_READING || chunk->state == CHUNK_VERIFYING;
}

/* The samples that are needed: a subset of the dataset, or the n listed samples in any order. All samples if
 * both are NULL. */
struct cached_want {
	const struct subset *subset;
	const uint64_t *samples;
	uint32_t n;
	bool for_peer; /* requested by another node, which relies on this node not asking a third one */
};

/* Returns true if the chunk must be loaded before the wanted samples are in memory. If only few samples of
 * a chunk are wanted, only those may be read (sources/load.c). */
bool cached_lacks(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want);
static inline bool cached_part_has(const uint64_t *part, uint64_t i)
{
	return !part || (part[i / 64] >> (i % 64) & 1);
}

/* Returns the bytes of the largest n segments: no choice of n chunks takes more. */
uint64_t cached_largest_bytes(const struct cached_dataset *d, uint64_t n);

/* Returns the bytes that the dataset's sessions need together: at most the size of all chunks. */
uint64_t cached_need_bytes(const struct cached_dataset *d);

/* Adds the position of a session whose order is known. */
void cached_add_cursor(struct cached_dataset *d, struct cached_cursor *cursor);
/* Removes the position of a session; does nothing if it was not added. */
void cached_drop_cursor(struct cached_dataset *d, struct cached_cursor *cursor);
/* Returns the visits until the nearest session needs the chunk. POLICY_NEVER: no session with a known
 * order. */
uint32_t cached_next_use(const struct cached_dataset *d, uint64_t chunk);

/* Frees the dataset. Accepts NULL. No chunk may have a segment. */
void cached_free(struct cached_dataset *d);

/* Returns the place that a client of this dataset brought. Takes ownership of the proof's descriptor. If
 * the place is new, bad chunks are tried again. NULL: no memory. */
struct chunk_place *cached_add_place(struct cached_dataset *d, struct proof *proof);

/* Lets damaged chunks be tried again: they may have been repaired. */
void cached_forget_errors(struct cached_dataset *d);
