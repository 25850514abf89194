/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a dataset. A process of its own (opener.h) finds out which one it is. If it is not served yet, and
 * no other request is loading it, that process copies and verifies the snapshot, and a worker makes the
 * tables for it. If the client leaves, its process is killed.
 */
#include <errno.h>
#include <stdlib.h>

#include "connection.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/units.h"
#include "daemon/sandboxed/opener.h"

enum open_stage {
	OPEN_ASKS,  /* a helper process finds out which dataset it is */
	OPEN_WAITS, /* waits for another request that loads the same dataset */
	OPEN_LOADS,
	OPEN_ADOPTS, /* a worker makes the dataset's tables */
};

struct open_request {
	struct pool_task task;
	struct pool_lane lane; /* lane of the request's user */
	struct connection *connection;
	struct opening *opening; /* NULL: the helper process is done */
	enum open_stage stage;
	uint64_t version;
	bool is_fetched;
	struct proof proof;
	uint64_t reserved_bytes; /* cache space reserved for the copy */
	int copy_fd;
	struct cached_dataset *loaded;
	int result;
	struct error error;
};

static int answer(struct open_request *q, struct cached_dataset *d)
{
	struct connection *c = q->connection;
	_cleanup_(closep) int fd = -EBADF;
	union wire_message m;
	int r;

	if (q->version && q->version != d->info.version) {
		error_set(
		    &q->error, -ESTALE,
		    "%s is at version %llu now, but the session was opened at %llu: open the dataset again",
		    d->path, (unsigned long long)d->info.version, (unsigned long long)q->version);
		return connection_reply_error(c, &q->error, -ESTALE);
	}
	r = shared_memory_reader(d->copy.fd, &fd);
	if (r < 0) {
		error_errno(&q->error, r, "dieseld cannot share a snapshot in memory with a client");
		return connection_reply_error(c, &q->error, r);
	}
	c->place = cached_add_place(d, &q->proof);
	if (!c->place) {
		error_errno(&q->error, -ENOMEM, "cannot open %s", d->path);
		return connection_reply_error(c, &q->error, -ENOMEM);
	}
	if (d->refs == 0)
		cached_forget_errors(d);
	d->payers.open = (d->refs > 0 ? d->payers.open : 0) | 1u << c->payer;
	d->refs++;
	c->dataset = d;
	protocol_init(&m, WIRE_DATASET_REPLY);
	m.dataset_reply.version = d->info.version;
	m.dataset_reply.snapshot_bytes = d->copy.bytes;
	d->copy.is_borrowed = true;
	d->copy.uid = c->uid;
	handover_note_user(c->server->serving.cache.handover, d);
	return connection_reply(c, &m, &fd, 1);
}

uint64_t connection_opening_bytes(const struct connection *c)
{
	return c->opening ? c->opening->reserved_bytes : 0;
}

uint64_t connection_reserved_bytes(const struct connection *c)
{
	return c->subset_bytes + c->landing_bytes + c->batch_bytes + connection_opening_bytes(c);
}

static void unreserve(struct open_request *q)
{
	q->connection->server->serving.cache.snapshot_bytes -= q->reserved_bytes;
	q->reserved_bytes = 0;
}

static void request_free(struct open_request *q)
{
	if (q->opening)
		opening_end(q->opening);
	unreserve(q);
	proof_close(&q->proof);
	closep(&q->copy_fd);
	free(q);
}

/* A process that died may have left the request in the socket. Then nothing more can be read from there. */
static bool is_untaken(const struct connection *c)
{
	union wire_message m;

	return transport_peek(c->fd, &m) == 0 && m.header.type == WIRE_OPEN_DATASET &&
	       m.header.sequence == c->sequence;
}

