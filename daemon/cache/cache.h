/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's chunk cache: segments within one byte budget. Each chunk is read once for all sessions that use
 * it, and verified before any client sees it. policy.h decides which chunks to read and to evict.
 *
 * The budget covers segments, batch slots, snapshot copies, decoded copies (decoded.h), and decoded batches
 * kept for jobs that lag behind others (daemon/serve/kept.h). Loop thread only.
 *
 * Jobs *claim* memory for their datasets (the cache knob). Memory that datasets hold beyond their claims, and
 * memory of datasets that nobody uses, is *borrowed*: it stays until another job needs it, and is evicted
 * first.
 */

#include "daemon/node/cache_quota.h"
#include "handover.h"
#include "job.h"
#include "policy.h"
#include "daemon/node/pool.h"
#include "daemon/storage/read_holds.h"
#include "daemon/sandboxed/reader.h"
#include "daemon/storage/shared_memory.h"
#include "daemon/cache/sources/stage.h"
#include "cached_dataset.h"
#include "daemon/cache/peers/gives.h"

/* A segment belongs to one dataset for life: a client that still maps it must never see another's data. */
struct segment {
	struct shared_memory memory;
	uint32_t id; /* index in cache.segments.all | generation << 20 */
	struct cached_dataset *dataset;
	uint64_t chunk;
	bool mapped;   /* a client may map this memory: only verified bytes are ever written into it */
	bool filling;  /* a worker is filling it with a verified chunk */
	bool restored; /* from before a restart: not mapped, never passed to a client, never written */
	uint32_t handover_slot; /* owned by handover.c */
	uint64_t since_ns;      /* time when the chunk was verified (CLOCK_MONOTONIC) */
	bool huge; /* a worker has moved the segment into huge pages, as far as the kernel provides them
		      (stay.c) */
	struct access_stamp stamp; /* stamp of the chunk's file, from before the read */
};

#define SEGMENT_INDEX_BITS 20
#define SEGMENT_MAX        (1u << SEGMENT_INDEX_BITS)

struct cache_counters {
	uint64_t reads; /* chunk fills started, repeated ones included */
	uint64_t read_bytes;
	uint64_t restored; /* chunks from before a restart that saved a read */
	uint64_t shared;   /* chunks in memory of another version of the dataset that saved a read */
	uint64_t evictions;
	uint64_t damaged;            /* chunks quarantined */
	uint64_t retries;            /* reads that failed in storage and were repeated later */
	uint64_t buffered;           /* files opened without O_DIRECT */
	uint64_t batches;            /* batches made ready for clients, summed over all sessions */
	uint64_t given, given_bytes; /* chunks sent to other nodes of a job, and their bytes */
};

/* All segments. */
struct cache_segments {
	struct segment **all; /* indexed by the low SEGMENT_INDEX_BITS of the id; NULL: free */
	uint16_t *generations;
	uint32_t n, size;
	uint32_t max; /* maximum number: each segment takes a descriptor */
};

/* Limits that the node's memory sets: how much the cache may take, and how much of that it may borrow. */
struct cache_node_memory {
	uint64_t ceiling_bytes; /* below the operator's limit while the node is short of memory; UINT64_MAX:
				   no ceiling */
	uint64_t least_bytes;   /* the operator's minimum: no ceiling goes below it */
	uint64_t borrow_bytes;  /* limit on borrowed memory, as cache_limit() set it */
	uint64_t borrow_claimed_bytes; /* claimed bytes of chunks when borrow_bytes was set */
};

/* Decoded copies (decoded.h). All of this memory is borrowed. */
struct cache_decoded {
	uint64_t bytes,
	    limit_bytes;    /* limit_bytes: reserved for decoded copies; chunks take no more than the rest */
	uint32_t n_extents; /* each takes a descriptor */
};

/* Kept batches (kept.h). All of this memory is borrowed. */
struct cache_kept_batches {
	uint64_t bytes;
	uint64_t asked_bytes; /* bytes that would hold every batch that jobs lag behind by */
	uint64_t limit_bytes; /* limit on the bytes of kept batches */
	uint64_t
	    space_bytes; /* reserved for kept batches; chunks and decoded copies take no more than the rest */
};

/* The segment that a worker moves into huge pages (stay.c): one at a time. */
struct cache_stays {
	struct stay *one; /* the move in progress; NULL: none */
	uint64_t again_ns;
};

struct cache_handler {
	/* Called when a chunk became ready or bad, or memory was freed. */
	void (*changed)(void *user);
	/* Adds each payer's bytes of the cache outside sessions, and records who has which dataset open.
	 * May be NULL. */
	void (*count_paid)(void *user, uint64_t paid[CACHE_QUOTA_PAYERS]);
	/* Evicts a kept batch. Returns false if none can be evicted now. NULL: no batch was ever kept. */
	bool (*give_up_batch)(struct cache *c);
	/* Returns the limit on log lines that this user may cause. */
	struct log_limit *(*lines_of)(void *user, uint32_t uid);
	void *user;
};

