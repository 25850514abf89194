/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/shuffle.h"
#include "dataset/subset.h"

static void row_free(struct lane_row *row)
{
	free(row->first);
	free(row->end);
	*row = (struct lane_row){.first = NULL};
}

void lane_table_free(struct lane_table *t)
{
	for (int i = 0; i < LANES_N; i++)
		row_free(&t->rows[i]);
	subset_free(t->subset);
	free(t->chunk_samples);
	free(t->base);
	*t = (struct lane_table){.lanes = 0};
}

static bool is_same_order(const struct lane_table *t, const struct shuffle_spec *spec)
{
	return t->lanes == spec->lanes && t->drift == spec->drift && t->shuffle == spec->shuffle &&
	       t->n_chunks == spec->n_chunks && subset_is_same(t->subset, spec->subset);
}

static int copy_order(struct lane_table *t, const struct shuffle_spec *spec)
{
	uint64_t n = spec->n_chunks;

	*t = (struct lane_table){.lanes = spec->lanes,
				 .drift = spec->drift,
				 .shuffle = spec->shuffle,
				 .n_chunks = n,
				 .seen = spec->epoch,
				 .epoch = spec->epoch,
				 .chunk_samples = reallocarray(NULL, n + 1, sizeof(*t->chunk_samples)),
				 .base = reallocarray(NULL, n + 1, sizeof(*t->base)),
				 .served = {.lanes = spec->lanes, .drift = spec->drift}};
	if (!t->chunk_samples || !t->base || (spec->subset && subset_copy(spec->subset, &t->subset) < 0))
		return -ENOMEM;
	memcpy(t->chunk_samples, spec->chunk_samples, n * sizeof(*t->chunk_samples));
	memcpy(t->base, spec->base, n * sizeof(*t->base));
	return 0;
}

static int fill_row(const struct lane_table *t, uint64_t epoch, struct lane_row *row)
{
	const struct shuffle_spec spec = {.chunk_samples = t->chunk_samples,
					  .n_chunks = t->n_chunks,
					  .subset = t->subset,
					  .epoch = epoch,
					  .shuffle = t->shuffle,
					  .lanes = t->lanes,
					  .drift = t->drift,
					  .base = t->base};

	row_free(row);
	row->epoch = epoch;
	row->first = reallocarray(NULL, t->n_chunks + 1, sizeof(*row->first));
	row->end = reallocarray(NULL, t->n_chunks + 1, sizeof(*row->end));
	if (row->first && row->end && shuffle_chunk_lanes(&spec, row->first, row->end) == 0)
		return 0;
	row_free(row);
	return -ENOMEM;
}

/* Fills in the missing rows; keeps rows of epochs that are still among the three. */
static void fill_rows(struct lane_table *t)
{
	struct lane_row old[LANES_N];

	if (t->drift == 0) {
		if (!t->rows[LANES_NOW].first)
			(void)fill_row(t, t->epoch, &t->rows[LANES_NOW]);
		return;
	}
	memcpy(old, t->rows, sizeof(old));
	memset(t->rows, 0, sizeof(t->rows));
	for (int i = 0; i < LANES_N; i++) {
		uint64_t epoch = t->epoch + (uint64_t)i - LANES_NOW;

		if (t->epoch == 0 && i == LANES_BEFORE)
			continue;
		for (int k = 0; k < LANES_N && !t->rows[i].first; k++) {
			if (!old[k].first || old[k].epoch != epoch)
				continue;
			t->rows[i] = old[k];
			old[k] = (struct lane_row){.first = NULL};
		}
		if (!t->rows[i].first)
			(void)fill_row(t, epoch, &t->rows[i]);
	}
	for (int k = 0; k < LANES_N; k++)
		row_free(&old[k]);
}

bool lane_table_join(struct lane_table *t, const struct shuffle_spec *spec, uint32_t first, uint32_t end)
{
	struct owner_lanes before;

	if (spec->lanes <= 1)
		return false;
	if (!is_same_order(t, spec)) {
		lane_table_free(t);
		if (copy_order(t, spec) < 0) {
			lane_table_free(t);
			return true;
		}
		fill_rows(t);
	}
	before = t->served;
	owner_lanes_add(&t->served, first, end);
	return memcmp(&before, &t->served, sizeof(before)) != 0;
}

bool lane_table_go_on(struct lane_table *t, uint64_t epoch)
{
	/* Ranks may be one epoch apart. A job that starts over returns to an earlier epoch. */
	if (t->lanes <= 1 || epoch == t->epoch || epoch + 1 == t->epoch)
		return false;
	t->seen = epoch < t->seen ? epoch : t->seen;
	t->epoch = epoch;
	fill_rows(t);
	return t->drift > 0;
}

bool lane_table_place(const struct lane_table *t, enum lane_epoch when, uint64_t chunk,
		      struct owner_place *ret)
{
	const struct lane_row *row = &t->rows[t->drift ? when : LANES_NOW];

	/* This node had no lanes in epochs in which it took no part. */
	if (t->lanes <= 1 || !row->first || row->first[chunk] == row->end[chunk] ||
	    (when == LANES_BEFORE && t->epoch <= t->seen))
		return false;
	*ret = (struct owner_place){t->lanes, t->drift, row->first[chunk], row->end[chunk]};
	return true;
}
