/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "history_private.h"
#include "lib/cleanup.h"

/* Some minutes of a busy hour: if the queue is full, the disk hangs. */
#define QUEUE_MAX    2048
#define CLOSE_WAIT_S 3

static struct record *record_new(enum record_kind kind, uint64_t at_ms, size_t size)
{
	struct record *q = calloc(1, sizeof(*q) + size);

	if (q) {
		q->kind = kind;
		q->at_ms = at_ms;
		q->size = size;
	}
	return q;
}

/* Takes the record over; NULL (no memory) counts as dropped. */
static void enqueue(struct history *h, struct record *q, bool urgent)
{
	pthread_mutex_lock(&h->mutex);
	if (!q || h->n_queued >= QUEUE_MAX) {
		h->status.n_dropped++;
		free(q);
	} else {
		*h->last = q;
		h->last = &q->next;
		h->n_queued++;
		h->urgent |= urgent;
		if (h->n_queued == 1 || urgent)
			pthread_cond_signal(&h->wake);
	}
	pthread_mutex_unlock(&h->mutex);
}

void history_add_entry(struct history *h, const struct history_entry *entry)
{
	size_t size = entry->sample ? strlen(entry->sample) + 1 : 0;
	struct record *q = record_new(RECORD_ENTRY, entry->at_ms, size);

	if (q) {
		q->entry = *entry;
		q->entry.sample = NULL;
		if (size)
			memcpy(q->data, entry->sample, size);
	}
	enqueue(h, q, true);
}

void history_add_verdict(struct history *h, uint64_t at_ms, const struct tuner_verdict *verdict)
{
	struct record *q = record_new(RECORD_VERDICT, at_ms, 0);

	if (q)
		q->verdict = *verdict;
	enqueue(h, q, true);
}

void history_add_point(struct history *h, const struct history_point *point)
{
	struct record *q = record_new(RECORD_POINT, point->at_ms, 0);

	if (q)
		q->point = *point;
	enqueue(h, q, false);
}

void history_add_round(struct history *h, const struct history_round *round)
{
	size_t head = sizeof(uint64_t) + sizeof(*round->node);
	struct record *q =
	    record_new(RECORD_ROUND, round->at_ms, head + round->n_samples * sizeof(*round->samples));

	if (q) {
		q->config = *round->config;
		memcpy(q->data, &round->now_ns, sizeof(uint64_t));
		memcpy(q->data + sizeof(uint64_t), round->node, sizeof(*round->node));
		memcpy(q->data + head, round->samples, round->n_samples * sizeof(*round->samples));
	}
	enqueue(h, q, false);
}

void history_add_end(struct history *h, uint64_t at_ms, uint64_t job)
{
	struct record *q = record_new(RECORD_END, at_ms, 0);

	if (q)
		q->job = job;
	enqueue(h, q, false);
}

void history_set_state(struct history *h, const char *key, const void *data, size_t size)
{
	struct record *q = record_new(RECORD_STATE, 0, size);

	if (q) {
		snprintf(q->key, sizeof(q->key), "%s", key);
		memcpy(q->data, data, size);
	}
	enqueue(h, q, true);
}

void history_status_get(struct history *h, struct history_status *ret)
{
	pthread_mutex_lock(&h->mutex);
	*ret = h->status;
	pthread_mutex_unlock(&h->mutex);
}

/* Returns false if the disk hangs: the thread, and what it uses, then stay until the process ends. */
static bool end_thread(struct history *h)
{
	struct timespec until;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_WAIT_S;
	pthread_mutex_lock(&h->mutex);
	h->closing = true;
	pthread_cond_broadcast(&h->wake);
	while (!h->done)
		if (pthread_cond_timedwait(&h->wake, &h->mutex, &until) == ETIMEDOUT)
			break;
	done = h->done;
	pthread_mutex_unlock(&h->mutex);
	if (done)
		pthread_join(h->thread, NULL);
	else
		pthread_detach(h->thread);
	return done;
}

void history_close(struct history *h)
{
	if (!h || (h->started && !end_thread(h)))
		return;
	history_file_close(h->file);
	closep(&h->lock_fd);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->mutex);
	free(h->path);
	free(h);
}
