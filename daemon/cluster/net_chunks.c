/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that nodes fetch from each other: first those that this node fetches, then those that it gives.
 *
 * Bytes are received into a buffer of a huge page's size, and written from there to the daemon's memory. They
 * are copied out of the daemon's memory piece by piece, not sent from its pages (sendfile(2)). A connection
 * within one machine would hand the peer these very pages, which may hold another chunk when the peer reads
 * them. The copy stays in the CPU's cache, where its checksum is computed and TLS or the kernel take it
 * from. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/fd_io.h"
#include "lib/huge_pages.h"
#include "lib/list.h"
#include "net.h"

/* Pause in requests to a peer that sent bytes with a wrong checksum. */
#define LIED_NS       (30 * NS_PER_S)
#define LATE_MIN_NS   NS_PER_S
#define BLAME_NS      (NS_PER_S / 5)
#define LATE_MAX_BITS 5

static struct net_ask *ask_find(const struct net_conn *c, uint64_t id)
{
	struct net_ask *a = c->asks;

	while (a && a->id != id)
		a = a->next;
	return a;
}

/* Reports the end of the read, and releases the daemon's memory. */
static void tell(struct net *n, struct net_ask *a, int32_t code, const char *text)
{
	struct cluster_report report = {.news = CLUSTER_DONE, .code = code, .id = a->id};

	if (a->memory_fd < 0)
		return;
	close(a->memory_fd);
	a->memory_fd = -EBADF;
	snprintf(report.text, sizeof(report.text), "%s", text);
	net_report(n, &report);
}

static void net_buffer_give(struct net *n, uint8_t *buffer)
{
	if (n->n_buffers < sizeof(n->buffers) / sizeof(n->buffers[0]))
		n->buffers[n->n_buffers++] = buffer;
	else
		free(buffer);
}

static void ask_free(struct net *n, struct net_ask *a)
{
	if (a->buffer)
		net_buffer_give(n, a->buffer);
	checksum_stream_free(a->sum);
	if (a->memory_fd >= 0)
		close(a->memory_fd);
	free(a);
}

static void ask_remove(struct net_conn *c, struct net_ask *a)
{
	LL_DELETE(c->asks, a);
	c->n_asks--;
	if (c->piece_of == a)
		c->piece_of = NULL;
	ask_free(c->net, a);
}

static void cannot(struct net *n, const struct cluster_order *o, int memory_fd, int32_t code,
		   const char *text)
{
	struct net_ask none = {.id = o->id, .memory_fd = memory_fd};

	tell(n, &none, code, text);
}

static void fetch(struct net *n, const struct cluster_order *o, int memory_fd)
{
	struct net_peer *p = net_peer_at(n, o->peer, o->name_hash);
	struct net_frame f = {
	    .kind = NET_QUESTION, .id = o->id, .bytes = o->bytes, .group = o->group, .chunk = o->chunk};
	struct net_conn *c = p ? p->conn : NULL;
	struct net_ask *a;

	if (!c || p->is_unreachable) {
		cannot(n, o, memory_fd, -ECONNRESET, "the node is unreachable");
		return;
	}
	if (c->n_asks >= NET_MAX_QUESTIONS) {
		cannot(n, o, memory_fd, -EBUSY, "the node has the maximum number of open requests");
		return;
	}
	a = calloc(1, sizeof(*a));
	if (!a || checksum_stream_new(&a->sum) < 0) {
		free(a);
		cannot(n, o, memory_fd, -ENOMEM, "no memory");
		return;
	}
	a->conn = c;
	a->id = o->id;
	a->bytes = o->bytes;
	a->begin_ns = n->now_ns;
	a->end_ns = n->now_ns + o->ns;
	a->memory_fd = memory_fd;
	a->next = c->asks;
	c->asks = a;
	c->n_asks++;
	net_conn_send_frame(c, &f);
}

