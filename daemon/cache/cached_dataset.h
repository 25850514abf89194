/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset as the daemon serves it: its identity, a sealed copy of its snapshot, and the state of each of
 * its chunks in memory. Shared by all connections that opened it; kept while idle, as long as there is room.
 *
 * Permission is by descriptor: a client passes the dataset's directory and a readable descriptor of the
 * snapshot that it opened itself. The daemon opens "snapshot" under that directory (access.h) and compares
 * the two: who can read the snapshot may read those chunks that are no stricter than it.
 */

#include "daemon/storage/access.h"
#include "daemon/node/cache_quota.h"
#include "dataset/snapshot.h"
#include "daemon/fetch/fetcher.h"
#include "lib/error.h"
#include "daemon/storage/place.h"
#include "policy.h"
#include "daemon/storage/proof.h"
#include "daemon/cache/sources/stage_pace.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct forms;
struct group;
struct sharer;
struct reader_process;
struct segment;
struct subset;

enum chunk_state {
	CHUNK_ABSENT,
	CHUNK_CARRIED, /* absent, but in memory from before a restart (carry.h), which saves a read */
	CHUNK_READING,
	CHUNK_VERIFYING,
	CHUNK_READY,
	CHUNK_BAD, /* quarantined: `error` says why */
};

/* Where it is read from, for who waits for it. */
enum chunk_from {
	CHUNK_FROM_STORAGE, /* or from memory */
	CHUNK_FROM_STAGING,
	CHUNK_FROM_NODE,
};

struct cached_chunk {
	enum chunk_state state;
	bool kept;
	bool is_foreign; /* in memory; another node of the jobs that use it is its owner (peers/sharers.h) */
	bool is_taken;   /* in memory; it has left for another node's lane, which has it */
	enum chunk_from from; /* READING */
	uint32_t pins;
	struct segment *segment; /* from READING to READY; if CARRIED, the carried one */
	uint64_t *part;          /* NULL: all of its samples are there; else a bit for each (load_part.c) */
	uint64_t bytes;          /* of the segment that it takes */
	uint64_t last_use;       /* cache.clock, which counts uses */
	uint64_t retry_ns;       /* BAD because a read failed: when to try again; 0: damaged, never */
	char *error;
	uint32_t distance; /* valid when round is the cache's current one */
	uint64_t round;
};

/* A session's place in its order, as long as it is known. */
struct cached_cursor {
	struct cached_cursor *next;
	struct policy_cursor place;
	uint64_t seed, epoch; /* of the order, which is not a subset's if it is whole */
	bool whole, shuffled;
	uint32_t lanes, drift;
	uint64_t first_lane, end_lane; /* that it takes samples of */
	bool double_of;                /* another one's place is the same: of many ranks, one counts */
};

/* Segments to give up, the first first: made for many at once, and looked at again when it is their turn. */
struct victim_list {
	struct victim {
		uint32_t segment; /* its id */
		uint32_t rank;
		uint64_t chunk;
	} * victims;
	uint32_t n, size, next;
	bool own; /* of the dataset's own only */
	bool beyond_quotas;
	bool is_spare; /* see struct candidates */
};

/* Where it is in what is carried over a restart; slot 0: nowhere. */
struct dataset_slot {
	uint32_t slot, n_chunks;
};

/* A sealed copy of the snapshot in memory, which clients get descriptors of, and the file that it is of. */
struct snapshot_copy {
	/* The snapshot file, O_PATH: keeps its inode number from being used again. Negative: the dataset was
	 * carried over a restart, and no client has shown the file since. */
	int original_fd;
	struct access_stamp original; /* of that file */
	int fd;
	uint64_t bytes;
	/* Lent: a client got the copy; uid is the latest such client's user. Held: somebody still has it,
	 * though no client is connected. */
	bool is_lent, is_held;
	uint32_t uid;
};

/* The chunks that are much larger than most: a giant sample is a chunk of its own. */
struct giant_chunks {
	uint64_t n, *bytes; /* [i]: sum of the i largest; n + 1 of them */
};

/* Bit i of a set: payer i (cache_quota.h). */
struct dataset_payers {
	uint32_t open;                           /* who has it open, or had its copy last */
	uint32_t serving;                        /* who has a session; 0: not known yet */
	uint64_t need_bytes[CACHE_QUOTA_PAYERS]; /* the part of the dataset's by each payer's sessions */
};

/* Chunks that are being loaded. */
struct dataset_loads {
	uint64_t bytes;
	uint32_t n, n_verifying;        /* of those: read already */
	uint32_t n_asking, n_for_peers; /* of those: from another node; because one asked */
};

/* What is known of its storage, and of staging. */
struct dataset_pace {
	struct stage_pace staging; /* stage.h's */
	struct stage_mean reading; /* time from one chunk that comes to the next, of those that are awaited */
	uint64_t read_done_ns;     /* when the last one came */
	bool from_staging;         /* some have come from there */
};

