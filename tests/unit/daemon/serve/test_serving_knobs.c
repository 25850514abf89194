/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns knobs at random on a server in this process while libdiesel's clients read. Every batch comes once,
 * in the same order and with the same bytes as without.
 */
#include "tests/support_dataset.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "daemon/server/server.h"

#define MIB       (UINT64_C(1) << 20)
#define N_SAMPLES 2400
#define EPOCHS    3
#define N_CLIENTS 3
#define ROUNDS    60 /* changes of knobs, at least */

struct node {
	char *socket, *packed, *views;
	struct server server;
	struct fork_server fork_server;
	uv_loop_t loop;
	pthread_t thread;
	uv_async_t stop;
	uv_timer_t turn;
	uint32_t random;
	_Atomic uint32_t n_turns, n_clamped;
	/* Set by the loop's thread before it ends. */
	bool fits;
};

static uint32_t next_random(struct node *n, uint32_t below)
{
	n->random = n->random * 1664525u + 1013904223u;
	return (n->random >> 8) % below;
}

struct client {
	const struct node *node;
	const char *dataset;
	uint32_t batch, stride, offset;
	uint64_t digest, n_samples;
	pthread_t thread;
};

static void add_item(struct client *c, const struct diesel_batch *b, uint32_t i)
{
	const uint8_t *data = b->packed ? b->packed + (size_t)i * b->item_bytes : b->items[i].data;
	uint32_t n = b->items[i].bytes / 8;
	uint64_t first, last;

	memcpy(&first, data, 8);
	for (uint32_t k = 0; k < n; k++) {
		memcpy(&last, data + (size_t)k * 8, 8);
		if (last != first)
			fail_msg("word %u of a sample is of another one", k);
	}
	c->digest = c->digest * 1099511628211u + b->items[i].sample * 31 + first;
	c->n_samples++;
}

static void *client_run(void *argument)
{
	struct client *c = argument;
	char error[512];
	struct diesel_dataset *d;
	struct diesel_session *s;
	const struct diesel_session_options o = {.seed = 5,
						 .flags = DIESEL_SHUFFLE,
						 .world = 1,
						 .batch = c->batch,
						 .stride = c->stride,
						 .offset = c->offset,
						 .window_chunks = 2};
	struct diesel_batch b;
	int r;

	/* The limit may be too low at the moment for one more session. */
	do
		r = diesel_dataset_open(c->dataset, c->node->socket, &d, error, sizeof(error));
	while (r == -ENOSPC);
	if (r < 0)
		fail_msg("%s", error);
	do
		r = diesel_session_open(d, &o, &s, error, sizeof(error));
	while (r == -ENOSPC);
	if (r < 0)
		fail_msg("%s", error);
	for (int epoch = 0; epoch < EPOCHS;) {
		r = diesel_session_next(s, &b);
		if (r < 0)
			fail_msg("%s", diesel_session_error(s));
		if (r == 1) {
			epoch++;
			continue;
		}
		for (uint32_t i = 0; i < b.n_items; i++)
			add_item(c, &b, i);
		diesel_batch_release(b.lease);
	}
	diesel_session_close(s);
	diesel_dataset_close(d);
	return NULL;
}

static bool is_any_session_open(const struct node *n)
{
	return n->server.serving.sessions;
}

static void turn_all(struct node *n)
{
	struct serving_knobs knobs = n->server.serving.options.knobs;
	struct error note = ERROR_INIT;

	knobs.cache_bytes =
	    (is_any_session_open(n) && !next_random(n, 5) ? 1 : 40 + next_random(n, 60)) * MIB;
	knobs.workers = 1 + next_random(n, 4);
	knobs.prefetch_chunks = next_random(n, 5);
	if (serving_apply_knobs(&n->server.serving, &knobs, &note) > 0) {
		assert_true(note.text[0]);
		atomic_fetch_add(&n->n_clamped, 1);
	}
}

static void turn_jobs(struct node *n)
{
	for (const struct job *j = n->server.serving.jobs.first; j; j = j->next) {
		const uint64_t cache = next_random(n, 3) ? next_random(n, 60) * MIB : TUNER_FREE_BYTES;
		const struct tuner_knobs knobs = {.value = {[TUNER_CACHE_BYTES] = cache,
							    [TUNER_PREFETCH_CHUNKS] = next_random(n, 8),
							    [TUNER_DAEMON_WORKERS] = next_random(n, 4),
							    [TUNER_CLIENT_WORKERS] = next_random(n, 4)}};
		struct tuner_knobs now;
		struct serving_job_memory memory;

		assert_true(serving_set_job(&n->server.serving, j->id, &knobs, &(struct error){.code = 0}) >=
			    0);
		serving_job_knobs(&n->server.serving, j, &now);
		serving_job_memory(&n->server.serving, j, &memory);
		assert_true(now.value[TUNER_CACHE_BYTES] >= memory.need);
		assert_int_equal(now.value[TUNER_PREFETCH_CHUNKS], knobs.value[TUNER_PREFETCH_CHUNKS]);
		assert_in_range(now.value[TUNER_DAEMON_WORKERS], 1, 4);
		for (const struct session *q = n->server.serving.sessions; q; q = q->next)
			assert_int_equal(atomic_load(&q->slots.control->wanted_workers),
					 knobs.value[TUNER_CLIENT_WORKERS]);
	}
	struct tuner_knobs free_knobs = tuner_knobs_free();
	assert_int_equal(serving_set_job(&n->server.serving, 99999, &free_knobs, NULL), -ENOENT);
}

