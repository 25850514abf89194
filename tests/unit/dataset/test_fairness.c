/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "dataset/fairness.h"
#include "dataset/snapshot.h"

#include <stdio.h>
#include <stdlib.h>

#define N       6400
#define A_CHUNK 50
#define CLASSES 100

static uint64_t state_of_draws = 7;

static uint64_t draw_below(uint64_t n)
{
	state_of_draws = state_of_draws * 6364136223846793005u + 1442695040888963407u;
	return (state_of_draws >> 33) % n;
}

/* Lists the places [first, end) in their order, or in random order. */
static void list_places(uint64_t *places, uint64_t first, uint64_t end, bool random)
{
	for (uint64_t i = first; i < end; i++)
		places[i] = i;
	for (uint64_t i = end - 1; random && i > first; i--) {
		uint64_t j = first + draw_below(i + 1 - first), place = places[i];

		places[i] = places[j];
		places[j] = place;
	}
}

static struct fairness measure(const uint64_t *places, uint64_t n, uint64_t n_a_chunk, uint64_t n_classes)
{
	struct fairness_sample *samples = calloc(n, sizeof(*samples));
	struct fairness f;

	for (uint64_t i = 0; i < n; i++)
		samples[i] =
		    (struct fairness_sample){.place = places[i],
					     .chunk = (uint32_t)(i / n_a_chunk),
					     .class_index = (int32_t)(places[i] * n_classes / n) - 1};
	assert_int_equal(fairness_measure(samples, n, &f), 0);
	free(samples);
	return f;
}

/* Calculated by hand. Neighbours are 3 and 1 apart, and any two samples 10/6 on average. A chunk has one
 * class of the expected 5/3. */
TEST(fairness_agrees_with_counting_by_hand)
{
	struct fairness f = measure((const uint64_t[]){0, 3, 1, 2}, 4, 2, 1);

	assert_int_equal(f.n_pairs, 2);
	assert_float_equal(f.distance, 1.2, 1e-6);
	assert_float_equal(f.classes, 1, 1e-6);
	f = measure((const uint64_t[]){0, 1, 2, 3}, 4, 2, 2);
	assert_float_equal(f.distance, 0.6, 1e-6);
	assert_float_equal(f.classes, 0.6, 1e-6);
}

TEST(dealt_at_random)
{
	static uint64_t places[N];

	for (int i = 0; i < 20; i++) {
		list_places(places, 0, N, true);
		struct fairness f = measure(places, N, A_CHUNK, i % 2 ? CLASSES : 1);

		assert_float_equal(f.distance, 1, 0.05);
		assert_float_equal(f.classes, 1, 0.02);
		assert_true(fairness_is_fair(&f));
	}
}

TEST(folder_by_folder)
{
	static uint64_t places[N];

	list_places(places, 0, N, false);
	struct fairness f = measure(places, N, A_CHUNK, CLASSES);
	assert_true(f.distance < 0.01 && f.classes < 0.1);
	assert_false(fairness_is_fair(&f));
	/* Without classes, the order by itself is enough. */
	f = measure(places, N, A_CHUNK, 1);
	assert_float_equal(f.classes, 1, 1e-6);
	assert_false(fairness_is_fair(&f));
	/* Each chunk is shuffled, but has only one class or two. */
	for (uint64_t i = 0; i < N; i += A_CHUNK)
		list_places(places, i, i + A_CHUNK, true);
	f = measure(places, N, A_CHUNK, CLASSES);
	assert_false(fairness_is_fair(&f));
}

/* Each chunk takes from two distant classes in turn, so neighbours are far apart, but classes are few. */
TEST(two_folders_in_turn)
{
	static uint64_t places[N];

	for (uint64_t i = 0; i < N; i++)
		places[i] = i / 2 + i % 2 * N / 2;
	struct fairness f = measure(places, N, A_CHUNK, CLASSES);
	assert_true(f.distance > 1 && f.classes < 0.1);
	assert_false(fairness_is_fair(&f));
}

/* Each part is fair by itself, but the second one was appended. */
TEST(an_appended_dataset_is_fair_in_each_part)
{
	static uint64_t places[N];

	list_places(places, 0, N / 2, true);
	list_places(places, N / 2, N, true);
	struct fairness f = measure(places, N, A_CHUNK, CLASSES);
	assert_float_equal(f.distance, 0.5, 0.05);
	assert_false(fairness_is_fair(&f));
	/* An appended hundredth is too little to matter. */
	list_places(places, 0, N - N / 100, true);
	list_places(places, N - N / 100, N, true);
	f = measure(places, N, A_CHUNK, CLASSES);
	assert_true(fairness_is_fair(&f));
}

TEST(too_little_to_tell)
{
	static uint64_t places[N];

	list_places(places, 0, N, false);
	struct fairness f = measure(places, 500, A_CHUNK, 10);
	assert_true(f.distance < 0.9 && fairness_is_fair(&f));
	/* Chunks of one sample each have no neighbours. They are fair, wherever their samples come from. */
	f = measure(places, N, 1, CLASSES);
	assert_true(f.n_pairs == 0 && f.distance == 1 && f.classes == 1 && fairness_is_fair(&f));
	f = measure(places, 0, A_CHUNK, 1);
	assert_true(f.n_pairs == 0 && fairness_is_fair(&f));
}

static struct fairness of_snapshot(const uint64_t *places, size_t n_a_chunk)
{
	static char names[N][32];
	static const char *paths[N];
	struct error err = ERROR_INIT;
	struct snapshot *s;
	struct fairness f;

	for (uint64_t i = 0; i < N; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "c%03d/%06d", (int)(places[i] * CLASSES / N),
			       (int)places[i]);
		paths[i] = names[i];
	}
	struct image image = make_snapshot(paths, N, n_a_chunk, true);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), 0);
	assert_int_equal(snapshot_fairness(s, &f), 0);
	snapshot_close(s);
	free(image.data);
	return f;
}

/* With 128 chunks, 81 are examined. With 16, all are examined, with their first 256 samples each. */
TEST(of_a_snapshot)
{
	static uint64_t places[N];

	list_places(places, 0, N, true);
	struct fairness f = of_snapshot(places, 50);
	assert_true(fairness_is_fair(&f) && f.n_pairs == 81 * 49);
	f = of_snapshot(places, 400);
	assert_true(fairness_is_fair(&f) && f.n_pairs == 16 * 255);
	list_places(places, 0, N / 4 * 3, true);
	list_places(places, N / 4 * 3, N, false);
	f = of_snapshot(places, 50);
	assert_false(fairness_is_fair(&f)); /* the end is examined, too */
	list_places(places, 0, N, false);
	f = of_snapshot(places, 50);
	assert_false(fairness_is_fair(&f));
	/* If chunks have few samples, more chunks are examined. */
	f = of_snapshot(places, 2);
	assert_true(!fairness_is_fair(&f) && f.n_pairs >= 2000);
}
