/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "dataset/chunk/buffer.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "redis_command.h"
#include "redis_refusal.h"
#include "redis_scripts.h"
#include "redis_slots.h"

/* The servers of a link, and the slots of each. Without a cluster, the URL's server has all slots. */

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
	uint16_t slots[REDIS_N_SLOTS]; /* number of the slot's node; REDIS_NODES_MAX: unassigned */
	char sha[N_REDIS_SCRIPTS][41];
};

#define CONNECT_NS (5 * NS_PER_S)
#define SILENCE_NS (10 * NS_PER_S) /* maximum silence of a server before another attempt, or another node */

/* Finds or adds the node that a redirection names. *ret is its number. -ENOMEM, -EPROTO: more nodes than
 * possible. */
static int redis_nodes_find(struct redis_nodes *nodes, const struct redis_address *address, size_t *ret)
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

static void redis_nodes_drop(struct redis_nodes *nodes, size_t node)
{
	redis_conn_close(nodes->list[node].conn);
	nodes->list[node].conn = NULL;
	nodes->stale = nodes->is_cluster;
}

/* Returns true if the error may be temporary. */
static bool passes(int r)
{
	return r != -ENOMEM && r != -EACCES && r != -EINVAL && r != -EPROTO;
}

static int connect_to(const struct addrinfo *a, uint64_t until_ns)
{
	_cleanup_(closep) int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error = 0, yes = 1, r = 0;
	socklen_t size = sizeof(error);

	if (fd < 0)
		return -errno;
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		while (r == 0)
			r = redis_wait(fd, POLLOUT, until_ns);
		if (r < 0)
			return r;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
			return error ? -error : -errno;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return steal_fd(&fd);
}

static int dial(const struct redis_address *to, const char *text, uint64_t until_ns, struct error *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	int r = getaddrinfo(to->host, to->port, &hints, &found), fd = -EADDRNOTAVAIL;

	if (r != 0)
		return error_set(err, -EHOSTUNREACH, "%s: %s", text, gai_strerror(r));
	for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
		fd = connect_to(a, until_ns);
	freeaddrinfo(found);
	return fd < 0 ? error_errno(err, fd, "cannot connect to %s", text) : fd;
}

static int connect_node(struct redis_nodes *nodes, size_t node, struct error *err)
{
	const struct redis_settings *s = &nodes->settings;
	struct redis_node *n = &nodes->list[node];
	struct redis_login login = {
	    .user = s->url.user,
	    .password = s->url.password,
	    .tls = nodes->tls,
	    .names = {n->address.host, s->url.host},
	    .silence_ns = s->patience_ns < SILENCE_NS ? s->patience_ns : SILENCE_NS,
	};
	struct redis_facts facts;
	char public[REDIS_URL_TEXT];
	int r;

	if (n->conn)
		return 0;
	/* Errors name the URL's server as the user wrote it. */
	login.text = node == 0 ? redis_url_public(&s->url, public, sizeof(public)) : n->text;
	login.until_ns =
	    clock_monotonic_ns() + (login.silence_ns < CONNECT_NS ? login.silence_ns : CONNECT_NS);
	r = dial(&n->address, login.text, login.until_ns, err);
	if (r >= 0)
		r = redis_conn_open(r, &login, &n->conn, &facts, err);
	if (r < 0)
		return r;
	n->has_replicas = facts.has_replicas;
	nodes->evicts |= facts.evicts;
	nodes->stale |= facts.is_cluster && !nodes->is_cluster;
	nodes->is_cluster |= facts.is_cluster;
	memcpy(nodes->sha, facts.sha, sizeof(nodes->sha));
	return 0;
}

/* Connects to a node. -EAGAIN, with a text: not possible now. */
static int redis_nodes_connect(struct redis_nodes *nodes, size_t node, struct error *err)
{
	int r = connect_node(nodes, node, err);

	nodes->stale |= r < 0 && nodes->is_cluster;
	return r < 0 && passes(r) ? -EAGAIN : r;
}

