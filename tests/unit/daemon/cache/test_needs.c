/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a node take of each chunk: against each batch of each of them. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "dataset/subset.h"
#include "peers/needs.h"

#define N_CHUNKS 11

static const uint32_t chunk_samples[N_CHUNKS] = {70, 3, 0, 64, 65, 128, 1, 40, 40, 40, 7};

static struct shuffle_spec spec_of(uint32_t rank)
{
	return (struct shuffle_spec){.chunk_samples = chunk_samples,
				     .n_chunks = N_CHUNKS,
				     .seed = 3,
				     .window_chunks = 4,
				     .shuffle = true,
				     .rank = rank,
				     .world = 6,
				     .batch = 5};
}

/* Whether a batch of this rank in this epoch has the sample. */
static bool takes(uint64_t epoch, uint32_t rank, uint64_t sample)
{
	struct shuffle_spec spec = spec_of(rank);
	struct shuffle_plan *plan;
	uint64_t samples[8];
	bool found = false;
	uint32_t n;

	spec.epoch = epoch;
	assert_int_equal(shuffle_plan_new(&spec, &plan), 0);
	for (uint64_t b = 0; b < shuffle_n_batches(plan) && !found; b++) {
		assert_int_equal(shuffle_batch(plan, b, samples, &n), 0);
		for (uint32_t i = 0; i < n; i++)
			found = found || samples[i] == sample;
	}
	shuffle_plan_free(plan);
	return found;
}

static void check_window(const struct needed_window *w, const uint32_t *ranks, uint32_t n_ranks)
{
	uint64_t first = 0;

	for (uint64_t c = 0; c < N_CHUNKS; first += chunk_samples[c++]) {
		const uint64_t *bits = needed_bits(w, c);

		for (uint32_t k = 0; bits && k < chunk_samples[c]; k++) {
			bool want = false;

			for (uint32_t i = 0; i < n_ranks; i++)
				want = want || takes(w->epoch, ranks[i], first + k);
			assert_int_equal(bits[k / 64] >> (k % 64) & 1, want);
		}
	}
}

static struct needs *join(struct needs **list, uint32_t rank)
{
	const struct shuffle_spec spec = spec_of(rank);

	return needs_join(list, &spec);
}

static void every_chunk_in_one_window(void **state)
{
	static const uint32_t ranks[] = {1, 4};
	struct needs *list = NULL, *n = join(&list, 1), *again = join(&list, 4);
	struct needed_window *windows[3];
	uint32_t seen[N_CHUNKS] = {0};

	assert_non_null(n);
	assert_ptr_equal(n, again);
	for (uint64_t w = 0; w < 3; w++) {
		windows[w] = needs_window(n, 2, w);
		assert_non_null(windows[w]);
		check_window(windows[w], ranks, 2);
		for (uint64_t c = 0; c < N_CHUNKS; c++)
			seen[c] += needed_bits(windows[w], c) != NULL;
	}
	for (uint64_t c = 0; c < N_CHUNKS; c++)
		assert_int_equal(seen[c], 1);
	assert_null(needs_window(n, 2, 3));
	assert_ptr_equal(needs_window(n, 2, 1), windows[1]); /* worked out once */
	needed_window_unref(windows[1]);
	for (uint64_t w = 0; w < 3; w++)
		needed_window_unref(windows[w]);
	needs_leave(n);
	needs_leave(again);
	needs_free_all(&list);
}

/* Ranks open their sessions one after the other, and workers come back with each epoch. */
static void ranks_are_added_and_stay(void **state)
{
	static const uint32_t ranks[] = {0, 5};
	struct needs *list = NULL, *n = join(&list, 0);
	struct needed_window *w = needs_window(n, 7, 0), *later;

	check_window(w, ranks, 1);
	needs_leave(join(&list, 5));
	check_window(w, ranks, 2);
	needs_leave(n);
	assert_ptr_equal(join(&list, 0), n);
	later = needs_window(n, 8, 2);
	check_window(later, ranks, 2);
	needs_leave(n);
	needs_free_all(&list);
	assert_null(list);
	check_window(w, ranks, 2); /* who has it keeps it */
	needed_window_unref(w);
	needed_window_unref(later);
}

static struct subset *subset_of(uint64_t bit)
{
	uint64_t *words = calloc(subset_words(458), sizeof(*words));
	struct subset *s;

	words[0] = 0xff;
	words[bit / 64] |= UINT64_C(1) << (bit % 64);
	assert_int_equal(subset_new(458, words, &s), 0);
	return s;
}

static void other_orders_are_others(void **state)
{
	struct needs *list = NULL, *n = join(&list, 0), *again, *others[40], *with, *with_same, *with_other;
	struct shuffle_spec spec = spec_of(0);
	struct subset *a = subset_of(100), *same = subset_of(100), *b = subset_of(101);

	for (uint32_t i = 0; i < 40; i++) {
		spec.seed = 100 + i;
		others[i] = needs_join(&list, &spec);
		assert_ptr_not_equal(others[i], n);
		needs_leave(others[i]);
	}
	again = join(&list, 2); /* in use, so it is there after them */
	assert_ptr_equal(again, n);
	others[0] = needs_join(&list, &spec);
	assert_ptr_equal(others[0], others[39]);
	spec.subset = a;
	with = needs_join(&list, &spec);
	spec.subset = same;
	with_same = needs_join(&list, &spec);
	assert_ptr_equal(with_same, with);
	spec.subset = b;
	with_other = needs_join(&list, &spec);
	assert_ptr_not_equal(with_other, with);
	spec.rank = spec.world;
	assert_null(needs_join(&list, &spec));
	subset_free(a);
	subset_free(same);
	subset_free(b);
	needs_free_all(&list);
	needs_leave(n);
	needs_leave(again);
	needs_leave(others[0]);
	needs_leave(with);
	needs_leave(with_same);
	needs_leave(with_other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_chunk_in_one_window),
	    cmocka_unit_test(ranks_are_added_and_stay),
	    cmocka_unit_test(other_orders_are_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
