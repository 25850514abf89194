/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A job of this node whose ranks run on other nodes, too. For each of its datasets the job is a member of a
 * group (cluster.h), in which each chunk has one owner. If its order has lanes (lane_table.h), the owner is a
 * node that serves the chunk's lane. Chunks that an epoch dealt to this node's lanes come from the node that
 * served them before.
 *
 * Membership lasts from the job's first session with a name until the job ends or the dataset is dropped.
 * Workers start and end with the epochs, and a shorter membership would change the owners each time.
 *
 * While the job has a session here, this node reads chunks for other nodes as for itself. Afterwards it sends
 * chunks that are in memory, and reads none.
 *
 * The job reads nothing until all nodes that it is known to run on have joined, or MEMBERSHIP_WAIT_NS have
 * passed. Otherwise the owners of chunks read before would read them again.
 *
 * Loop thread only.
 */

#include "daemon/cluster/cluster.h"
#include "lane_table.h"

#include <stdbool.h>
#include <stdint.h>

#define MEMBERSHIP_WAIT_NS UINT64_C(5000000000)

struct cache;
struct cached_dataset;
struct job;
struct chunk_place;

struct membership {
	struct membership *next;        /* next in the dataset's list */
	struct membership *next_of_job; /* next in the job's list */
	struct cache *cache;
	struct cached_dataset *dataset;
	struct job *job;             /* not counted in job->refs: the job ends the membership */
	struct cluster_group *group; /* NULL until cache_fit(), which joins the group */
	struct registry_group_key key;
	struct chunk_place *place; /* place of its newest session; NULL: no session */
	struct lane_table lanes;   /* table of its order, if that has several lanes */
	uint32_t n_sessions, n_nodes;
	uint32_t refs; /* references from the lists and from loads */
	bool is_ended; /* removed from the lists */
	bool is_complete;
	uint64_t since_ns, weight_bytes;
};

/* Adds a session of the job. NULL: no cluster, no name, another name than the job's, a single node, or no
 * memory; then the session reads for itself. n_nodes: number of nodes that the job runs on; 0: not known. */
struct membership *memberships_join(struct cache *c, struct cached_dataset *d, struct job *job,
				    const char *name, uint32_t n_nodes, struct chunk_place *place);
/* Removes a session. Accepts NULL. */
void membership_leave(struct membership *m);
/* Ends all memberships of the job. */
void memberships_end_job(struct job *job);
/* Ends all memberships for the dataset. */
void memberships_end_dataset(struct cached_dataset *d);
void memberships_end_all(struct cache *c);

struct membership *membership_ref(struct membership *m);
void membership_unref(struct membership *m); /* accepts NULL */

/* Returns the job's membership for this dataset, or NULL. */
struct membership *memberships_find(const struct cached_dataset *d, const struct job *job);

/* Returns true while the job must wait for other nodes. Then lowers *again_ns to the end of that wait. */
bool membership_waits(struct membership *m, uint64_t now_ns, uint64_t *again_ns);
/* Adds a session of this order, whose rank takes samples from lanes [first, end). Accepts NULL. */
void membership_join_lanes(struct membership *m, const struct shuffle_spec *spec, uint64_t first,
			   uint64_t end);
/* Notes that a session has reached this epoch. Accepts NULL. */
void membership_go_on(struct membership *m, uint64_t epoch);

/* Returns true if the chunk should be fetched from another node. Accepts NULL. */
bool membership_has_elsewhere(const struct membership *m, uint64_t chunk);
/* Returns the chunk's lanes, which determine the node to ask. lanes 0: the owner does not depend on lanes. */
struct owner_place membership_asks(const struct membership *m, uint64_t chunk);
/* Returns true if this node served the chunk until that epoch, in which the chunk is in another node's lane.
 * Accepts NULL. */
bool membership_has_left(const struct membership *m, uint64_t epoch, uint64_t chunk);

/* Joins groups, and reports to them how much space this node has. Call after fitting the cache. */
void memberships_tell_space(struct cache *c);
/* Determines for all chunks in memory whether they belong to another node. Call after owners have changed. */
void memberships_find_owners(struct cache *c, struct cached_dataset *d);
void memberships_note_changed(struct cache *c, const struct cluster_group *group);
/* Returns true if this node need not keep a chunk that it has in memory: all jobs that use the dataset can
 * get the chunk from another node. */
bool memberships_is_foreign(const struct cached_dataset *d, uint64_t chunk);