/* Refuses a dataset without digests if this user may not have one. */
static int check_digest(struct open_request *q, const struct cached_dataset *d)
{
	const struct connection *c = q->connection;
	enum serving_digest when = c->server->serving.options.require_digest;

	if (d->info.has_digests || when == SERVING_DIGEST_NEVER ||
	    (when == SERVING_DIGEST_SHARED && c->uid == d->identity.rights.uid))
		return 0;
	return error_set(&q->error, -EPERM,
			 "%s has no SHA-256 of its chunks, and dieseld requires it%s (--require-digest): its "
			 "owner can run `dieselctl rebuild --digest " DIGEST_NAME " %s`",
			 d->path, when == SERVING_DIGEST_SHARED ? " for all but the owner" : "", d->path);
}

static void finish(struct open_request *q, struct cached_dataset *d)
{
	struct connection *c = q->connection;
	/* Checked before answering: after the answer, the client's next request would be mistaken for this
	 * one. */
	bool untaken = !c->closed && q->stage == OPEN_ASKS && !d && is_untaken(c);
	int r = 0;

	if (d && (q->result = check_digest(q, d)) < 0)
		d = NULL;
	if (!c->closed)
		r = d ? answer(q, d) : connection_reply_error(c, &q->error, q->result);
	if (r == 0 && untaken)
		r = -ECONNRESET;
	if (!d && q->error.text[0])
		log_limited(server_lines_of(c->server, c->uid), LOG_LEVEL_WARNING, "pid %lld: %s",
			    (long long)c->pid, q->error.text);
	c->opening = NULL;
	request_free(q);
	if (r < 0)
		connection_cut(c, r);
	connection_opened(c);
}

static struct open_request *find_stage(const struct server *s, const struct proof_identity *identity,
				       bool waiting)
{
	for (const struct connection *c = s->connections; c; c = c->next) {
		struct open_request *q = c->opening;

		if (q &&
		    (waiting ? q->stage == OPEN_WAITS : q->stage == OPEN_LOADS || q->stage == OPEN_ADOPTS) &&
		    proof_identity_equal(&q->proof.identity, identity))
			return q;
	}
	return NULL;
}

/* Reserves space for the copy before it is made. */
static int reserve(struct open_request *q)
{
	struct cache *cache = &q->connection->server->serving.cache;
	uint64_t bytes = q->proof.snapshot_bytes, most = cache->limit_bytes / 2;
	int r;

	if (bytes > most)
		return error_set(&q->error, -ENOSPC,
				 "%s/" SNAPSHOT_FILE " needs %llu MiB of memory, but the cache has space for "
				 "%llu MiB: start dieseld with a larger --cache",
				 q->proof.path, (unsigned long long)(bytes >> 20),
				 (unsigned long long)(most >> 20));
	/* If this fails, request_free() gives the bytes back. */
	cache->snapshot_bytes += bytes;
	q->reserved_bytes = bytes;
	r = server_check_usage(q->connection->server, q->connection, &q->error);
	if (r == 0 && !cache_make_space(cache, 0))
		r = error_set(&q->error, -ENOSPC,
			      "the snapshot of %s does not fit in the cache in addition to the memory in "
			      "use: start dieseld with a larger --cache",
			      q->proof.path);
	return r;
}

/* Answers at once if the dataset is served already, waits if it is being loaded, and else loads it. */
static void decide(struct open_request *q)
{
	struct server *s = q->connection->server;
	struct cached_dataset *d = cache_find_dataset(&s->serving.cache, &q->proof.identity);

	if (d && !cached_is_still(d, &q->proof)) {
		/* The dataset was restored after a restart, and its file has been replaced since. */
		if (!q->proof.replaced)
			cache_drop_dataset(&s->serving.cache, d);
		d = NULL;
	}
	if (d) {
		finish(q, d);
		return;
	}
	if (q->proof.replaced) {
		q->result = error_set(&q->error, -ESTALE,
				      "the dataset's snapshot was replaced by a newer one and was not "
				      "retained: open the dataset again");
		finish(q, NULL);
		return;
	}
	q->stage = OPEN_WAITS;
	if (find_stage(s, &q->proof.identity, false))
		return;
	q->result = reserve(q);
	if (q->result < 0) {
		finish(q, NULL);
		return;
	}
	q->stage = OPEN_LOADS;
	opening_go_on(q->opening);
	readers_prepare(&s->serving.cache.readers); /* starts readers in the meantime */
}

