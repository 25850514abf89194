/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "dataset/shuffle.h"
#include "dataset/subset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A generator of test cases, other than the one under test. */
static uint64_t draw(uint64_t *state, uint64_t low, uint64_t high)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return low + (*state >> 33) % (high - low + 1);
}

struct epoch {
	uint64_t n_samples;
	uint64_t n_steps;
	uint64_t *order; /* as the ranks see it, step by step, rank by rank */
	uint64_t n_seen;
	uint32_t longest, shortest;
};

static void epoch_free(struct epoch *e)
{
	free(e->order);
}

/* Runs all ranks through an epoch. */
static struct epoch run_epoch(struct shuffle_spec spec)
{
	struct epoch e = {.shortest = UINT32_MAX};
	struct shuffle_plan **plans = calloc(spec.world, sizeof(struct shuffle_plan *));

	for (uint64_t i = 0; i < spec.n_chunks; i++)
		e.n_samples += spec.chunk_samples[i];
	e.order = calloc(e.n_samples + 1, sizeof(uint64_t));
	for (uint32_t r = 0; r < spec.world; r++) {
		spec.rank = r;
		assert_int_equal(shuffle_plan_new(&spec, &plans[r]), 0);
		if (r > 0)
			assert_int_equal(shuffle_n_batches(plans[r]), e.n_steps);
		e.n_steps = shuffle_n_batches(plans[r]);
	}
	for (uint64_t step = 0; step < e.n_steps; step++) {
		for (uint32_t r = 0; r < spec.world; r++) {
			uint32_t space = shuffle_max_batch(plans[r]), count, count_too;
			uint64_t *samples = malloc(space * sizeof(uint64_t)), first;

			assert_int_equal(shuffle_batch(plans[r], step, samples, &count), 0);
			assert_int_equal(shuffle_batch_range(plans[r], step, &first, &count_too), 0);
			assert_int_equal(count, count_too);
			assert_int_equal(first, e.n_seen);
			assert_true(count >= 1 && count <= space);
			e.longest = count > e.longest ? count : e.longest;
			e.shortest = count < e.shortest ? count : e.shortest;
			memcpy(e.order + e.n_seen, samples, count * sizeof(uint64_t));
			e.n_seen += count;
			free(samples);
		}
	}
	for (uint32_t r = 0; r < spec.world; r++)
		shuffle_plan_free(plans[r]);
	free(plans);
	return e;
}

static void assert_each_once(const struct epoch *e)
{
	unsigned char *seen = calloc(e->n_samples + 1, 1);

	assert_int_equal(e->n_seen, e->n_samples);
	for (uint64_t i = 0; i < e->n_seen; i++) {
		assert_true(e->order[i] < e->n_samples);
		assert_int_equal(seen[e->order[i]]++, 0);
	}
	free(seen);
}

TEST(every_sample_once)
{
	uint64_t random = 1;

	for (int round = 0; round < 400; round++) {
		uint32_t chunk_samples[40];
		struct shuffle_spec spec = {
		    .chunk_samples = chunk_samples,
		    .n_chunks = draw(&random, 1, 40),
		    .seed = random,
		    .epoch = draw(&random, 0, 3),
		    .window_chunks = (uint32_t)draw(&random, 1, 50),
		    .shuffle = draw(&random, 0, 4) != 0,
		    .world = (uint32_t)draw(&random, 1, 9),
		    .batch = (uint32_t)draw(&random, 1, 20),
		};
		uint64_t n = 0;

		for (uint64_t i = 0; i < spec.n_chunks; i++)
			n += chunk_samples[i] = (uint32_t)draw(&random, 0, 12);
		if (n < spec.world) {
			struct shuffle_plan *plan;

			assert_int_equal(shuffle_plan_new(&spec, &plan), -EINVAL);
			continue;
		}
		struct epoch e = run_epoch(spec);

		assert_each_once(&e);
		epoch_free(&e);
		/* With drop_last, there are only full batches, which are a prefix of the same order. */
		spec.drop_last = true;
		struct epoch full = run_epoch(spec);

		assert_int_equal(full.n_seen, n - n % ((uint64_t)spec.world * spec.batch));
		assert_true(full.n_steps == 0 || (full.shortest == spec.batch && full.longest == spec.batch));
		epoch_free(&full);
	}
}

