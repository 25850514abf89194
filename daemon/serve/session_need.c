/* SPDX-License-Identifier: Apache-2.0 */
#include "session_need.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/minmax.h"

/* [w]: bytes of the chunks of all windows before w. */
static uint64_t *sum_windows(const struct cached_dataset *d, const struct shuffle_plan *plan)
{
	uint64_t n_windows = shuffle_n_windows(plan), sum = 0, visit, end;
	uint64_t *sums = calloc(n_windows + 1, sizeof(*sums));

	for (uint64_t w = 0; sums && w < n_windows; w++) {
		for (shuffle_window_visits(plan, w, &visit, &end); visit < end; visit++)
			sum += d->chunks[shuffle_chunk_visit(plan, visit)].bytes;
		sums[w + 1] = sum;
	}
	return sums;
}

/* The windows of one lane of an epoch. */
struct row {
	const struct shuffle_plan *plan;
	const uint64_t *sums;
	uint64_t first, end, n_samples;
};

static struct row row_of(const struct shuffle_plan *plan, const uint64_t *sums, uint64_t lane)
{
	struct row row = {.plan = plan, .sums = sums, .n_samples = shuffle_lane_samples(plan, lane)};

	shuffle_lane_windows(plan, lane, &row.first, &row.end);
	return row;
}

/* The place in the lane of a window's first sample. */
static uint64_t place_of(const struct row *row, uint64_t w)
{
	return w < row->end ? shuffle_window_place(row->plan, w) : row->n_samples;
}

/* Bytes of the windows that the first n places touch. */
static uint64_t head_bytes(const struct row *row, uint64_t n)
{
	uint64_t w = row->first;

	while (w < row->end && place_of(row, w) < n)
		w++;
	return row->sums[w] - row->sums[row->first];
}

/* The most bytes that so many places in a row touch. Starting at the last sample of a window is the worst
 * case. */
static uint64_t span_bytes(const struct row *row, const struct row *next, uint64_t places)
{
	uint64_t most = 0, last = row->first;

	for (uint64_t first = row->first; first < row->end; first++) {
		uint64_t end = place_of(row, first + 1) - 1 + places, bytes;

		if (place_of(row, first) == place_of(row, first + 1))
			continue;
		while (last + 1 < row->end && place_of(row, last + 1) < end)
			last++;
		bytes = row->sums[last + 1] - row->sums[first];
		if (next && end > row->n_samples)
			bytes += head_bytes(next, end - row->n_samples);
		most = max_u64(most, bytes);
	}
	return most;
}

/* The places of each lane that so many positions in a row have. */
static uint64_t places_of(uint64_t positions, uint64_t lanes)
{
	return lanes > 1 ? positions / lanes + 2 : positions;
}

/* The most that a session touches of one lane: in a batch, and in all that it holds. */
static uint64_t batch_places(const struct session_shape *shape)
{
	return min_u64(shape->batch, places_of(shape->lanes > 1 ? shape->step : shape->batch, shape->lanes));
}

static uint64_t held_places(const struct session_shape *shape, uint64_t held)
{
	uint64_t last = shape->lanes > 1 ? shape->step : shape->batch;

	return places_of((held - 1) * shape->batch_step + last, shape->lanes);
}

/* Of one lane: whole windows in between, of the chunks with the fewest samples, and one more at each end. A
 * chunk that lies in two lanes may have fewer samples of this one. */
static uint64_t most_chunks(const struct session_shape *shape, const uint32_t *samples, uint64_t places)
{
	uint64_t between = shape->lanes > 1 ? 2 : 0, n = between, sum = between, g = shape->window_chunks;

	for (uint64_t i = 0; i < shape->n_chunks && sum + samples[i] + 2 <= places; i++) {
		sum += samples[i];
		n++;
	}
	return min_u64((n / g + 2) * g, places);
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
	one = min_u64(shape->n_lanes * most_chunks(shape, samples, batch_places(shape)), shape->batch);
	span = shape->n_lanes * most_chunks(shape, samples, held_places(shape, held));
	return min_u64(min_u64(held * one, span), shape->n_chunks);
}

int session_need_bytes(const struct cached_dataset *d, const struct session_shape *shape,
		       const struct shuffle_plan *plan, const struct shuffle_plan *next, uint64_t *ret_bytes)
{
	_cleanup_(freep) uint64_t *sums = sum_windows(d, plan);
	_cleanup_(freep) uint64_t *next_sums = next ? sum_windows(d, next) : NULL;
	uint64_t held = held_batches(shape), one = 0, then_one = 0, span = 0, lane, end;

	if (!sums || (next && !next_sums))
		return -ENOMEM;
	for (shuffle_rank_lanes(plan, &lane, &end); lane < end; lane++) {
		const struct row row = row_of(plan, sums, lane);
		struct row then;

		if (next) {
			then = row_of(next, next_sums, lane);
			then_one += span_bytes(&then, NULL, batch_places(shape));
		}
		/* A batch belongs to one epoch. */
		one += span_bytes(&row, NULL, batch_places(shape));
		span += span_bytes(&row, next ? &then : NULL, held_places(shape, held));
	}
	/* It has no more chunks than samples. */
	one = min_u64(max_u64(one, then_one), cached_largest_bytes(d, shape->batch));
	*ret_bytes = min_u64(min_u64(held * one, span), d->all_bytes);
	return 0;
}
