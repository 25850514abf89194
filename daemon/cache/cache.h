/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The chunk cache of the node: segments within one byte budget. A chunk is read once however many sessions
 * want it, and verified before anybody sees it. policy.h decides what to read and what to give up.
 *
 * The budget covers segments, batch slots, snapshot copies, decoded forms (forms.h), and decoded batches that
 * are kept for jobs that are behind others (daemon/serve/kept.h). Everything here is the loop thread's.
 *
 * Jobs *claim* memory for their datasets (their knob). What datasets hold beyond that, and what is held of
 * datasets that nobody uses, is *borrowed*: it stays as long as nobody wants the room, and goes first.
 */

#include "daemon/node/cache_quota.h"
#include "carry.h"
#include "job.h"
#include "policy.h"
#include "daemon/node/pool.h"
#include "daemon/storage/read_holds.h"
#include "daemon/apart/reader.h"
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
	bool lent;           /* a client may map it: only verified bytes are ever written into it */
	bool filling;        /* a worker is filling it with a verified chunk */
	bool carried;        /* from before a restart: not mapped, never given to anybody, never written to */
	uint32_t carry_slot; /* carry.h's */
	uint64_t since_ns;   /* when its chunk was verified */
	bool huge;           /* a worker has laid it into huge pages, as far as they can be had (stay.c) */
	struct access_stamp stamp; /* of the chunk's file, from before it was read */
};

#define SEGMENT_INDEX_BITS 20
#define SEGMENT_MAX        (1u << SEGMENT_INDEX_BITS)

struct cache_counters {
	uint64_t reads; /* chunk fills started, repeated ones included */
	uint64_t read_bytes;
	uint64_t carried; /* chunks from before a restart that saved a read */
	uint64_t shared;  /* chunks in memory of another version of the dataset that saved a read */
	uint64_t evictions;
	uint64_t damaged;            /* chunks quarantined */
	uint64_t retries;            /* reads that storage failed, and that were repeated later */
	uint64_t buffered;           /* files opened without O_DIRECT */
	uint64_t batches;            /* made ready for clients, of all sessions */
	uint64_t given, given_bytes; /* to other nodes of a job */
};

/* All segments that there are. */
struct cache_segments {
	struct segment **all; /* by index; NULL: none */
	uint16_t *generations;
	uint32_t n, size;
	uint32_t max; /* each is a descriptor */
};

/* What the node leaves: memory that others want, and memory that nobody wants. */
struct cache_node_memory {
	uint64_t ceiling_bytes;      /* less than the operator's limit while the node is short of memory;
					UINT64_MAX: none */
	uint64_t least_bytes;        /* that no ceiling takes away: the operator's */
	uint64_t lend_bytes;         /* what chunks may take now beyond what jobs claim */
	uint64_t lend_claimed_bytes; /* of chunks, when that was set */
};

/* Decoded forms (forms.h), all of it borrowed. */
struct cache_forms {
	uint64_t bytes, limit_bytes; /* chunks take no more than the rest */
	uint32_t n_extents;          /* each is a descriptor */
};

/* Kept batches (kept.h), all of it borrowed. */
struct cache_kept_batches {
	uint64_t bytes;
	uint64_t asked_bytes; /* what all that jobs are behind would take */
	uint64_t limit_bytes; /* the most that may be taken for that */
	uint64_t room_bytes;  /* what is left to it: chunks and forms take no more than the rest */
};

/* Segments that are laid into huge pages (stay.c), one at a time. */
struct cache_stays {
	struct stay *one; /* NULL: there is none at work */
	uint64_t again_ns;
};

struct cache_handler {
	/* A chunk became ready or bad, or memory came free. */
	void (*changed)(void *user);
	/* Adds what each payer has of the cache beside sessions, and sets who has datasets open; or NULL. */
	void (*count_paid)(void *user, uint64_t paid[CACHE_QUOTA_PAYERS]);
	/* Gives up a kept batch; false: none can be had now. NULL: there never was one. */
	bool (*give_up_batch)(struct cache *c);
	/* The limit on log lines that this user may cause. */
	struct log_limit *(*lines_of)(void *user, uint32_t uid);
	void *user;
};

