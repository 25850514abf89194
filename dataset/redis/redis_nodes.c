/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/clock.h"
#include "redis_refusal.h"

#define SILENCE_NS (10 * NS_PER_S) /* then another attempt, or another node */

int redis_nodes_find(struct redis_nodes *nodes, const struct redis_address *address, size_t *ret)
{
	bool bracket = strchr(address->host, ':');
	size_t i = 0;

	while (i < nodes->n && (strcmp(nodes->list[i].address.host, address->host) != 0 ||
				strcmp(nodes->list[i].address.port, address->port) != 0))
		i++;
	if (i == nodes->n) {
		if (nodes->n == REDIS_NODES_MAX)
			return -EPROTO;
		if (array_reserve(nodes->list, nodes->n, nodes->n_space) < 0)
			return -ENOMEM;
		nodes->list[i] = (struct redis_node){.address = *address};
		snprintf(nodes->list[i].text, sizeof(nodes->list[i].text), "%s%s%s:%s", bracket ? "[" : "",
			 address->host, bracket ? "]" : "", address->port);
		nodes->n++;
	}
	*ret = i;
	return 0;
}

void redis_nodes_drop(struct redis_nodes *nodes, size_t node)
{
	redis_conn_close(nodes->list[node].conn);
	nodes->list[node].conn = NULL;
	nodes->stale = nodes->is_cluster;
}

/* Returns true if the error may pass. */
static bool passes(int r)
{
	return r != -ENOMEM && r != -EACCES && r != -EINVAL && r != -EPROTO;
}

static int connect_node(struct redis_nodes *nodes, size_t node, struct error *err)
{
	const struct redis_settings *s = &nodes->settings;
	const struct redis_login login = {
	    .user = s->url.user,
	    .password = s->url.password,
	    .tls = nodes->tls,
	    .name = s->url.host,
	    .silence_ns = s->patience_ns < SILENCE_NS ? s->patience_ns : SILENCE_NS,
	};
	struct redis_node *n = &nodes->list[node];
	struct redis_facts facts;
	char text[REDIS_URL_TEXT];
	int r;

	if (n->conn)
		return 0;
	/* The URL's own server goes by what the user wrote. */
	r = redis_conn_open(&n->address, &login,
			    node == 0 ? redis_url_public(&s->url, text, sizeof(text)) : n->text, &n->conn,
			    &facts, err);
	if (r < 0)
		return r;
	n->has_replicas = facts.has_replicas;
	nodes->evicts |= facts.evicts;
	nodes->stale |= facts.is_cluster && !nodes->is_cluster;
	nodes->is_cluster |= facts.is_cluster;
	memcpy(nodes->sha, facts.sha, sizeof(nodes->sha));
	return 0;
}

int redis_nodes_connect(struct redis_nodes *nodes, size_t node, struct error *err)
{
	int r = connect_node(nodes, node, err);

	nodes->stale |= r < 0 && nodes->is_cluster;
	return r < 0 && passes(r) ? -EAGAIN : r;
}

struct taking {
	struct redis_nodes *nodes;
	const char *asked; /* the host that told */
	uint16_t slots[REDIS_N_SLOTS];
};

static int take_range(const struct redis_range *range, void *context)
{
	struct taking *t = context;
	struct redis_address address = range->master;
	size_t node;
	int r;

	if (!address.host[0])
		snprintf(address.host, sizeof(address.host), "%s", t->asked);
	r = redis_nodes_find(t->nodes, &address, &node);
	for (unsigned i = range->first; i <= range->last && r == 0; i++)
		t->slots[i] = (uint16_t)node;
	return r;
}

static int ask_slots(struct redis_nodes *nodes, size_t node, struct error *err)
{
	struct taking *t = malloc(sizeof(*t));
	char asked[REDIS_URL_PART], text[REDIS_URL_PART + 16];
	struct redis_conn *conn = nodes->list[node].conn;
	const redisReply *reply;
	int r;

	if (!t)
		return error_errno(err, -ENOMEM, "slots");
	memcpy(asked, nodes->list[node].address.host, sizeof(asked));
	memcpy(text, nodes->list[node].text, sizeof(text));
	t->nodes = nodes;
	t->asked = asked;
	for (size_t i = 0; i < REDIS_N_SLOTS; i++)
		t->slots[i] = REDIS_NODES_MAX;
	redis_conn_begin(conn);
	redis_conn_add_text(conn, 2, (const char *[]){"CLUSTER", "SLOTS"});
	r = redis_conn_run(conn);
	reply = redis_conn_reply(conn, 0);
	if (r < 0)
		error_errno(err, r, "%s does not answer", text);
	else if (reply->type == REDIS_REPLY_ERROR)
		r = redis_refusal(reply, text, err);
	else if ((r = redis_slots_each(reply, take_range, t)) < 0)
		error_set(err, r, "%s: its answer to CLUSTER SLOTS cannot be understood", text);
	if (r < 0)
		redis_nodes_drop(nodes, node);
	else
		memcpy(nodes->slots, t->slots, sizeof(nodes->slots));
	free(t);
	return r;
}

/* Asks the nodes one after the other, those first that are connected: a cluster that elects answers by
 * halves. */
static int refresh(struct redis_nodes *nodes, struct error *err)
{
	int r = -EAGAIN;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0, n = nodes->n; i < n; i++) {
			if ((nodes->list[i].conn == NULL) == (pass == 0))
				continue;
			r = connect_node(nodes, i, err);
			if (r == 0 && nodes->is_cluster)
				r = ask_slots(nodes, i, err);
			if (r == 0) {
				nodes->stale = false;
				return 0;
			}
			if (!passes(r))
				return r;
		}
	return r < 0 ? -EAGAIN : r;
}

int redis_nodes_of_slot(struct redis_nodes *nodes, uint16_t slot, size_t *ret, struct error *err)
{
	int r = nodes->stale ? refresh(nodes, err) : 0;

	if (r < 0)
		return r;
	if (nodes->is_cluster && nodes->slots[slot] >= nodes->n) {
		nodes->stale = true;
		return error_set(err, -EAGAIN, "the cluster of %s: nobody has slot %u", nodes->list[0].text,
				 slot);
	}
	*ret = nodes->is_cluster ? nodes->slots[slot] : 0;
	return 0;
}

int redis_nodes_open(const struct redis_settings *settings, struct redis_nodes *ret, struct error *err)
{
	struct redis_address address;
	size_t first;
	int r = 0;

	ret->settings = *settings;
	memcpy(address.host, settings->url.host, sizeof(address.host));
	memcpy(address.port, settings->url.port, sizeof(address.port));
	if (settings->url.tls)
		r = redis_tls_configure(&settings->tls, &ret->tls, err);
	if (r == 0 && redis_nodes_find(ret, &address, &first) < 0)
		r = error_errno(err, -ENOMEM, "%s", address.host);
	return r < 0 ? r : connect_node(ret, 0, err);
}

void redis_nodes_close(struct redis_nodes *nodes)
{
	for (size_t i = 0; i < nodes->n; i++)
		redis_conn_close(nodes->list[i].conn);
	free(nodes->list);
	redis_tls_config_free(nodes->tls);
	explicit_bzero(&nodes->settings, sizeof(nodes->settings));
}
