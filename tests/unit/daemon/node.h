/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Server on a thread of this process. Each test includes it once. */

#include "tests/support_dataset.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "daemon/server/server.h"

#define NODE_MIB (UINT64_C(1) << 20)

struct node {
	uint64_t cache_bytes; /* 0: more than enough */
	char *socket;
	struct server server;
	struct fork_server fork_server;
	uv_loop_t loop;
	uv_async_t stop, ask;
	pthread_t thread;
	void (*look)(struct node *n, void *answer);
	void *answer;
	sem_t asked, answered;
};

static inline void node_on_stop(uv_async_t *async)
{
	struct node *n = async->data;

	uv_close((uv_handle_t *)&n->stop, NULL);
	uv_close((uv_handle_t *)&n->ask, NULL);
	server_stop(&n->server);
}

static inline void node_on_ask(uv_async_t *async)
{
	struct node *n = async->data;

	while (sem_wait(&n->asked) < 0)
		continue;
	n->look(n, n->answer);
	sem_post(&n->answered);
}

/* Runs look() on the server's thread, which owns the data, and waits for it. */
static inline void node_ask(struct node *n, void (*look)(struct node *n, void *answer), void *answer)
{
	n->look = look;
	n->answer = answer;
	sem_post(&n->asked);
	uv_async_send(&n->ask);
	while (sem_wait(&n->answered) < 0)
		continue;
}

static inline void *node_run(void *argument)
{
	struct node *n = argument;

	uv_run(&n->loop, UV_RUN_DEFAULT);
	return NULL;
}

static inline void node_start(struct node *n, const char *root)
{
	const struct serving_options options = {
	    .knobs = {.cache_bytes = n->cache_bytes ? n->cache_bytes : 256 * NODE_MIB,
		      .prefetch_chunks = 4,
		      .workers = 2},
	    .window_chunks = 2,
	    .n_slots = 4,
	    .use_io_uring = true};
	struct fd_store_items items = {0};
	struct error err = ERROR_INIT;

	n->socket = path_in(root, "s");
	assert_int_equal(fork_server_fork(&n->fork_server, &err), 0);
	assert_int_equal(uv_loop_init(&n->loop), 0);
	if (server_start(&n->server, &n->loop, n->socket, &options, &n->fork_server, &items, &err) < 0)
		fail_msg("%s", err.text);
	uv_async_init(&n->loop, &n->stop, node_on_stop);
	uv_async_init(&n->loop, &n->ask, node_on_ask);
	n->stop.data = n->ask.data = n;
	assert_int_equal(sem_init(&n->asked, 0, 0), 0);
	assert_int_equal(sem_init(&n->answered, 0, 0), 0);
	assert_int_equal(pthread_create(&n->thread, NULL, node_run, n), 0);
}

static inline void node_stop(struct node *n)
{
	uv_async_send(&n->stop);
	pthread_join(n->thread, NULL);
	assert_int_equal(uv_loop_close(&n->loop), 0);
	server_free(&n->server);
	fork_server_end(&n->fork_server);
	free(n->socket);
}

/* Returns true if an item is exactly the sample that its number says. */
static inline bool node_item_is_right(const struct diesel_batch *b, uint32_t i)
{
	const uint8_t *data = b->packed ? b->packed + (size_t)i * b->item_bytes : b->items[i].data;

	return is_sample(data, b->items[i].bytes, b->items[i].sample);
}
