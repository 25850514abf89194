/* SPDX-License-Identifier: Apache-2.0 */
/* Samples by number through the daemon's cache. */
#include "by_number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset.h"
#include "client/diesel.h"
#include "client/session.h"
#include "lib/clock.h"

/* Samples per request. A session reserves memory for the chunks of all of its requests. */
#define REQUEST_SAMPLES 16
#define MAX_SESSIONS    4 /* threads that read at the same time; more take turns */
/* Time without another try after the daemon could not serve the dataset. */
#define RETRY_NS NS_PER_S

struct number_session {
	struct diesel_session *session; /* NULL: not open */
	uint32_t n_abandoned;           /* requests whose batches nobody needs any more */
	bool is_busy;
};

struct by_number {
	pthread_mutex_t lock; /* protects all fields below */
	pthread_cond_t released;
	struct number_session all[MAX_SESSIONS];
	uint64_t retry_ns; /* read from storage until then */
};

int by_number_new(struct by_number **ret)
{
	struct by_number *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->released, NULL);
	*ret = b;
	return 0;
}

void by_number_free(struct by_number *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < MAX_SESSIONS; i++)
		diesel_session_close(b->all[i].session);
	pthread_cond_destroy(&b->released);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* Returns an open session that is not busy, else an unused entry. NULL: all are busy. */
static struct number_session *find(struct by_number *b)
{
	struct number_session *unused = NULL;

	for (size_t i = 0; i < MAX_SESSIONS; i++) {
		struct number_session *s = &b->all[i];

		if (!s->is_busy && s->session)
			return s;
		if (!s->is_busy && !unused)
			unused = s;
	}
	return unused;
}

static struct number_session *acquire(struct by_number *b)
{
	struct number_session *s = NULL;

	pthread_mutex_lock(&b->lock);
	while (clock_monotonic_ns() >= b->retry_ns && !(s = find(b)))
		pthread_cond_wait(&b->released, &b->lock);
	if (s)
		s->is_busy = true;
	pthread_mutex_unlock(&b->lock);
	return s;
}

/* works: false if the daemon cannot serve the dataset now. */
static void release(struct by_number *b, struct number_session *s, bool works)
{
	if (!works) {
		diesel_session_close(s->session);
		s->session = NULL;
		s->n_abandoned = 0;
	}
	pthread_mutex_lock(&b->lock);
	s->is_busy = false;
	if (!works)
		b->retry_ns = clock_monotonic_ns() + RETRY_NS;
	pthread_cond_broadcast(&b->released);
	pthread_mutex_unlock(&b->lock);
}

/* If the cache cannot hold the dataset, whole chunks would be read for single samples. */
static int open_session(struct diesel_dataset *d, struct number_session *s)
{
	const struct diesel_session_options options = {
	    .flags = DIESEL_ASKED, .world = 1, .batch = REQUEST_SAMPLES};
	int r = s->session ? 0 : diesel_session_open(d, &options, &s->session, NULL, 0);

	return r == 0 && !s->session->attachment->fits ? -ENOSPC : r;
}

/* Waits for the next batch. -EINTR: a signal arrived; another error: the daemon cannot serve. */
static int next(struct number_session *s, struct diesel_batch *ret)
{
	int r = diesel_session_next(s->session, ret);

	if (diesel_session_notice(s->session))
		return -ECONNRESET;
	return r > 0 ? -EPROTO : r;
}

static int drop_abandoned(struct number_session *s)
{
	struct diesel_batch batch;

	for (; s->n_abandoned > 0; s->n_abandoned--) {
		int r = next(s, &batch);

		if (r < 0)
			return r;
		diesel_batch_release(batch.lease);
	}
	return 0;
}

static int copy(const struct diesel_batch *batch, const struct by_number_request *q, uint32_t first)
{
	for (uint32_t i = 0; i < batch->n_items; i++) {
		const struct diesel_item *item = &batch->items[i];

		if (first + i >= q->n || item->sample != q->samples[first + i] ||
		    item->bytes > q->sizes[first + i])
			return -EPROTO;
		if (item->bytes)
			memcpy(q->buffers[first + i], item->data, item->bytes);
	}
	return 0;
}

/* Requests as many batches at a time as the session may. */
static int read_batches(struct number_session *s, const struct by_number_request *q)
{
	uint32_t n_asked = 0, n_done = 0;
	int r = drop_abandoned(s);

	while (r == 0 && n_done < q->n) {
		struct diesel_batch batch;

		while (n_asked < q->n) {
			uint32_t n = q->n - n_asked < REQUEST_SAMPLES ? q->n - n_asked : REQUEST_SAMPLES;

			if (diesel_session_ask(s->session, q->samples + n_asked, n, DIESEL_ASK_FEW) < 0)
				break;
			n_asked += n;
			s->n_abandoned++;
		}
		r = next(s, &batch);
		if (r < 0)
			return r;
		s->n_abandoned--;
		r = copy(&batch, q, n_done);
		n_done += batch.n_items;
		diesel_batch_release(batch.lease);
	}
	return r;
}

int by_number_read(struct by_number *b, struct diesel_dataset *d, const struct by_number_request *q)
{
	struct number_session *s = acquire(b);
	int r;

	if (!s)
		return 0;
	r = open_session(d, s);
	if (r == 0)
		r = read_batches(s, q);
	release(b, s, r == 0 || r == -EINTR);
	return r == -EINTR ? r : r == 0;
}
