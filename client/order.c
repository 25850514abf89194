/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a session, computed without opening a session. */
#include "client/diesel.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset.h"
#include "dataset/shuffle.h"
#include "lib/cleanup.h"
#include "subset.h"

struct diesel_order {
	uint32_t *chunk_samples;
	struct shuffle_plan *plan;
};

static int count_samples(const struct snapshot *snapshot, uint32_t **ret)
{
	uint64_t n_chunks = snapshot_info(snapshot)->n_chunks;
	_cleanup_(freep) uint32_t *counts = calloc(n_chunks ? n_chunks : 1, sizeof(*counts));

	if (!counts)
		return -ENOMEM;
	for (uint64_t i = 0; i < n_chunks; i++) {
		struct snapshot_chunk chunk;
		int r = snapshot_chunk_get(snapshot, i, &chunk);

		if (r < 0)
			return r;
		counts[i] = chunk.n_samples;
	}
	*ret = steal_pointer(counts);
	return 0;
}

static int make_plan(const struct diesel_dataset *dataset, const struct diesel_session_options *o,
		     struct diesel_order *order)
{
	struct shuffle_spec spec = {.n_chunks = snapshot_info(dataset->snapshot)->n_chunks,
				    .subset = o->subset ? o->subset->chosen : NULL,
				    .seed = o->seed,
				    .epoch = o->epoch,
				    .window_chunks = o->window_chunks,
				    .shuffle = o->flags & DIESEL_SHUFFLE,
				    .rank = o->rank,
				    .world = o->world,
				    .batch = o->batch,
				    .drop_last = o->flags & DIESEL_DROP_LAST,
				    .start = o->start,
				    .lanes = o->lanes,
				    .drift = o->drift};
	_cleanup_(freep) uint64_t *base = NULL;
	int r = count_samples(dataset->snapshot, &order->chunk_samples);

	if (r == 0 && spec.lanes > 1 && spec.shuffle)
		r = snapshot_base_list(dataset->snapshot, &base);
	spec.chunk_samples = order->chunk_samples;
	spec.base = base;
	return r < 0 ? r : shuffle_plan_new(&spec, &order->plan);
}

int diesel_order_new(const struct diesel_dataset *dataset, const struct diesel_session_options *options,
		     struct diesel_order **ret, char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	struct diesel_order *order = calloc(1, sizeof(*order));
	int r = order ? make_plan(dataset, options, order) : -ENOMEM;

	if (r < 0) {
		diesel_order_free(order);
		error_errno(&err, r,
			    "cannot plan the order of %s: world, batch, window or lanes out of range, fewer "
			    "samples than ranks or lanes, or the subset is of another dataset",
			    dataset->path);
		return report_error(&err, r, error, error_size);
	}
	*ret = order;
	return 0;
}

void diesel_order_free(struct diesel_order *order)
{
	if (!order)
		return;
	shuffle_plan_free(order->plan);
	free(order->chunk_samples);
	free(order);
}

uint64_t diesel_order_n_batches(const struct diesel_order *order)
{
	return shuffle_n_batches(order->plan);
}

uint32_t diesel_order_max_batch(const struct diesel_order *order)
{
	return shuffle_max_batch(order->plan);
}

int diesel_order_batch(struct diesel_order *order, uint64_t batch, uint64_t *samples, uint32_t *ret_count)
{
	return shuffle_batch(order->plan, batch, samples, ret_count);
}
