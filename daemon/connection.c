/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client. Messages are answered in order; opening a dataset goes to a worker (it touches the dataset's
 * storage), and nothing more is read from the client until that is done. A client that breaks the protocol
 * or does not read its replies is cut off: it loses only what is its own.
 */
#include "server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/transport.h"
#include "connection.h"
#include "lib/cleanup.h"
#include "lib/log.h"

/* 0: go on; negative: cut the connection. */
static int reply(struct connection *c, const union wire_message *message, const int *fds, size_t n_fds)
{
	return transport_send(c->fd, message, fds, n_fds);
}

int connection_reply_error(struct connection *c, const struct error *err, int code)
{
	union wire_message m;

	protocol_init(&m, WIRE_ERROR);
	m.error.code = code;
	snprintf(m.error.text, sizeof(m.error.text), "%s", err->text[0] ? err->text : strerror(-code));
	return reply(c, &m, NULL, 0);
}

static int refuse(struct connection *c, int code, const char *text)
{
	struct error err = ERROR_INIT;

	error_set(&err, code, "%s", text);
	return connection_reply_error(c, &err, code);
}

static int on_hello(struct connection *c, const union wire_message *m)
{
	struct error err = ERROR_INIT;
	union wire_message answer;

	if (m->hello.version != WIRE_VERSION) {
		error_set(&err, -EPROTO,
			  "dieseld " DIESEL_VERSION
			  " speaks protocol %u and the client %u: install one version "
			  "of both",
			  WIRE_VERSION, m->hello.version);
		return connection_reply_error(c, &err, -EPROTO);
	}
	c->greeted = true;
	protocol_init(&answer, WIRE_HELLO_REPLY);
	answer.hello.magic = WIRE_MAGIC;
	answer.hello.version = WIRE_VERSION;
	return reply(c, &answer, NULL, 0);
}

static int on_open_session(struct connection *c, const union wire_message *m)
{
	struct server *s = c->server;
	struct error err = ERROR_INIT;
	union wire_message answer;
	struct session *q;
	int r;

	if (c->session)
		return refuse(c, -EBUSY, "this connection has a session already");
	if (s->stopping) /* libdiesel waits for the next daemon */
		return refuse(c, -ECONNREFUSED, "this dieseld is stopping");
	protocol_init(&answer, WIRE_SESSION_REPLY);
	r = session_new(&s->cache, &s->options, c->dataset, &m->open_session, &q, &answer.session_reply,
			&err);
	if (r < 0) {
		log_warning("pid %lld: %s", (long long)c->pid, err.text);
		return connection_reply_error(c, &err, r);
	}
	q->pid = c->pid;
	q->uid = c->uid;
	q->job = jobs_join(&s->jobs, &(struct job_member){.pid = c->pid,
							  .uid = c->uid,
							  .rank = q->request.rank,
							  .world = q->request.world,
							  .stride = q->request.stride});
	if (!q->job) {
		session_close(q);
		return refuse(c, -ENOMEM, "no memory for another job");
	}
	q->next = s->sessions;
	s->sessions = q;
	c->session = q;
	server_touch(s);
	return reply(c, &answer, (int[]){q->control_memory.fd, q->slot_memory.fd}, 2);
}

static int on_segment(struct connection *c, const union wire_message *m)
{
	const struct segment *segment = cache_find_segment(&c->server->cache, m->segment.segment);
	union wire_message answer;
	_cleanup_(closep) int fd = -EBADF;
	int r;

	/* Only segments of the dataset that this client has shown it may read. */
	if (!segment || segment->dataset != c->dataset)
		return refuse(c, -ENOENT, "no such chunk segment");
	r = shared_memory_reader(&segment->memory, &fd);
	if (r < 0)
		return refuse(c, r, "dieseld cannot open a chunk in memory for a client: is /proc mounted?");
	protocol_init(&answer, WIRE_SEGMENT_REPLY);
	answer.segment.segment = segment->id;
	answer.segment.bytes = segment->memory.bytes;
	return reply(c, &answer, &fd, 1);
}

static int on_seek(struct connection *c, const union wire_message *m)
{
	union wire_message answer;

	protocol_init(&answer, WIRE_SEEK_REPLY);
	answer.seek_reply.generation = session_seek(c->session, m->seek.epoch, m->seek.batch);
	server_touch(c->server);
	return reply(c, &answer, NULL, 0);
}

