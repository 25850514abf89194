/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks that other nodes of a job ask for. What is in memory is pinned until it was sent; what is not is
 * read from storage as for the job's own sessions, in its turn and out of its user's share, and then given.
 * Who has no session of the group, or no room that nobody here needs, refuses: the asker then reads by
 * itself.
 *
 * Loop thread only.
 */

#include "daemon/cluster/cluster.h"
#include <stddef.h>
#include <stdint.h>

struct cache;
struct cached_dataset;
struct sharer;

#define GIVES_MAX 1024 /* questions that wait here */

/* A chunk to be read for another node. */
struct give_want {
	struct sharer *sharer;
	uint64_t chunk;
};

struct give;
struct gives {
	struct give *first; /* the oldest first */
	uint32_t n;
};

/* For struct cluster_handler; user: the cache. */
void gives_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		 struct cluster_question *question);
void gives_given(void *user, void *answer);

/* Answers what has become ready, and refuses what cannot be had. */
void gives_pump(struct cache *c);
/* Chunks that are to be read for others, at most n and one for each sharer. */
size_t gives_wanted(struct cache *c, struct give_want *wants, size_t n);
/* It cannot be read now: whoever asked for it is refused. */
void gives_refuse(struct cache *c, const struct give_want *want);
/* No session of the group is left. */
void gives_refuse_group(struct cache *c, const struct cluster_group *group);
/* At the end; the cluster is gone. */
void gives_free(struct cache *c);
