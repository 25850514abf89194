/* SPDX-License-Identifier: Apache-2.0 */
#include "session_need.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/minmax.h"

/* [w]: bytes of the chunks of all windows before w. */
static uint64_t *sum_windows(const struct cached_dataset *d, const struct shuffle_plan *plan)
{
	uint64_t n_windows = shuffle_n_windows(plan), g = shuffle_window_chunks(plan), sum = 0;
	uint64_t *sums = calloc(n_windows + 1, sizeof(*sums));

	for (uint64_t i = 0; sums && i < shuffle_n_visits(plan); i++) {
		sum += d->chunks[shuffle_chunk_visit(plan, i)].bytes;
		sums[i / g + 1] = sum;
	}
	return sums;
}

/* Bytes of the windows that the first n positions of an epoch touch. */
static uint64_t head_bytes(const struct shuffle_plan *plan, const uint64_t *sums, uint64_t n)
{
	uint64_t n_samples = shuffle_window_first(plan, shuffle_n_windows(plan));

	return n ? sums[shuffle_window_of(plan, min_u64(n, n_samples) - 1) + 1] : 0;
}

/* The most bytes that so many positions in a row touch. Starting at the last sample of a window is the worst
 * case. */
static uint64_t span_bytes(const struct shuffle_plan *plan, const uint64_t *sums,
			   const struct shuffle_plan *next, const uint64_t *next_sums, uint64_t positions)
{
	uint64_t n_windows = shuffle_n_windows(plan), n_samples = shuffle_window_first(plan, n_windows);
	uint64_t most = 0, last = 0;

	for (uint64_t first = 0; first < n_windows; first++) {
		uint64_t end = shuffle_window_first(plan, first + 1) - 1 + positions, bytes;

		if (shuffle_window_first(plan, first) == shuffle_window_first(plan, first + 1))
			continue;
		while (last + 1 < n_windows && shuffle_window_first(plan, last + 1) < end)
			last++;
		bytes = sums[last + 1] - sums[first];
		if (next && end > n_samples)
			bytes += head_bytes(next, next_sums, end - n_samples);
		if (bytes > most)
			most = bytes;
	}
	return most;
}

/* Whole windows in between, of the chunks with the fewest samples, and one more at each end. */
static uint64_t most_chunks(const struct session_shape *shape, const uint32_t *samples, uint64_t positions)
{
	uint64_t between = 0, sum = 0, g = shape->window_chunks;

	while (between < shape->n_chunks && sum + samples[between] + 2 <= positions)
		sum += samples[between++];
	return min_u64((between / g + 2) * g, positions);
}

static uint64_t held_batches(const struct session_shape *shape)
{
	return shape->views ? (uint64_t)shape->n_slots + 1 : 1;
}

uint64_t session_need_at_most(const struct session_shape *shape, const uint32_t *samples)
{
	uint64_t held = held_batches(shape), one, span;

	if (shape->asked)
		return min_u64(held * shape->batch, shape->n_chunks);
	one = most_chunks(shape, samples, shape->batch);
	span = most_chunks(shape, samples, (held - 1) * shape->batch_step + shape->batch);

	return min_u64(min_u64(held * one, span), shape->n_chunks);
}

int session_need_bytes(const struct cached_dataset *d, const struct session_shape *shape,
		       const struct shuffle_plan *plan, const struct shuffle_plan *next, uint64_t *ret_bytes)
{
	_cleanup_(freep) uint64_t *sums = sum_windows(d, plan);
	_cleanup_(freep) uint64_t *next_sums = next ? sum_windows(d, next) : NULL;
	uint64_t held = held_batches(shape), one, span;

	if (!sums || (next && !next_sums))
		return -ENOMEM;
	/* A batch belongs to one epoch, and has no more chunks than samples. */
	one =
	    min_u64(span_bytes(plan, sums, NULL, NULL, shape->batch), cached_largest_bytes(d, shape->batch));
	span = span_bytes(plan, sums, next, next_sums, (held - 1) * shape->batch_step + shape->batch);
	*ret_bytes = min_u64(min_u64(held * one, span), d->all_bytes);
	return 0;
}
