/* SPDX-License-Identifier: Apache-2.0 */
#include "fetcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/transport.h"
#include "lib/fd_io.h"
#include "lib/list.h"
#include "lib/text.h"
#include "daemon/storage/shared_memory.h"

/* A chunk that is being read. */
struct fetch {
	struct fetch *next;
	struct fetchers *list;
	struct reader_job *job;
	struct pool_lane *lane;
	struct pool_task fail; /* task used if there is no fetcher */
	int memory_fd;
	uint32_t range;     /* current range of the order, if it has ranges */
	uint64_t at;        /* offset in the range where the next piece begins */
	uint32_t n_pending; /* pieces asked for or being copied */
	bool is_asked;      /* all pieces have been requested */
	bool is_new;        /* fetchers_submit() is running: done() must not be called */
};

struct piece {
	struct pool_task copy;
	struct fetcher *fetcher;
	struct fetch *fetch; /* NULL: the piece is free */
	uint64_t offset;
	uint32_t bytes;
	bool is_copied; /* a worker is copying it: no answer is expected */
	int result;     /* result of copying */
};

struct fetcher {
	struct fetcher *next;
	struct fetchers *list; /* NULL: ended, and freed with its last copy */
	struct pool *pool;
	int socket;
	struct shared_memory landing;
	struct piece pieces[WIRE_LANDINGS];
};

static bool is_copying(const struct fetcher *f)
{
	for (uint32_t i = 0; i < WIRE_LANDINGS; i++)
		if (f->pieces[i].fetch && f->pieces[i].is_copied)
			return true;
	return false;
}

static void fetcher_free(struct fetcher *f)
{
	shared_memory_free(&f->landing);
	free(f);
}

/* Stops asking for pieces of this chunk. */
static void stop_asking(struct fetch *q)
{
	struct fetch **link = &q->list->fetches;

	if (q->is_asked)
		return;
	while (*link != q)
		link = &(*link)->next;
	*link = q->next;
	if (!*link)
		q->list->last = link;
	q->is_asked = true;
}

static const char nobody[] = "the process that reads the bucket for this job (dieselctl fetch) has ended";

static void finish_if_done(struct fetch *q)
{
	struct reader_job *job = q->job;

	if (!q->is_asked || q->n_pending > 0 || q->is_new)
		return;
	free(q);
	job->done(job);
}

static void fail(struct fetch *q, int code, const char *text)
{
	if (q->job->result == 0)
		q->job->result = error_set(&q->job->error, code, "%s", text);
	stop_asking(q);
}

static void piece_free(struct piece *p)
{
	struct fetch *q = p->fetch;

	p->fetch = NULL;
	p->is_copied = false;
	q->n_pending--;
	finish_if_done(q);
}

/* Returns the range of the next piece. NULL: the last piece was asked for. */
static const struct reader_range *next_range(struct fetch *q)
{
	const struct reader_order *o = &q->job->order;

	while (q->range < o->n_ranges && q->at == o->ranges[q->range].bytes) {
		q->range++;
		q->at = 0;
	}
	return q->range < o->n_ranges ? &o->ranges[q->range] : NULL;
}

/* Asks for a piece. Returns 1, or 0 if this fetcher cannot be asked. */
static int ask(struct piece *p, struct fetch *q)
{
	const struct reader_order *o = &q->job->order;
	const struct reader_range whole = {0, o->bytes}, *range = o->n_ranges ? next_range(q) : &whole;
	uint64_t left = range->bytes - q->at;
	union wire_message m;

	protocol_init(&m, WIRE_FETCH);
	m.fetch.landing = (uint32_t)(p - p->fetcher->pieces);
	m.fetch.offset = o->is_known ? 0 : range->offset + q->at;
	m.fetch.size = o->bytes;
	m.fetch.bytes = o->is_known ? 0 : left < WIRE_LANDING_BYTES ? (uint32_t)left : WIRE_LANDING_BYTES;
	snprintf(m.fetch.object, sizeof(m.fetch.object), "%s", o->name);
	/* The socket has space for the maximum number of requests; if one does not fit, the process is not
	 * one of our clients. */
	if (transport_send(p->fetcher->socket, &m, NULL, 0) < 0)
		return 0;
	p->fetch = q;
	p->offset = m.fetch.offset;
	p->bytes = m.fetch.bytes;
	q->at += p->bytes;
	q->n_pending++;
	if (o->is_known || (o->n_ranges ? !next_range(q) : q->at == o->bytes))
		stop_asking(q);
	return 1;
}

static void ask_on(struct fetchers *list)
{
	for (uint32_t i = 0; i < WIRE_LANDINGS; i++)
		for (struct fetcher *f = list->first; f && list->fetches; f = f->next)
			if (!f->pieces[i].fetch)
				(void)ask(&f->pieces[i], list->fetches);
}

