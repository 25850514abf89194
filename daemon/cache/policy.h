/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which memory a session gets, which chunk is read next, which segment is reused: pure functions of their
 * arguments, so that every rule is a line in a table test.
 *
 * The order is known, so what goes is what is needed last (Belady). Each chunk is used once an epoch, so what
 * an epoch finds in memory lay there when it began: no policy does better than a hit ratio of cached/total,
 * and least-recently-used does far worse. Never giving up what is kept would come close, but for the segments
 * through which all else passes: in a small cache, these are most of it. Chunks whose sessions have no order
 * that is known are kept for ever as long as they fit.
 *
 * No deadlock: a session is admitted only if the chunks that it can pin or wait for at one time fit beside
 * those of all others (session_need.h). What lies beyond that is read-ahead, which anybody who waits
 * may take away.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NEVER UINT32_MAX /* distance of a chunk that no session is going to need */

/* The window when the client leaves it to us: a function of budget and dataset only, not of who else is
 * served, so that all ranks of a job get the same order. At least 1, at most `wanted`. */
uint32_t policy_default_window(uint64_t cache_bytes, uint64_t segment_bytes, uint64_t n_chunks,
			       uint32_t wanted);

/* As many slots as wanted, but together at most a quarter of available_bytes, and never fewer than
 * `least`. */
uint32_t policy_fit_slots(uint32_t wanted, uint32_t least, uint64_t slot_bytes, uint64_t available_bytes);

/* Chunks that a dataset's sessions need together, when one that needs `need` joins those that need
 * `reserved`: they can share no more than all chunks. */
uint64_t policy_join_need(uint64_t n_chunks, uint64_t reserved, uint64_t need);

/* A dataset's share of the cache, in bytes of chunks. `asked` is what is claimed; policy_lend() raises it. */
struct policy_share {
	uint64_t all;   /* the whole dataset */
	uint64_t need;  /* what its sessions can pin or wait for at one time; the least that it gets */
	uint64_t ahead; /* need, and what is read ahead */
	uint64_t asked; /* what its jobs were given; UINT64_MAX: no limit */
	/* out */
	uint64_t cap;  /* the most that it may take */
	uint64_t keep; /* the most of it that is kept for ever */
};

/* Fills in cap and keep of the datasets that have sessions; returns how much may be kept of all of them
 * together, in a cache with room for `limit` bytes of chunks. */
uint64_t policy_share_out(struct policy_share *shares, size_t n, uint64_t limit);

/* Raises what is asked by what may be borrowed: equal parts of `bytes`, each up to the whole dataset. cap
 * stays as it is. */
void policy_lend(struct policy_share *shares, size_t n, uint64_t bytes);

/* The part of a job's bytes that one of its datasets gets: by size. all_bytes: of its datasets together. */
uint64_t policy_dataset_part(uint64_t job_bytes, uint64_t dataset_bytes, uint64_t all_bytes);

/* How far a session is in its order. */
struct policy_cursor {
	const uint32_t *now;  /* [chunk]: which visit of this epoch it is; POLICY_NEVER: none */
	const uint32_t *then; /* of the next epoch; NULL: not known */
	uint32_t n_visits;
	uint32_t at; /* the visit where it is */
};

/* Visits until the session needs the chunk. */
uint32_t policy_next_use(const struct policy_cursor *cursor, uint64_t chunk);

/* How far ahead a chunk may be that is read in place of another one, in a dataset with so many chunks in
 * memory: because that many are to be read ahead, and at most, so that storage is not late. What is read too
 * early takes the place of what the next epoch would have found. */
uint32_t policy_reach(uint64_t n_chunks);
uint32_t policy_far_reach(uint64_t n_chunks);

/* Returns true if storage, which takes read_ns a chunk, would be late with n chunks if it began later: they
 * are needed within so many visits, of use_ns each. */
bool policy_is_late(double read_ns, uint32_t n, double use_ns, uint32_t visits);
/* How many chunks it reads while so many are used, and one so that it does not idle then. */
uint32_t policy_reads_meanwhile(double read_ns, double use_ns, uint32_t visits);

/* A chunk in memory, as the choice of a victim sees it. */
struct policy_segment {
	uint32_t distance; /* chunks until the nearest session reads it ahead; 0: a batch waits for it now */
	uint32_t next_use; /* visits until the nearest session needs it, if an order is known */
	bool ordered;      /* it is */
	bool own;          /* of the dataset that a segment is wanted for */
	uint32_t reach;    /* how far ahead its chunks go for others: policy_far_reach() */
	bool excess;       /* its dataset has more than its share */
	bool beyond_quota; /* so has another one than that which a segment is wanted for, and shares are
			      quotas */
	bool busy;         /* being filled, or pinned: never a victim */
	bool empty;        /* no chunk is in it: what was read into it lies in memory that clients had */
	bool kept;
	bool foreign; /* another node has it to keep */
	bool idle;    /* no session uses its dataset */
	uint64_t last_use;
};

/*
 * Which segment goes first for a chunk at `distance` (0: a batch waits for it): the one of the highest rank;
 * 0: it must stay. POLICY_RANK_UNWANTED and above: nobody waits for it. Order: empty ones; idle datasets;
 * what other nodes have to keep; what others have beyond their share; what nobody reads ahead and is needed
 * later than that chunk, the last first: transient ones of anybody, kept ones of the dataset itself; and only
 * for a chunk that is waited for: kept ones of others, then read-ahead, farthest first. Where shares are
 * quotas, all that is beyond another one's goes behind idle datasets, but for what is waited for.
 */
#define POLICY_RANK_UNWANTED 4
uint32_t policy_victim_rank(const struct policy_segment *segment, uint32_t distance);
/* Of two segments of the same rank, returns true if a goes first. */
bool policy_is_better_victim(const struct policy_segment *a, const struct policy_segment *b);