struct taking {
	struct redis_nodes *nodes;
	const char *asked; /* the host that sent the slots */
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
		error_set(err, r, "%s: invalid answer to CLUSTER SLOTS", text);
	if (r < 0)
		redis_nodes_drop(nodes, node);
	else
		memcpy(nodes->slots, t->slots, sizeof(nodes->slots));
	free(t);
	return r;
}

/* Asks the nodes for the slots, one after another, connected ones first: during an election, some nodes do
 * not answer. */
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

/* Returns the node of a slot. -EAGAIN, with a text: the slot is unassigned, or no node could be asked for the
 * slots. -EACCES, -EINVAL, -EPROTO, -ENOMEM: a node refused or answered nonsense, or no memory; the others
 * were not asked then. */
static int redis_nodes_of_slot(struct redis_nodes *nodes, uint16_t slot, size_t *ret, struct error *err)
{
	int r = nodes->stale ? refresh(nodes, err) : 0;

	if (r < 0)
		return r;
	if (nodes->is_cluster && nodes->slots[slot] >= nodes->n) {
		nodes->stale = true;
		return error_set(err, -EAGAIN, "the Redis Cluster of %s: no node serves slot %u",
				 nodes->list[0].text, slot);
	}
	*ret = nodes->is_cluster ? nodes->slots[slot] : 0;
	return 0;
}

static int redis_nodes_open(const struct redis_settings *settings, struct redis_nodes *ret, struct error *err)
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

static void redis_nodes_close(struct redis_nodes *nodes)
{
	for (size_t i = 0; i < nodes->n; i++)
		redis_conn_close(nodes->list[i].conn);
	free(nodes->list);
	redis_tls_config_free(nodes->tls);
	explicit_bzero(&nodes->settings, sizeof(nodes->settings));
}

#define PAUSE_FIRST_NS (20 * NS_PER_MS)
#define PAUSE_LAST_NS  NS_PER_S
#define NO_NODE        REDIS_NODES_MAX
#define REPLICA_MS     "5000"

struct command {
	size_t offset, bytes; /* position of the command in the batch */
	uint16_t slot;
	uint16_t asked; /* node to ask this time, from an ASK redirection */
	uint16_t node;  /* node that the command was assigned to */
	bool writes;
	redisReply *reply;
};

struct redis_link {
	struct redis_nodes nodes;
	char text[REDIS_URL_TEXT];
	struct buffer batch;
	struct command *commands;
	size_t n, n_space;
	bool failed; /* no memory for a command */
	bool ran;
	bool keeps_errors;
	struct pollfd *polls; /* one per node */
	size_t n_polls;
};

/* Pauses before another attempt, longer each time and for a random time, so that clients of a restarted
 * server do not all connect at once. */
static void pause_before(unsigned attempt)
{
	uint64_t ns = attempt < 6 ? PAUSE_FIRST_NS << attempt : PAUSE_LAST_NS;

	ns = ns / 2 + clock_monotonic_ns() % (ns / 2);
	nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)},
		  NULL);
}

