/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varies samples, world, batch, drop_last and the kind of dataset. All ranks of a job together get every
 * sample once per epoch. Each rank gets as many batches as the session and diesel_n_batches() say.
 */
#include "tests/unit/daemon/node.h"

#include <errno.h>
#include <stdio.h>

#define MAX_SAMPLES 9
#define MAX_BATCH   4
#define EPOCHS      2

struct share {
	struct diesel_dataset *dataset;
	uint32_t n, world, batch, flags, start;
	uint32_t seen[EPOCHS][MAX_SAMPLES];
};

static void take(struct share *j, const struct diesel_batch *b)
{
	for (uint32_t i = 0; i < b->n_items; i++) {
		uint64_t sample = b->items[i].sample;

		assert_true(b->epoch < EPOCHS && sample < j->n);
		assert_true(node_item_is_right(b, i));
		j->seen[b->epoch][sample]++;
	}
}

/* Takes the batches of one epoch. */
static uint64_t run_epoch(struct share *j, struct diesel_session *s)
{
	struct diesel_batch b;
	uint64_t n = 0;
	int r;

	while ((r = diesel_session_next(s, &b)) == 0) {
		assert_true(b.n_items > 0);
		take(j, &b);
		diesel_batch_release(b.lease);
		n++;
	}
	if (r != 1)
		fail_msg("%u samples, world %u, batch %u: %s", j->n, j->world, j->batch,
			 diesel_session_error(s));
	return n;
}

