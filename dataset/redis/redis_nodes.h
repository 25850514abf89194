/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The servers of a link, and the slots of each. Without a cluster, the URL's server has all slots. */

#include "redis_link.h"

struct redis_node {
	struct redis_address address;
	char text[REDIS_URL_PART + 16]; /* for people */
	struct redis_conn *conn;        /* NULL: not connected */
	bool has_replicas;
};

struct redis_nodes {
	struct redis_settings settings;
	struct redis_tls_config *tls;
	struct redis_node *list; /* the first is the URL's server */
	size_t n, n_space;
	bool is_cluster, evicts;
	bool stale;                    /* the slots must be fetched again */
	uint16_t slots[REDIS_N_SLOTS]; /* number of a node, or REDIS_NODES_MAX: unassigned */
	char sha[N_REDIS_SCRIPTS][41];
};

int redis_nodes_open(const struct redis_settings *settings, struct redis_nodes *ret, struct error *err);
void redis_nodes_close(struct redis_nodes *nodes);
/* Returns the node of a slot. -EAGAIN, with a text: the slot is unassigned, or no node could be asked for the
 * slots. -EACCES, -EINVAL, -EPROTO, -ENOMEM: a node refused or answered nonsense, or no memory; the others
 * were not asked then. */
int redis_nodes_of_slot(struct redis_nodes *nodes, uint16_t slot, size_t *ret, struct error *err);
/* Finds or adds the node that a redirection names. *ret is its number. -ENOMEM, -EPROTO: more nodes than
 * possible. */
int redis_nodes_find(struct redis_nodes *nodes, const struct redis_address *address, size_t *ret);
/* Connects to a node. -EAGAIN, with a text: not possible now. */
int redis_nodes_connect(struct redis_nodes *nodes, size_t node, struct error *err);
void redis_nodes_drop(struct redis_nodes *nodes, size_t node);
