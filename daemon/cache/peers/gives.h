/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Serves chunks that other nodes of a job ask for. A chunk in memory is pinned until it was sent. Any other
 * chunk is read from storage as for the job's own sessions, in its turn and out of its user's share, and then
 * sent. A node refuses if it has no session of the group, or no spare memory. The other node then reads the
 * chunk itself.
 *
 * Loop thread only.
 */

#include "daemon/cluster/cluster.h"
#include <stddef.h>
#include <stdint.h>

struct cache;
struct cached_dataset;
struct membership;

#define GIVES_MAX 1024 /* limit on waiting requests */

/* A chunk to be read for another node. */
struct give_want {
	struct membership *membership;
	uint64_t chunk;
};

struct give;
struct gives {
	struct give *first; /* requests, oldest first */
	uint32_t n;
};

/* Callbacks for struct cluster_handler; user: the cache. */
void gives_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		 struct cluster_question *question);
void gives_given(void *user, void *answer);

/* Sends chunks that have become ready, and refuses those that this node cannot provide. */
void gives_pump(struct cache *c);
/* Fills in the chunks to read for other nodes, at most n and one for each membership. Returns their number.
 */
size_t gives_wanted(struct cache *c, struct give_want *wants, size_t n);
/* Refuses all requests for this chunk: it cannot be read now. */
void gives_refuse(struct cache *c, const struct give_want *want);
/* Frees all requests. Call at shutdown, after the cluster. */
void gives_free(struct cache *c);
