/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster_private.h"
#include "lib/fd_message.h"

#define ORDERS_AT_ONCE 64
/* A tick that comes so much later was not the peers' fault: this process did not run. */
#define LATE_TICK_NS NS_PER_S

static void poll_daemon(struct net *n);

void net_report(struct net *n, const struct cluster_report *report)
{
	int r = outbox_send(&n->outbox, report, sizeof(*report), -EBADF);

	/* A report that is lost would be waited for for ever: whoever has ended has reported, too. */
	if (r == -ENOMEM)
		_exit(1);
	poll_daemon(n);
}

uint8_t *net_buffer_take(struct net *n)
{
	return n->n_buffers > 0 ? n->buffers[--n->n_buffers] : malloc(NET_BUFFER_BYTES);
}

void net_buffer_give(struct net *n, uint8_t *buffer)
{
	if (n->n_buffers < sizeof(n->buffers) / sizeof(n->buffers[0]))
		n->buffers[n->n_buffers++] = buffer;
	else
		free(buffer);
}

/* ---- orders -------------------------------------------------------------------------------------------- */

static void spoilt(struct net *n, const struct cluster_order *o)
{
	struct net_peer *p = net_peer_at(n, o->peer, o->name_hash);

	if (p)
		net_peer_set_away(n, p, 30 * NS_PER_S, NULL);
}

static void take_order(struct net *n, const struct cluster_order *o, int memory_fd)
{
	switch ((enum cluster_verb)o->verb) {
	case CLUSTER_JOIN: net_members_join(n, o); return;
	case CLUSTER_LEAVE: net_members_leave(n, o); return;
	case CLUSTER_FETCH: net_ask_begin(n, o, memory_fd); return;
	case CLUSTER_ANSWER: net_give_answer(n, o, memory_fd); return;
	case CLUSTER_REFUSE: net_give_refuse(n, o); return;
	case CLUSTER_SPOILT: spoilt(n, o); return;
	case CLUSTER_PUBLISH: net_members_publish(n, o, memory_fd); return;
	}
}

static void on_daemon(uv_poll_t *poll, int status, int events)
{
	struct net *n = poll->data;
	int fds[FD_MESSAGE_MAX_FDS], r = 0;
	struct cluster_order o;
	size_t n_fds;

	n->now_ns = clock_monotonic_ns();
	if (outbox_flush(&n->outbox) == -ENOMEM)
		_exit(1);
	poll_daemon(n);
	for (int i = 0; i < ORDERS_AT_ONCE && r >= 0; i++) {
		r = fd_message_receive(n->outbox.fd, &o, sizeof(o), MSG_DONTWAIT, fds, &n_fds);
		if (r == -EAGAIN)
			return;
		if (r != sizeof(o)) { /* the daemon is gone */
			uv_stop(&n->loop);
			return;
		}
		take_order(n, &o, n_fds > 0 ? fds[0] : -EBADF);
	}
}

static void poll_daemon(struct net *n)
{
	uv_poll_start(&n->daemon, UV_READABLE | (outbox_waits(&n->outbox) ? UV_WRITABLE : 0), on_daemon);
}

/* ---- time ---------------------------------------------------------------------------------------------- */

/* Nobody was heard while this process did not run. */
static void forgive(struct net *n, uint64_t missed_ns)
{
	for (struct net_conn *c = n->conns; c; c = c->next) {
		c->begin_ns += missed_ns;
		c->in_ns += missed_ns;
		c->out_ns += missed_ns;
	}
}

static void on_tick(uv_timer_t *timer)
{
	struct net *n = timer->data;
	uint64_t last_ns = n->tick_ns;

	n->now_ns = n->tick_ns = clock_monotonic_ns();
	if (last_ns && n->now_ns > last_ns + LATE_TICK_NS)
		forgive(n, n->now_ns - last_ns);
	for (struct net_conn *c = n->conns; c; c = c->next)
		net_conn_tick(c);
	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++)
		if (n->peers[i])
			net_peer_tick(n, n->peers[i]);
	net_accept_tick(n);
}

/* ---- the process --------------------------------------------------------------------------------------- */

static int start(struct net *n, int daemon_fd)
{
	struct error err = ERROR_INIT;
	int r = uv_loop_init(&n->loop);

	if (r == 0)
		r = uv_poll_init(&n->loop, &n->daemon, daemon_fd);
	if (r == 0)
		r = uv_poll_init(&n->loop, &n->listener, n->listen_fd);
	if (r == 0)
		r = uv_async_init(&n->loop, &n->wake, net_members_on_wake);
	n->shared = malloc(NET_BUFFER_BYTES);
	if (r == 0 && (!n->shared || getrandom(&n->incarnation, sizeof(n->incarnation), 0) < 0))
		r = -ENOMEM;
	if (r < 0) {
		log_error("cannot talk to other nodes: %s", strerror(-r));
		return r;
	}
	uv_timer_init(&n->loop, &n->tick);
	uv_idle_init(&n->loop, &n->again);
	n->daemon.data = n->listener.data = n->wake.data = n->tick.data = n->again.data = n;
	if (n->config->key_bytes > 0 &&
	    net_tls_keys_new(n->config->key, n->config->key_bytes, &n->keys, &err) < 0) {
		log_error("%s", err.text);
		return -ENOMEM;
	}
	pthread_mutex_init(&n->lock, NULL);
	return 0;
}

int net_run(const struct cluster_config *config, int listen_fd, int daemon_fd)
{
	static struct net n;

	n.config = config;
	n.listen_fd = listen_fd;
	n.outbox.fd = daemon_fd;
	n.next_id = 1;
	n.now_ns = n.accept_ns = clock_monotonic_ns();
	if (start(&n, daemon_fd) < 0)
		return 1;
	poll_daemon(&n);
	net_accept_start(&n);
	uv_timer_start(&n.tick, on_tick, NET_TICK_MS, NET_TICK_MS);
	(void)net_members_start(&n);
	uv_run(&n.loop, UV_RUN_DEFAULT);
	if (n.registry)
		registry_stop(n.registry);
	return 0;
}
