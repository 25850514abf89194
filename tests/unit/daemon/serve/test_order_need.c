/* SPDX-License-Identifier: Apache-2.0 */
/* The reservation for a session is never less than its batches really use. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/cache/peers/memberships.h"
#include "daemon/serve/order.h"

#define N_MAX 40

struct world {
	struct cached_chunk chunks[N_MAX];
	uint32_t samples[N_MAX], ascending[N_MAX];
	uint64_t largest[N_MAX + 1];
	uint64_t first_sample[N_MAX + 1];
	struct cached_dataset dataset;
	struct order order;
};

static int ascending(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int descending(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x < *y) - (*x > *y);
}

/* Takes samples[] and chunks[].bytes. Every chunk counts as one of the few large ones. */
static void world_init(struct world *w, uint64_t n)
{
	uint64_t sizes[N_MAX];

	w->dataset = (struct cached_dataset){.chunks = w->chunks, .giants = {.n = n, .bytes = w->largest}};
	w->dataset.info.n_chunks = n;
	memcpy(w->ascending, w->samples, sizeof(w->ascending));
	qsort(w->ascending, n, sizeof(*w->ascending), ascending);
	for (uint64_t i = 0; i < n; i++) {
		sizes[i] = w->chunks[i].bytes;
		w->dataset.all_bytes += sizes[i];
		w->first_sample[i + 1] = w->first_sample[i] + w->samples[i];
	}
	w->dataset.info.n_samples = w->first_sample[n];
	qsort(sizes, n, sizeof(*sizes), descending);
	for (uint64_t i = 0; i < n; i++)
		w->largest[i + 1] = w->largest[i] + sizes[i];
	w->order =
	    (struct order){.dataset = &w->dataset, .n_samples = w->dataset.info.n_samples, .n_chunks = n};
}

/* Returns the largest need of any order, in chunks. */
static uint64_t chunks_needed(struct world *w, uint32_t batch, uint32_t n_slots, bool views)
{
	uint64_t chunks, bytes;

	w->order.batch = batch;
	assert_int_equal(order_need(&w->order, w->ascending, n_slots, views, &chunks, &bytes), 0);
	assert_int_equal(bytes, cached_largest_bytes(&w->dataset, chunks));
	return chunks;
}

TEST(the_need_of_even_chunks_follows_the_order)
{
	static const struct {
		uint32_t n_chunks, samples, batch, window_chunks, n_slots, world;
		bool views;
		uint64_t need;
	} table[] = {
	    /* a batch at a window's edge uses two windows */
	    {10, 2000, 256, 2, 8, 1, false, 4},
	    /* a batch cannot use more chunks than it has samples, or than there are */
	    {10, 2000, 3, 4, 8, 1, false, 3},
	    {10, 2000, 256, 8, 8, 1, false, 10},
	    {10, 2000, 1, 8, 8, 1, false, 1},
	    /* a batch over several windows */
	    {40, 100, 250, 1, 8, 1, false, 4},
	    /* views: nine batches of 64 in a row span 576 samples, at 150 per window, which is five windows
	     * and an edge */
	    {40, 75, 64, 2, 8, 1, true, 10},
	    /* views of one rank of many: each batch may lie in different windows */
	    {40, 75, 64, 2, 3, 1000, true, 16},
	    /* chunks without samples do not cause a division by zero */
	    {5, 0, 2, 1, 3, 1, false, 2},
	};
	static struct world w;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint64_t need;

		w = (struct world){.samples = {0}};
		for (uint32_t k = 0; k < table[i].n_chunks; k++) {
			w.chunks[k].bytes = 1;
			w.samples[k] = table[i].samples;
		}
		world_init(&w, table[i].n_chunks);
		w.order.request = (struct wire_open_session){
		    .world = table[i].world, .stride = 1, .window_chunks = table[i].window_chunks};
		need = chunks_needed(&w, table[i].batch, table[i].n_slots, table[i].views);
		if (need != table[i].need)
			fail_msg("line %zu: %lu instead of %lu", i, need, table[i].need);
	}
}

TEST(few_samples_may_be_most_bytes)
{
	static struct world w;

	for (int i = 0; i < 30; i++) {
		w.samples[i] = i < 20 ? 1 : 1000;
		w.chunks[i].bytes = i < 20 ? 100 : 1;
	}
	world_init(&w, 30);
	w.order.request = (struct wire_open_session){.world = 1, .stride = 1, .window_chunks = 1};
	assert_int_equal(chunks_needed(&w, 30, 3, false), 22);
}

static uint32_t next_random(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) % below;
}

static uint64_t chunk_of(const struct world *w, uint64_t sample)
{
	uint64_t i = 0;

	while (w->first_sample[i + 1] <= sample)
		i++;
	return i;
}

struct run {
	const struct world *world;
	struct shuffle_plan *plans[2];
	uint32_t stride;
};

/* Adds the chunks of the session's batch n, counted on into the second epoch. Returns false if there is no
 * such batch. */
