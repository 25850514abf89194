/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* State of the daemon's side, shared by its files. */

#include <uv.h>

#include "cluster_message.h"
#include "daemon/helpers/keeper.h"
#include "dataset/owner.h"
#include "outbox.h"

struct cluster_member_at {
	uint32_t peer; /* CLUSTER_SELF, or index in cluster.peers */
	char node[REGISTRY_NAME_BYTES];
	char address[64];
};

struct cluster_members {
	size_t n, space;
	struct owner_member *owners; /* same indices as `at` */
	struct cluster_member_at *at;
};

struct cluster_group {
	struct cluster_group *next;
	struct cluster *cluster;
	uint32_t refs;
	struct registry_group_key key;
	struct net_group_id id;
	char path[256];
	uint64_t weight_bytes; /* weight and lanes as last told to the process */
	struct owner_lanes lanes;
	struct cluster_members members, coming;
};

enum cluster_question_state {
	CLUSTER_QUESTION_OPEN,
	CLUSTER_QUESTION_ANSWERED, /* given() is called when the process reports it */
	CLUSTER_QUESTION_OVER,     /* given() is called soon */
};

struct cluster_question {
	struct cluster_question *next;
	struct cluster *cluster;
	uint64_t id; /* 0: the process that asked has ended */
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
	uint32_t n_handles; /* handles of keeper and timer that are still open */
	bool closed;
	struct outbox outbox; /* messages to the process of keeper.link */
	bool is_killed;       /* the keeper was told to kill that process */
	struct cluster_group *groups;
	struct cluster_question *questions;
	struct cluster_peer peers[CLUSTER_MAX_PEERS];
	struct cluster_read *reads; /* newest first */
	uint32_t n_sent;
	uint64_t next_id;
	struct cluster_figures figures;
	int report_fd; /* memory of the last published report: stays open until the next one */
};

/* cluster.c */
int cluster_order(struct cluster *c, const struct cluster_order *order, int memory_fd);