/* Every (samples, world, batch) of a small range covers all cases of the rules for the tail. */
TEST(the_tail_s_rules_hold_in_all_cases)
{
	for (uint32_t n = 1; n <= 40; n++) {
		for (uint32_t world = 1; world <= 6 && world <= n; world++) {
			for (uint32_t batch = 1; batch <= 6; batch++) {
				struct epoch e = run_epoch((struct shuffle_spec){
				    .chunk_samples = &n,
				    .n_chunks = 1,
				    .window_chunks = 1,
				    .world = world,
				    .batch = batch,
				});
				bool two = batch == 1 && n % world != 0;

				assert_each_once(&e);
				assert_true(e.longest <= (two ? 2 : batch));
				epoch_free(&e);
			}
		}
	}
}

TEST(order_is_free_of_world)
{
	static const uint32_t chunk_samples[] = {100, 37, 0, 250, 1, 80, 64, 200, 5, 90};
	struct epoch first = {0};

	/* W * B is 24 throughout. */
	for (uint32_t world = 1; world <= 24; world++) {
		if (24 % world)
			continue;
		struct epoch e = run_epoch((struct shuffle_spec){
		    .chunk_samples = chunk_samples,
		    .n_chunks = 10,
		    .seed = 7,
		    .epoch = 3,
		    .window_chunks = 4,
		    .shuffle = true,
		    .world = world,
		    .batch = 24 / world,
		});

		assert_each_once(&e);
		if (world == 1) {
			first = e;
			continue;
		}
		assert_memory_equal(first.order, e.order, e.n_samples * sizeof(uint64_t));
		epoch_free(&e);
	}
	epoch_free(&first);
}

TEST(an_order_resumes_at_any_batch)
{
	static const uint32_t chunk_samples[] = {9, 14, 3, 22, 17, 8, 11};
	struct shuffle_spec spec = {
	    .chunk_samples = chunk_samples,
	    .n_chunks = 7,
	    .seed = 99,
	    .epoch = 5,
	    .window_chunks = 2,
	    .shuffle = true,
	    .rank = 1,
	    .world = 3,
	    .batch = 4,
	};
	struct shuffle_plan *steady, *fresh;
	uint64_t expected[4], got[4];
	uint32_t n_expected, n_got;

	assert_int_equal(shuffle_plan_new(&spec, &steady), 0);
	for (uint64_t step = 0; step < shuffle_n_batches(steady); step++) {
		assert_int_equal(shuffle_batch(steady, step, expected, &n_expected), 0);
		assert_int_equal(shuffle_plan_new(&spec, &fresh), 0);
		assert_int_equal(shuffle_batch(fresh, step, got, &n_got), 0);
		assert_int_equal(n_got, n_expected);
		assert_memory_equal(got, expected, n_got * sizeof(uint64_t));
		shuffle_plan_free(fresh);
	}
	n_got = 77;
	assert_int_equal(shuffle_batch(steady, shuffle_n_batches(steady), got, &n_got), -ERANGE);
	assert_int_equal(n_got, 77);
	shuffle_plan_free(steady);
}

/* Returns the window of a position, in a plan with one lane. */
static uint64_t window_of(const struct shuffle_plan *plan, uint64_t position)
{
	uint64_t w = shuffle_n_windows(plan) - 1;

	while (shuffle_window_place(plan, w) > position)
		w--;
	return w;
}

static uint64_t count_visits(const struct shuffle_plan *plan)
{
	uint64_t begin, end = 0;

	if (shuffle_n_windows(plan) > 0)
		shuffle_window_visits(plan, shuffle_n_windows(plan) - 1, &begin, &end);
	return end;
}

