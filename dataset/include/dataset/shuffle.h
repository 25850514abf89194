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
 * With a subset, chunks without a chosen sample are left out before that, and so are the other samples of a
 * window. The order is then that of a dataset that has only these samples, in the same chunks.
 *
 * Lanes: the chunks are dealt to lanes that are the same in all epochs and for all seeds, and each lane is
 * shuffled as above by itself. Position p of the epoch is sample p div L of lane p mod L, so every stretch of
 * positions has as many samples of each lane. With drift 1/m, that share of the chunks is dealt again from
 * epoch to epoch. One lane is the order without lanes.
 *
 * Batches: step k of the epoch is the global batch of positions [k*W*B, (k+1)*W*B), W = world, B = batch;
 * rank r takes the r-th slice of B, after the step is sorted by lane: so its slices touch few lanes. If the
 * number of lanes divides W, each lane's samples of a step are divided among W / lanes ranks, even in a
 * shorter step. The global order depends on neither W nor B. With `start`, that many positions are already
 * served, by any W and B, and the steps are those of the positions that are left. The last step is shared out
 * evenly: slice lengths differ by at most one. When fewer than W samples are left for it, the last two steps
 * share theirs. So every rank has the same number of batches and none is empty, no sample is dropped or
 * doubled, and no rank waits for ever. With B = 1 two steps cannot share so few samples; they become one
 * step, and some ranks have 2 samples in their last batch (shuffle_max_batch()). With drop_last, only full
 * global batches are made.
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
	uint64_t start; /* positions of the epoch that are already served. The remaining batches have the
			   epoch's last numbers. If a batch of the whole epoch begins at `start`, they equal
			   the epoch's batches */
	uint32_t lanes; /* number of lanes; 0: as 1 */
	uint32_t drift; /* m of the drift 1/m; 0: no drift */
	const uint64_t
	    *base; /* borrowed while the plan is made: shuffle_base_list(); for lanes > 1 with shuffle */
};

struct shuffle_plan;

struct shuffle_counts {
	uint64_t first_batch; /* the first batch that remains after `start` */
	uint64_t n_batches;
	uint32_t max_batch;
};

/* Lists chunks ascending by (key, number): list[n]. The key is the XXH3 of a chunk's id, and the numbers are
 * in the order of ids. -ENOMEM. */
int shuffle_base_list(const uint64_t *keys, uint64_t n, uint64_t *list);

/* Makes the plan of one epoch. -EINVAL: a value is out of range, the subset is of another number of samples,
 * or there are fewer samples (or fewer left) than ranks, or than lanes; -ENOMEM. */
int shuffle_plan_new(const struct shuffle_spec *spec, struct shuffle_plan **ret);
void shuffle_plan_free(struct shuffle_plan *plan);

/* Returns the number of batches that each rank has in an epoch, including those before `start`. */
uint64_t shuffle_n_batches(const struct shuffle_plan *plan);

/* Returns the length of the longest batch of any rank: spec->batch, or 2 in the case of B = 1 described
 * above. */
uint32_t shuffle_max_batch(const struct shuffle_plan *plan);

/* Computes the counts from the number of samples only, for callers that need the size of a batch before there
 * is a plan. -EINVAL: as shuffle_plan_new(). */
int shuffle_count(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, bool drop_last,
		  struct shuffle_counts *ret);

/* Returns how many samples of the epoch all ranks together received before that batch: n_samples after the
 * last batch. */
uint64_t shuffle_position(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, bool drop_last,
			  uint64_t index);

/*
 * Counts each chunk's samples of the subset (NULL: all): ret_counts[n_chunks], which may be chunk_samples
 * itself. Returns how many chunks a plan visits. The subset must be of as many samples as the chunks have.
 */
uint64_t shuffle_count_chunks(const struct subset *subset, const uint32_t *chunk_samples, uint64_t n_chunks,
			      uint32_t *ret_counts);

/* Returns this rank's batch as the range [*ret_first, *ret_first + *ret_count) of the epoch's samples in
 * serving order, where each step is sorted by lane. -ERANGE. */
int shuffle_batch_range(const struct shuffle_plan *plan, uint64_t batch, uint64_t *ret_first,
			uint32_t *ret_count);

/* Returns the sample numbers of this rank's batch, in order: samples[0 .. *ret_count). samples has space for
 * shuffle_max_batch() numbers. Cheap when batches are requested in order. -ERANGE, -ENOMEM. */
int shuffle_batch(struct shuffle_plan *plan, uint64_t batch, uint64_t *samples, uint32_t *ret_count);

/* Returns the windows that hold the samples of this rank's batch. windows has space for shuffle_max_batch().
 * -ERANGE. */
int shuffle_batch_windows(const struct shuffle_plan *plan, uint64_t batch, uint64_t *windows,
			  uint32_t *ret_n);

/* Returns the lanes [first[i], end[i]) of the spec's epoch that chunk i is in; first and end have space for
 * n_chunks each. The range is empty for a chunk without a sample. Uses neither ranks, batch nor window.
 * -EINVAL, -ENOMEM. */
int shuffle_chunk_lanes(const struct shuffle_spec *spec, uint32_t *first, uint32_t *end);

/* Returns the number of windows. Windows are the unit of reading, lane after lane. */
uint64_t shuffle_n_windows(const struct shuffle_plan *plan);
/* Returns the position in its lane of the first sample of window w. All lanes advance at one pace. */
uint64_t shuffle_window_place(const struct shuffle_plan *plan, uint64_t w);
uint64_t shuffle_window_lane(const struct shuffle_plan *plan, uint64_t w);
uint64_t shuffle_n_lanes(const struct shuffle_plan *plan);
/* Returns the lane's windows [*ret_first, *ret_end), and the number of samples in the lane. */
void shuffle_lane_windows(const struct shuffle_plan *plan, uint64_t lane, uint64_t *ret_first,
			  uint64_t *ret_end);
uint64_t shuffle_lane_samples(const struct shuffle_plan *plan, uint64_t lane);
/* Returns the range of lanes [*ret_first, *ret_end) that the rank's batches take samples from: from no
 * others, and mostly from all of these. */
void shuffle_rank_lanes(const struct shuffle_plan *plan, uint64_t *ret_first, uint64_t *ret_end);
/* Returns the chunk that is visited i-th, lane after lane. A chunk of more than one lane has a visit in each.
 * One lane visits all chunks, or those with a sample of the subset; several lanes visit no chunk without a
 * sample. */
uint64_t shuffle_chunk_visit(const struct shuffle_plan *plan, uint64_t i);
/* Returns the visits [*ret_first, *ret_end) of window w. With one lane they are [w*g, (w+1)*g). */
void shuffle_window_visits(const struct shuffle_plan *plan, uint64_t w, uint64_t *ret_first,
			   uint64_t *ret_end);
