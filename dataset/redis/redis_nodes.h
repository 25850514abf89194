/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The servers of a link, and which of them has which slot. Without a cluster, the one of the URL has all. */

#include "redis_link.h"

struct redis_node {
	struct redis_address address;
	char text[REDIS_URL_PART + 16]; /* for people */
	struct redis_conn *conn;        /* NULL: none now */
	bool has_replicas;
};

struct redis_nodes {
	struct redis_settings settings;
	struct redis_tls_config *tls;
	struct redis_node *list; /* the first is that of the URL */
	size_t n, n_room;
	bool is_cluster, evicts;
	bool stale;                    /* the slots are to be asked for */
	uint16_t slots[REDIS_N_SLOTS]; /* number of a node, or REDIS_NODES_MAX: nobody's */
	char sha[N_REDIS_SCRIPTS][41];
};

int redis_nodes_open(const struct redis_settings *settings, struct redis_nodes *ret, struct error *err);
void redis_nodes_close(struct redis_nodes *nodes);
/* -EAGAIN, with a text: the slot is nobody's, or its node cannot be reached now. Other codes stay. */
int redis_nodes_of_slot(struct redis_nodes *nodes, uint16_t slot, size_t *ret, struct error *err);
/* A node that a redirection names. *ret is its number. -ENOMEM, -EPROTO: more nodes than there can be. */
int redis_nodes_find(struct redis_nodes *nodes, const struct redis_address *address, size_t *ret);
/* -EAGAIN, with a text: not now. */
int redis_nodes_connect(struct redis_nodes *nodes, size_t node, struct error *err);
void redis_nodes_drop(struct redis_nodes *nodes, size_t node);
