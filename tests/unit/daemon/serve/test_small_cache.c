/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With a cache smaller than the dataset, an epoch finds as many chunks in memory as there was space for when
 * it began. The test covers packed batches and views, one job and two ranks. Every sample is right.
 */
#include "tests/unit/daemon/node.h"

#include <stdio.h>

#define EPOCHS   9
#define N_CHUNKS 32
#define SPACE    16 /* capacity in chunks */

static const struct dataset_plan packed = {.n_samples = 4 * N_CHUNKS, .bytes = 16000, .n_a_chunk = 4},
				 views = {.n_samples = 4 * N_CHUNKS,
					  .bytes = 15000,
					  .spread = 1000,
					  .n_a_chunk = 4};

static void look_reads(struct node *n, void *answer)
{
	*(uint64_t *)answer = n->server.serving.cache.counters.reads;
}

static void look_budget(struct node *n, void *answer)
{
	const struct cache *c = &n->server.serving.cache;

	*(bool *)answer = cache_total_bytes(c) <= c->budget_bytes;
}

static void take_epoch(struct node *n, struct diesel_session **sessions, uint32_t world)
{
	uint32_t seen[4 * N_CHUNKS] = {0}, open = world;
	bool fits;

	while (open > 0) {
		open = world;
		for (uint32_t rank = 0; rank < world; rank++) {
			struct diesel_batch b;
			int r = diesel_session_next(sessions[rank], &b);

			if (r == 1) {
				open--;
				continue;
			}
			if (r < 0)
				fail_msg("%s", diesel_session_error(sessions[rank]));
			for (uint32_t i = 0; i < b.n_items; i++) {
				assert_true(node_item_is_right(&b, i));
				seen[b.items[i].sample]++;
			}
			diesel_batch_release(b.lease);
		}
	}
	for (uint32_t i = 0; i < 4 * N_CHUNKS; i++)
		assert_int_equal(seen[i], 1);
	node_ask(n, look_budget, &fits);
	assert_true(fits);
}

/* Returns how many chunks are read in all epochs except the first two. */
static uint64_t run_job(const char *root, const char *name, const struct dataset_plan *plan, uint32_t world)
{
	/* Capacity for SPACE chunks, in addition to the snapshot and slots. */
	struct node n = {.cache_bytes = (uint64_t)SPACE * 68 * 1024 + world * (192 << 10)};
	char *path = make_dataset(root, name, plan), error[512];
	struct diesel_session *sessions[2];
	struct diesel_dataset *dataset;
	uint64_t before = 0, after;

	node_start(&n, root);
	if (diesel_dataset_open(path, n.socket, &dataset, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	for (uint32_t rank = 0; rank < world; rank++) {
		const struct diesel_session_options o = {
		    .seed = 5, .flags = DIESEL_SHUFFLE, .rank = rank, .world = world, .batch = 2};

		if (diesel_session_open(dataset, &o, &sessions[rank], error, sizeof(error)) < 0)
			fail_msg("%s", error);
	}
	for (int epoch = 0; epoch < EPOCHS; epoch++) {
		if (epoch == 2)
			node_ask(&n, look_reads, &before);
		take_epoch(&n, sessions, world);
	}
	node_ask(&n, look_reads, &after);
	for (uint32_t rank = 0; rank < world; rank++)
		diesel_session_close(sessions[rank]);
	diesel_dataset_close(dataset);
	node_stop(&n);
	free(path);
	return after - before;
}

static void check(const char *root, const char *name, const struct dataset_plan *plan, uint32_t world)
{
	uint64_t reads = run_job(root, name, plan, world), n = (uint64_t)(EPOCHS - 2) * N_CHUNKS;

	printf("%s, %u ranks: %llu of %llu chunks read\n", name, world, (unsigned long long)reads,
	       (unsigned long long)n);
	/* Half of the chunks are found. How many more are read depends on which rank waits for which. */
	assert_in_range(reads, n / 4, n * 3 / 4);
}

TEST_IN_FOLDER(a_small_cache_serves_packed_batches)
{
	check(*state, "packed", &packed, 1);
	check(*state, "packed2", &packed, 2);
}

TEST_IN_FOLDER(a_small_cache_serves_views)
{
	check(*state, "views", &views, 1);
}
