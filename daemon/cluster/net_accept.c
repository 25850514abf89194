/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming connections. Few may be in the handshake at once, per source (net_sources.h) and in all: a
 * newer one replaces the oldest. A source that connects too often is refused at once: that costs no more
 * than letting it wait, and leaves the queue to others. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "net.h"

#define HALF_OF_SOURCE 8u
#define HALF_MAX       256u
/* Connections accepted per second and at once, most of which may be refused. */
#define ACCEPTS_PER_S   16384.0
#define ACCEPTS_BURST   1024.0
#define ACCEPTS_AT_ONCE 64
#define REST_NS         (NS_PER_S / 10)

static bool is_half(const struct net_conn *c)
{
	return !c->dialled && c->state < NET_OPEN;
}

/* Returns the oldest connection that is in the handshake. source: only of this source; NULL: of all. */
static struct net_conn *oldest(const struct net *n, const struct net_source *source, uint32_t *ret_n)
{
	struct net_conn *found = NULL;

	*ret_n = 0;
	for (struct net_conn *c = n->conns; c; c = c->next) {
		if (!is_half(c) || (source && !net_source_equal(&c->source, source)))
			continue;
		found = c; /* newer entries come first */
		++*ret_n;
	}
	return found;
}

static void make_space(struct net *n, const struct net_source *source)
{
	uint32_t n_half;
	struct net_conn *c = oldest(n, source, &n_half);

	if (n_half >= HALF_OF_SOURCE) {
		net_conn_close(c, "the peer's machine or user has too many connections without a hello");
		return;
	}
	c = oldest(n, NULL, &n_half);
	if (n_half >= HALF_MAX)
		net_conn_close(c, "this node has too many connections without a hello");
}

static bool is_node(const struct net *n, const struct net_address *far)
{
	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++) {
		const struct net_peer *p = n->peers[i];

		if (p && p->is_member && p->has_address && net_address_same_host(&p->address, far))
			return true;
	}
	return false;
}

static bool admit(struct net *n, int fd, const struct net_address *far, struct net_source *ret_source,
		  bool *ret_is_stranger)
{
	bool is_here = net_address_is_here(fd, far), is_trusted;
	uint32_t uid = UINT32_MAX;

	if (is_here && net_address_user(fd, far, &uid) < 0)
		uid = UINT32_MAX;
	is_trusted = uid == 0 || uid == n->config->uid;
	*ret_source = is_here ? net_source_here(far, uid, is_trusted) : net_source_far(far);
	*ret_is_stranger = is_here ? !is_trusted : !is_node(n, far);
	return net_sources_admit(&n->sources, ret_source, *ret_is_stranger, n->now_ns);
}

/* Refuses the connection. A stranger's is reset, so that it leaves nothing behind in this kernel. */
static void refuse(struct net *n, int fd, const struct net_address *far, bool is_stranger)
{
	const struct linger now = {.l_onoff = 1, .l_linger = 0};
	char address[NET_ADDRESS_BYTES];

	if (is_stranger)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	net_address_format(far, address);
	log_limited(&n->said_accept, LOG_LEVEL_WARNING,
		    "refused a connection from %s: this machine or user connects too often", address);
}

/* Returns false if no connection is waiting. */
static bool accept_one(struct net *n)
{
	struct net_address far = {.bytes = sizeof(far.name)};
	_cleanup_(closep) int fd =
	    accept4(n->listen_fd, (struct sockaddr *)&far.name, &far.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct net_source source;
	struct net_conn *c;
	bool is_stranger;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
		log_limited(&n->said_accept, LOG_LEVEL_WARNING,
			    "cannot accept connections from other nodes: %s. Raise the limit of open files "
			    "(ulimit -n, LimitNOFILE=)",
			    strerror(errno));
		net_accept_stop(n, REST_NS);
		return false;
	}
	if (fd < 0)
		return errno == EINTR || errno == ECONNABORTED;
	if (!admit(n, fd, &far, &source, &is_stranger)) {
		refuse(n, fd, &far, is_stranger);
		return true;
	}
	make_space(n, &source);
	if (net_conn_new(n, fd, &far, NULL, &c) == 0) {
		(void)steal_fd(&fd);
		c->source = source;
	}
	return true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct net *n = poll->data;

	n->now_ns = clock_monotonic_ns();
	n->accept_tokens += (double)(n->now_ns - n->accept_ns) / 1e9 * ACCEPTS_PER_S;
	if (n->accept_tokens > ACCEPTS_BURST)
		n->accept_tokens = ACCEPTS_BURST;
	n->accept_ns = n->now_ns;
	for (int i = 0; i < ACCEPTS_AT_ONCE && n->accept_tokens >= 1; i++, n->accept_tokens -= 1)
		if (!accept_one(n))
			return;
	if (n->accept_tokens < 1)
		net_accept_stop(n, REST_NS);
}

void net_accept_start(struct net *n)
{
	uv_poll_start(&n->listener, UV_READABLE, on_readable);
	n->listens = true;
}

void net_accept_stop(struct net *n, uint64_t for_ns)
{
	uv_poll_stop(&n->listener);
	n->listens = false;
	n->listen_ns = n->now_ns + for_ns;
}

void net_accept_tick(struct net *n)
{
	if (!n->listens && n->now_ns >= n->listen_ns)
		net_accept_start(n);
}
