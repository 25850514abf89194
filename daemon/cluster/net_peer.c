/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes. The node whose name sorts first connects to the other node, so each pair has one
 * connection. A node is unreachable until it has answered a ping, and again after it failed. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/owner.h"
#include "lib/cleanup.h"
#include "net.h"

#define BACK_OFF_MIN_NS (NS_PER_S / 4)
#define BACK_OFF_MAX_NS (4 * NS_PER_S)
/* Time for which a node that is in none of our groups keeps its connection: it may have joined one that is
 * not known here yet. */
#define IDLE_NS   (10 * NS_PER_S)
#define REPORT_NS NS_PER_S

struct net_peer *net_peer_at(struct net *n, uint32_t index, uint64_t name_hash)
{
	struct net_peer *p = index < CLUSTER_MAX_PEERS ? n->peers[index] : NULL;

	return p && p->name_hash == name_hash ? p : NULL;
}

struct net_peer *net_peer_get(struct net *n, const char *node)
{
	uint32_t free_at = CLUSTER_MAX_PEERS;
	struct net_peer *p;

	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++) {
		if (n->peers[i] && strcmp(n->peers[i]->node, node) == 0)
			return n->peers[i];
		if (!n->peers[i] && free_at == CLUSTER_MAX_PEERS)
			free_at = i;
	}
	p = free_at < CLUSTER_MAX_PEERS ? calloc(1, sizeof(*p)) : NULL;
	if (!p)
		return NULL;
	p->index = free_at;
	p->name_hash = owner_hash(node);
	strcpy(p->node, node);
	p->is_unreachable = true; /* unreachable until it has answered */
	p->unreachable_ns = p->idle_ns = n->now_ns;
	p->is_changed = true;
	n->peers[free_at] = p;
	return p;
}

void net_peer_report(struct net *n, struct net_peer *p)
{
	struct cluster_report report = {.news = CLUSTER_PEER, .peer = p->index, .peer_is = p->figures};

	p->is_changed = false;
	strcpy(report.peer_is.node, p->node);
	if (p->has_address)
		net_address_format(&p->address, report.peer_is.address);
	else if (p->conn)
		strcpy(report.peer_is.address, p->conn->address);
	report.peer_is.is_connected = p->conn;
	report.peer_is.is_unreachable = p->is_unreachable;
	report.peer_is.latency_s = p->latency_s > 0 ? p->latency_s : NAN;
	report.peer_is.bytes_per_s = p->bytes_per_s > 0 ? p->bytes_per_s : NAN;
	net_report(n, &report);
}

void net_peer_set_address(struct net *n, struct net_peer *p, const char *text)
{
	struct net_address a;

	if (net_address_parse(text, &a) < 0 || net_address_port(&a) == 0 || net_address_is_any(&a)) {
		log_limited(&n->said_problem, LOG_LEVEL_WARNING, "node %s announces an invalid address: %s",
			    p->node, text);
		return;
	}
	if (p->has_address && p->address.bytes == a.bytes && memcmp(&p->address.name, &a.name, a.bytes) == 0)
		return;
	if (!n->keys && !net_address_is_loopback(&a)) {
		log_limited(
		    &n->said_problem, LOG_LEVEL_WARNING,
		    "node %s is at %s: without --cluster-key, this node connects only to loopback addresses",
		    p->node, text);
		return;
	}
	p->address = a;
	p->has_address = true;
	p->dial_ns = n->now_ns;
	p->back_off_ns = 0;
	p->is_changed = true;
}

void net_peer_set_unreachable(struct net *n, struct net_peer *p, uint64_t for_ns, const char *why)
{
	p->unreachable_ns = n->now_ns;
	if (p->back_ns < n->now_ns + for_ns)
		p->back_ns = n->now_ns + for_ns;
	p->is_unreachable = true;
	if (!p->said_unreachable && why)
		log_warning("node %s is unreachable: %s. Other nodes serve its chunks until it answers again",
			    p->node, why);
	p->said_unreachable = true;
	net_peer_report(n, p);
}

void net_peer_answered(struct net *n, struct net_peer *p, uint64_t ping_ns)
{
	if (!p->is_unreachable || ping_ns < p->unreachable_ns || n->now_ns < p->back_ns)
		return;
	p->is_unreachable = p->said_unreachable = false;
	log_info("node %s at %s: connected", p->node, p->conn->address);
	net_peer_report(n, p);
}

static void dial_later(struct net *n, struct net_peer *p)
{
	p->back_off_ns = p->back_off_ns ? 2 * p->back_off_ns : BACK_OFF_MIN_NS;
	if (p->back_off_ns > BACK_OFF_MAX_NS)
		p->back_off_ns = BACK_OFF_MAX_NS;
	p->dial_ns = n->now_ns + p->back_off_ns;
}

void net_peer_lost(struct net *n, struct net_peer *p, struct net_conn *c, const char *why)
{
	if (p->conn == c)
		p->conn = NULL;
	if (p->dialled == c)
		p->dialled = NULL;
	dial_later(n, p);
	if (!p->conn)
		net_peer_set_unreachable(n, p, 0, p->is_member ? why : NULL);
}

static int connect_to(struct net *n, struct net_peer *p)
{
	_cleanup_(closep) int fd =
	    socket(p->address.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct net_conn *c;
	int r;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&p->address.name, p->address.bytes) < 0 && errno != EINPROGRESS)
		return -errno;
	r = net_conn_new(n, fd, &p->address, p, &c);
	if (r < 0)
		return r;
	(void)steal_fd(&fd);
	p->dialled = c;
	return 0;
}

static void dial(struct net *n, struct net_peer *p)
{
	int r;

	if (p->conn || p->dialled || !p->is_member || !p->has_address || n->now_ns < p->dial_ns ||
	    strcmp(n->config->node, p->node) > 0)
		return;
	r = connect_to(n, p);
	if (r < 0) {
		dial_later(n, p);
		if (r == -EMFILE || r == -ENFILE)
			net_accept_stop(n, 0);
	}
}

static void peer_remove(struct net *n, struct net_peer *p)
{
	const struct cluster_report report = {.news = CLUSTER_PEER, .peer = p->index};

	n->peers[p->index] = NULL;
	free(p);
	net_report(n, &report);
}

/* Removes a peer that has been idle for long. Returns true if it did. */
static bool leave(struct net *n, struct net_peer *p)
{
	if (p->is_member || (p->conn && (p->conn->n_asks > 0 || p->conn->n_questions > 0)))
		p->idle_ns = n->now_ns;
	if (n->now_ns < p->idle_ns + IDLE_NS)
		return false;
	if (p->conn)
		net_conn_close(p->conn, NULL);
	if (p->dialled)
		net_conn_close(p->dialled, NULL);
	peer_remove(n, p);
	return true;
}

void net_peer_tick(struct net *n, struct net_peer *p)
{
	if (leave(n, p))
		return;
	dial(n, p);
	if (p->is_changed)
		net_peer_report(n, p);
}
