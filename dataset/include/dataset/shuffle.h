/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The order in which one epoch visits the samples: a pure function of
 * (chunk sizes, seed, epoch, window, shuffle, lanes, drift) -> a permutation of 0..n_samples-1, the same on
 * any machine, and how that permutation is cut into batches for (rank, world, batch).
 *
 * Chunk-wise shuffle (DIESEL, ICPP 2020): chunks are shuffled, cut into windows of `window_chunks`, and the
 * samples of each window are shuffled. In an epoch every sample is visited once by one of the ranks. Memory
 * is O(n_chunks); reading a position costs one shuffle of its window, which the cursor keeps.
 *
 * Of a subset, chunks without a sample of it are left out before that, and so are the other samples of a
 * window: the order is then that of a dataset which has only these samples, in the same chunks.
 *
 * Lanes: the chunks are dealt to lanes that are the same in all epochs and for all seeds, and each lane is
 * shuffled as above by itself. Position p of the epoch is sample p div L of lane p mod L, so every stretch of
 * positions has as many samples of each lane. With drift 1/m, that share of the chunks is dealt again from
 * epoch to epoch. One lane is the order without lanes.
 *
 * Batches: step k of the epoch is the global batch of positions [k*W*B, (k+1)*W*B), W = world, B = batch;
 * rank r takes the r-th slice of B, after the step is sorted by lane: so its slices touch few lanes. Where
 * lanes divide W, each lane's samples of a step are shared out among W / lanes ranks, also of a shorter step.
 * The global order depends on neither W nor B. With `start`, so many positions are behind, by any W and B,
 * and the steps are those of the positions that are left. The last step is shared out evenly: slice lengths
 * differ by at most one. When fewer than W samples are left for it, the last two steps share theirs. So every
 * rank has the same number of batches and none is empty, no sample is dropped or doubled, and no rank waits
 * for ever. With B = 1 two steps cannot share so few samples; they become one step, and some ranks have 2
 * samples in their last batch (shuffle_max_batch()). With drop_last, only full global batches are made.
 *
 * docs/reference/formats.md specifies the generator and every step, with golden values for other
 * implementations.
 *
 * Thread-safety: a plan belongs to one thread at a time, but functions that take it const may run
 * concurrently.
 */

#include <stdbool.h>
#include <stdint.h>

struct subset;

struct shuffle_spec {
	const uint32_t *chunk_samples; /* borrowed: how many samples each chunk has, in storage order */
	uint64_t n_chunks;
	const struct subset *subset; /* borrowed until the plan is freed; NULL: all samples */
	uint64_t seed;
	uint64_t epoch;
	uint32_t window_chunks; /* >= 1 */
	bool shuffle;           /* false: storage order */
	uint32_t rank, world;   /* rank < world */
	uint32_t batch;         /* samples per batch of a rank, >= 1 */
	bool drop_last;
	uint64_t start; /* positions of the epoch that are behind. The batches of the rest have the epoch's
			   last numbers; where one of the whole epoch begins there, they are those */
	uint32_t lanes; /* 0: as 1 */
	uint32_t drift; /* m of 1/m; 0: none */
	const uint64_t
	    *base; /* borrowed while the plan is made: shuffle_base_list(); for lanes > 1 with shuffle */
};

struct shuffle_plan;

struct shuffle_counts {
	uint64_t first_batch; /* the first one that is left behind `start` */
	uint64_t n_batches;
	uint32_t max_batch;
};

/* Lists chunks ascending by (key, number): list[n]. The key is the XXH3 of a chunk's id, and the numbers are
 * in the order of ids. -ENOMEM. */
int shuffle_base_list(const uint64_t *keys, uint64_t n, uint64_t *list);

/* -EINVAL: a value is out of range, the subset is of another number of samples, or there are fewer samples
 * (or fewer left) than ranks, or than lanes; -ENOMEM. */
int shuffle_plan_new(const struct shuffle_spec *spec, struct shuffle_plan **ret);
void shuffle_plan_free(struct shuffle_plan *plan);

