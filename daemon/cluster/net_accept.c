/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that come. Those that have not said yet who they are, are few, of one machine and in all: a
 * newer one takes the place of the oldest, which had its time. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "net.h"

#define HALF_OF_HOST 8u
#define HALF_MAX     256u
/* Connections a second: each costs a handshake. */
#define ACCEPTS_PER_S 256.0
#define ACCEPTS_BURST 256.0
#define REST_NS       (NS_PER_S / 10)

static bool is_half(const struct net_conn *c)
{
	return !c->dialled && c->state < NET_OPEN;
}

/* The oldest of them; host: of this one alone. */
static struct net_conn *oldest(const struct net *n, const struct net_address *host, uint32_t *ret_n)
{
	struct net_conn *found = NULL;

	*ret_n = 0;
	for (struct net_conn *c = n->conns; c; c = c->next) {
		if (!is_half(c) || (host && !net_address_same_host(&c->far, host)))
			continue;
		found = c; /* newer ones come first */
		++*ret_n;
	}
	return found;
}

static void make_room(struct net *n, const struct net_address *far)
{
	uint32_t n_half;
	struct net_conn *c = oldest(n, far, &n_half);

	if (n_half >= HALF_OF_HOST) {
		net_conn_close(c, "its machine has opened too many connections and said nothing");
		return;
	}
	c = oldest(n, NULL, &n_half);
	if (n_half >= HALF_MAX)
		net_conn_close(c, "there are too many connections that have said nothing");
}

/* Returns false if there is no more to accept now. */
static bool accept_one(struct net *n)
{
	struct net_address far = {.bytes = sizeof(far.name)};
	_cleanup_(closep) int fd =
	    accept4(n->listen_fd, (struct sockaddr *)&far.name, &far.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct net_conn *c;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
		log_limited(&n->said_accept, LOG_LEVEL_WARNING,
			    "other nodes' connections wait: %s (ulimit -n, LimitNOFILE=)", strerror(errno));
		net_accept_stop(n, REST_NS);
		return false;
	}
	if (fd < 0)
		return errno == EINTR || errno == ECONNABORTED;
	make_room(n, &far);
	if (net_conn_new(n, fd, &far, NULL, &c) == 0)
		(void)steal_fd(&fd);
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
	for (int i = 0; i < 16 && n->accept_tokens >= 1; i++, n->accept_tokens -= 1)
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