TEST(windows_hold_samples_of_their_chunks)
{
	static const uint32_t chunk_samples[] = {5, 0, 0, 7, 2, 9, 0, 4, 6};
	struct shuffle_spec spec = {
	    .chunk_samples = chunk_samples,
	    .n_chunks = 9,
	    .seed = 3,
	    .window_chunks = 2,
	    .shuffle = true,
	    .world = 1,
	    .batch = 33,
	};
	uint64_t first_sample[10] = {0}, samples[33];
	struct shuffle_plan *plan;
	uint32_t count;

	for (int i = 0; i < 9; i++)
		first_sample[i + 1] = first_sample[i] + chunk_samples[i];
	assert_int_equal(shuffle_plan_new(&spec, &plan), 0);
	assert_int_equal(shuffle_n_windows(plan), 5);
	assert_int_equal(shuffle_batch(plan, 0, samples, &count), 0);
	assert_int_equal(count, 33);
	for (uint32_t position = 0; position < count; position++) {
		uint64_t w = window_of(plan, position);
		bool inside = false;

		for (uint64_t visit = 2 * w; visit < 2 * w + 2 && visit < 9; visit++) {
			uint64_t chunk = shuffle_chunk_visit(plan, visit);

			inside |= samples[position] >= first_sample[chunk] &&
				  samples[position] < first_sample[chunk + 1];
		}
		assert_true(inside);
	}
	shuffle_plan_free(plan);
}

/* The order of a subset is that of a dataset which has only these samples, in the same chunks. */
TEST(a_subset_s_order_is_a_smaller_dataset_s)
{
	uint64_t random = 5;

	for (int round = 0; round < 400; round++) {
		uint32_t chunk_samples[40], counts[40], kept[40];
		uint64_t n_chunks = draw(&random, 1, 40), n = 0, n_kept = 0, every = draw(&random, 1, 30);

		for (uint64_t i = 0; i < n_chunks; i++)
			n += chunk_samples[i] = (uint32_t)draw(&random, 0, 12);
		uint64_t *words = calloc(subset_words(n) + 1, sizeof(*words));
		struct subset *subset;

		for (uint64_t i = 0; i < n; i++)
			words[i / 64] |= (uint64_t)(draw(&random, 1, every) == 1) << i % 64;
		assert_int_equal(subset_new(n, words, &subset), 0);
		uint64_t n_visits = shuffle_count_chunks(subset, chunk_samples, n_chunks, counts);

		for (uint64_t i = 0; i < n_chunks; i++) {
			if (counts[i])
				kept[n_kept++] = counts[i];
		}
		assert_int_equal(n_visits, n_kept);
		struct shuffle_spec spec = {
		    .chunk_samples = chunk_samples,
		    .n_chunks = n_chunks,
		    .subset = subset,
		    .seed = random,
		    .window_chunks = (uint32_t)draw(&random, 1, 10),
		    .shuffle = draw(&random, 0, 4) != 0,
		    .world = (uint32_t)draw(&random, 1, 3),
		    .batch = (uint32_t)draw(&random, 1, 20),
		};
		struct shuffle_plan *plan;

		if (subset_count(subset) < spec.world) {
			assert_int_equal(shuffle_plan_new(&spec, &plan), -EINVAL);
			subset_free(subset);
			continue;
		}
		assert_int_equal(shuffle_plan_new(&spec, &plan), 0);
		assert_int_equal(count_visits(plan), n_visits);
		assert_int_equal(shuffle_lane_samples(plan, 0), subset_count(subset));
		shuffle_plan_free(plan);
		struct epoch e = run_epoch(spec);

		spec.subset = NULL;
		spec.chunk_samples = kept;
		spec.n_chunks = n_kept;
		struct epoch alone = run_epoch(spec);

		assert_int_equal(e.n_seen, subset_count(subset));
		assert_int_equal(e.n_seen, alone.n_seen);
		for (uint64_t i = 0; i < e.n_seen; i++)
			assert_int_equal(e.order[i], subset_sample(subset, alone.order[i]));
		epoch_free(&e);
		epoch_free(&alone);
		subset_free(subset);
	}
}