struct cached_dataset {
	struct cached_dataset *next;
	struct proof_identity identity;
	char *path; /* for texts only */
	struct snapshot_copy copy;
	struct place_list places; /* of the clients that have it open */
	struct snapshot *snapshot;
	struct snapshot_info info;
	/* Segments are of one size, so that a segment can be used again for any chunk but the giants. */
	uint64_t segment_bytes;
	struct giant_chunks giants;
	uint64_t all_bytes; /* of segments for all chunks */
	uint32_t refs;      /* connections and sessions */
	uint32_t n_sessions;
	struct group *groups;     /* daemon/serve/group.h's */
	struct sharer *sharers;   /* peers/sharers.h */
	uint64_t need_chunks;     /* sum over its sessions */
	uint64_t need_bytes;      /* sum over its sessions: cached_need_bytes() */
	uint64_t prefetch_chunks; /* sum over its jobs */
	uint64_t asked_bytes;     /* its jobs' cache knobs; UINT64_MAX: no limit */
	struct dataset_payers payers;
	/* The cache's: */
	uint64_t held_bytes, kept_bytes; /* of its segments */
	uint64_t claim_bytes;            /* what its jobs may insist on */
	uint64_t room_bytes, keep_bytes; /* claim and what it may borrow: room to hold chunks, and the part
					    for those that are kept */
	uint64_t idle_since_ns;          /* valid while n_sessions is 0 */
	uint64_t pinned_bytes;
	struct dataset_loads loads;
	struct dataset_slot carried;   /* carry.h's */
	struct reader_process *reader; /* NULL while there is none */
	struct fetchers fetchers;      /* in its place, if identity.is_fetched */
	uint64_t n_cached, n_bad;
	uint64_t *base; /* list of its chunks that lanes are cut out of; NULL: no session has needed it */
	struct cached_cursor *cursors; /* of its sessions that have an order */
	bool evicts;                   /* chunks go for others: it matters when they are needed */
	struct victim_list victims, lent_victims;
	struct dataset_pace pace;
	struct forms *forms; /* decoded forms of its samples: forms.h */
	struct cached_chunk *chunks;
};

/* Makes a dataset of a verified copy, and takes over the copy and the proof's snapshot. Worker thread. */
int cached_new(struct proof *proof, int copy_fd, struct cached_dataset **ret, struct error *err);

/* What its reads take turns on: the device of `chunks`, or the network as its user reaches it. */
static inline uint64_t cached_storage(const struct cached_dataset *d)
{
	return d->identity.is_fetched ? UINT64_MAX - d->identity.rights.uid : d->identity.chunks_dev;
}

/* Returns true if somebody has it open, or at least still holds the copy of its snapshot. */
static inline bool cached_is_used(const struct cached_dataset *d)
{
	return d->refs > 0 || d->copy.is_held;
}

/* Returns true if somebody serves it, and no more of it is in memory than its payers have room for. */
static inline bool cached_is_paid(const struct cached_dataset *d)
{
	return d->n_sessions > 0 && d->held_bytes <= d->room_bytes;
}

/* Returns true if this is the dataset that the proof, of the same identity, is about: while nothing keeps the
 * inode number, another file may have got it. If true, the dataset keeps the number from now on. */
bool cached_is_still(struct cached_dataset *d, struct proof *proof);

/* Makes `base`, unless it is there. -ENOMEM. */
int cached_list_base(struct cached_dataset *d);

/* Returns true if the chunk can be loaded: it is not in memory yet. */
static inline bool cached_is_missing(const struct cached_chunk *chunk)
{
	return chunk->state == CHUNK_ABSENT || chunk->state == CHUNK_CARRIED;
}

/* The number of the chunk with this id. -ENOENT. */
int cached_find_chunk(const struct cached_dataset *d, const struct chunk_id *id, uint64_t *ret);

/* Returns true if it is on its way into memory. */
static inline bool cached_is_loading(const struct cached_chunk *chunk)
{
	return chunk->state == CHUNK_READING || chunk->state == CHUNK_VERIFYING;
}

/* The samples that somebody needs: of the dataset a subset's, or these few in any order; none of these: all.
 */
struct cached_want {
	const struct subset *subset;
	const uint64_t *samples;
	uint32_t n;
	bool for_peer; /* another node wants it, and counts on it not being asked of others */
};

/* sources/load_part.c. Of a chunk of which few samples are wanted, these alone may be read. Returns true if
 * the chunk has to be loaded before the samples are there. */
bool cached_lacks(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want);
/* What to read of the chunk for these samples. Returns the bits of its samples, which the caller frees; NULL:
 * all of it, because that is hardly more work, or there is no memory. */
struct reader_order;
uint64_t *cached_plan_part(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			   const struct cached_want *want, struct reader_order *order, uint64_t *ret_bytes);
static inline bool cached_part_has(const uint64_t *part, uint64_t i)
{
	return !part || (part[i / 64] >> (i % 64) & 1);
}

/* Bytes of the largest n segments: no choice of n chunks takes more. */
uint64_t cached_largest_bytes(const struct cached_dataset *d, uint64_t n);

/* What its sessions need together: no more than all chunks. */
uint64_t cached_need_bytes(const struct cached_dataset *d);

/* The session's place becomes known, or is no longer. */
void cached_add_cursor(struct cached_dataset *d, struct cached_cursor *cursor);
void cached_drop_cursor(struct cached_dataset *d, struct cached_cursor *cursor);
/* Visits until the nearest session needs the chunk; POLICY_NEVER: none that has an order. */
uint32_t cached_next_use(const struct cached_dataset *d, uint64_t chunk);

/* Accepts NULL. No chunk may have a segment. */
void cached_free(struct cached_dataset *d);

/* The place that a client of this dataset brought; takes the proof's descriptor. If it is new, bad chunks are
 * tried again. */
struct chunk_place *cached_add_place(struct cached_dataset *d, struct proof *proof);

/* Lets damaged chunks be tried again: somebody may have repaired them. */
void cached_forget_errors(struct cached_dataset *d);