static void run_rank(struct share *j, uint32_t rank)
{
	const struct diesel_session_options o = {.seed = 3,
						 .start = j->start,
						 .flags = DIESEL_SHUFFLE | j->flags,
						 .rank = rank,
						 .world = j->world,
						 .batch = j->batch};
	struct diesel_session *s;
	char error[512];
	uint64_t first;

	if (diesel_session_open(j->dataset, &o, &s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	assert_int_equal(diesel_session_n_batches(s), diesel_n_batches(j->n, j->world, j->batch, j->flags));
	assert_int_equal(diesel_first_batch(j->n, j->start, j->world, j->batch, j->flags, &first), 0);
	for (int epoch = 0; epoch < EPOCHS; epoch++)
		assert_int_equal(run_epoch(j, s), diesel_session_n_batches(s) - (epoch == 0 ? first : 0));
	diesel_session_close(s);
}

static void run_job(struct share *j)
{
	memset(j->seen, 0, sizeof(j->seen));
	for (uint32_t rank = 0; rank < j->world; rank++)
		run_rank(j, rank);
	for (int epoch = 0; epoch < EPOCHS; epoch++) {
		uint32_t sum = 0, n = j->n - (epoch == 0 ? j->start : 0);

		for (uint32_t i = 0; i < j->n; i++) {
			assert_true(j->seen[epoch][i] <= 1);
			sum += j->seen[epoch][i];
		}
		assert_int_equal(sum, j->flags ? n / (j->world * j->batch) * (j->world * j->batch) : n);
	}
}

static void run_all(const struct node *node, const char *path, uint32_t n)
{
	struct share j = {.n = n};
	char error[512];

	if (diesel_dataset_open(path, node->socket, &j.dataset, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	for (j.world = 1; j.world <= n; j.world++) {
		for (j.batch = 1; j.batch <= MAX_BATCH; j.batch++) {
			for (j.flags = 0; j.flags <= DIESEL_DROP_LAST; j.flags += DIESEL_DROP_LAST)
				run_job(&j);
		}
	}
	diesel_dataset_close(j.dataset);
}

TEST_IN_FOLDER(every_rank_gets_its_share)
{
	struct node node = {0};

	node_start(&node, *state);
	for (uint32_t n = 1; n <= MAX_SAMPLES; n++) {
		for (int equal = 0; equal < 2; equal++) {
			char name[16], *path;

			snprintf(name, sizeof(name), "%u-%d", n, equal);
			path = make_dataset(
			    *state, name,
			    &(struct dataset_plan){.n_samples = n, .bytes = 64, .spread = equal ? 0 : 128});
			run_all(&node, path, n);
			free(path);
		}
	}
	node_stop(&node);
}

/* Ranks stop after any number of steps, and a job with other ranks and batches continues. Each sample comes
 * once, and then a whole epoch. A session that goes back to the epoch in which it began gets the rest of that
 * epoch again. */
TEST_IN_FOLDER(others_go_on_behind_any_sample)
{
	struct node node = {0};
	char error[512], *path;
	struct share j = {.n = MAX_SAMPLES};
	uint32_t before[MAX_SAMPLES];
	struct diesel_session *s;

	node_start(&node, *state);
	path = make_dataset(*state, "nine", &(struct dataset_plan){.n_samples = j.n, .bytes = 64});
	if (diesel_dataset_open(path, node.socket, &j.dataset, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	for (uint32_t done = 1; done <= j.n; done++) {
		struct diesel_session_options o = {
		    .seed = 3, .flags = DIESEL_SHUFFLE, .world = 1, .batch = done};
		struct diesel_batch b;

		memset(j.seen, 0, sizeof(j.seen));
		assert_int_equal(diesel_session_open(j.dataset, &o, &s, error, sizeof(error)), 0);
		assert_int_equal(diesel_session_next(s, &b), 0);
		assert_int_equal(b.n_items, done);
		take(&j, &b);
		diesel_batch_release(b.lease);
		diesel_session_close(s);
		memcpy(before, j.seen[0], sizeof(before));
		j.start = done;
		for (j.world = 1; j.world <= 4; j.world++) {
			for (j.batch = 1; j.batch <= MAX_BATCH; j.batch++) {
				if (done < j.n && j.n - done < j.world) {
					o = (struct diesel_session_options){
					    .world = j.world, .batch = j.batch, .start = done};
					assert_int_equal(
					    diesel_session_open(j.dataset, &o, &s, error, sizeof(error)),
					    -EINVAL);
					assert_non_null(strstr(error, "left in epoch 0"));
					continue;
				}
				run_job(&j);
				for (uint32_t i = 0; i < j.n; i++)
					assert_int_equal(j.seen[0][i] + before[i], 1);
			}
		}
	}
	/* Seeks to the epoch before, whose first batch is 0, and continues into the epoch that has a
	 * start. */
	j = (struct share){.dataset = j.dataset, .n = j.n, .world = 1, .batch = 4};
	assert_int_equal(
	    diesel_session_open(
		j.dataset,
		&(struct diesel_session_options){
		    .seed = 3, .epoch = 1, .flags = DIESEL_SHUFFLE, .world = 1, .batch = 4, .start = 6},
		&s, error, sizeof(error)),
	    0);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(diesel_session_seek(s, 0, 0), 0);
		assert_int_equal(run_epoch(&j, s), 3);
		assert_int_equal(run_epoch(&j, s), 1);
		assert_int_equal(diesel_session_seek(s, 1, 0), 0);
		assert_int_equal(run_epoch(&j, s), 1);
	}
	diesel_session_close(s);
	diesel_dataset_close(j.dataset);
	free(path);
	node_stop(&node);
}

TEST_IN_FOLDER(more_ranks_than_samples_are_refused)
{
	const struct diesel_session_options o = {
	    .world = UINT32_MAX, .batch = 1u << 20, .stride = UINT32_MAX};
	struct diesel_dataset *d;
	struct diesel_session *s;
	struct node node = {0};
	char error[512], *path;

	node_start(&node, *state);
	path = make_dataset(*state, "three", &(struct dataset_plan){.n_samples = 3, .bytes = 64});
	assert_int_equal(diesel_dataset_open(path, node.socket, &d, error, sizeof(error)), 0);
	assert_int_equal(diesel_session_open(d, &o, &s, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "too few for 4294967295 ranks"));
	diesel_dataset_close(d);
	free(path);
	node_stop(&node);
	assert_int_equal(diesel_n_batches(3, UINT32_MAX, 1, 0), 0);
	assert_int_equal(diesel_n_batches(3, 0, 1, 0), 0);
}
