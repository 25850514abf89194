/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which memory a session gets, which chunk is read next, which segment is reused: pure functions of their
 * arguments, so that every rule is a line in a table test.
 *
 * Keeping is no-eviction: the first chunks that fit are kept for ever, the rest pass through transient
 * segments. For whole epochs in random order no policy does better than a hit ratio of cached/total, and
 * least-recently-used does far worse.
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

/* A chunk in memory, as the choice of a victim sees it. */
struct policy_segment {
	uint32_t distance; /* chunks until the nearest session needs it; 0: a batch waits for it now */
	bool busy;         /* being filled, or pinned: never a victim */
	bool kept;
	bool idle; /* no session uses its dataset */
	uint64_t last_use;
};

/*
 * The segment to give up for a chunk at `distance` (0: a batch waits for it), or -1. Order: idle datasets;
 * transient ones nobody wants; and only for a chunk that is waited for: kept ones nobody wants soon, then
 * read-ahead, farthest first.
 */
long policy_pick_victim(const struct policy_segment *segments, size_t n, uint32_t distance);

/* The same order for many at once. A higher rank goes first; 0: must stay. POLICY_RANK_UNWANTED and above:
 * nobody misses it. */
#define POLICY_RANK_UNWANTED 4
uint32_t policy_victim_rank(const struct policy_segment *segment, uint32_t distance);
/* Of two segments of the same rank, returns true if a goes first. */
bool policy_is_better_victim(const struct policy_segment *a, const struct policy_segment *b);

/* A session's nearest chunk that is not in memory. */
struct policy_fetch {
	uint32_t distance;    /* 0: its next batch waits for it */
	uint64_t last_served; /* sequence number of the last read started for this session */
};

/* Whose chunk to read next, or -1 when n is 0: those who wait first, then the nearest; ties go to the one
 * that was served longest ago. */
long policy_pick_fetch(const struct policy_fetch *fetches, size_t n);