/* Returns a buffer of NET_BUFFER_BYTES. NULL: no memory. */
static uint8_t *net_buffer_take(struct net *n)
{
	return n->n_buffers > 0 ? n->buffers[--n->n_buffers] : malloc(NET_BUFFER_BYTES);
}

static int take_piece(struct net_conn *c, const struct net_frame *f)
{
	struct net_ask *a = ask_find(c, f->id);

	if (!a || a->written + a->filled + f->bytes > a->bytes)
		return -EPROTO;
	if (a->memory_fd >= 0 && !a->buffer) {
		a->buffer = net_buffer_take(c->net);
		if (!a->buffer) {
			tell(c->net, a, -ENOMEM, "no memory");
			net_conn_send(c, NET_CANCEL, a->id, 0, 0);
		}
	}
	c->piece_of = a;
	return 0;
}

static void write_out(struct net_conn *c, struct net_ask *a)
{
	int r = 0;

	if (a->filled == 0)
		return;
	checksum_stream_add(a->sum, a->buffer, a->filled);
	if (a->memory_fd >= 0)
		r = huge_write_at(a->memory_fd, a->buffer, a->filled, a->written);
	a->written += a->filled;
	a->filled = 0;
	if (r < 0) {
		tell(c->net, a, r, "the chunk cannot be written to memory");
		net_conn_send(c, NET_CANCEL, a->id, 0, 0);
	}
}

size_t net_chunks_space(struct net_conn *c, uint8_t **ret)
{
	struct net_ask *a = c->piece_of;
	size_t space;

	if (c->parser.piece_left == 0 || !a || a->memory_fd < 0 || !a->buffer)
		return 0;
	space = NET_BUFFER_BYTES - a->filled;
	if (space > c->parser.piece_left)
		space = c->parser.piece_left;
	*ret = a->buffer + a->filled;
	return space;
}

void net_chunks_bytes(struct net_conn *c, const uint8_t *data, size_t bytes)
{
	struct net_ask *a = c->piece_of;

	while (a && bytes > 0) {
		size_t n = a->memory_fd >= 0 && a->buffer ? NET_BUFFER_BYTES - a->filled : 0;

		if (n == 0) {
			a->written += bytes; /* discarded */
			return;
		}
		if (n > bytes)
			n = bytes;
		if (data != a->buffer + a->filled) /* else they were received there: net_chunks_space() */
			memcpy(a->buffer + a->filled, data, n);
		a->filled += n;
		data += n;
		bytes -= n;
		if (a->filled == NET_BUFFER_BYTES)
			write_out(c, a);
	}
}

static void measure(struct net *n, struct net_peer *p, const struct net_ask *a)
{
	double s = (double)(n->now_ns - a->begin_ns) / 1e9, rate = s > 0 ? (double)a->bytes / s : 0;

	p->n_late = 0;
	p->done_ns = n->now_ns;
	p->latency_s = p->latency_s > 0 ? 0.8 * p->latency_s + 0.2 * s : s;
	p->bytes_per_s = p->bytes_per_s > 0 ? 0.8 * p->bytes_per_s + 0.2 * rate : rate;
	p->figures.chunks_in++;
	p->figures.bytes_in += a->bytes;
	p->is_changed = true;
}

static void lied(struct net_conn *c, struct net_ask *a)
{
	log_limited(&c->net->said_problem, LOG_LEVEL_WARNING,
		    "node %s at %s: the checksum of a received chunk does not match. The node gets no "
		    "requests for 30 s",
		    c->peer->node, c->address);
	tell(c->net, a, -EBADMSG, "the checksum of the received bytes does not match");
	c->peer->figures.failed++;
	net_peer_set_unreachable(c->net, c->peer, LIED_NS, NULL);
}

static void refused(struct net_conn *c, struct net_ask *a, int32_t code)
{
	if (a->memory_fd >= 0 && code != -ENOENT && code != -EBUSY)
		c->peer->figures.failed++;
	tell(c->net, a, code,
	     code == -ENOENT  ? "the node has no session that may read the chunk"
	     : code == -EBUSY ? "the node is overloaded"
			      : strerror(-code));
}

