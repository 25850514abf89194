/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages between the daemon, the keeper and dieseld-peer, over SOCK_SEQPACKET. */

#include <stdbool.h>
#include <stdint.h>

#include "cluster.h"
#include "net_address.h"
#include "net_frame.h"

#define CLUSTER_URL_BYTES 1024
#define CLUSTER_KEY_MAX   4096u
#define CLUSTER_KEY_MIN   16u
#define CLUSTER_MAX_PEERS CLUSTER_MAX_MEMBERS
/* Stands for this node where a peer's number is expected. */
#define CLUSTER_SELF UINT32_MAX
/* Maximum number of peers' questions that the daemon has not answered yet. */
#define CLUSTER_MAX_ASKED 64u

/* Sent once from the daemon to the keeper, with the listening socket, or without one if its address is taken.
 */
struct cluster_config {
	struct net_address listen;
	char redis[CLUSTER_URL_BYTES];
	char node[REGISTRY_NAME_BYTES];
	char address[64];          /* address that others connect to */
	uint32_t uid;              /* without a key, only processes of this user may be peers */
	uint64_t peer_bytes_per_s; /* same as in struct cluster_options */
	uint32_t key_bytes;
	uint8_t key[CLUSTER_KEY_MAX];
};

enum cluster_verb {
	/* Orders to the process. */
	CLUSTER_JOIN,    /* key, path, bytes: the weight, lanes */
	CLUSTER_LEAVE,   /* key */
	CLUSTER_FETCH,   /* id, peer, name_hash, group, chunk, bytes, ns: patience; with the memory */
	CLUSTER_ANSWER,  /* id, bytes; with the memory */
	CLUSTER_REFUSE,  /* id, code */
	CLUSTER_SPOILT,  /* peer, name_hash */
	CLUSTER_PUBLISH, /* bytes, with memory that holds the text and its NUL */
};

struct cluster_order {
	uint32_t verb;
	int32_t code;
	uint64_t id, bytes, ns, name_hash;
	uint32_t peer;
	struct net_group_id group;
	struct chunk_id chunk;
	struct registry_group_key key;
	struct owner_lanes lanes;
	char path[256];
};

enum cluster_news {
	/* Reports from the process. */
	CLUSTER_MEMBERS, /* group; count 0: its members follow, one by one; 1: they are complete */
	CLUSTER_MEMBER,  /* group, peer, peer_is: node and address, bytes: the weight, lanes */
	CLUSTER_PEER,    /* peer, peer_is; without a node's name: this peer no longer exists */
	CLUSTER_DONE,    /* id, code, text: a fetch has ended, and its memory is released */
	CLUSTER_ASKED,   /* id, group, chunk */
	CLUSTER_GIVEN,   /* id: the answer's memory is released */
	CLUSTER_SERVER,  /* code: 0, or negative if Redis cannot be reached */
};

struct cluster_report {
	uint32_t news;
	int32_t code;
	uint64_t id, bytes;
	uint32_t peer, count;
	struct net_group_id group;
	struct chunk_id chunk;
	struct cluster_peer_figures peer_is;
	struct owner_lanes lanes;
	char text[256];
};

/* Runs dieseld-peer until the daemon is gone. Returns the exit status. */
int net_run(const struct cluster_config *config, int listen_fd, int daemon_fd);
