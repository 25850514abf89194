/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills chunks with samples, and puts them into the store: threads write and sync chunks while the caller
 * fills the next one. At most PUT_QUEUE_BUILDERS builders exist. Two chunks are written at a time, because a
 * disk is idle, and a bucket nearly so, while one is synced and renamed. The first failure stops everything,
 * and every later call returns it.
 */
#include "writer_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "dataset/chunk/buffer.h"
#include "dataset/chunk_builder.h"
#include "dataset/chunk_id.h"
#include "dataset/store.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/thread.h"

#define PUT_QUEUE_THREADS 2
/* the two being written, one being filled, one waiting */
#define PUT_QUEUE_BUILDERS (PUT_QUEUE_THREADS + 2)

struct put_item {
	struct chunk_builder *builder;
	struct chunk_id id;
	uint64_t created_ns;
	bool keeps_digest;
};

struct put_digest {
	struct chunk_id id; /* must come first: the search compares a bare id with these */
	struct digest sha256;
};

struct put_queue {
	struct store *store;
	struct writer_lock *lock_file;
	pthread_t threads[PUT_QUEUE_THREADS];
	int n_threads;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signals a change of a field below */
	struct chunk_builder *builders[PUT_QUEUE_BUILDERS];
	struct chunk_builder *free[PUT_QUEUE_BUILDERS];
	int n_free;
	struct put_item waiting[PUT_QUEUE_BUILDERS]; /* [0] is next */
	int n_waiting;
	int n_writing;
	bool stop;
	struct error failure;  /* error of the first put that failed */
	struct buffer digests; /* struct put_digest, ids ascending */
};

/* Computes the digest of the chunk's plain form in memory, whatever form its file has. */
static int make_digest(const struct put_item *item, struct put_digest *ret, struct error *err)
{
	char text[CHUNK_ID_TEXT];
	struct iovec plain[2];
	int r;

	chunk_builder_plain(item->builder, plain);
	r = digest_of(plain, 2, &ret->sha256);

	if (r < 0)
		return error_errno(err, r, "cannot compute the SHA-256 of chunk %s",
				   chunk_id_format(&item->id, text));
	ret->id = item->id;
	return 0;
}

/* Chunks may be completed in another order than they were queued. */
static int keep_digest_of(struct put_queue *q, const struct put_digest *digest)
{
	size_t n = q->digests.bytes / sizeof(*digest);
	int r = buffer_append(&q->digests, digest, sizeof(*digest));
	struct put_digest *digests = (struct put_digest *)q->digests.data;

	for (; r == 0 && n > 0 && chunk_id_compare(&digests[n - 1].id, &digest->id) > 0; n--) {
		digests[n] = digests[n - 1];
		digests[n - 1] = *digest;
	}
	return r;
}

/* Writes a chunk. If another writer took the dataset over, it removes unfinished files: then the error is the
 * lost lock, not a failure of the disk. */
static int put(struct put_queue *q, const struct chunk_id *id, const struct iovec *parts, struct error *err)
{
	struct error lock_err = ERROR_INIT;
	int r = writer_lock_check(q->lock_file, err);

	if (r < 0)
		return r;
	r = store_put(q->store, id, parts, 2, err);
	if (r < 0 && writer_lock_check(q->lock_file, &lock_err) < 0)
		*err = lock_err;
	return r < 0 ? err->code : 0;
}

/* Writes the next chunk. Called with the lock held, and releases it while it writes. */
static void write_next(struct put_queue *q)
{
	struct put_item item = q->waiting[0];
	struct iovec parts[2];
	struct put_digest digest;
	struct error err = ERROR_INIT;

	q->n_waiting--;
	for (int i = 0; i < q->n_waiting; i++)
		q->waiting[i] = q->waiting[i + 1];
	q->n_writing++;
	pthread_mutex_unlock(&q->lock);
	int r = chunk_builder_finish(item.builder, &item.id, item.created_ns, parts, &err);

	if (r == 0 && item.keeps_digest)
		r = make_digest(&item, &digest, &err);
	if (r == 0)
		r = put(q, &item.id, parts, &err);
	pthread_mutex_lock(&q->lock);
	if (r == 0 && item.keeps_digest && keep_digest_of(q, &digest) < 0)
		r = error_errno(&err, -ENOMEM, "cannot keep digests");
	q->n_writing--;
	q->free[q->n_free++] = item.builder;
	if (r < 0 && !q->failure.code)
		q->failure = err;
	pthread_cond_broadcast(&q->changed);
}