struct cache {
	struct readers readers;
	struct read_turns *turns; /* the jobs' lanes refer to it, too */
	struct read_holds holds;  /* prefetch pauses for checkpoints */
	struct chunk_load *loads; /* list of loads in progress (sources/) */
	struct pool *pool;
	struct handover *handover; /* NULL: chunks do not survive the daemon */
	struct stage *stage;       /* NULL: no staging */
	struct cluster *cluster;   /* NULL: no other nodes */
	struct gives gives;        /* chunks that other nodes asked for */
	struct cache_quotas quotas;
	uint64_t paid_other_bytes[CACHE_QUOTA_PAYERS]; /* [payer]: batches of the payer's sessions */
	uint64_t paid_kept_bytes[CACHE_QUOTA_PAYERS];  /* [payer]: bytes of kept batches */
	uint64_t limit_bytes;  /* the operator's limit, and the maximum that all sessions together may need */
	uint64_t budget_bytes; /* target for all memory: the smaller of limit and ceiling, but at least what
				  the open sessions need */
	struct cache_node_memory node;
	uint64_t unclaimed_bytes;
	uint64_t segment_bytes, slot_bytes, snapshot_bytes;
	struct cache_decoded decoded_cache;
	struct cache_kept_batches kept_batches;
	uint64_t releasing_bytes; /* bytes of evicted memory that a worker is returning to the system */
	uint64_t kept_bytes, keep_limit_bytes;
	struct cache_segments segments;
	struct cached_dataset *datasets;
	uint32_t n_held; /* number of datasets whose snapshot is still held although its client has left */
	struct victim_list victims; /* victims for callers without a dataset of their own */
	uint64_t round;             /* current round of distance marks */
	uint64_t clock;             /* source of last_use: a count of uses, not a time */
	uint64_t uses_ns;           /* when residents_note_uses() last looked */
	uint32_t n_loading;
	struct pool_lane release_lane;
	struct cache_stays stays;
	bool needs_changed; /* sessions or datasets changed: cache_fit() is due */
	bool closing;       /* the daemon is stopping: memory stays with the clients that map it */
	bool said_bare;     /* true: the log has the line that images are decoded without a sandbox */
	bool unfit;         /* over its target because too much is in use: cache_fit() must run again */
	struct cache_counters counters;
	struct cache_handler handler;
};

static inline void cache_changed(const struct cache *c)
{
	c->handler.changed(c->handler.user);
}

static inline struct log_limit *cache_lines_of(const struct cache *c, uint32_t uid)
{
	return c->handler.lines_of(c->handler.user, uid);
}

/* Limits per dataset on chunks being read at one time and on all loads, so that an equal number can be
 * verified at the same time. The limits are high enough to keep a disk busy, and low enough to bound the cost
 * of a seek. A dataset whose storage hangs delays only its own chunks. */
#define CACHE_MAX_READING READER_MAX_ORDERS
#define CACHE_MAX_LOADING (2 * CACHE_MAX_READING)
/* Separate limits for chunks that come from other nodes, and for chunks that are read because other nodes
 * ask. Separate, so that nodes that wait for each other never also wait for a slot held by such a wait. */
#define CACHE_MAX_ASKING    8
#define CACHE_MAX_FOR_PEERS CACHE_MAX_READING

/* Limit on datasets kept for the next job although nobody uses them: each takes file descriptors. */
#define CACHE_MAX_IDLE_DATASETS 16
/* Number of descriptors that a dataset with a held snapshot takes, out of those for chunks. */
#define CACHE_HELD_FILES 5

void cache_init(struct cache *c, uint64_t bytes); /* allows SEGMENT_MAX segments */
void cache_free(struct cache *c);                 /* nothing may be pinned */

/* Returns the bytes that segments may take out of this budget. */
uint64_t cache_segment_limit(const struct cache *c, uint64_t budget_bytes);

/* Returns the memory that counts for each payer now. Memory of a dataset that several payers have open
 * counts for each in equal parts. Memory of a dataset that nobody has open counts for no payer. */
void cache_paid_bytes(const struct cache *c, uint64_t paid[CACHE_QUOTA_PAYERS]);

/* Returns the minimum that the open sessions can run with, in bytes. */
uint64_t cache_floor_bytes(const struct cache *c);

/*
 * Fits the cache to changed sessions, datasets or limits. Sets the budget, the claim and borrowing limit of
 * each dataset, and how much of that is kept. Evicts the excess: idle datasets first, then unneeded chunks,
 * then the chunks needed last. Pinned and awaited chunks stay (and unfit is set). A worker returns the memory
 * to the system. Transient chunks that fit now are kept.
 */
