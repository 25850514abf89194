/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that others fetch. Bytes are copied out of the daemon's memory piece by piece, not sent from its
 * pages (sendfile(2)): a connection within one machine would hand the peer these very pages, which may hold
 * another chunk by the time it reads them. The copy stays in the CPU's cache, where its checksum is computed
 * and TLS or the kernel take it from. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/fd_io.h"
#include "lib/list.h"
#include "net.h"

/* Maximum number of questions of one peer passed to the daemon at one time: each holds a chunk in memory.
 * The others wait here. */
#define ASKED_OF_PEER 8u
/* Maximum questions per second, and burst size. A peer that exceeds it is not read for a while. */
#define QUESTIONS_PER_S 2000.0
#define QUESTIONS_BURST 512.0
/* Time in which the peer has to take an answer once it is its turn; then its memory was held long enough. */
#define GIVE_NS       (5 * NS_PER_S)
#define GIVE_MIN_RATE ((uint64_t)1 << 20) /* bytes per second */

static struct net_question *find(const struct net_conn *c, uint64_t id)
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

bool net_give_may_read(struct net_conn *c)
{
	struct net *n = c->net;

	c->tokens += (double)(n->now_ns - c->tokens_ns) / 1e9 * QUESTIONS_PER_S;
	if (c->tokens > QUESTIONS_BURST)
		c->tokens = QUESTIONS_BURST;
	c->tokens_ns = n->now_ns;
	/* Leaves space in the ring for frames that this node sends unasked, in addition to answers. */
	return c->tokens >= 1 && c->ring_n < NET_RING / 4;
}

static void take_question(struct net_conn *c, const struct net_frame *f)
{
	struct net_question *q;

	c->tokens -= 1;
	if (c->n_questions >= NET_MAX_QUESTIONS || find(c, f->id)) {
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
	struct net_question *q = find(c, f->id);

	if (!q)
		return; /* it has just ended */
	q->stop = -ECANCELED;
	if (q->state == NET_QUESTION_WAITS || (q->state == NET_QUESTION_GIVES && c->gives != q))
		refuse(c, q, -ECANCELED);
}

void net_give_frame(struct net_conn *c, const struct net_frame *f)
{
	if (f->kind == NET_CANCEL)
		cancel(c, f);
	else
		take_question(c, f);
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

void net_give_answer(struct net *n, const struct cluster_order *o, int memory_fd)
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

size_t net_give_next(struct net_conn *c, uint8_t *data, size_t space)
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

void net_give_tick(struct net_conn *c)
{
	if (c->gives && c->net->now_ns > c->gives->end_ns)
		net_conn_close(c, "the peer reads the chunks it requested too slowly");
	else
		ask_on(c);
}

void net_give_lost(struct net_conn *c)
{
	while (c->questions)
		question_remove(c, c->questions);
}