TEST(epochs_and_seeds_differ)
{
	static const uint32_t chunk_samples[] = {50, 50, 50, 50};
	struct shuffle_spec spec = {
	    .chunk_samples = chunk_samples,
	    .n_chunks = 4,
	    .window_chunks = 4,
	    .shuffle = true,
	    .world = 1,
	    .batch = 10,
	};
	struct epoch a = run_epoch(spec);

	spec.epoch = 1;
	struct epoch b = run_epoch(spec);

	spec.epoch = 0;
	spec.seed = 1;
	struct epoch c = run_epoch(spec);

	assert_memory_not_equal(a.order, b.order, 200 * sizeof(uint64_t));
	assert_memory_not_equal(a.order, c.order, 200 * sizeof(uint64_t));
	assert_memory_not_equal(b.order, c.order, 200 * sizeof(uint64_t));
	epoch_free(&a);
	epoch_free(&b);
	epoch_free(&c);
}

/* Each of 4! orders of a window of four one-sample places is about equally frequent, within 4.8 sigma of a
 * binomial. */
TEST(each_order_of_a_window_is_equally_likely)
{
	static const uint32_t chunk_samples[] = {4};
	unsigned counts[256] = {0};

	for (uint64_t epoch = 0; epoch < 24000; epoch++) {
		struct shuffle_spec spec = {
		    .chunk_samples = chunk_samples,
		    .n_chunks = 1,
		    .seed = 12,
		    .epoch = epoch,
		    .window_chunks = 1,
		    .shuffle = true,
		    .world = 1,
		    .batch = 4,
		};
		struct shuffle_plan *plan;
		uint64_t s[4];
		uint32_t n;

		assert_int_equal(shuffle_plan_new(&spec, &plan), 0);
		assert_int_equal(shuffle_batch(plan, 0, s, &n), 0);
		counts[s[0] << 6 | s[1] << 4 | s[2] << 2 | s[3]]++;
		shuffle_plan_free(plan);
	}
	int n_orders = 0;

	for (int i = 0; i < 256; i++) {
		if (!counts[i])
			continue;
		n_orders++;
		assert_in_range(counts[i], 850, 1150);
	}
	assert_int_equal(n_orders, 24);
}

/* The values of docs/reference/formats.md, made by an independent program
 * (tests/unit/dataset/shuffle_reference.py). */
TEST(the_documented_order_never_changes)
{
	static const uint32_t chunk_samples[] = {3, 5, 2, 4};
	static const uint64_t golden[14] = {4, 13, 11, 12, 10, 6, 7, 3, 5, 1, 0, 8, 9, 2};
	struct epoch e = run_epoch((struct shuffle_spec){
	    .chunk_samples = chunk_samples,
	    .n_chunks = 4,
	    .seed = 42,
	    .epoch = 1,
	    .window_chunks = 2,
	    .shuffle = true,
	    .world = 2,
	    .batch = 3,
	});

	assert_memory_equal(e.order, golden, sizeof(golden));
	epoch_free(&e);
}

TEST(orders_with_bad_values_are_refused)
{
	static const uint32_t chunk_samples[] = {3};
	const struct shuffle_spec good = {
	    .chunk_samples = chunk_samples, .n_chunks = 1, .window_chunks = 1, .world = 1, .batch = 1};
	struct shuffle_spec specs[6] = {good, good, good, good, good, good};
	struct shuffle_plan *plan = NULL;
	struct subset *of_four;

	assert_int_equal(subset_new(4, calloc(1, sizeof(uint64_t)), &of_four), 0);

	specs[0].window_chunks = 0;
	specs[1].world = 0;
	specs[2].rank = 1;
	specs[3].batch = 0;
	specs[4].world = 4;
	specs[5].subset = of_four;
	for (int i = 0; i < 6; i++)
		assert_int_equal(shuffle_plan_new(&specs[i], &plan), -EINVAL);
	assert_null(plan);
	subset_free(of_four);
	shuffle_plan_free(NULL);
}