static int take_end(struct net_conn *c, const struct net_frame *f)
{
	struct net_ask *a = ask_find(c, f->id);

	if (!a || (f->kind == NET_END && f->code == 0 && a->memory_fd >= 0 && f->bytes != a->bytes))
		return -EPROTO;
	write_out(c, a);
	if (a->memory_fd < 0) {
		/* Reported already. */
	} else if (f->code < 0) {
		refused(c, a, f->code);
	} else if (a->written != f->bytes) {
		return -EPROTO;
	} else if (checksum_stream_xxh3(a->sum) != f->value) {
		lied(c, a);
	} else {
		measure(c->net, c->peer, a);
		tell(c->net, a, 0, "");
	}
	ask_remove(c, a);
	return 0;
}

static void late(struct net_conn *c, struct net_ask *a)
{
	struct net_peer *p = c->peer;
	char text[96];

	snprintf(text, sizeof(text), "the chunk did not arrive within %.2f s",
		 (double)(c->net->now_ns - a->begin_ns) / 1e9);
	tell(c->net, a, -ETIMEDOUT, text);
	net_conn_send(c, NET_CANCEL, a->id, 0, 0);
	p->figures.failed++;
	/* The peer is not to blame in three cases. It became unreachable after this read began, which was
	 * counted then. It completed another chunk in that time, so the requests exceed the capacity of the
	 * link. It had too little time. */
	if ((p->is_unreachable && a->begin_ns < p->unreachable_ns) || p->done_ns > a->begin_ns ||
	    a->end_ns < a->begin_ns + BLAME_NS)
		return;
	/* A peer that answers pings but no questions is left out for longer each time. */
	net_peer_set_unreachable(c->net, p,
				 LATE_MIN_NS << (p->n_late < LATE_MAX_BITS ? p->n_late : LATE_MAX_BITS),
				 "a chunk did not arrive in time");
	p->n_late++;
}

static void asks_tick(struct net_conn *c)
{
	for (struct net_ask *a = c->asks; a; a = a->next)
		if (a->memory_fd >= 0 && c->net->now_ns >= a->end_ns)
			late(c, a);
}

static void asks_lost(struct net_conn *c, const char *why)
{
	char text[160];

	snprintf(text, sizeof(text), "the connection was lost%s%s", why ? ": " : "", why ? why : "");
	while (c->asks) {
		struct net_ask *a = c->asks;

		if (a->memory_fd >= 0)
			c->peer->figures.failed++;
		tell(c->net, a, -ECONNRESET, text);
		ask_remove(c, a);
	}
}

/* ---- chunks that others fetch ---- */

/* Maximum number of questions of one peer passed to the daemon at one time: each holds a chunk in memory.
 * The others wait here. */
#define ASKED_OF_PEER 8u
/* Maximum questions per second, and burst size. A peer that exceeds it is not read for a while. */
#define QUESTIONS_PER_S 2000.0
#define QUESTIONS_BURST 512.0
/* Time in which the peer has to take an answer once it is its turn; then its memory was held long enough. */
#define GIVE_NS       (5 * NS_PER_S)
#define GIVE_MIN_RATE ((uint64_t)1 << 20) /* bytes per second */

static struct net_question *question_find(const struct net_conn *c, uint64_t id)
{
	struct net_question *q = c->questions;

	while (q && q->id != id)
		q = q->next;
	return q;
}

static void given(struct net *n, uint64_t here_id)
{
	const struct cluster_report report = {.news = CLUSTER_GIVEN, .id = here_id};

	net_report(n, &report);
}

