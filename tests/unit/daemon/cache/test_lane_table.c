/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "dataset/shuffle.h"
#include "daemon/cache/peers/lane_table.h"

#define N_CHUNKS 40

struct world {
	uint32_t sizes[N_CHUNKS];
	uint64_t base[N_CHUNKS];
	struct shuffle_spec spec;
	struct lane_table table;
};

static void world_init(struct world *w, uint32_t drift)
{
	*w = (struct world){
	    .spec = {.n_chunks = N_CHUNKS, .shuffle = true, .lanes = 4, .drift = drift, .epoch = 3}};
	for (uint64_t i = 0; i < N_CHUNKS; i++) {
		w->sizes[i] = 10 + (uint32_t)i % 3;
		w->base[i] = (i * 7) % N_CHUNKS;
	}
	w->spec.chunk_samples = w->sizes;
	w->spec.base = w->base;
}

/* Asserts that the rows match the order of their epochs. */
static void check_rows(const struct world *w, uint64_t epoch, bool before)
{
	uint32_t first[N_CHUNKS], end[N_CHUNKS];
	struct shuffle_spec spec = w->spec;
	struct owner_place place;

	for (int when = before ? LANES_BEFORE : LANES_NOW; when < LANES_N; when++) {
		spec.epoch = epoch + (uint64_t)when - LANES_NOW;
		assert_int_equal(shuffle_chunk_lanes(&spec, first, end), 0);
		for (uint64_t i = 0; i < N_CHUNKS; i++) {
			assert_true(lane_table_place(&w->table, (enum lane_epoch)when, i, &place));
			assert_int_equal(place.first, first[i]);
			assert_int_equal(place.end, end[i]);
			assert_int_equal(place.lanes, 4);
		}
	}
	if (!before)
		assert_false(lane_table_place(&w->table, LANES_BEFORE, 0, &place));
}

TEST(epochs_go_on)
{
	for (uint32_t drift = 0; drift < 4; drift++) {
		struct world w;

		world_init(&w, drift);
		assert_true(lane_table_join(&w.table, &w.spec, 1, 2));
		check_rows(&w, 3, false);
		assert_false(lane_table_go_on(&w.table, 3));
		for (uint64_t epoch = 4; epoch < 9; epoch++) {
			assert_int_equal(lane_table_go_on(&w.table, epoch), drift > 0);
			check_rows(&w, epoch, true);
			assert_false(lane_table_go_on(&w.table, epoch - 1)); /* another rank is late */
		}
		lane_table_go_on(&w.table, 0); /* the job starts again */
		check_rows(&w, 0, false);
		lane_table_free(&w.table);
	}
}

TEST(what_is_served)
{
	struct world w;

	world_init(&w, 0);
	assert_true(lane_table_join(&w.table, &w.spec, 1, 2));
	assert_false(lane_table_join(&w.table, &w.spec, 1, 2));
	assert_true(lane_table_join(&w.table, &w.spec, 2, 3));
	assert_int_equal(w.table.served.n_runs, 1);
	assert_int_equal(w.table.served.runs[0].first, 1);
	assert_int_equal(w.table.served.runs[0].end, 3);
	/* With another order, the latest one counts. */
	w.spec.lanes = 2;
	assert_true(lane_table_join(&w.table, &w.spec, 0, 1));
	assert_int_equal(w.table.served.runs[0].end, 1);
	w.spec.lanes = 1; /* one lane needs no rows */
	assert_false(lane_table_join(&w.table, &w.spec, 0, 1));
	lane_table_free(&w.table);
}