static void *run(void *argument)
{
	struct put_queue *q = argument;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		if (q->stop)
			break;
		if (q->n_waiting && !q->failure.code)
			write_next(q);
		else
			pthread_cond_wait(&q->changed, &q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int put_queue_new(struct store *store, struct writer_lock *lock_file, uint64_t chunk_bytes,
		  struct put_queue **ret, struct error *err)
{
	struct put_queue *q = calloc(1, sizeof(*q));
	int r = 0;

	if (!q)
		return error_errno(err, -ENOMEM, "cannot start writing");
	q->store = store;
	q->lock_file = lock_file;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->changed, NULL);
	for (int i = 0; i < PUT_QUEUE_BUILDERS && r == 0; i++) {
		r = chunk_builder_new(chunk_bytes, &q->builders[i]);
		if (r == 0)
			q->free[q->n_free++] = q->builders[i];
	}
	while (r == 0 && q->n_threads < PUT_QUEUE_THREADS) {
		r = thread_start(&q->threads[q->n_threads], run, q);
		q->n_threads += r == 0;
	}
	if (r < 0) {
		put_queue_free(q);
		return error_errno(err, r, "cannot start writing");
	}
	*ret = q;
	return 0;
}

void put_queue_free(struct put_queue *q)
{
	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	for (int i = 0; i < q->n_threads; i++)
		pthread_join(q->threads[i], NULL);
	for (int i = 0; i < PUT_QUEUE_BUILDERS; i++)
		chunk_builder_free(q->builders[i]);
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
	buffer_free(&q->digests);
	free(q);
}

static int failure_of(const struct put_queue *q, struct error *err)
{
	if (q->failure.code && err)
		*err = q->failure;
	return q->failure.code;
}

static int find_digest(const void *id, const void *digest)
{
	return chunk_id_compare(id, digest);
}

bool put_queue_digest(const struct put_queue *q, const struct chunk_id *id, struct digest *ret)
{
	const struct put_digest *found =
	    q->digests.bytes
		? bsearch(id, q->digests.data, q->digests.bytes / sizeof(*found), sizeof(*found), find_digest)
		: NULL;

	if (found)
		*ret = found->sha256;
	return found;
}

/* Takes a builder; waits until one is free. */
static int take_builder(struct put_queue *q, struct chunk_builder **ret, struct error *err)
{
	pthread_mutex_lock(&q->lock);
	while (q->n_free == 0 && !q->failure.code)
		pthread_cond_wait(&q->changed, &q->lock);
	int r = failure_of(q, err);

	if (r == 0)
		*ret = q->free[--q->n_free];
	pthread_mutex_unlock(&q->lock);
	return r;
}

/* Hands a filled builder in. */
static int queue_put(struct put_queue *q, const struct put_item *item, struct error *err)
{
	pthread_mutex_lock(&q->lock);
	int r = failure_of(q, err);

	if (r == 0)
		q->waiting[q->n_waiting++] = *item;
	else
		q->free[q->n_free++] = item->builder;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return r;
}

int writer_flush(struct writer *w, struct error *err)
{
	if (!w->current || chunk_builder_n_records(w->current) == 0)
		return 0;
	uint64_t now_ns = clock_realtime_ns();
	struct chunk_id id = chunk_id_next(&w->ids, now_ns / NS_PER_US);

	if (buffer_append(&w->chunks, &id, sizeof(id)) < 0)
		return error_errno(err, -ENOMEM, "%s", w->path);
	const struct put_item item = {steal_pointer(w->current), id, now_ns, w->keeps_digests && w->meta};

	return queue_put(w->queue, &item, err);
}

static void begin_range(struct writer *w, uint32_t flags)
{
	if (!(flags & CHUNK_FLAG_EXTERNAL))
		return;
	chunk_builder_external(w->current, w->source);
	w->source->range.part++;
}

static int add_record(struct writer *w, const struct chunk_sample *sample, uint32_t flags, struct error *err)
{
	int r = 0;

	if (w->current && w->current_flags != flags)
		r = writer_flush(w, err);
	for (;;) {
		if (r == 0 && !w->current) {
			r = take_builder(w->queue, &w->current, err);
			if (r == 0) {
				chunk_builder_compress(w->current, w->level);
				chunk_builder_reset(w->current, flags);
				if (!(flags & CHUNK_FLAG_TOMBSTONE))
					chunk_builder_columns(w->current, writer_columns(&w->added.columns));
				begin_range(w, flags);
			}
			w->current_flags = flags;
		}
		if (r == 0)
			r = chunk_builder_add(w->current, sample, err);
		if (r != CHUNK_BUILDER_FULL)
			return r;
		r = writer_flush(w, err);
	}
}

int writer_add(struct writer *w, const struct chunk_sample *sample, struct error *err)
{
	int r = writer_take_layout(w, w->added.layout, writer_columns(&w->added.columns), err);

	return r < 0 ? r : add_record(w, sample, chunk_layout_flags(w->added.layout), err);
}

int writer_begin_source(struct writer *w, const struct external *source, struct error *err)
{
	int r = w->keeps_digests || w->info.has_digests
		    ? error_set(err, -EOPNOTSUPP,
				"%s keeps digests of its chunks, which files that stay where they are cannot "
				"have: index into a new dataset",
				w->path)
		    : writer_flush(w, err);

	if (r == 0 && !w->source)
		w->source = malloc(sizeof(*w->source));
	if (r == 0 && !w->source)
		r = error_errno(err, -ENOMEM, "%s", w->path);
	if (r < 0)
		return r;
	*w->source = *source;
	w->source->range.part = w->source->range.is_last = 0;
	w->source->range.chunk_bytes = (uint32_t)w->chunk_bytes;
	return 0;
}

int writer_add_range(struct writer *w, const struct chunk_sample *sample, struct error *err)
{
	int r = writer_take_layout(w, w->added.layout, writer_columns(&w->added.columns), err);

	return r < 0 ? r
		     : add_record(w, sample, CHUNK_FLAG_EXTERNAL | chunk_layout_flags(w->added.layout), err);
}

int writer_end_source(struct writer *w, struct error *err)
{
	if (w->current && w->current_flags & CHUNK_FLAG_EXTERNAL)
		chunk_builder_end_source(w->current);
	return writer_flush(w, err);
}

int writer_delete(struct writer *w, const char *path, size_t path_length, struct error *err)
{
	struct chunk_sample sample = {.path = path, .path_length = path_length};

	return add_record(w, &sample, CHUNK_FLAG_TOMBSTONE, err);
}

int writer_settle(struct writer *w, struct error *err)
{
	struct put_queue *q = w->queue;
	int r = writer_flush(w, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&q->lock);
	while ((q->n_waiting && !q->failure.code) || q->n_writing)
		pthread_cond_wait(&q->changed, &q->lock);
	r = failure_of(q, err);
	pthread_mutex_unlock(&q->lock);
	return r;
}