/* ---- lanes ---- */

static struct subset *draw_subset(uint64_t *state, uint64_t n)
{
	uint64_t *words = calloc(subset_words(n) + 1, sizeof(*words));
	struct subset *s;

	for (uint64_t i = 0; i < n; i++) {
		if (draw(state, 0, 2) > 0)
			words[i / 64] |= UINT64_C(1) << (i % 64);
	}
	assert_int_equal(subset_new(n, words, &s), 0);
	return s;
}

struct lanes_case {
	uint32_t sizes[200];
	uint64_t base[200], n_samples;
	struct shuffle_spec spec;
};

static void draw_case(uint64_t *state, uint32_t max_size, struct lanes_case *c)
{
	uint64_t keys[200], n = 0;

	*c = (struct lanes_case){.spec = {.chunk_samples = c->sizes,
					  .base = c->base,
					  .n_chunks = draw(state, 1, 200),
					  .shuffle = true,
					  .world = 1}};
	for (uint64_t i = 0; i < c->spec.n_chunks; i++)
		n += c->sizes[i] = (uint32_t)draw(state, 0, max_size);
	for (uint64_t i = 0; i < c->spec.n_chunks; i++)
		keys[i] = draw(state, 0, 99);
	assert_int_equal(shuffle_base_list(keys, c->spec.n_chunks, c->base), 0);
	c->n_samples = n;
	c->spec.seed = draw(state, 0, 1000);
	c->spec.epoch = draw(state, 0, 9);
	c->spec.window_chunks = (uint32_t)draw(state, 1, 9);
	c->spec.drift = (uint32_t)draw(state, 0, 5);
	c->spec.lanes = (uint32_t)draw(state, 1, 40);
}

/* The digest is the one that tests/unit/dataset/shuffle_reference.py makes of the same cases. */
TEST(lanes_as_the_reference)
{
	uint64_t random = 11, result = UINT64_C(0xcbf29ce484222325);
	struct shuffle_counts counts;
	uint64_t samples[100];

	for (int round = 0; round < 300; round++) {
		struct subset *subset = NULL;
		struct lanes_case c;
		struct shuffle_plan *plan;
		uint64_t n_samples;
		uint32_t n;

		draw_case(&random, 12, &c);
		if (draw(&random, 0, 1))
			subset = draw_subset(&random, c.n_samples);
		n_samples = subset ? subset_count(subset) : c.n_samples;
		c.spec.subset = subset;
		c.spec.start = draw(&random, 0, n_samples);
		c.spec.batch = (uint32_t)draw(&random, 1, 100);
		c.spec.world = (uint32_t)draw(&random, 1, 12);
		c.spec.rank = (uint32_t)draw(&random, 0, c.spec.world - 1);
		if (c.spec.start == n_samples) {
			subset_free(subset);
			continue;
		}
		if (c.spec.start + 2ULL * c.spec.world * c.spec.batch > n_samples) {
			c.spec.world = 1;
			c.spec.rank = 0;
		} else if (draw(&random, 0, 1)) {
			uint32_t half = c.spec.world / 2, some[3] = {1, c.spec.world, half ? half : 1};

			c.spec.lanes = some[draw(&random, 0, 2)];
		}
		if (c.spec.lanes > n_samples)
			c.spec.lanes = (uint32_t)n_samples;
		assert_int_equal(shuffle_plan_new(&c.spec, &plan), 0);
		assert_int_equal(
		    shuffle_count(n_samples, c.spec.start, c.spec.world, c.spec.batch, false, &counts), 0);
		assert_int_equal(shuffle_batch(plan, counts.first_batch, samples, &n), 0);
		for (uint32_t i = 0; i < n; i++)
			result = (result ^ samples[i]) * UINT64_C(0x100000001b3);
		shuffle_plan_free(plan);
		subset_free(subset);
	}
	assert_int_equal(result, UINT64_C(0x0a699339eb5a0a51));
}

