/* SPDX-License-Identifier: Apache-2.0 */
#include "put_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "lib/thread.h"

struct put_item {
	struct chunk_builder *builder;
	struct chunk_id id;
	uint64_t created_ns;
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
	struct error failure; /* error of the first put that failed */
	bool keep_digests;
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
	bool keep_digest = q->keep_digests;

	q->n_waiting--;
	for (int i = 0; i < q->n_waiting; i++)
		q->waiting[i] = q->waiting[i + 1];
	q->n_writing++;
	pthread_mutex_unlock(&q->lock);
	int r = chunk_builder_finish(item.builder, &item.id, item.created_ns, parts, &err);

	if (r == 0 && keep_digest)
		r = make_digest(&item, &digest, &err);
	if (r == 0)
		r = put(q, &item.id, parts, &err);
	pthread_mutex_lock(&q->lock);
	if (r == 0 && keep_digest && keep_digest_of(q, &digest) < 0)
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

void put_queue_keep_digests(struct put_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->keep_digests = true;
	pthread_mutex_unlock(&q->lock);
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

int put_queue_take(struct put_queue *q, struct chunk_builder **ret, struct error *err)
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

int put_queue_put(struct put_queue *q, struct chunk_builder *b, const struct chunk_id *id,
		  uint64_t created_ns, struct error *err)
{
	pthread_mutex_lock(&q->lock);
	int r = failure_of(q, err);

	if (r == 0)
		q->waiting[q->n_waiting++] = (struct put_item){b, *id, created_ns};
	else
		q->free[q->n_free++] = b;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return r;
}

int put_queue_flush(struct put_queue *q, struct error *err)
{
	pthread_mutex_lock(&q->lock);
	while ((q->n_waiting && !q->failure.code) || q->n_writing)
		pthread_cond_wait(&q->changed, &q->lock);
	int r = failure_of(q, err);

	pthread_mutex_unlock(&q->lock);
	return r;
}
