/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <math.h>

#include "dataset/owner.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/list.h"

/* The node's groups and their members. The registry's thread passes lists; the latest list of a group is
 * valid. */

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
	uint32_t uid = UINT32_MAX;
	bool is_here = net_address_user(fd, far, &uid) != 1;
	bool is_trusted = uid == 0 || uid == n->config->uid;

	*ret_source = net_source_of(!is_here     ? NET_SOURCE_MACHINE
				    : is_trusted ? NET_SOURCE_NODE
						 : NET_SOURCE_USER,
				    far, uid);
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

static void net_accept_stop(struct net *n, uint64_t for_ns)
{
	uv_poll_stop(&n->listener);
	n->listens = false;
	n->listen_ns = n->now_ns + for_ns;
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
	(void)net_budget_has(&n->accepts, ACCEPTS_PER_S, ACCEPTS_BURST, n->now_ns);
	for (int i = 0; i < ACCEPTS_AT_ONCE && n->accepts.tokens >= 1; i++, n->accepts.tokens -= 1)
		if (!accept_one(n))
			return;
	if (n->accepts.tokens < 1)
		net_accept_stop(n, REST_NS);
}

static void net_accept_start(struct net *n)
{
	uv_poll_start(&n->listener, UV_READABLE, on_readable);
	n->listens = true;
}

static void net_accept_tick(struct net *n)
{
	if (!n->listens && n->now_ns >= n->listen_ns)
		net_accept_start(n);
}

/* ---- the registry's thread ----------------------------------------------------------------------------- */

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

static void net_peer_report(struct net *n, struct net_peer *p)
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

static void net_peer_set_address(struct net *n, struct net_peer *p, const char *text)
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

static void on_answered(struct net_conn *c)
{
	struct net_peer *p = c->peer;

	if (!p->is_unreachable || c->ping_ns < p->unreachable_ns || c->net->now_ns < p->back_ns)
		return;
	p->is_unreachable = p->said_unreachable = false;
	log_info("node %s at %s: connected", p->node, p->conn->address);
	net_peer_report(c->net, p);
}

static void dial_later(struct net *n, struct net_peer *p)
{
	p->back_off_ns = p->back_off_ns ? 2 * p->back_off_ns : BACK_OFF_MIN_NS;
	if (p->back_off_ns > BACK_OFF_MAX_NS)
		p->back_off_ns = BACK_OFF_MAX_NS;
	p->dial_ns = n->now_ns + p->back_off_ns;
}

static void on_lost(struct net_conn *c, const char *why)
{
	struct net *n = c->net;
	struct net_peer *p = c->peer;

	if (p->conn == c)
		p->conn = NULL;
	if (p->dialled == c)
		p->dialled = NULL;
	dial_later(n, p);
	if (!p->conn)
		net_peer_set_unreachable(n, p, 0, p->is_member ? why : NULL);
}

static const struct net_conn_handler on_conn = {.answered = on_answered, .lost = on_lost};

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

static void net_peer_tick(struct net *n, struct net_peer *p)
{
	if (leave(n, p))
		return;
	dial(n, p);
	if (p->is_changed)
		net_peer_report(n, p);
}

static void on_members(void *user, const struct registry_group_id *group,
		       const struct registry_member *members, size_t count)
{
	struct net *n = user;
	struct net_update *u;

	if (count > CLUSTER_MAX_MEMBERS)
		count = CLUSTER_MAX_MEMBERS;
	u = malloc(sizeof(*u) + count * sizeof(u->members[0]));
	if (!u)
		return; /* the last known members stay until the next list */
	u->next = NULL;
	u->group = *group;
	u->n = count;
	memcpy(u->members, members, count * sizeof(u->members[0]));
	pthread_mutex_lock(&n->lock);
	LL_APPEND(n->updates, u);
	pthread_mutex_unlock(&n->lock);
	uv_async_send(&n->wake);
}