/* Removes the question, and releases the memory of its answer. */
static void question_remove(struct net_conn *c, struct net_question *q)
{
	LL_DELETE(c->questions, q);
	c->n_questions--;
	if (c->gives == q)
		c->gives = NULL;
	if (q->state == NET_QUESTION_ASKED || q->state == NET_QUESTION_GIVES)
		c->n_asked--;
	if (q->state == NET_QUESTION_GIVES) {
		close(q->memory_fd);
		given(c->net, q->here_id);
	}
	checksum_stream_free(q->sum);
	free(q);
}

static void ask_daemon(struct net_conn *c, struct net_question *q)
{
	struct net *n = c->net;
	const struct cluster_report report = {
	    .news = CLUSTER_ASKED, .id = n->next_id, .group = q->group, .chunk = q->chunk};

	q->here_id = n->next_id++;
	q->state = NET_QUESTION_ASKED;
	c->n_asked++;
	n->n_asked++;
	net_report(n, &report);
}

/* Asks the daemon, the oldest questions first. */
static void ask_on(struct net_conn *c)
{
	for (struct net_question *q = c->questions; q; q = q->next) {
		if (c->n_asked >= ASKED_OF_PEER || c->net->n_asked >= CLUSTER_MAX_ASKED)
			return;
		if (q->state == NET_QUESTION_WAITS)
			ask_daemon(c, q);
	}
}

static void refuse(struct net_conn *c, struct net_question *q, int32_t code)
{
	net_conn_send(c, NET_REFUSAL, q->id, code, 0);
	question_remove(c, q);
}

bool net_chunks_may_read(struct net_conn *c)
{
	/* Leaves space in the ring for frames that this node sends unasked, in addition to answers. */
	return net_budget_has(&c->accepts, QUESTIONS_PER_S, QUESTIONS_BURST, c->net->now_ns) &&
	       c->ring_n < NET_RING / 4;
}

static void take_question(struct net_conn *c, const struct net_frame *f)
{
	struct net_question *q;

	c->accepts.tokens -= 1;
	if (c->n_questions >= NET_MAX_QUESTIONS || question_find(c, f->id)) {
		net_conn_send(c, NET_REFUSAL, f->id, -EBUSY, 0);
		return;
	}
	q = calloc(1, sizeof(*q));
	if (!q || checksum_stream_new(&q->sum) < 0) {
		free(q);
		net_conn_send(c, NET_REFUSAL, f->id, -ENOMEM, 0);
		return;
	}
	q->id = f->id;
	q->bytes = f->bytes;
	q->state = NET_QUESTION_WAITS;
	q->group = f->group;
	q->chunk = f->chunk;
	q->memory_fd = -EBADF;
	LL_APPEND(c->questions, q);
	c->n_questions++;
	ask_on(c);
}

static void cancel(struct net_conn *c, const struct net_frame *f)
{
	struct net_question *q = question_find(c, f->id);

	if (!q)
		return; /* the question has just ended */
	q->stop = -ECANCELED;
	if (q->state == NET_QUESTION_WAITS || (q->state == NET_QUESTION_GIVES && c->gives != q))
		refuse(c, q, -ECANCELED);
}

/* Counts a question as answered. Returns it and its connection; NULL: the connection is gone. */
static struct net_question *take_asked(struct net *n, uint64_t here_id, struct net_conn **ret)
{
	if (n->n_asked > 0)
		n->n_asked--;
	for (struct net_conn *c = n->conns; c; c = c->next)
		for (struct net_question *q = c->questions; q; q = q->next)
			if (q->state == NET_QUESTION_ASKED && q->here_id == here_id) {
				*ret = c;
				return q;
			}
	return NULL;
}

static void all_ask_on(struct net *n)
{
	for (struct net_conn *c = n->conns; c && n->n_asked < CLUSTER_MAX_ASKED; c = c->next)
		if (c->state == NET_OPEN)
			ask_on(c);
}