void cache_fit(struct cache *c);

/* Returns the borrowed bytes: chunks beyond the claims, decoded copies and kept batches. */
uint64_t cache_borrowed_bytes(const struct cache *c);
/* Returns the bytes that may be borrowed: the limit that cache_limit() set, plus chunks that were claimed
 * then and no longer are. */
uint64_t cache_borrowable_bytes(const struct cache *c);
uint64_t cache_claimed_chunk_bytes(const struct cache *c);
/* Returns the memory in use for sessions: batch slots, snapshots in use, chunks within the claims. */
uint64_t cache_claimed_bytes(const struct cache *c);
/* Limits borrowed memory, and all memory, claims included. Evicts the excess at once, except for what
 * sessions need. UINT64_MAX: only the operator's limit applies. */
void cache_limit(struct cache *c, uint64_t borrowed_bytes, uint64_t total_bytes);

/* Returns true if `bytes` more of decoded copies fit. Evicts chunks that nobody is going to miss to make
 * space for them. */
bool cache_make_decoded_space(struct cache *c, uint64_t bytes);

/* Like cache_make_decoded_space(), but for a decoded batch that is kept for a lagging job. Kept batches are
 * limited to 1/CACHE_BATCH_PART of the budget, and to memory that neither windows nor claims need. */
#define CACHE_BATCH_PART 4
bool cache_make_batch_space(struct cache *c, uint64_t bytes);
/* Evicts a kept batch. Returns false if none can be evicted now. */
bool cache_give_up_batch(struct cache *c);

/* Evicts kept batches, decoded copies, idle datasets (and, over budget, any chunk that is not needed) until
 * `bytes` more fit into the operator's limit. Returns true if they do. Callers must check the user's quota
 * first, and must count the bytes for that user already: a refused request must not cost other users
 * anything. */
bool cache_make_space(struct cache *c, uint64_t bytes);

/*
 * Distance at which chunks of sessions of the lowest priority are needed: farther away than any order
 * reaches. Such chunks only take memory that nobody uses and that only the job's own user had last.
 */
#define CACHE_SPARE_DISTANCE (1u << 30)

/* Starts to load a chunk that is absent or lacks samples (cached_lacks()), for a job. Opens the chunk in
 * `place` first, and refers to `place` until the load ends. want: the samples to read it for. -ENOSPC: no
 * segment may be taken for a chunk at this distance (policy.h). */
int cache_load(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance, struct job *job,
	       struct chunk_place *place, const struct cached_want *want);

void cache_pin(struct cache *c, struct cached_dataset *d, uint64_t chunk);
void cache_unpin(struct cached_dataset *d, uint64_t chunk);

/* Records that a batch uses the chunk, which must be pinned. If it is still in use long after it was read, a
 * worker moves it into huge pages (stay.c). */
void cache_note_use(struct cache *c, struct cached_dataset *d, uint64_t chunk);
/* Marks how soon a session needs the chunk, in this round (++cache.round starts one). */
void cache_mark(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance);

/* Returns the segment with this id, or NULL. */
struct segment *cache_find_segment(const struct cache *c, uint32_t id);
/* Returns true if the segment's chunk is in memory and verified. */
bool cache_is_ready(const struct segment *segment);
/* Returns true if all contents are verified, so that clients may map the segment: its chunk is ready, or is
 * a part that more samples are being added to. */
bool cache_is_mappable(const struct segment *segment);
/* Returns the chunk that the segment holds or will hold. NULL: the segment is free for another chunk. */
const struct cached_chunk *cache_chunk_of(const struct segment *segment);

/* Finds out which snapshots are still held although no client is connected: their memory cannot be
 * evicted. */
void cache_find_holders(struct cache *c);

void cache_add_dataset(struct cache *c, struct cached_dataset *d);
struct cached_dataset *cache_find_dataset(struct cache *c, const struct proof_identity *identity);

/* Returns the bytes of chunks being loaded for this user's jobs. They cannot be taken back before storage
 * answers. */
uint64_t cache_loading_bytes(const struct cache *c, uint32_t uid);
/* Returns the part of cache_loading_bytes() that has been in progress for long, beyond what the datasets'
 * sessions need anyway. uid may be CACHE_ANYBODY. */
#define CACHE_ANYBODY UINT32_MAX
uint64_t cache_stuck_bytes(const struct cache *c, uint32_t uid);
/* Frees all loads. Call at shutdown, when the readers are closed and nothing is being verified. */
void cache_abandon_loads(struct cache *c);
/* Returns the bytes that sessions may need, or that cannot be taken away now (pinned, being filled). The
 * rest of a budget is for prefetch. */