static void on_server(void *user, bool is_up, const char *problem)
{
	struct net *n = user;

	if (!is_up)
		log_warning("the cluster's Redis: %s. This node keeps the last known list of nodes",
			    problem ? problem : "connection lost");
	else if (problem)
		log_warning("the cluster's Redis: %s", problem);
	else
		log_info("the cluster's Redis: connected");
	pthread_mutex_lock(&n->lock);
	n->server_is_up = is_up;
	n->server_changed = true;
	pthread_mutex_unlock(&n->lock);
	uv_async_send(&n->wake);
}

static int net_members_start(struct net *n)
{
	const struct registry_handler handler = {.members = on_members, .server = on_server, .user = n};
	struct registry_member self = {.incarnation = n->incarnation};
	struct error err = ERROR_INIT;
	int r;

	strcpy(self.node, n->config->node);
	strcpy(self.address, n->config->address);
	r = registry_start(n->config->redis, &self, &handler, &n->registry, &err);
	if (r < 0)
		log_error("--cluster: %s", err.text);
	return r;
}

/* ---- the loop's thread --------------------------------------------------------------------------------- */

static struct net_group *find(const struct net *n, const struct registry_group_id *id)
{
	struct net_group *g = n->groups;

	while (g && strcmp(g->text.text, id->text) != 0)
		g = g->next;
	return g;
}

static void mark_members(struct net *n)
{
	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++)
		if (n->peers[i])
			n->peers[i]->is_member = false;
	for (const struct net_group *g = n->groups; g; g = g->next) {
		for (size_t i = 0; g->last && i < g->last->n; i++) {
			const struct registry_member *m = &g->last->members[i];
			struct net_peer *p =
			    strcmp(m->node, n->config->node) == 0 ? NULL : net_peer_get(n, m->node);

			if (!p)
				continue;
			p->is_member = true;
			net_peer_set_address(n, p, m->address);
		}
	}
}

static void report_member(struct net *n, const struct net_group *g, const struct registry_member *m)
{
	struct cluster_report report = {.news = CLUSTER_MEMBER,
					.group = g->id,
					.peer = CLUSTER_SELF,
					.bytes = m->weight_bytes,
					.lanes = m->lanes};

	if (strcmp(m->node, n->config->node) != 0) {
		struct net_peer *p = net_peer_get(n, m->node);

		if (!p)
			return;
		report.peer = p->index;
		if (p->is_changed)
			net_peer_report(n, p);
	}
	strcpy(report.peer_is.node, m->node);
	strcpy(report.peer_is.address, m->address);
	net_report(n, &report);
}

static void report_members(struct net *n, const struct net_group *g)
{
	struct cluster_report report = {.news = CLUSTER_MEMBERS, .group = g->id};

	net_report(n, &report); /* the members follow */
	for (size_t i = 0; i < g->last->n; i++)
		report_member(n, g, &g->last->members[i]);
	report.count = 1; /* the list is complete */
	net_report(n, &report);
}

/* The registry already checked the nodes' reports when it read them (dataset/registry.h). This checks what
 * this folder relies on, and returns how many members it kept. */
static size_t keep_usable(struct net *n, struct registry_member *members, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		struct registry_member *m = &members[i];

		m->address[sizeof(m->address) - 1] = '\0';
		if (!net_is_name(m->node))
			continue;
		if (strcmp(m->node, n->config->node) == 0 && m->incarnation != n->incarnation)
			log_limited(&n->said_problem, LOG_LEVEL_WARNING,
				    "another node also has this node's name %s, or had it until now. Give "
				    "each node its own "
				    "--cluster-name",
				    m->node);
		members[kept++] = *m;
	}
	return kept;
}

/* Takes ownership of the update. */
static void apply(struct net *n, struct net_update *u)
{
	struct net_group *g = find(n, &u->group);

	if (!g) {
		free(u);
		return;
	}
	free(g->last);
	g->last = u;
	u->n = keep_usable(n, u->members, u->n);
	mark_members(n);
	report_members(n, g);
	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++)
		if (n->peers[i])
			net_peer_tick(n, n->peers[i]);
}