/* All ranks take some steps. Then the job continues from there, with any other world and batch. */
static uint64_t take_steps(struct shuffle_spec spec, uint64_t n_samples, uint64_t n_steps,
			   unsigned char *seen)
{
	struct shuffle_counts counts;
	uint64_t taken = 0;

	for (spec.rank = 0; spec.rank < spec.world; spec.rank++) {
		struct shuffle_plan *plan;
		uint64_t *samples;
		uint32_t n;

		assert_int_equal(shuffle_plan_new(&spec, &plan), 0);
		samples = calloc(shuffle_max_batch(plan), sizeof(*samples));
		assert_int_equal(shuffle_count(n_samples, spec.start, spec.world, spec.batch, false, &counts),
				 0);
		assert_int_equal(counts.n_batches, shuffle_n_batches(plan));
		for (uint64_t i = counts.first_batch;
		     i < counts.first_batch + n_steps && i < counts.n_batches; i++) {
			assert_int_equal(shuffle_batch(plan, i, samples, &n), 0);
			assert_true(n > 0 && n <= shuffle_max_batch(plan));
			for (uint32_t k = 0; k < n; k++)
				assert_int_equal(seen[samples[k]]++, 0);
			taken += n;
		}
		free(samples);
		shuffle_plan_free(plan);
	}
	return taken;
}

/* Covers unequal and empty chunks, subsets, drift, up to as many lanes as samples, and storage order. */
TEST(every_sample_once_with_any_ranks)
{
	uint64_t random = 21;

	for (int round = 0; round < 400; round++) {
		struct lanes_case c;
		struct subset *subset = NULL;
		struct shuffle_plan *plan;
		uint64_t n, left;
		unsigned char *seen;

		draw_case(&random, round % 2 ? 12 : 2, &c);
		if (round % 3 == 0)
			subset = draw_subset(&random, c.n_samples);
		n = subset ? subset_count(subset) : c.n_samples;
		c.spec.subset = subset;
		c.spec.shuffle = round % 5 != 0;
		if (round % 4 == 0 || c.spec.lanes > n)
			c.spec.lanes = (uint32_t)n;
		seen = calloc(c.n_samples + 1, 1);
		while (c.spec.start < n) {
			left = n - c.spec.start;
			c.spec.world = (uint32_t)draw(&random, 1, 9);
			c.spec.batch = (uint32_t)draw(&random, 1, 20);
			if (left < c.spec.world) {
				assert_int_equal(shuffle_plan_new(&c.spec, &plan), -EINVAL);
				continue;
			}
			c.spec.start += take_steps(c.spec, n, draw(&random, 1, 6), seen);
		}
		for (uint64_t i = 0; i < c.n_samples; i++) {
			uint64_t word = subset ? subset_data(subset)[i / 64] >> i % 64 & 1 : 1;

			assert_int_equal(seen[i], word);
		}
		free(seen);
		subset_free(subset);
	}
}

/* A job that stops after any step and continues unchanged gets the same batches. Its windows are those that
 * shuffle_batch_windows() gives. */
