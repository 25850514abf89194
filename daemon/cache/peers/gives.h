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

#include "cluster.h"
#include "form_pace.h"
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

/* Decoded forms, from and to other nodes (form_asks.h, form_gives.h). */
struct form_sharing {
	enum form_travel travel;
	uint32_t n_gives, n_asks; /* under way */
	uint64_t visit_bytes;     /* forms of other nodes, while they are used, and answers */
	uint64_t in, in_bytes, out, out_bytes;
	uint64_t late,
	    spoilt; /* answers that did not come in time; with forms that were not what was decoded */
};

struct give;
struct gives {
	struct give *first; /* the oldest first */
	uint32_t n;
	struct form_sharing forms;
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