/* How many batches each rank has in an epoch, with those that lie before `start`. */
uint64_t shuffle_n_batches(const struct shuffle_plan *plan);

/* The length of the longest batch of any rank: spec->batch, or 2 in the one case above. */
uint32_t shuffle_max_batch(const struct shuffle_plan *plan);

/*
 * The same from the number of samples alone, for whoever needs to know how much room a batch
 * takes before there is a plan. -EINVAL: as shuffle_plan_new().
 */
int shuffle_count(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, bool drop_last,
		  struct shuffle_counts *ret);

/* How many samples of the epoch all ranks together have had before that batch: n_samples behind the last one.
 */
uint64_t shuffle_position(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, bool drop_last,
			  uint64_t index);

/*
 * Counts each chunk's samples of the subset (NULL: all): ret_counts[n_chunks], which may be chunk_samples
 * itself. Returns how many chunks a plan visits. The subset must be of as many samples as the chunks have.
 */
uint64_t shuffle_count_chunks(const struct subset *subset, const uint32_t *chunk_samples, uint64_t n_chunks,
			      uint32_t *ret_counts);

/* This rank's batch is samples [*ret_first, *ret_first + *ret_count) of the epoch as it is served, with each
 * step sorted by lane. -ERANGE. */
int shuffle_batch_range(const struct shuffle_plan *plan, uint64_t batch, uint64_t *ret_first,
			uint32_t *ret_count);

/* The sample numbers of this rank's batch, in order: samples[0 .. *ret_count). samples has room for
 * shuffle_max_batch(). Cheap when batches are asked for in order. -ERANGE, -ENOMEM. */
int shuffle_batch(struct shuffle_plan *plan, uint64_t batch, uint64_t *samples, uint32_t *ret_count);

/* The windows that this rank's batch has samples of: room for shuffle_max_batch(). -ERANGE. */
int shuffle_batch_windows(const struct shuffle_plan *plan, uint64_t batch, uint64_t *windows,
			  uint32_t *ret_n);

/* The lanes [first[i], end[i]) of the spec's epoch that chunk i is in: room for n_chunks each. None, where it
 * has no sample. Uses neither ranks, batch nor window. -EINVAL, -ENOMEM. */
int shuffle_chunk_lanes(const struct shuffle_spec *spec, uint32_t *first, uint32_t *end);

/* Windows are the unit of reading, lane after lane. How many there are. */
uint64_t shuffle_n_windows(const struct shuffle_plan *plan);
/* The place in its lane of the first sample of window w. All lanes go on at one pace. */
uint64_t shuffle_window_place(const struct shuffle_plan *plan, uint64_t w);
uint64_t shuffle_window_lane(const struct shuffle_plan *plan, uint64_t w);
uint64_t shuffle_n_lanes(const struct shuffle_plan *plan);
/* The lane's windows [*ret_first, *ret_end), and how many samples they have. */
void shuffle_lane_windows(const struct shuffle_plan *plan, uint64_t lane, uint64_t *ret_first,
			  uint64_t *ret_end);
uint64_t shuffle_lane_samples(const struct shuffle_plan *plan, uint64_t lane);
/* The rank's batches have samples of no other lanes than [*ret_first, *ret_end); of these, mostly. */
void shuffle_rank_lanes(const struct shuffle_plan *plan, uint64_t *ret_first, uint64_t *ret_end);
/* The chunk that is visited i-th, lane after lane. A chunk of more than one lane has a visit in each. One
 * lane visits all chunks, or those with a sample of the subset; several visit none without a sample. */
uint64_t shuffle_chunk_visit(const struct shuffle_plan *plan, uint64_t i);
/* Window w holds visits [*ret_first, *ret_end); with one lane [w*g, (w+1)*g). */
void shuffle_window_visits(const struct shuffle_plan *plan, uint64_t w, uint64_t *ret_first,
			   uint64_t *ret_end);
