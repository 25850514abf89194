/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's side, as its files share it. */

#include <uv.h>

#include "cluster_message.h"
#include "daemon/helpers/keeper.h"
#include "dataset/owner.h"
#include "outbox.h"

struct cluster_member_at {
	uint32_t peer; /* CLUSTER_SELF, or in cluster.peers */
	char node[REGISTRY_NAME_BYTES];
	char address[64];
};

struct cluster_members {
	size_t n, space;
	struct owner_member *owners; /* side by side with: */
	struct cluster_member_at *at;
};

struct cluster_group {
	struct cluster_group *next;
	struct cluster *cluster;
	uint32_t refs;
	struct registry_group_key key;
	struct net_group_id id;
	char path[256];
	uint64_t weight_bytes; /* as told, and: */
	struct owner_lanes lanes;
	struct cluster_members members, coming;
};

enum cluster_question_state {
	CLUSTER_QUESTION_OPEN,
	CLUSTER_QUESTION_ANSWERED, /* given() is called when the process says so */
	CLUSTER_QUESTION_OVER,     /* given() is called soon */
};

struct cluster_question {
	struct cluster_question *next;
	struct cluster *cluster;
	uint64_t id; /* 0: of a process that has ended */
	enum cluster_question_state state;
	void *answer;
};

struct cluster_peer {
	bool is_used;
	uint64_t name_hash;
	struct cluster_peer_figures figures;
};

struct cluster {
	uv_loop_t *loop;
	struct cluster_handler handler;
	struct keeper keeper;
	uv_timer_t timer;
	uint32_t n_handles; /* of these two, still open */
	bool closed;
	struct outbox outbox; /* to the process that keeper.link is of */
	bool is_killed;       /* that one */
	struct cluster_group *groups;
	struct cluster_question *questions;
	struct cluster_peer peers[CLUSTER_MAX_PEERS];
	struct cluster_read *reads; /* the newest first */
	uint32_t n_sent;
	uint64_t next_id;
	struct cluster_figures figures;
	int report_fd; /* open until it is sent for sure: until the next one */
};

/* cluster.c */
int cluster_order(struct cluster *c, const struct cluster_order *order, int memory_fd);

/* cluster_group.c */
void cluster_group_take_members(struct cluster *c, const struct cluster_report *report);
void cluster_group_take_member(struct cluster *c, const struct cluster_report *report);
void cluster_group_take_peer(struct cluster *c, const struct cluster_report *report);
/* All join a process that has just begun. */
void cluster_group_tell_all(struct cluster *c);
/* The process has ended: nobody is known any more. */
void cluster_group_forget_all(struct cluster *c);
struct cluster_group *cluster_group_find(const struct cluster *c, const struct net_group_id *id);
void cluster_group_free_all(struct cluster *c);
/* Who is asked for a chunk; NULL: it is ours. */
const struct cluster_member_at *cluster_group_owner(const struct cluster_group *g,
						    const struct chunk_id *chunk,
						    const struct owner_place *place);
