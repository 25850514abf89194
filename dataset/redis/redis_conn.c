/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "dataset/chunk/buffer.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "redis_command.h"
#include "redis_refusal.h"
#include "redis_scripts.h"
#include "redis_wait.h"

#define CONNECT_NS (5 * NS_PER_S)

struct redis_conn {
	int fd;
	struct redis_tls *tls;
	struct redis_reader *reader;
	uint64_t silence_ns, until_ns;

	struct buffer out;
	size_t sent;
	size_t n_wanted;
	bool failed; /* no memory for what goes out */
	redisReply **replies;
	size_t n_replies, n_space;
};

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

static ssize_t receive(struct redis_conn *c, void *data, size_t bytes, short *events)
{
	ssize_t n = c->tls ? redis_tls_recv(c->tls, data, bytes, events) : recv(c->fd, data, bytes, 0);

	if (c->tls || n > 0)
		return n;
	*events = POLLIN;
	return n == 0 ? -ECONNRESET : errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t transmit(struct redis_conn *c, const void *data, size_t bytes, short *events)
{
	ssize_t n =
	    c->tls ? redis_tls_send(c->tls, data, bytes, events) : send(c->fd, data, bytes, MSG_NOSIGNAL);

	if (c->tls || n >= 0)
		return n;
	*events = POLLOUT;
	return errno == EINTR ? -EAGAIN : -errno;
}

/* A server that sends byte after byte is as silent as one that sends none: whole replies count. */
static int take_replies(struct redis_conn *c)
{
	while (c->n_replies < c->n_wanted) {
		redisReply *reply;
		int r = redis_reader_take(c->reader, &reply);

		if (r < 0)
			return r;
		if (!reply)
			return 0;
		if (array_reserve(c->replies, c->n_replies, c->n_space) < 0) {
			freeReplyObject(reply);
			return -ENOMEM;
		}
		c->replies[c->n_replies++] = reply;
		c->until_ns = clock_monotonic_ns() + c->silence_ns;
	}
	return 0;
}

static int pull(struct redis_conn *c, short *events)
{
	char bytes[64 << 10];

	while (c->n_replies < c->n_wanted) {
		ssize_t n = receive(c, bytes, sizeof(bytes), events);
		int r = n < 0 ? (int)n : redis_reader_feed(c->reader, bytes, (size_t)n);

		r = r < 0 ? r : take_replies(c);
		if (r < 0)
			return r;
	}
	return 0;
}

static int push(struct redis_conn *c, short *events)
{
	while (c->sent < c->out.bytes) {
		ssize_t n = transmit(c, c->out.data + c->sent, c->out.bytes - c->sent, events);

		if (n < 0)
			return (int)n;
		c->sent += (size_t)n;
	}
	return 0;
}

int redis_conn_step(struct redis_conn *c, struct pollfd *ret, uint64_t *ret_until_ns)
{
	short for_push = 0, for_pull = 0;
	int r = c->failed ? -ENOMEM : push(c, &for_push);

	if (r == 0 || r == -EAGAIN)
		r = pull(c, &for_pull);
	if (r != -EAGAIN)
		return r < 0 ? r : 1;
	if (clock_monotonic_ns() >= c->until_ns)
		return -ETIMEDOUT;
	*ret = (struct pollfd){.fd = c->fd, .events = (short)(for_push | for_pull)};
	*ret_until_ns = c->until_ns;
	return 0;
}

int redis_conn_run(struct redis_conn *c)
{
	for (;;) {
		uint64_t until_ns;
		struct pollfd p;
		int r = redis_conn_step(c, &p, &until_ns);

		if (r != 0)
			return r < 0 ? r : 0;
		r = redis_wait(p.fd, p.events, until_ns);
		if (r < 0 && r != -ETIMEDOUT)
			return r;
	}
}

void redis_conn_begin(struct redis_conn *c)
{
	for (size_t i = 0; i < c->n_replies; i++)
		if (c->replies[i])
			freeReplyObject(c->replies[i]);
	c->n_replies = c->n_wanted = c->sent = c->out.bytes = 0;
	c->failed = false;
	c->until_ns = clock_monotonic_ns() + c->silence_ns;
	redis_reader_begin(c->reader);
}

void redis_conn_add(struct redis_conn *c, const void *command, size_t bytes)
{
	c->failed |= buffer_append(&c->out, command, bytes) < 0;
	c->n_wanted++;
}

void redis_conn_add_text(struct redis_conn *c, size_t n, const char *const *args)
{
	c->failed |= redis_command_text(&c->out, n, args) < 0;
	c->n_wanted++;
}

size_t redis_conn_n(const struct redis_conn *c)
{
	return c->n_wanted;
}

const redisReply *redis_conn_reply(const struct redis_conn *c, size_t i)
{
	return i < c->n_replies ? c->replies[i] : NULL;
}

redisReply *redis_conn_take(struct redis_conn *c, size_t i)
{
	return i < c->n_replies ? steal_pointer(c->replies[i]) : NULL;
}

/* Returns true if INFO's reply contains this line. */
static bool says(const char *info, const char *line)
{
	const char *at = strstr(info, line);

	return at && (at == info || at[-1] == '\n');
}

/* A user who may not ask for INFO does without: redirections tell of a cluster, too. */
static void take_info(const redisReply *reply, struct redis_facts *facts)
{
	if (reply->type != REDIS_REPLY_STRING)
		return;
	facts->is_cluster = says(reply->str, "cluster_enabled:1");
	facts->evicts = says(reply->str, "maxmemory_policy:allkeys-") && !says(reply->str, "maxmemory:0\r");
	facts->has_replicas =
	    says(reply->str, "connected_slaves:") && !says(reply->str, "connected_slaves:0");
}

static int take_greeting(struct redis_conn *c, size_t first, const char *text, struct redis_facts *ret,
			 struct error *err)
{
	struct redis_facts facts = {0};

	for (size_t i = 0; i < c->n_wanted; i++) {
		const redisReply *reply = c->replies[i];

		if (reply->type == REDIS_REPLY_ERROR && (i != first || redis_refusal_is(reply, "NOAUTH")))
			return redis_refusal(reply, text, err);
		if (i <= first)
			continue;
		if (reply->type != REDIS_REPLY_STRING || reply->len != 40)
			return error_set(err, -EPROTO, "%s is no Redis server", text);
		memcpy(facts.sha[i - first - 1], reply->str, 41);
	}
	take_info(c->replies[first], &facts);
	*ret = facts;
	return 0;
}

static int greet(struct redis_conn *c, const struct redis_login *login, const char *text,
		 struct redis_facts *ret, struct error *err)
{
	size_t first = login->password[0] ? 1 : 0;
	int r;

	redis_conn_begin(c);
	if (first && login->user[0])
		redis_conn_add_text(c, 3, (const char *[]){"AUTH", login->user, login->password});
	else if (first)
		redis_conn_add_text(c, 2, (const char *[]){"AUTH", login->password});
	redis_conn_add_text(c, 1, (const char *[]){"INFO"});
	for (size_t i = 0; i < N_REDIS_SCRIPTS; i++)
		redis_conn_add_text(c, 3, (const char *[]){"SCRIPT", "LOAD", redis_scripts[i]});
	r = redis_conn_run(c);
	if (c->out.data)
		explicit_bzero(c->out.data, c->out.bytes);
	return r < 0 ? error_errno(err, r, "%s does not answer", text)
		     : take_greeting(c, first, text, ret, err);
}

int redis_conn_open(const struct redis_address *to, const struct redis_login *login, const char *text,
		    struct redis_conn **ret, struct redis_facts *ret_facts, struct error *err)
{
	uint64_t until_ns =
	    clock_monotonic_ns() + (login->silence_ns < CONNECT_NS ? login->silence_ns : CONNECT_NS);
	struct redis_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_errno(err, -ENOMEM, "%s", text);
	c->silence_ns = login->silence_ns;
	c->reader = redis_reader_new();
	c->fd = c->reader ? dial(to, text, until_ns, err) : error_errno(err, -ENOMEM, "%s", text);
	r = c->fd < 0 ? c->fd : 0;
	if (r == 0 && login->tls) {
		r = redis_tls_open(login->tls, c->fd, to->host, login->name, until_ns, &c->tls, err);
		if (r < 0)
			error_prefix(err, "%s", text);
	}
	if (r == 0)
		r = greet(c, login, text, ret_facts, err);
	if (r < 0)
		redis_conn_close(c);
	else
		*ret = c;
	return r;
}

void redis_conn_close(struct redis_conn *c)
{
	if (!c)
		return;
	redis_tls_close(c->tls);
	closep(&c->fd);
	redis_reader_free(c->reader);
	for (size_t i = 0; i < c->n_replies; i++)
		if (c->replies[i])
			freeReplyObject(c->replies[i]);
	free(c->replies);
	buffer_free(&c->out);
	free(c);
}