uint64_t cache_taken_bytes(const struct cache *c);
/* Returns by how much cache_taken_bytes() would grow if a chunk of `bytes` of this dataset were read. */
uint64_t cache_take_more(const struct cached_dataset *d, uint64_t bytes);

/* Adds the chunks and datasets restored after a restart (handover.c). They are idle until a client uses them,
 * and are evicted like other idle chunks. */
void cache_restore(struct cache *c);
/* Makes a segment of this memory, and takes ownership of it. Returns 0 or -ENOMEM. */
int cache_add_segment(struct cache *c, struct cached_dataset *d, const struct shared_memory *memory,
		      struct segment **ret);
/* Drops the dataset and all its chunks. Nobody may be using it. */
void cache_drop_dataset(struct cache *c, struct cached_dataset *d);

/* Returns all memory that counts in the budget. */
static inline uint64_t cache_total_bytes(const struct cache *c)
{
	return c->segment_bytes + c->slot_bytes + c->snapshot_bytes + c->decoded_cache.bytes +
	       c->kept_batches.bytes;
}

/* Used by sources/ and cache_fit.c. */
/* Returns memory for the chunk, for the job. NULL: there is none, or none that a chunk at this distance may
 * take; *ret_error is -ENOSPC, or the errno of a failed allocation. */
struct segment *cache_take_segment(struct cache *c, struct cached_dataset *d, uint64_t chunk,
				   uint32_t distance, const struct job *job, int *ret_error);
void cache_drop_segment(struct cache *c, struct segment *segment);
/* Removes the chunk from the segment, which is then free for another chunk. */
void cache_forget_chunk(struct cache *c, struct segment *segment);
/*
 * Chooses the segment that a verified chunk is copied to. Returns NULL if the chunk stays where it was
 * read.
 *
 * A chunk is read and verified in private memory. If the cache is full of memory that clients were given,
 * the chunk is then copied into such a segment of the same size, whose own chunk may be evicted for it. The
 * private memory is then free for the next chunk. New memory for each chunk would cost several times as
 * much as the copy. The caller must report the result with cache_fill_done().
 */
struct segment *cache_take_mapped(struct cache *c, const struct segment *from, uint32_t distance);
void cache_fill_done(struct segment *from, struct segment *to, bool filled);
/* Returns this memory to the system on a worker thread, because that takes some time. bytes: the part that is
 * in use. */
void cache_release(struct cache *c, struct shared_memory *memory, uint64_t bytes);
/* Drops a dataset, with its snapshot, that nobody uses and that has no chunk in memory. Returns false if
 * there is none. */
bool cache_drop_empty(struct cache *c);
/* Drops datasets whose files were removed and that nobody uses, also from the staging folder. */
void cache_drop_removed(struct cache *c);
/* Marks the chunk as loaded and verified. */
void cache_note_ready(struct cache *c, struct cached_dataset *d, uint64_t chunk);
/* Sets whether the chunk is never evicted. */
void cache_keep(struct cache *c, struct segment *segment, bool kept);
/* victim.c: returns the segment as the choice of a victim sees it. wanting: the dataset of the chunk that
 * would replace it, or NULL. */
struct policy_segment cache_look_at(const struct cache *c, const struct segment *segment,
				    const struct cached_dataset *wanting);
struct cache_entry {
	struct segment *segment;
	struct policy_segment look;
	uint32_t rank;
};
/* Ranks n segments for a chunk that a batch waits for, and sorts the ones to evict first to the front. */
void cache_rank(const struct cache *c, const struct cached_dataset *wanting, struct cache_entry *entries,
		size_t n);
/* Conditions that a segment must meet to be evicted. */
struct candidates {
	const struct cached_dataset *wanting; /* dataset of the new chunk; NULL: other memory */
	const struct segment *mapped_like;    /* only segments of its dataset and size that clients may map */
	bool own;                             /* only segments of `wanting` */
	bool beyond_quotas; /* no segments of other datasets, except of those beyond their quotas */
	bool is_spare; /* only segments of datasets that nobody has open and that this user was the last to
			  use */
	uint32_t uid;
};
/* Returns the segment to evict for a chunk at this distance; NULL: none may be evicted. list: caches
 * candidates between calls with the same `wanting` and the same purpose. */
struct segment *cache_pick_victim(struct cache *c, const struct candidates *which, struct victim_list *list,
				  uint32_t distance);
/* Clears all victim lists. Call after datasets or shares have changed. */
void cache_forget_victims(struct cache *c);

/* Asserts the invariants of the cache, in builds with assertions. Called at the end of each turn of the event
 * loop. */
#ifdef NDEBUG
static inline void check_cache(const struct cache *c)
{
	(void)c;
}
#else
void check_cache(const struct cache *c);
#endif