static bool touch(const struct run *run, uint64_t n, bool *touched)
{
	uint64_t samples[64], per_epoch = shuffle_n_batches(run->plans[0]);
	uint32_t count, epoch = n * run->stride >= per_epoch;
	uint64_t index = epoch ? n * run->stride - (per_epoch + run->stride - 1) / run->stride * run->stride
			       : n * run->stride;

	if (epoch && !run->plans[1])
		return false;
	if (shuffle_batch(run->plans[epoch], index, samples, &count) < 0)
		return false;
	for (uint32_t i = 0; i < count; i++)
		touched[chunk_of(run->world, samples[i])] = true;
	return true;
}

static uint64_t touched_bytes(const struct run *run, uint64_t first, uint64_t n)
{
	bool touched[N_MAX] = {false};
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < n && touch(run, first + i, touched); i++)
		continue;
	for (uint64_t i = 0; i < run->world->dataset.info.n_chunks; i++)
		bytes += touched[i] ? run->world->chunks[i].bytes : 0;
	return bytes;
}

static void check_one(uint32_t seed)
{
	static struct world w;
	uint32_t random = seed, n = 1 + next_random(&random, N_MAX);
	uint32_t window_chunks = 1 + next_random(&random, 6), n_slots = 3 + next_random(&random, 4);
	bool views = next_random(&random, 2);
	uint64_t base[N_MAX], chunks;
	struct shuffle_spec spec = {.n_chunks = n, .seed = seed, .shuffle = true, .base = base};
	struct run run = {.world = &w, .stride = 1 + next_random(&random, 3)};
	uint64_t in_order, at_most, held = views ? n_slots + 1u : 1;

	w = (struct world){.samples = {0}};
	for (uint32_t i = 0; i < n; i++) {
		w.samples[i] = next_random(&random, 3) ? 1 + next_random(&random, 40) : 1;
		w.chunks[i].bytes = next_random(&random, 4) ? 10 : 1000;
	}
	world_init(&w, n);
	for (uint32_t i = 0; i < n; i++)
		base[i] = n - 1 - i;
	spec.lanes = next_random(&random, 3) ? 1 : 1 + next_random(&random, n);
	spec.drift = next_random(&random, 3);
	spec.chunk_samples = w.samples;
	spec.window_chunks = window_chunks;
	spec.world = 1 + next_random(&random, 3);
	spec.rank = next_random(&random, spec.world);
	spec.batch = next_random(&random, 4) ? 1 + next_random(&random, 60) : 1;
	if (shuffle_plan_new(&spec, &run.plans[0]) < 0)
		return; /* fewer samples than ranks */
	spec.epoch = 1;
	assert_int_equal(shuffle_plan_new(&spec, &run.plans[1]), 0);
	w.order.request = (struct wire_open_session){
	    .world = spec.world, .stride = run.stride, .lanes = spec.lanes, .window_chunks = window_chunks};
	w.order.batch = shuffle_max_batch(run.plans[0]);
	for (uint64_t i = 0; i < 2; i++)
		w.order.plans[i] = (struct epoch_plan){.epoch = i, .plan = run.plans[i]};
	assert_int_equal(order_need(&w.order, w.ascending, n_slots, views, &chunks, &at_most), 0);
	w.order.exact = true;
	assert_int_equal(order_need(&w.order, w.ascending, n_slots, views, &chunks, &in_order), 0);
	assert_true(at_most <= w.dataset.all_bytes && in_order <= w.dataset.all_bytes);
	for (uint64_t i = 0; i * run.stride < shuffle_n_batches(run.plans[0]); i++) {
		uint64_t touched = touched_bytes(&run, i, held);

		if (touched > in_order || touched > at_most)
			fail_msg("seed %u, batch %lu: %lu touched, %lu reserved, %lu at most", seed, i,
				 touched, in_order, at_most);
	}
	shuffle_plan_free(run.plans[0]);
	shuffle_plan_free(run.plans[1]);
}

TEST(never_less_than_what_is_touched)
{
	for (uint32_t seed = 1; seed <= 3000; seed++)
		check_one(seed);
}

/* A job may continue at any epoch: its lanes are known to the other nodes from its first batch on. */
TEST(the_lanes_are_known_from_the_first_epoch_on)
{
	static struct world w;
	static struct cache cache;
	uint64_t base[N_MAX] = {0};

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		struct membership m = {.cache = &cache, .dataset = &w.dataset};
		struct shuffle_spec spec = {.n_chunks = 4,
					    .chunk_samples = w.samples,
					    .epoch = epoch,
					    .window_chunks = 1,
					    .world = 1,
					    .batch = 2,
					    .lanes = 2,
					    .base = base};

		w = (struct world){.samples = {2, 2, 2, 2}};
		world_init(&w, 4);
		w.dataset.base = base;
		w.order.request = (struct wire_open_session){
		    .epoch = epoch, .world = 1, .batch = 2, .stride = 1, .lanes = 2, .window_chunks = 1};
		w.order.batch = 2;
		w.order.plans[epoch & 1].epoch = epoch;
		w.order.chunk_samples = calloc(4, sizeof(*w.order.chunk_samples));
		assert_non_null(w.order.chunk_samples);
		assert_int_equal(shuffle_plan_new(&spec, &w.order.plans[epoch & 1].plan), 0);
		assert_int_equal(order_start(&w.order, &m), 0);
		assert_int_equal(m.lanes.lanes, 2);
		assert_int_equal(m.lanes.epoch, epoch);
		lane_table_free(&m.lanes);
		order_end(&w.order);
	}
}