static void answer(struct net *n, const struct cluster_order *o, int memory_fd)
{
	struct net_conn *c;
	struct net_question *q = take_asked(n, o->id, &c);

	if (o->verb == CLUSTER_REFUSE) {
		if (q)
			refuse(c, q, o->code < 0 && o->code >= -4095 ? o->code : -EIO);
	} else if (!q || q->stop < 0 || o->bytes != q->bytes) {
		close(memory_fd);
		given(n, o->id);
		if (q)
			refuse(c, q, q->stop < 0 ? q->stop : -EBADMSG);
	} else {
		q->state = NET_QUESTION_GIVES;
		q->memory_fd = memory_fd;
		net_conn_poll(c);
	}
	all_ask_on(n);
}

static size_t put(uint8_t *data, const struct net_frame *f)
{
	memcpy(data, f, sizeof(*f));
	return sizeof(*f);
}

static size_t put_end(struct net_conn *c, uint8_t *data, int32_t code)
{
	struct net_question *q = c->gives;
	const struct net_frame f = {.kind = NET_END,
				    .id = q->id,
				    .code = code,
				    .bytes = q->sent,
				    .value = code < 0 ? 0 : checksum_stream_xxh3(q->sum)};

	if (code == 0) {
		c->peer->figures.chunks_out++;
		c->peer->figures.bytes_out += q->sent;
		c->peer->is_changed = true;
	}
	question_remove(c, q);
	ask_on(c);
	return put(data, &f);
}

static struct net_question *next_to_give(const struct net_conn *c)
{
	struct net_question *q = c->questions;

	while (q && q->state != NET_QUESTION_GIVES)
		q = q->next;
	return q;
}

size_t net_chunks_next(struct net_conn *c, uint8_t *data, size_t space)
{
	struct net_frame f = {.kind = NET_PIECE};
	struct net_question *q;
	size_t n, done = 0;
	int r;

	if (!c->gives && (c->gives = next_to_give(c)))
		c->gives->end_ns = c->net->now_ns + GIVE_NS + c->gives->bytes * NS_PER_S / GIVE_MIN_RATE;
	q = c->gives;
	if (!q || space < sizeof(f) + NET_PIECE_BYTES)
		return 0;
	if (q->stop < 0)
		return put_end(c, data, q->stop);
	if (q->sent == q->bytes)
		return put_end(c, data, 0);
	n = q->bytes - q->sent < NET_PIECE_BYTES ? (size_t)(q->bytes - q->sent) : NET_PIECE_BYTES;
	r = fd_read_at(q->memory_fd, data + sizeof(f), n, q->sent, &done);
	if (r < 0 || done != n)
		return put_end(c, data, r < 0 ? r : -EBADMSG);
	checksum_stream_add(q->sum, data + sizeof(f), n);
	q->sent += n;
	f.id = q->id;
	f.bytes = n;
	return put(data, &f) + n;
}

/* ---- the connection ---- */

int net_chunks_frame(struct net_conn *c, const struct net_frame *f)
{
	switch ((enum net_kind)f->kind) {
	case NET_QUESTION: take_question(c, f); return 0;
	case NET_CANCEL: cancel(c, f); return 0;
	case NET_PIECE: return take_piece(c, f);
	case NET_REFUSAL:
	case NET_END: return take_end(c, f);
	case NET_PING:
	case NET_PONG: break;
	}
	return -EPROTO;
}

void net_chunks_order(struct net *n, const struct cluster_order *o, int memory_fd)
{
	if (o->verb == CLUSTER_FETCH)
		fetch(n, o, memory_fd);
	else
		answer(n, o, memory_fd);
}

void net_chunks_tick(struct net_conn *c)
{
	asks_tick(c);
	if (c->gives && c->net->now_ns > c->gives->end_ns)
		net_conn_close(c, "the peer reads the chunks it requested too slowly");
	else
		ask_on(c);
}

void net_chunks_lost(struct net_conn *c, const char *why)
{
	asks_lost(c, why);
	while (c->questions)
		question_remove(c, c->questions);
}