static int on_stop(struct connection *c)
{
	union wire_message answer;

	c->session->stopped = true;
	protocol_init(&answer, WIRE_STOP_REPLY);
	return reply(c, &answer, NULL, 0);
}

static int on_message(struct connection *c, const union wire_message *m, struct wire_fds *fds)
{
	enum wire_type type = (enum wire_type)m->header.type;

	if (!c->greeted && type != WIRE_HELLO)
		return -EPROTO;
	if ((type == WIRE_OPEN_SESSION || type == WIRE_SEGMENT) && !c->dataset)
		return refuse(c, -EPROTO, "no dataset is open");
	if ((type == WIRE_SEEK || type == WIRE_STOP) && !c->session)
		return refuse(c, -EPROTO, "no session is open");
	switch (type) {
	case WIRE_HELLO: return on_hello(c, m);
	case WIRE_OPEN_DATASET:
		if (c->dataset)
			return refuse(c, -EBUSY, "this connection has a dataset already");
		return connection_open_dataset(c, m->open_dataset.version, fds);
	case WIRE_OPEN_SESSION: return on_open_session(c, m);
	case WIRE_SEEK: return on_seek(c, m);
	case WIRE_SEGMENT: return on_segment(c, m);
	case WIRE_STOP: return on_stop(c);
	case WIRE_KICK: server_touch(c->server); return 0;
	case WIRE_STATUS:
	case WIRE_JOBS:
	case WIRE_WHY:
	case WIRE_SET: return connection_answer(c, m);
	case WIRE_ERROR:
	case WIRE_HELLO_REPLY:
	case WIRE_DATASET_REPLY:
	case WIRE_SESSION_REPLY:
	case WIRE_SEEK_REPLY:
	case WIRE_SEGMENT_REPLY:
	case WIRE_STOP_REPLY:
	case WIRE_STATUS_REPLY:
	case WIRE_N_TYPES: break;
	}
	return -EPROTO;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct connection *c = poll->data;
	int r = 0;

	/* A bounded number, so that one busy client does not keep the others waiting. */
	for (int i = 0; i < 16 && r == 0 && !c->opening; i++) {
		struct wire_fds fds = {.n = 0};
		union wire_message m;

		r = transport_receive(c->fd, &m, &fds);
		if (r == 0) {
			r = on_message(c, &m, &fds);
			wire_fds_close(&fds);
		}
	}
	if (r == 0 || r == -EAGAIN)
		return;
	if (r != -ECONNRESET && r != -EPIPE)
		log_warning("pid %lld: cut off: %s", (long long)c->pid,
			    r == -EPROTO ? "it broke the protocol" : strerror(-r));
	connection_close(c);
}

void connection_listen(struct connection *c, bool on)
{
	if (on)
		uv_poll_start(&c->poll, UV_READABLE, on_readable);
	else
		uv_poll_stop(&c->poll);
}

int connection_new(struct server *server, int fd)
{
	struct connection *c = calloc(1, sizeof(*c));
	struct ucred peer = {.pid = -1};
	socklen_t size = sizeof(peer);

	if (!c)
		return -ENOMEM;
	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	c->server = server;
	c->fd = fd;
	c->pid = peer.pid;
	c->uid = peer.uid;
	if (uv_poll_init(server->loop, &c->poll, fd) < 0) {
		free(c);
		return -ENOMEM;
	}
	c->poll.data = c;
	c->next = server->connections;
	server->connections = c;
	server->n_connections++;
	connection_listen(c, true);
	return 0;
}

static void connection_free(struct connection *c)
{
	c->server->n_connections--;
	free(c);
}

static void on_closed(uv_handle_t *handle)
{
	struct connection *c = handle->data;

	close(c->fd);
	c->fd = -EBADF;
	c->handle_closed = true;
	if (!c->opening)
		connection_free(c);
}

void connection_opened(struct connection *c)
{
	c->opening = false;
	if (c->handle_closed)
		connection_free(c);
	else if (!c->closed)
		connection_listen(c, true);
}

void connection_close(struct connection *c)
{
	struct server *s = c->server;
	struct connection **link = &s->connections;

	if (c->closed)
		return;
	c->closed = true;
	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	if (c->session) {
		struct session **q = &s->sessions;

		while (*q != c->session)
			q = &(*q)->next;
		*q = c->session->next;
		session_close(c->session);
	}
	if (c->dataset)
		c->dataset->refs--;
	uv_close((uv_handle_t *)&c->poll, on_closed);
	server_touch(s);
}