int redis_link_open(const struct redis_settings *settings, struct redis_link **ret, struct error *err)
{
	struct redis_link *l = calloc(1, sizeof(*l));
	uint64_t until_ns = clock_monotonic_ns() + settings->patience_ns;
	int r;

	if (!l)
		return error_errno(err, -ENOMEM, "%s", settings->url.host);
	redis_url_public(&settings->url, l->text, sizeof(l->text));
	r = redis_nodes_open(settings, &l->nodes, err);
	/* A server that does not listen may be the wrong one. Wait only for a server that answers but is not
	 * ready, such as one that is loading its data. */
	for (unsigned i = 1; r == -EAGAIN && clock_monotonic_ns() < until_ns; i++) {
		pause_before(i);
		r = redis_nodes_connect(&l->nodes, 0, err);
	}
	if (r < 0) {
		redis_link_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void begin(struct redis_link *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->commands[i].reply)
			freeReplyObject(l->commands[i].reply);
	l->n = l->batch.bytes = 0;
	l->failed = l->ran = false;
}

void redis_link_close(struct redis_link *l)
{
	if (!l)
		return;
	begin(l);
	redis_nodes_close(&l->nodes);
	free(l->commands);
	free(l->polls);
	buffer_free(&l->batch);
	free(l);
}

const char *redis_link_text(const struct redis_link *l)
{
	return l->text;
}

bool redis_link_evicts(const struct redis_link *l)
{
	return l->nodes.evicts;
}

void redis_link_keep_errors(struct redis_link *l)
{
	l->keeps_errors = true;
}

static void add(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes, size_t key,
		bool writes)
{
	struct command c = {.asked = NO_NODE, .writes = writes};

	if (l->ran)
		begin(l);
	c.offset = l->batch.bytes;
	c.slot = redis_slot(args[key], sizes ? sizes[key] : strlen(args[key]));
	if (redis_command_append(&l->batch, n, args, sizes) < 0 ||
	    array_reserve(l->commands, l->n, l->n_space) < 0) {
		l->failed = true;
		return;
	}
	c.bytes = l->batch.bytes - c.offset;
	l->commands[l->n++] = c;
}

void redis_link_read(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes)
{
	add(l, n, args, sizes, 1, false);
}

void redis_link_write(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes)
{
	add(l, n, args, sizes, 1, true);
}

void redis_link_script(struct redis_link *l, enum redis_script script, const char *key, size_t n,
		       const char *const *args, const size_t *sizes)
{
	const char *all[4 + SCRIPT_MAX_ARGS] = {"EVALSHA", l->nodes.sha[script], "1", key};
	size_t all_sizes[4 + SCRIPT_MAX_ARGS] = {7, 40, 1, strlen(key)};

	for (size_t i = 0; i < n && i < SCRIPT_MAX_ARGS; i++) {
		all[4 + i] = args[i];
		all_sizes[4 + i] = sizes ? sizes[i] : strlen(args[i]);
	}
	add(l, 4 + n, all, all_sizes, 3, true);
}

size_t redis_link_n(const struct redis_link *l)
{
	return l->ran ? 0 : l->n;
}

size_t redis_link_bytes(const struct redis_link *l)
{
	return l->ran ? 0 : l->batch.bytes;
}

/* Returns the node for a command, if that node is known and connected. Makes no connection. */
static size_t node_at_hand(const struct redis_link *l, const struct command *c)
{
	const struct redis_nodes *nodes = &l->nodes;
	size_t node = c->asked != NO_NODE ? c->asked : nodes->is_cluster ? nodes->slots[c->slot] : 0;

	return node < nodes->n && nodes->list[node].conn ? node : NO_NODE;
}

/* Assigns each command without a reply to the node of its slot, or to none if that node is unreachable now.
 * Then err is set, but -EAGAIN is not returned. */
static int assign(struct redis_link *l, struct error *err)
{
	bool is_tried = false; /* a failed attempt is repeated after a pause, not for each command */

	for (size_t i = 0; i < l->n; i++)
		l->commands[i].node = NO_NODE;
	for (size_t i = 0; i < l->n; i++) {
		struct command *c = &l->commands[i];
		size_t node = c->asked;
		int r;

		if (c->reply)
			continue;
		if (is_tried) {
			c->node = (uint16_t)node_at_hand(l, c);
			continue;
		}
		r = node == NO_NODE ? redis_nodes_of_slot(&l->nodes, c->slot, &node, err) : 0;
		if (r == 0)
			r = redis_nodes_connect(&l->nodes, node, err);
		if (r == 0)
			c->node = (uint16_t)node;
		else if (r == -EAGAIN)
			is_tried = true;
		else
			return r;
	}
	return 0;
}

/* Adds the commands of one node to its connection. A final command waits for a replica, if there is one. */
static void hand_out(struct redis_link *l, size_t node)
{
	struct redis_conn *conn = l->nodes.list[node].conn;
	bool writes = false;

	redis_conn_begin(conn);
	for (size_t i = 0; i < l->n; i++) {
		struct command *c = &l->commands[i];

		if (c->node != node)
			continue;
		if (c->asked != NO_NODE)
			redis_conn_add_text(conn, 1, (const char *[]){"ASKING"});
		redis_conn_add(conn, l->batch.data + c->offset, c->bytes);
		writes |= c->writes;
	}
	if (writes && l->nodes.list[node].has_replicas)
		redis_conn_add_text(conn, 3, (const char *[]){"WAIT", "1", REPLICA_MS});
}

static int failed_node(struct redis_link *l, size_t node, int r, struct error *err)
{
	error_errno(err, r, "%s does not answer", node == 0 ? l->text : l->nodes.list[node].text);
	redis_nodes_drop(&l->nodes, node);
	return r == -ENOMEM || r == -EPROTO ? r : 0;
}

/* Sends to all nodes and receives from all at the same time. Drops the connection of a node that fails. */
static int exchange(struct redis_link *l, struct error *err)
{
	struct redis_nodes *nodes = &l->nodes;
	struct pollfd *grown = reallocarray(l->polls, nodes->n + 1, sizeof(*l->polls));

	if (!grown)
		return error_errno(err, -ENOMEM, "%s", l->text);
	l->polls = grown;
	for (size_t i = 0; i < nodes->n; i++)
		if (nodes->list[i].conn)
			hand_out(l, i);
	for (;;) {
		uint64_t until_ns = UINT64_MAX, now_ns;
		nfds_t n = 0;

		for (size_t i = 0; i < nodes->n; i++) {
			uint64_t node_ns = UINT64_MAX;
			int r = nodes->list[i].conn
				    ? redis_conn_step(nodes->list[i].conn, &l->polls[n], &node_ns)
				    : 1;

			if (r < 0 && failed_node(l, i, r, err) < 0)
				return r;
			n += r == 0;
			until_ns = r == 0 && node_ns < until_ns ? node_ns : until_ns;
		}
		if (n == 0)
			return 0;
		now_ns = clock_monotonic_ns();
		if (poll(l->polls, n, now_ns < until_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0) <
			0 &&
		    errno != EINTR)
			return error_errno(err, -errno, "%s", l->text);
	}
}

/* Handles an error reply to a command. -EAGAIN: send the command again. */
static int take_error(struct redis_link *l, struct command *c, const redisReply *reply, struct error *err)
{
	struct redis_address address;
	char text[REDIS_URL_TEXT];
	bool asks = redis_refusal_is(reply, "ASK"), moved = redis_refusal_is(reply, "MOVED");
	uint16_t slot;
	size_t node;
	int r;

	strcpy(text, c->node == 0 ? l->text : l->nodes.list[c->node].text);
	if (asks || moved) {
		r = redis_slots_redirection(reply, &slot, &address);
		if (r == 0 && !address.host[0])
			memcpy(address.host, l->nodes.list[c->node].address.host, sizeof(address.host));
		if (r == 0)
			r = redis_nodes_find(&l->nodes, &address, &node);
		if (r < 0)
			return error_set(err, r, "%s: invalid redirection", text);
		error_set(err, -EAGAIN, "%s keeps redirecting a command from node to node", text);
		l->nodes.stale |= !l->nodes.is_cluster || moved;
		l->nodes.is_cluster = true;
		if (asks)
			c->asked = (uint16_t)node;
		return -EAGAIN;
	}
	if (redis_refusal_is(reply,
			     "NOSCRIPT")) { /* after SCRIPT FLUSH; a new connection loads the scripts again */
		redis_nodes_drop(&l->nodes, c->node);
		return error_set(err, -EAGAIN, "%s keeps losing its scripts (SCRIPT FLUSH)", text);
	}
	r = redis_refusal(reply, text, err);
	if (r != -EAGAIN && !(r == -EROFS && l->nodes.is_cluster))
		return r;
	l->nodes.stale |= l->nodes.is_cluster;
	return -EAGAIN;
}

/* Returns true if a replica has this node's last writes. i: index of the reply that tells, which is the last
 * one. */
static bool is_replicated(const struct redis_conn *conn, size_t i)
{
	const redisReply *reply = redis_conn_reply(conn, i);

	return i == redis_conn_n(conn) ||
	       (reply && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 1);
}

/* Takes the replies of one node, and counts the useful ones. */
static int take_replies(struct redis_link *l, size_t node, size_t *n_taken, struct error *err)
{
	struct redis_conn *conn = l->nodes.list[node].conn;
	size_t at = 0;
	int r = 0;

	for (size_t i = 0; i < l->n && l->nodes.list[node].conn; i++) {
		struct command *c = &l->commands[i];
		redisReply *reply;

		if (c->node != node)
			continue;
		at += c->asked != NO_NODE;
		reply = redis_conn_take(conn, at++);
		c->asked = NO_NODE;
		if (!reply)
			continue;
		if (reply->type != REDIS_REPLY_ERROR) {
			c->reply = reply;
			continue;
		}
		r = take_error(l, c, reply, err);
		if (r != -EAGAIN && l->keeps_errors) {
			c->reply = reply;
			continue;
		}
		freeReplyObject(reply);
		if (r < 0 && r != -EAGAIN)
			return r;
	}
	if (l->nodes.list[node].conn && is_replicated(conn, at)) {
		for (size_t i = 0; i < l->n; i++)
			*n_taken += l->commands[i].node == node && l->commands[i].reply;
		return 0;
	}
	if (l->nodes.list[node].conn)
		error_set(err, -ETIMEDOUT, "%s: no replica has confirmed the last write",
			  l->nodes.list[node].text);
	/* Send them again: to this node once it has an up-to-date replica, or none, or to the node that
	 * replaces it. */
	for (size_t i = 0; i < l->n; i++)
		if (l->commands[i].node == node && l->commands[i].reply) {
			freeReplyObject(l->commands[i].reply);
			l->commands[i].reply = NULL;
		}
	if (l->nodes.list[node].conn)
		redis_nodes_drop(&l->nodes, node);
	return 0;
}

/* Makes one attempt at all commands without a reply. */
static int attempt(struct redis_link *l, size_t *n_taken, struct error *err)
{
	int r = l->failed ? error_errno(err, -ENOMEM, "%s", l->text) : assign(l, err);

	if (r == 0)
		r = exchange(l, err);
	for (size_t i = 0; i < l->nodes.n && r == 0; i++)
		if (l->nodes.list[i].conn && redis_conn_n(l->nodes.list[i].conn))
			r = take_replies(l, i, n_taken, err);
	return r;
}

static size_t n_left(const struct redis_link *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += !l->commands[i].reply;
	return n;
}

int redis_link_run(struct redis_link *l, struct error *err)
{
	uint64_t until_ns = clock_monotonic_ns() + l->nodes.settings.patience_ns;
	struct error why = ERROR_INIT;
	unsigned n_idle = 0;

	l->ran = true;
	for (;;) {
		size_t n_taken = 0;
		int r = attempt(l, &n_taken, &why);

		if (r < 0)
			return error_set(err, r, "%s", why.text);
		if (n_left(l) == 0)
			return 0;
		if (n_taken) {
			n_idle = 0;
			until_ns = clock_monotonic_ns() + l->nodes.settings.patience_ns;
		} else if (n_idle++) { /* the first redirection is followed without a pause */
			if (clock_monotonic_ns() >= until_ns)
				return error_set(err, why.code ? why.code : -ETIMEDOUT, "%s", why.text);
			pause_before(n_idle);
		}
	}
}

const redisReply *redis_link_reply(const struct redis_link *l, size_t i)
{
	return l->commands[i].reply;
}