static void copy_work(struct pool_task *task)
{
	struct piece *p = (struct piece *)task;
	const uint8_t *from =
	    p->fetcher->landing.data + (uint64_t)(p - p->fetcher->pieces) * WIRE_LANDING_BYTES;

	/* Writes to the file, so that the kernel need not clear pages, and no fault occurs if memory runs
	 * out. */
	p->result = fd_write_at(p->fetch->memory_fd, from, p->bytes, p->offset);
}

static void copy_done(struct pool_task *task)
{
	struct piece *p = (struct piece *)task;
	struct fetcher *f = p->fetcher;
	struct fetchers *list = p->fetch->list;

	if (p->result < 0) {
		char text[READER_ORIGIN_BYTES + 64];

		snprintf(text, sizeof(text), "%s: cannot write the chunk to memory (%s)",
			 p->fetch->job->order.origin, strerror(-p->result));
		fail(p->fetch, p->result, text);
	}
	piece_free(p);
	if (f->list)
		ask_on(list);
	else if (!is_copying(f))
		fetcher_free(f);
}

int fetcher_answer(struct fetcher *f, const struct wire_fetched *answer)
{
	struct piece *p = &f->pieces[answer->landing];
	struct fetch *q = p->fetch;
	char text[WIRE_TEXT_BYTES];

	if (!q || p->is_copied)
		return -EPROTO;
	if (answer->result < 0) {
		text_line(text, sizeof(text), answer->text[0] ? answer->text : strerror(-answer->result));
		fail(q, answer->result, text);
	} else if (q->job->order.is_known) {
		q->job->unchanged = access_stamp_equal(&q->job->stamp, &q->job->order.known);
		if (!q->job->unchanged)
			fail(q, -ESTALE,
			     "the chunk in the bucket is not the one that dieseld knows: the object has "
			     "changed");
	} else if (q->job->result == 0) {
		p->is_copied = true;
		p->copy.work = copy_work;
		p->copy.done = copy_done;
		pool_submit(f->pool, q->lane, &p->copy);
		return 0;
	}
	piece_free(p);
	ask_on(f->list);
	return 0;
}

static void fail_done(struct pool_task *task)
{
	struct fetch *q = container_of(task, struct fetch, fail);

	fail(q, -ENOTCONN, nobody);
	q->is_new = false;
	finish_if_done(q);
}

static void no_work(struct pool_task *task)
{
	(void)task;
}

int fetchers_submit(struct fetchers *list, struct pool *pool, struct pool_lane *lane, struct reader_job *job,
		    uint64_t dev, int memory_fd)
{
	struct fetch *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	if (!list->fetches)
		list->last = &list->fetches;
	*q = (struct fetch){.list = list, .job = job, .lane = lane, .memory_fd = memory_fd, .is_new = true};
	*list->last = q;
	list->last = &q->next;
	job->result = 0;
	job->buffered = job->unchanged = false;
	job->read_bytes = 0;
	/* An object with this name never changes. */
	job->stamp = (struct access_stamp){.dev = dev, .bytes = job->order.bytes};
	ask_on(list);
	if (list->first) {
		q->is_new = false;
		return 0;
	}
	q->fail = (struct pool_task){.work = no_work, .done = fail_done};
	pool_submit(pool, lane, &q->fail);
	return 0;
}

int fetcher_new(struct fetchers *list, struct pool *pool, int socket, struct fetcher **ret)
{
	struct fetcher *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	r = shared_memory_new("diesel-landing", FETCHER_BYTES, SHARED_CONTROL, &f->landing);
	if (r < 0) {
		free(f);
		return r;
	}
	for (uint32_t i = 0; i < WIRE_LANDINGS; i++)
		f->pieces[i].fetcher = f;
	f->list = list;
	f->pool = pool;
	f->socket = socket;
	LL_PREPEND(list->first, f);
	*ret = f;
	return 0;
}

int fetcher_memory(const struct fetcher *f)
{
	return f->landing.fd;
}

void fetcher_end(struct fetcher *f)
{
	struct fetchers *list;

	if (!f)
		return;
	list = f->list;
	LL_DELETE(list->first, f);
	f->list = NULL;
	for (uint32_t i = 0; i < WIRE_LANDINGS; i++) {
		struct piece *p = &f->pieces[i];

		if (!p->fetch || p->is_copied)
			continue;
		fail(p->fetch, -ENOTCONN, nobody);
		piece_free(p);
	}
	while (!list->first && list->fetches) {
		struct fetch *q = list->fetches;

		fail(q, -ENOTCONN, nobody);
		finish_if_done(q);
	}
	ask_on(list);
	if (!is_copying(f))
		fetcher_free(f);
}
