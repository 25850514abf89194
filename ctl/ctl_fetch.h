/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The threads of `dieselctl fetch`, which read from the bucket: each order and each request is one range. */

#include "client/fetch_channel.h"
#include "dataset/store.h"

struct fetch_pool;

/* A connection to the daemon and its landing memory. Counted: orders have one each. */
struct fetch_link;

/* Takes the socket over; the memory's descriptor stays the caller's. -ENOMEM or another negative errno. */
int fetch_link_new(int socket, int memory_fd, struct fetch_link **ret);
int fetch_link_socket(const struct fetch_link *link);
void fetch_link_unref(struct fetch_link *link);

/* The store is borrowed, and stays to the end of the process, as the pool does. -ENOMEM, -EAGAIN. */
int fetch_pool_new(struct store *store, struct fetch_pool **ret);
/* Reads into the landing memory, and answers. */
void fetch_pool_order(struct fetch_pool *pool, struct fetch_link *link, const struct wire_fetch *order);
/* Reads for the socket, which it takes over. */
void fetch_pool_read(struct fetch_pool *pool, const struct fetch_request *request, int socket);