/* Decides again about the requests that waited for a load, which has ended, successfully or not. */
static void wake_waiting(struct server *s, const struct proof_identity *identity)
{
	struct open_request *q;

	while (!find_stage(s, identity, false) && (q = find_stage(s, identity, true)))
		decide(q);
}

static void adopt_work(struct pool_task *task)
{
	struct open_request *q = (struct open_request *)task;

	q->result = cached_new(&q->proof, q->copy_fd, &q->loaded, &q->error);
	q->copy_fd = -EBADF;
}

static void adopt_done(struct pool_task *task)
{
	struct open_request *q = (struct open_request *)task;
	struct server *s = q->connection->server;
	struct proof_identity identity = q->proof.identity;
	struct cached_dataset *d = cache_find_dataset(&s->serving.cache, &identity);

	unreserve(q);
	if (d) { /* this request's client had left, and another request loaded the dataset in the meantime */
		cached_free(q->loaded);
	} else if (q->result == 0) {
		d = q->loaded;
		cache_add_dataset(&s->serving.cache, d);
		log_info("serving %s, version %llu: %llu sample%s in %llu chunk%s", d->path,
			 (unsigned long long)d->info.version, (unsigned long long)d->info.n_samples,
			 units_plural(d->info.n_samples), (unsigned long long)d->info.n_chunks,
			 units_plural(d->info.n_chunks));
	}
	finish(q, d);
	wake_waiting(s, &identity);
}

static void on_identified(void *user, struct proof *proof)
{
	struct open_request *q = user;

	q->proof = *proof;
	proof->chunks_fd = proof->snapshot_fd = -EBADF;
	q->proof.identity.is_fetched = q->is_fetched;
	/* Only the same user may get chunks that a client's own processes deliver. */
	if (q->is_fetched && q->proof.identity.rights.uid != q->connection->uid) {
		q->result = error_set(&q->error, -EPERM,
				      "%s belongs to another user: each user of a dataset in a bucket needs "
				      "a separate snapshot",
				      q->proof.path);
		finish(q, NULL);
		return;
	}
	decide(q);
}

static void on_verified(void *user, int copy_fd)
{
	struct open_request *q = user;

	q->opening = NULL;
	q->copy_fd = copy_fd;
	q->stage = OPEN_ADOPTS;
	q->task = (struct pool_task){.work = adopt_work, .done = adopt_done};
	pool_lane_init(&q->lane, q->connection->uid);
	pool_submit(q->connection->server->serving.cache.pool, &q->lane, &q->task);
}

static void on_failed(void *user, const struct error *err)
{
	struct open_request *q = user;
	struct server *s = q->connection->server;
	struct proof_identity identity = q->proof.identity;

	q->opening = NULL;
	q->error = *err;
	q->result = err->code;
	finish(q, NULL);
	wake_waiting(s, &identity);
}

void connection_open_cancel(struct connection *c)
{
	struct open_request *q = c->opening;
	struct proof_identity identity;

	if (!q || q->stage == OPEN_ADOPTS) /* adopt_done() still runs, and keeps the dataset for others */
		return;
	identity = q->proof.identity;
	c->opening = NULL;
	request_free(q);
	wake_waiting(c->server, &identity);
}

int connection_open_dataset(struct connection *c, const struct wire_open_dataset *m)
{
	static const struct opening_handler handler = {
	    .identified = on_identified, .verified = on_verified, .failed = on_failed};
	struct open_request *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	q->connection = c;
	q->version = m->version;
	q->is_fetched = m->flags & WIRE_DATASET_FETCHED;
	q->proof = PROOF_INIT;
	q->copy_fd = -EBADF;
	r = opening_start(c->server->opener, c->uid, c->fd, &handler, q, &q->opening);
	if (r < 0) {
		free(q);
		return r;
	}
	c->opening = q;
	connection_watch_end(c);
	return 0;
}