static void net_members_on_wake(uv_async_t *async)
{
	struct net *n = async->data;
	struct net_update *u;
	bool changed, is_up;

	n->now_ns = clock_monotonic_ns();
	pthread_mutex_lock(&n->lock);
	u = n->updates;
	n->updates = NULL;
	changed = n->server_changed;
	is_up = n->server_is_up;
	n->server_changed = false;
	pthread_mutex_unlock(&n->lock);
	if (changed) {
		const struct cluster_report report = {.news = CLUSTER_SERVER,
						      .code = is_up ? 0 : -ECONNRESET};

		net_report(n, &report);
	}
	while (u) {
		struct net_update *next = u->next;

		apply(n, u);
		u = next;
	}
}

static void net_members_join(struct net *n, const struct cluster_order *o)
{
	struct registry_group_id id;
	struct net_group *g;
	int r;

	registry_group_id(&o->key, &id);
	g = find(n, &id);
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g || net_group_id_parse(&id, &g->id) < 0) {
			free(g);
			return;
		}
		g->key = o->key;
		g->text = id;
		g->next = n->groups;
		n->groups = g;
	}
	r = n->registry ? registry_join(n->registry, &o->key, o->path, o->bytes, &o->lanes) : 0;
	if (r < 0)
		log_limited(&n->said_problem, LOG_LEVEL_WARNING, "cannot share job %s with other nodes: %s",
			    o->key.job, strerror(-r));
}

static void net_members_leave(struct net *n, const struct cluster_order *o)
{
	struct registry_group_id id;
	struct net_group *g;

	registry_group_id(&o->key, &id);
	g = find(n, &id);
	if (!g)
		return;
	LL_DELETE(n->groups, g);
	if (n->registry)
		registry_leave(n->registry, &g->key);
	free(g->last);
	free(g);
	mark_members(n);
}

static void net_members_publish(struct net *n, const struct cluster_order *o, int memory_fd)
{
	_cleanup_(closep) int fd = memory_fd;
	char text[REGISTRY_REPORT_BYTES];

	if (!n->registry || o->bytes > sizeof(text) || pread(fd, text, o->bytes, 0) != (ssize_t)o->bytes ||
	    !memchr(text, '\0', o->bytes))
		return;
	(void)registry_publish(n->registry, text); /* without memory this report is skipped */
}

#define ORDERS_AT_ONCE 64
/* If a tick is this late, this process was not running, so the peers are not to blame for the silence. */
#define LATE_TICK_NS NS_PER_S

static void poll_daemon(struct net *n);

void net_report(struct net *n, const struct cluster_report *report)
{
	int r = outbox_send(&n->outbox, report, sizeof(*report), -EBADF);

	/* Without memory, exit: the daemon would wait for ever for a lost report, but it notices the exit
	 * of the process. */
	if (r == -ENOMEM)
		_exit(1);
	poll_daemon(n);
}

/* ---- orders -------------------------------------------------------------------------------------------- */

static void spoilt(struct net *n, const struct cluster_order *o)
{
	struct net_peer *p = net_peer_at(n, o->peer, o->name_hash);

	if (p)
		net_peer_set_unreachable(n, p, 30 * NS_PER_S, NULL);
}

static void take_order(struct net *n, const struct cluster_order *o, int memory_fd)
{
	switch ((enum cluster_verb)o->verb) {
	case CLUSTER_JOIN: net_members_join(n, o); return;
	case CLUSTER_LEAVE: net_members_leave(n, o); return;
	case CLUSTER_FETCH:
	case CLUSTER_ANSWER:
	case CLUSTER_REFUSE: net_chunks_order(n, o, memory_fd); return;
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
		if (r != sizeof(o)) { /* the daemon has ended */
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

/* Shifts the connections' times by the time in which this process was not running and could not receive. */
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
		log_error("cannot connect to other nodes: %s", strerror(-r));
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
	n.on_conn = &on_conn;
	outbox_reset(&n.outbox, daemon_fd);
	n.next_id = 1;
	n.now_ns = n.accepts.at_ns = clock_monotonic_ns();
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
