/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A job of this node whose ranks run on other nodes too: for each of its datasets it is a member of a group
 * (cluster.h), in which each chunk has one owner. Where its order has lanes (lane_table.h), that is a node
 * that serves the chunk's lane, and what was dealt to this node's lanes with an epoch is had from the node
 * that served it before. From its first session with a name until the job ends, or the dataset goes: workers
 * come and go with the epochs, and others would otherwise find new owners each time.
 *
 * While it has a session, chunks are read for other nodes as for itself. Afterwards what is in memory is
 * given, and nothing read.
 *
 * Until the nodes that the job is known to run on are there, or SHARERS_WAIT_NS have passed, it reads
 * nothing: what it read before would be read by its owner again.
 *
 * Loop thread only.
 */

#include "daemon/cluster/cluster.h"
#include "lane_table.h"

#include <stdbool.h>
#include <stdint.h>

#define SHARERS_WAIT_NS UINT64_C(5000000000)

struct cache;
struct cached_dataset;
struct job;
struct chunk_place;

struct sharer {
	struct sharer *next;        /* of the dataset's */
	struct sharer *next_of_job; /* of the job's */
	struct cache *cache;
	struct cached_dataset *dataset;
	struct job *job;             /* not referred to: it ends the member */
	struct cluster_group *group; /* NULL: the cache is about to be fitted, and joins then */
	struct registry_group_key key;
	struct chunk_place *place; /* of its newest session; NULL: there is none */
	struct lane_table lanes;   /* of its order, where that has several */
	uint32_t n_sessions, n_nodes;
	uint32_t refs; /* the lists, and loads */
	bool is_ended; /* out of the lists */
	bool is_complete;
	uint64_t since_ns, weight_bytes;
};

/* A session of the job begins. NULL: there is no cluster, no name, or no memory: it reads for itself.
 * n_nodes: that the job runs on; 0: not known. */
struct sharer *sharers_join(struct cache *c, struct cached_dataset *d, struct job *job, const char *name,
			    uint32_t n_nodes, struct chunk_place *place);
/* It has ended. Accepts NULL. */
void sharer_leave(struct sharer *m);
/* Of the job, of the dataset, or all. */
void sharers_end_job(struct job *job);
void sharers_end_dataset(struct cached_dataset *d);
void sharers_end_all(struct cache *c);

struct sharer *sharer_ref(struct sharer *m);
void sharer_unref(struct sharer *m); /* NULL is fine */

/* The job's member of the dataset's groups, or NULL. */
struct sharer *sharers_find(const struct cached_dataset *d, const struct job *job);
/* A member of the group, one with a session if there is any; NULL: there is none. */
struct sharer *sharers_find_group(const struct cache *c, const struct cluster_group *group);

/* Whether it waits for other nodes still; then *again_ns is lowered to when it no longer does. */
bool sharer_waits(struct sharer *m, uint64_t now_ns, uint64_t *again_ns);
/* A session of this order begins, whose rank takes samples of lanes [first, end). Accepts NULL. */
void sharer_join_lanes(struct sharer *m, const struct shuffle_spec *spec, uint64_t first, uint64_t end);
/* A session has come to an epoch. Accepts NULL. */
void sharer_go_on(struct sharer *m, uint64_t epoch);

/* Whether its chunk is to be had from another node. Accepts NULL. */
bool sharer_has_elsewhere(const struct sharer *m, uint64_t chunk);
/* Where it lies for the node that it is to be had from. lanes 0: wherever that is. */
struct owner_place sharer_asks(const struct sharer *m, uint64_t chunk);
/* Whether this node served the chunk until that epoch, in which it is in another node's lane. Accepts NULL.
 */
bool sharer_has_left(const struct sharer *m, uint64_t epoch, uint64_t chunk);
/* The group's other nodes were given the chunk. */
void sharer_taken(const struct sharer *m, uint64_t chunk);
/* Whether it is to be read here for another node that asks for it. */
bool sharer_serves(const struct sharer *m, uint64_t chunk);

/* The cache was fitted: groups are joined, and told how much room there is. */
void sharers_tell_room(struct cache *c);
/* Owners have changed: of all that is in memory it is found out anew whether it is another node's. */
void sharers_find_owners(struct cache *c, struct cached_dataset *d);
void sharers_note_changed(struct cache *c, const struct cluster_group *group);
/* Whether a chunk of the dataset that is in memory is none that this node has to keep: all who use the
 * dataset can have it from another node. */
bool sharers_is_foreign(const struct cached_dataset *d, uint64_t chunk);
