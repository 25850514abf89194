/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches chunks from other nodes. Bytes are received into a buffer of a huge page's size, and written
 * from there to the daemon's memory. */
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

static struct net_ask *find(const struct net_conn *c, uint64_t id)
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

void net_ask_begin(struct net *n, const struct cluster_order *o, int memory_fd)
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
	struct net_ask *a = find(c, f->id);

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

size_t net_ask_space(struct net_conn *c, uint8_t **ret)
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

void net_ask_received(struct net_conn *c, size_t bytes)
{
	struct net_ask *a = c->piece_of;

	a->filled += bytes;
	if (a->filled == NET_BUFFER_BYTES)
		write_out(c, a);
}

void net_ask_bytes(struct net_conn *c, const uint8_t *data, size_t bytes)
{
	struct net_ask *a = c->piece_of;

	if (!a || a->memory_fd < 0 || !a->buffer) {
		if (a)
			a->written += bytes; /* discarded */
		return;
	}
	while (bytes > 0) {
		size_t n = NET_BUFFER_BYTES - a->filled;

		if (n > bytes)
			n = bytes;
		memcpy(a->buffer + a->filled, data, n);
		data += n;
		bytes -= n;
		net_ask_received(c, n);
		if (a->memory_fd < 0) {
			a->written += bytes;
			return;
		}
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
	struct net_ask *a = find(c, f->id);

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

int net_ask_frame(struct net_conn *c, const struct net_frame *f)
{
	return f->kind == NET_PIECE ? take_piece(c, f) : take_end(c, f);
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
	/* Not the peer's fault, or already counted: it became unreachable after this read began; or it
	 * completed another chunk in that time, so the requests exceed the capacity of the link; or it had
	 * too little time. */
	if ((p->is_unreachable && a->begin_ns < p->unreachable_ns) || p->done_ns > a->begin_ns ||
	    a->end_ns < a->begin_ns + BLAME_NS)
		return;
	/* A peer that answers pings but no questions is left out for longer each time. */
	net_peer_set_unreachable(c->net, p,
				 LATE_MIN_NS << (p->n_late < LATE_MAX_BITS ? p->n_late : LATE_MAX_BITS),
				 "a chunk did not arrive in time");
	p->n_late++;
}

void net_ask_tick(struct net_conn *c)
{
	for (struct net_ask *a = c->asks; a; a = a->next)
		if (a->memory_fd >= 0 && c->net->now_ns >= a->end_ns)
			late(c, a);
}

void net_ask_lost(struct net_conn *c, const char *why)
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
