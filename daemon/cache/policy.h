/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides which memory a session gets, which chunk is read next, and which segment is reused. Pure functions
 * of their arguments, so that every rule is a line in a table test.
 *
 * The order is known, so the victim is the chunk needed last (Belady). Each chunk is used once an epoch, so
 * the hits of an epoch are chunks that were in memory when it began. No policy exceeds a hit ratio of
 * cached/total, and least-recently-used does far worse. Never evicting kept chunks would come close, but for
 * the segments through which all other chunks pass: in a small cache, these are most of it. Chunks whose
 * sessions have no known order are kept for ever as long as they fit.
 *
 * No deadlock: a session is admitted only if the chunks that it can pin or wait for at one time fit in
 * addition to those of all others (daemon/serve/order.h). All memory beyond that is prefetch, which any
 * waiting session may take away.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NEVER UINT32_MAX /* distance of a chunk that no session is going to need */

/* Returns the default window, in chunks. It depends only on the budget and the dataset, not on other jobs,
 * so that all ranks of a job get the same order. At least 1, at most `wanted`. */
uint32_t policy_default_window(uint64_t cache_bytes, uint64_t segment_bytes, uint64_t n_chunks,
			       uint32_t wanted);

/* Returns the number of slots: as many as wanted, but together at most a quarter of available_bytes, and
 * never fewer than `least`. */
uint32_t policy_fit_slots(uint32_t wanted, uint32_t least, uint64_t slot_bytes, uint64_t available_bytes);

/* Returns the chunks that a dataset's sessions need together after one that needs `need` joined those that
 * need `reserved`: at most all chunks. */
uint64_t policy_join_need(uint64_t n_chunks, uint64_t reserved, uint64_t need);

/* A dataset's share of the cache, in bytes of chunks. `asked` is the claim; policy_borrow() raises it. */
struct policy_share {
	uint64_t all;   /* the whole dataset */
	uint64_t need;  /* bytes that its sessions can pin or wait for at one time: its guaranteed minimum */
	uint64_t ahead; /* need plus prefetch */
	uint64_t asked; /* claim of its jobs; UINT64_MAX: no limit */
	/* out */
	uint64_t cap;  /* limit on its bytes */
	uint64_t keep; /* limit on its bytes that are kept for ever */
};

/* Fills in cap and keep of the datasets that have sessions. Returns how much of all of them together may be
 * kept, in a cache with space for `limit` bytes of chunks. */
uint64_t policy_share_out(struct policy_share *shares, size_t n, uint64_t limit);

/* Raises `asked` by borrowed memory: equal parts of `bytes`, each up to the whole dataset. cap stays
 * unchanged. */
void policy_borrow(struct policy_share *shares, size_t n, uint64_t bytes);

/* Returns one dataset's part of its job's bytes, in proportion to its size. all_bytes: size of the job's
 * datasets together. */
uint64_t policy_dataset_part(uint64_t job_bytes, uint64_t dataset_bytes, uint64_t all_bytes);

/* A session's position in its order. */
struct policy_cursor {
	const uint32_t *now;  /* [chunk]: number of its visit in this epoch; POLICY_NEVER: none */
	const uint32_t *then; /* as above, for the next epoch; NULL: not known */
	uint32_t n_visits;
	uint32_t at; /* the current visit */
};

/* Returns the visits until the session needs the chunk. */
uint32_t policy_next_use(const struct policy_cursor *cursor, uint64_t chunk);

/* Returns how far ahead a chunk may be prefetched in place of another one, in a dataset with n_chunks in
 * memory. A chunk that is read too early replaces one that the next epoch would have found. */
uint32_t policy_reach(uint64_t n_chunks);
/* As policy_reach(), but the maximum, for storage that would be late otherwise. */
uint32_t policy_far_reach(uint64_t n_chunks);

/* Returns true if reading n chunks must begin now, because storage would be late otherwise. Each read takes
 * read_ns; the chunks are needed within `visits` visits of use_ns each. */
bool policy_is_late(double read_ns, uint32_t n, double use_ns, uint32_t visits);
/* Returns how many chunks storage reads during `visits` visits, plus one so that it does not idle in that
 * time. */
uint32_t policy_reads_meanwhile(double read_ns, double use_ns, uint32_t visits);

/* A segment, as the choice of a victim sees it. */
struct policy_segment {
	uint32_t distance; /* chunks until the nearest session prefetches it; 0: a batch waits for it */
	uint32_t next_use; /* visits until the nearest session needs it, if a session has a known order */
	bool ordered;      /* a session of its dataset has a known order */
	bool own;          /* its dataset is the one that needs a segment */
	uint32_t reach;    /* maximum distance of chunks that may evict its segments: policy_far_reach() */
	bool excess;       /* its dataset exceeds its share */
	bool beyond_quota; /* its dataset exceeds its share, is in use, and is not the one that needs a
			      segment; shares are quotas */
	bool busy;         /* being filled, or pinned: never a victim */
	bool empty;        /* holds no chunk: its contents were copied to memory that clients had */
	bool kept;
	bool foreign; /* another node should keep the chunk */
	bool idle;    /* its dataset has no session */
	uint64_t last_use;
};

/*
 * Returns the rank of a segment as a victim for a chunk at `distance` (0: a batch waits for the chunk). The
 * highest rank is evicted first; 0: must stay; POLICY_RANK_UNWANTED and above: no batch waits for it.
 *
 * Order: empty segments; idle datasets; chunks that other nodes are to keep; segments of other datasets
 * beyond their shares; then chunks that nobody prefetches and that are needed later than the new chunk, the
 * last one first: transient ones of any dataset, kept ones of the dataset itself. Only for a chunk that a
 * batch waits for: kept chunks of others, then prefetched ones, farthest first. If shares are quotas,
 * everything beyond another dataset's quota follows idle datasets, except awaited chunks.
 */
#define POLICY_RANK_UNWANTED 4
uint32_t policy_victim_rank(const struct policy_segment *segment, uint32_t distance);
/* Returns true if a is evicted before b, which has the same rank. */
bool policy_is_better_victim(const struct policy_segment *a, const struct policy_segment *b);