TEST(going_on_changes_nothing)
{
	uint64_t random = 31, samples[40], later[40];
	uint64_t windows[40];

	for (int round = 0; round < 200; round++) {
		struct lanes_case c;
		struct shuffle_plan *whole, *rest;
		struct shuffle_counts counts;
		uint64_t n_batches, step, first_lane, end_lane;
		uint32_t n, n_later, n_windows;

		draw_case(&random, 9, &c);
		c.spec.world = (uint32_t)draw(&random, 1, 9);
		c.spec.rank = (uint32_t)draw(&random, 0, c.spec.world - 1);
		c.spec.batch = (uint32_t)draw(&random, 1, 40);
		c.spec.drop_last = draw(&random, 0, 1);
		if (c.spec.lanes > c.n_samples || c.spec.world > c.n_samples)
			continue;
		assert_int_equal(shuffle_plan_new(&c.spec, &whole), 0);
		n_batches = shuffle_n_batches(whole);
		step = n_batches ? draw(&random, 0, n_batches - 1) : 0;
		c.spec.start = n_batches ? shuffle_position(c.n_samples, 0, c.spec.world, c.spec.batch,
							    c.spec.drop_last, step)
					 : 0;
		assert_int_equal(shuffle_count(c.n_samples, c.spec.start, c.spec.world, c.spec.batch,
					       c.spec.drop_last, &counts),
				 0);
		assert_int_equal(counts.first_batch, step);
		assert_int_equal(shuffle_plan_new(&c.spec, &rest), 0);
		assert_int_equal(shuffle_n_batches(rest), n_batches);
		assert_int_equal(shuffle_position(c.n_samples, c.spec.start, c.spec.world, c.spec.batch,
						  c.spec.drop_last, n_batches),
				 c.n_samples);
		if (step > 0)
			assert_int_equal(shuffle_batch(rest, step - 1, later, &n_later), -ERANGE);
		shuffle_rank_lanes(whole, &first_lane, &end_lane);
		if (c.spec.lanes > 1 && c.spec.world % c.spec.lanes == 0)
			assert_int_equal(end_lane - first_lane, 1);
		for (uint64_t i = step; i < n_batches; i++) {
			assert_int_equal(shuffle_batch(whole, i, samples, &n), 0);
			assert_int_equal(shuffle_batch(rest, i, later, &n_later), 0);
			assert_int_equal(n_later, n);
			assert_memory_equal(later, samples, n * sizeof(*samples));
			assert_int_equal(shuffle_batch_windows(whole, i, windows, &n_windows), 0);
			assert_true(n_windows > 0 && n_windows <= n);
			for (uint32_t w = 0; w < n_windows; w++)
				assert_in_range(shuffle_window_lane(whole, windows[w]), first_lane,
						end_lane - 1);
			for (uint32_t k = 0; k < n; k++) {
				bool is_there = false;

				for (uint32_t w = 0; w < n_windows && !is_there; w++) {
					uint64_t visit, end;

					shuffle_window_visits(whole, windows[w], &visit, &end);
					for (; visit < end; visit++) {
						uint64_t chunk = shuffle_chunk_visit(whole, visit), at = 0;

						for (uint64_t j = 0; j < chunk; j++)
							at += c.sizes[j];
						is_there |=
						    samples[k] >= at && samples[k] < at + c.sizes[chunk];
					}
				}
				assert_true(is_there);
			}
		}
		shuffle_plan_free(whole);
		shuffle_plan_free(rest);
	}
}

/* The values are from docs/reference/formats.md. */
TEST(the_documented_lanes_never_change)
{
	static const uint32_t chunk_samples[] = {3, 5, 2, 4};
	static const uint64_t base[] = {2, 0, 3, 1};
	static const uint64_t golden[14] = {12, 13, 6, 5, 1, 0, 11, 10, 4, 7, 2, 9, 3, 8};
	struct epoch e = run_epoch((struct shuffle_spec){
	    .chunk_samples = chunk_samples,
	    .n_chunks = 4,
	    .seed = 42,
	    .epoch = 3,
	    .window_chunks = 1,
	    .shuffle = true,
	    .world = 2,
	    .batch = 3,
	    .lanes = 3,
	    .drift = 2,
	    .base = base,
	});

	assert_memory_equal(e.order, golden, sizeof(golden));
	epoch_free(&e);
}