static void on_turn(uv_timer_t *timer)
{
	struct node *n = timer->data;

	if (next_random(n, 2))
		turn_all(n);
	else
		turn_jobs(n);
	atomic_fetch_add(&n->n_turns, 1);
}

static uint64_t sum_segments(const struct cache *c, uint64_t *ret_kept)
{
	uint64_t sum = 0;

	*ret_kept = 0;
	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *s = c->segments.all[i];
		const struct cached_chunk *k = s ? cache_chunk_of(s) : NULL;

		sum += s ? s->memory.bytes : 0;
		*ret_kept += k && k->kept ? s->memory.bytes : 0;
	}
	return sum;
}

static void on_stop(uv_async_t *async)
{
	struct node *n = async->data;
	struct cache *c = &n->server.serving.cache;
	uint64_t kept;

	/* The cache's sums are right. */
	n->fits = sum_segments(c, &kept) == c->segment_bytes && kept == c->kept_bytes;
	uv_close((uv_handle_t *)&n->turn, NULL);
	uv_close((uv_handle_t *)&n->stop, NULL);
	server_stop(&n->server);
}

static void *node_run(void *argument)
{
	struct node *n = argument;

	uv_run(&n->loop, UV_RUN_DEFAULT);
	return NULL;
}

static void node_start(struct node *n, bool turning)
{
	const struct serving_options options = {
	    .knobs = {.cache_bytes = 100 * MIB, .prefetch_chunks = 4, .workers = 2},
	    .window_chunks = 2,
	    .n_slots = 4,
	    .use_io_uring = true};
	struct fd_store_items items = {0};
	struct error err = ERROR_INIT;

	assert_int_equal(fork_server_fork(&n->fork_server, &err), 0);
	assert_int_equal(uv_loop_init(&n->loop), 0);
	if (server_start(&n->server, &n->loop, n->socket, &options, &n->fork_server, &items, &err) < 0)
		fail_msg("%s", err.text);
	uv_async_init(&n->loop, &n->stop, on_stop);
	uv_timer_init(&n->loop, &n->turn);
	n->stop.data = n->turn.data = n;
	if (turning)
		uv_timer_start(&n->turn, on_turn, 1, 3);
	assert_int_equal(pthread_create(&n->thread, NULL, node_run, n), 0);
}

static void node_stop(struct node *n)
{
	uv_async_send(&n->stop);
	pthread_join(n->thread, NULL);
	assert_int_equal(uv_loop_close(&n->loop), 0);
	server_free(&n->server);
	fork_server_end(&n->fork_server);
}

/* Returns the digests of all clients, run at the same time. */
static void serve(struct node *n, bool turning, uint64_t *ret_digests)
{
	struct client clients[N_CLIENTS] = {{.dataset = n->packed, .batch = 64, .stride = 1},
					    {.dataset = n->views, .batch = 48, .stride = 1},
					    {.dataset = n->views, .batch = 32, .stride = 2, .offset = 1}};

	node_start(n, turning);
	do {
		for (int i = 0; i < N_CLIENTS; i++) {
			clients[i].node = n;
			clients[i].digest = clients[i].n_samples = 0;
			pthread_create(&clients[i].thread, NULL, client_run, &clients[i]);
		}
		for (int i = 0; i < N_CLIENTS; i++) {
			pthread_join(clients[i].thread, NULL);
			if (ret_digests[i])
				assert_int_equal(clients[i].digest, ret_digests[i]);
			ret_digests[i] = clients[i].digest;
		}
		assert_int_equal(clients[0].n_samples, EPOCHS * N_SAMPLES);
		assert_int_equal(clients[1].n_samples, EPOCHS * N_SAMPLES);
	} while (turning && atomic_load(&n->n_turns) < ROUNDS);
	node_stop(n);
	assert_true(n->fits);
}

TEST_IN_FOLDER(batches_are_the_same_whatever_is_turned)
{
	struct node n = {.random = 7};
	uint64_t digests[N_CLIENTS] = {0};

	n.socket = path_in(*state, "s");
	n.packed =
	    make_dataset(*state, "packed", &(struct dataset_plan){.n_samples = N_SAMPLES, .bytes = 12288});
	n.views = make_dataset(*state, "views",
			       &(struct dataset_plan){.n_samples = N_SAMPLES, .bytes = 8, .spread = 24568});
	serve(&n, false, digests);
	serve(&n, true, digests);
	assert_true(atomic_load(&n.n_turns) >= ROUNDS);
	assert_true(atomic_load(&n.n_clamped) > 0);
	free(n.socket);
	free(n.packed);
	free(n.views);
}