struct cache {
	struct readers readers;
	struct read_turns *turns; /* borrowed by jobs, too */
	struct read_holds holds;  /* reading ahead gives way to checkpoints */
	struct chunk_load *loads; /* under way: sources/ */
	struct pool *pool;
	struct carry *carry;     /* NULL: chunks end with the daemon */
	struct stage *stage;     /* NULL: there is no staging */
	struct cluster *cluster; /* NULL: there are no other nodes */
	struct gives gives;      /* what those have asked for */
	struct cache_quotas quotas;
	uint64_t paid_other_bytes[CACHE_QUOTA_PAYERS]; /* by each payer for batches of its sessions */
	uint64_t paid_kept_bytes[CACHE_QUOTA_PAYERS];  /* and for those that are kept */
	uint64_t limit_bytes;                          /* the operator's: what sessions may need together */
	uint64_t budget_bytes; /* what the cache may take: the smaller of limit and ceiling, but never less
				  than the open sessions need */
	struct cache_node_memory node;
	uint64_t unclaimed_bytes;
	uint64_t segment_bytes, slot_bytes, snapshot_bytes;
	struct cache_forms forms;
	struct cache_kept_batches kept_batches;
	uint64_t releasing_bytes; /* given up, and on their way back to the system */
	uint64_t kept_bytes, keep_limit_bytes;
	struct cache_segments segments;
	struct cached_dataset *datasets;
	uint32_t n_held; /* of these, those whose snapshot is still held though its client has gone */
	struct victim_list victims; /* whatever it is that wants room */
	uint64_t round;             /* of distance marks */
	uint64_t clock;             /* for last_use: a count of uses, no time */
	uint32_t n_loading;
	struct pool_lane release_lane;
	struct cache_stays stays;
	bool needs_changed; /* sessions or datasets changed: cache_fit() is due */
	bool closing;       /* the daemon stops: memory is left to the clients that map it */
	bool said_bare;     /* that images are decoded without a sandbox */
	bool unfit; /* it takes more than it should, because too much is in use now: call cache_fit() again */
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

/* Chunks of a dataset being read at one time, and as many being verified meanwhile: enough to keep a disk
 * busy, few enough to bound what a seek wastes. A dataset whose storage hangs holds up its own chunks, and no
 * other's. */
#define CACHE_MAX_READING READER_MAX_ORDERS
#define CACHE_MAX_LOADING (2 * CACHE_MAX_READING)
/* Beside these: that come from other nodes, and that are read because those ask. Each has a number of its
 * own: nodes that wait for each other never wait for what such waiting holds up. */
#define CACHE_MAX_ASKING    8
#define CACHE_MAX_FOR_PEERS CACHE_MAX_READING

/* Datasets that nobody uses, kept for the next job: each holds descriptors. */
#define CACHE_MAX_IDLE_DATASETS 16
/* Descriptors that a dataset with a held snapshot takes from those for chunks. */
#define CACHE_HELD_FILES 3

void cache_init(struct cache *c, uint64_t bytes); /* as many segments as there can be */
void cache_free(struct cache *c);                 /* nothing may be pinned */

/* Bytes that segments may take, of a budget. */
uint64_t cache_segment_limit(const struct cache *c, uint64_t budget_bytes);

/* Memory that counts for each payer now. What several have open counts for each in equal parts, and what
 * nobody has open for none. */
void cache_paid_bytes(const struct cache *c, uint64_t paid[CACHE_QUOTA_PAYERS]);

/* The least that the open sessions can run with. */
uint64_t cache_floor_bytes(const struct cache *c);

/*
 * Fits the cache to changed sessions, datasets or limits. Sets the budget, what each dataset may claim and
 * borrow, and how much of that is kept. Gives up what is beyond: idle datasets first, then what nobody
 * misses, then what is needed last. What is pinned or waited for stays (and unfit is set). A worker gives the
 * memory back to the system. Transient chunks that fit now are kept.
 */
void cache_fit(struct cache *c);

/* Chunks in memory beyond what is claimed, decoded forms and kept batches. */
uint64_t cache_borrowed_bytes(const struct cache *c);
/* Bytes that may be borrowed: what cache_lend() set, and what was claimed then and is not any more. */
uint64_t cache_lendable_bytes(const struct cache *c);
uint64_t cache_claimed_chunk_bytes(const struct cache *c);
/* All memory that is taken for somebody: batches, snapshots in use, chunks within the claims. */
uint64_t cache_claimed_bytes(const struct cache *c);
/* Sets how many bytes may be borrowed from now on; what is beyond is given up at once. */
void cache_lend(struct cache *c, uint64_t bytes);
/* Sets how many bytes all may take from now on, whatever is claimed; what is beyond is given up at once, but
 * for what sessions need. UINT64_MAX: as many as the operator said. */
void cache_hold_down(struct cache *c, uint64_t bytes);

/* Returns true if there is room for so many more bytes of decoded forms; chunks that nobody misses go for
 * them. */
bool cache_make_form_room(struct cache *c, uint64_t bytes);

/* The same for a decoded batch that is kept for a job behind others: no more than a part of the budget, that
 * neither windows nor claims need. */
#define CACHE_BATCH_PART 4
bool cache_make_batch_room(struct cache *c, uint64_t bytes);
/* Gives up a kept batch; false: none can be had now. */
bool cache_give_up_batch(struct cache *c);

/* Gives up kept batches, forms, idle datasets (and, over budget, whatever is not needed) until `bytes` more
 * fit into the operator's limit. Returns true if they do. Who takes them is asked first whether he may, and
 * they count for him already: what is refused must cost nobody anything. */
bool cache_make_room(struct cache *c, uint64_t bytes);

/*
 * Chunks of sessions of the lowest priority are needed so far ahead, or later: farther than any order
 * reaches. For these, memory is taken that nobody uses, and nobody but the job's user had last.
 */
#define CACHE_SPARE_DISTANCE (1u << 30)

/* Starts to fill a chunk, which is absent or lacks samples (cached_lacks()), on behalf of a job. -ENOSPC: no
 * segment may be taken for a chunk at this distance (policy.h). The chunk is opened in this place first,
 * which is referred to until the load ends. want: which samples it is read for. */
int cache_load(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance, struct job *job,
	       struct chunk_place *place, const struct cached_want *want);

void cache_pin(struct cache *c, struct cached_dataset *d, uint64_t chunk);
void cache_unpin(struct cached_dataset *d, uint64_t chunk);

/* Marks how soon a session needs the chunk, in this round (++cache.round starts one). */
/* A batch uses the chunk, which is pinned: if it is still in use long after it was read, a worker lays it
 * into huge pages (stay.c). */
void cache_note_use(struct cache *c, struct cached_dataset *d, uint64_t chunk);
void cache_mark(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance);

/* The segment with this id, or NULL. */
struct segment *cache_find_segment(const struct cache *c, uint32_t id);
/* Returns true if its chunk is in memory and verified. */
bool cache_is_ready(const struct segment *segment);
/* All that it holds is verified, so that clients may map it: it is ready, or a part that gets more samples.
 */
bool cache_is_lendable(const struct segment *segment);
/* The chunk that it holds, or will; NULL: it waits for one. */
const struct cached_chunk *cache_chunk_of(const struct segment *segment);

/* Finds out which snapshots are still held though no client of them is connected: that memory cannot be given
 * up. */
void cache_find_holders(struct cache *c);

void cache_add_dataset(struct cache *c, struct cached_dataset *d);
struct cached_dataset *cache_find_dataset(struct cache *c, const struct proof_identity *identity);

/* Bytes of chunks that are being loaded for this user's jobs: they cannot be taken back before storage
 * answers. */
uint64_t cache_loading_bytes(const struct cache *c, uint32_t uid);
/* The part of cache_loading_bytes() that has been under way for long, beyond what the datasets' sessions need
 * anyway. uid may be CACHE_ANYBODY. */
#define CACHE_ANYBODY UINT32_MAX
uint64_t cache_stuck_bytes(const struct cache *c, uint32_t uid);
/* Called at the end, when the readers are closed and nothing is being verified. */
void cache_abandon_loads(struct cache *c);
/* Bytes that sessions may need, or that cannot be taken away now (pinned, being filled): the rest of a budget
 * is for reading ahead. */
uint64_t cache_taken_bytes(const struct cache *c);
/* How much cache_taken_bytes() would grow if a chunk of `bytes` of this dataset were read. */
uint64_t cache_take_more(const struct cached_dataset *d, uint64_t bytes);

/* Takes in what was carried over a restart (carry.c). It is idle until somebody wants it, and given
 * up like other idle chunks. */
void cache_restore(struct cache *c);
/* Makes a segment of this memory, and takes it over. 0 or -ENOMEM. */
int cache_add_segment(struct cache *c, struct cached_dataset *d, const struct shared_memory *memory,
		      struct segment **ret);
/* Drops the dataset and all its chunks. Nobody may be using it. */
void cache_drop_dataset(struct cache *c, struct cached_dataset *d);

/* All memory that counts in the budget. */
static inline uint64_t cache_total_bytes(const struct cache *c)
{
	return c->segment_bytes + c->slot_bytes + c->snapshot_bytes + c->forms.bytes + c->kept_batches.bytes;
}

/* Used by sources/ and cache_fit.c. */
/* Memory for the chunk, on behalf of the job. NULL: there is no room, or none that may be had for a chunk at
 * this distance. */
struct segment *cache_take_segment(struct cache *c, struct cached_dataset *d, uint64_t chunk,
				   uint32_t distance, const struct job *job, int *ret_error);
void cache_drop_segment(struct cache *c, struct segment *segment);
/* Takes the chunk out of the segment, which is then free for another one. */
void cache_forget_chunk(struct cache *c, struct segment *segment);
/*
 * A chunk is read and verified in memory that nobody else has. Where the cache is full of memory that clients
 * were given, the chunk is then copied into such a segment of the same size, whose own chunk may go for it,
 * and the memory it was read into is free for the next one. New memory for each chunk would cost several
 * times as much as this copy. Returns that segment, or NULL if the chunk stays where it is. cache_fill_done()
 * says whether the segment was filled.
 */
struct segment *cache_take_lent(struct cache *c, const struct segment *from, uint32_t distance);
void cache_fill_done(struct segment *from, struct segment *to, bool filled);
/* Gives memory that was lent back to the system, which takes a worker some time. bytes: of it that are in
 * use. */
void cache_release(struct cache *c, struct shared_memory *memory, uint64_t bytes);
/* While over budget, drops datasets, with their snapshots, that nobody uses and that have no chunk in
 * memory. */
void cache_drop_empty(struct cache *c);
/* Makes the chunk one that is kept for ever, or not. */
void cache_keep(struct cache *c, struct segment *segment, bool kept);
/* victim.c: the segment as the choice of a victim sees it. wanting: whose chunk it would go for; or NULL. */
struct policy_segment cache_look_at(const struct cache *c, const struct segment *segment,
				    const struct cached_dataset *wanting);
struct cache_entry {
	struct segment *segment;
	struct policy_segment look;
	uint32_t rank;
};
/* Looks at n segments, and sorts what goes first for a chunk that is waited for to the front. */
void cache_rank(const struct cache *c, const struct cached_dataset *wanting, struct cache_entry *entries,
		size_t n);
/* Which segments may go. */
struct candidates {
	const struct cached_dataset *wanting; /* for a chunk of this dataset; NULL: for something else */
	const struct segment *lent_like; /* of the same dataset and size as this one, and lent to clients */
	bool own;                        /* only of that dataset */
	bool beyond_quotas;              /* of others only what is beyond their quotas */
	bool is_spare; /* only of datasets that nobody has open, and that this user had last */
	uint32_t uid;
};
/* The segment that goes for a chunk at this distance; NULL: none may go. The list is that of such calls. */
struct segment *cache_pick_victim(const struct cache *c, const struct candidates *which,
				  struct victim_list *list, uint32_t distance);
/* Datasets or shares have changed. */
void cache_forget_victims(struct cache *c);
/* Nothing is in this segment any more. */
void cache_victim_first(const struct segment *segment);
void cache_note_ready(struct cache *c, struct cached_dataset *d, uint64_t chunk);