/* If there are as many ranks as lanes, each takes one lane, and the same samples of it in all epochs. */
TEST(a_lane_stays)
{
	uint32_t sizes[64];
	uint64_t base[64], samples[16], state_ = 41;
	unsigned char lane_of[640] = {0};

	for (int i = 0; i < 64; i++) {
		sizes[i] = 10;
		base[i] = (uint64_t)(i * 37 % 64);
	}
	for (uint64_t epoch = 0; epoch < 6; epoch++) {
		for (uint32_t rank = 0; rank < 4; rank++) {
			struct shuffle_spec spec = {.chunk_samples = sizes,
						    .n_chunks = 64,
						    .seed = draw(&state_, 0, 99),
						    .epoch = epoch,
						    .window_chunks = 3,
						    .shuffle = true,
						    .rank = rank,
						    .world = 4,
						    .batch = 16,
						    .lanes = 4,
						    .base = base};
			struct shuffle_plan *plan;
			uint32_t n;

			assert_int_equal(shuffle_plan_new(&spec, &plan), 0);
			for (uint64_t i = 0; i < shuffle_n_batches(plan); i++) {
				assert_int_equal(shuffle_batch(plan, i, samples, &n), 0);
				for (uint32_t k = 0; k < n; k++) {
					assert_true(epoch == 0 || lane_of[samples[k]] == rank);
					lane_of[samples[k]] = (unsigned char)rank;
				}
			}
			shuffle_plan_free(plan);
		}
	}
}

/* Returns how many of these chunks of one size lie in another of 16 lanes an epoch later. */
static uint64_t n_moved(uint32_t drift)
{
	static uint32_t sizes[4096], lane[2][4096], end[4096];
	static uint64_t base[4096];
	uint64_t n = 0;

	for (uint64_t i = 0; i < 4096; i++) {
		sizes[i] = 10;
		base[i] = i * 37 % 4096;
	}
	for (uint64_t k = 0; k < 2; k++) {
		const struct shuffle_spec spec = {.chunk_samples = sizes,
						  .n_chunks = 4096,
						  .epoch = 20 + k,
						  .shuffle = true,
						  .lanes = 16,
						  .drift = drift,
						  .base = base};

		assert_int_equal(shuffle_chunk_lanes(&spec, lane[k], end), 0);
	}
	for (uint64_t i = 0; i < 4096; i++)
		n += lane[0][i] != lane[1][i];
	return n;
}

/* That also holds if all chunks have the same number of samples. A share of 15/16 of the redistributed chunks
 * comes to another lane. */
TEST(drift_moves_what_it_says)
{
	assert_int_equal(n_moved(0), 0);
	assert_in_range(n_moved(1), 3700, 3950);
	assert_in_range(n_moved(4), 900, 1020);
	assert_in_range(n_moved(16), 210, 256);
}

/* The drift of any epoch is computed without the epochs before it. */
TEST(lanes_with_bad_values_are_refused)
{
	static const uint32_t chunk_samples[] = {3, 4};
	static const uint64_t base[] = {1, 0};
	const struct shuffle_spec good = {.chunk_samples = chunk_samples,
					  .n_chunks = 2,
					  .epoch = UINT64_MAX,
					  .window_chunks = 1,
					  .shuffle = true,
					  .world = 2,
					  .batch = 2,
					  .lanes = 7,
					  .drift = UINT32_MAX,
					  .base = base};
	struct shuffle_spec specs[4] = {good, good, good, good};
	struct shuffle_plan *plan = NULL;

	assert_int_equal(shuffle_plan_new(&good, &plan), 0);
	shuffle_plan_free(plan);
	plan = NULL;
	specs[0].lanes = 8;
	specs[1].base = NULL;
	specs[2].start = 6; /* 1 sample is left for 2 ranks */
	specs[3].start = 8;
	for (int i = 0; i < 4; i++)
		assert_int_equal(shuffle_plan_new(&specs[i], &plan), -EINVAL);
	assert_null(plan);
}
