/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a dataset in two visits to a worker: who is it, and, if it is not served yet, load and verify
 * its snapshot. In between the loop's thread looks whether it is known.
 */
#include <errno.h>
#include <stdlib.h>

#include "connection.h"
#include "lib/log.h"

struct open_request {
	struct pool_job job;
	struct connection *connection;
	struct wire_fds fds; /* directory, snapshot */
	uint64_t version;
	struct served_identity identity;
	bool replaced;
	uint64_t max_bytes;
	struct served_dataset *loaded;
	int result;
	struct error error;
};

static int answer(struct open_request *q, struct served_dataset *d)
{
	struct connection *c = q->connection;
	union wire_message m;

	if (q->version && q->version != d->info.version) {
		error_set(&q->error, -ESTALE,
			  "%s is at version %llu now, the session was opened at %llu: open the dataset again",
			  d->path, (unsigned long long)d->info.version, (unsigned long long)q->version);
		return connection_reply_error(c, &q->error, -ESTALE);
	}
	if (d->refs == 0)
		served_forget_errors(d);
	d->refs++;
	c->dataset = d;
	protocol_init(&m, WIRE_DATASET_REPLY);
	m.dataset_reply.version = d->info.version;
	m.dataset_reply.snapshot_bytes = d->copy_bytes;
	return transport_send(c->fd, &m, &d->copy_fd, 1);
}

static void finish(struct open_request *q, struct served_dataset *d)
{
	struct connection *c = q->connection;
	int r = 0;

	if (!c->closed)
		r = d ? answer(q, d) : connection_reply_error(c, &q->error, q->result);
	if (!d && q->error.text[0])
		log_warning("pid %lld: %s", (long long)c->pid, q->error.text);
	wire_fds_close(&q->fds);
	free(q);
	if (r < 0)
		connection_close(c);
	connection_opened(c);
}

static void load_work(struct pool_job *job)
{
	struct open_request *q = (struct open_request *)job;

	q->result =
	    served_load(q->fds.fd[0], q->fds.fd[1], &q->identity, q->max_bytes, &q->loaded, &q->error);
}

static void load_done(struct pool_job *job)
{
	struct open_request *q = (struct open_request *)job;
	struct cache *cache = &q->connection->server->cache;
	struct served_dataset *d = cache_find_dataset(cache, &q->identity);

	if (q->result < 0) {
		finish(q, NULL);
		return;
	}
	if (d) { /* another client was faster */
		served_free(q->loaded);
	} else {
		d = q->loaded;
		if (!cache_make_room(cache, d->copy_bytes)) {
			q->result = error_set(
			    &q->error, -ENOSPC,
			    "%s: its snapshot does not fit in the cache beside what is in use: start "
			    "dieseld with a larger --cache",
			    d->path);
			served_free(d);
			finish(q, NULL);
			return;
		}
		cache_add_dataset(cache, d);
		log_info("serving %s, version %llu: %llu samples in %llu chunks", d->path,
			 (unsigned long long)d->info.version, (unsigned long long)d->info.n_samples,
			 (unsigned long long)d->info.n_chunks);
	}
	finish(q, d);
}

static void identify_work(struct pool_job *job)
{
	struct open_request *q = (struct open_request *)job;

	q->result = served_identify(q->fds.fd[0], q->fds.fd[1], &q->identity, &q->replaced, &q->error);
}

static void identify_done(struct pool_job *job)
{
	struct open_request *q = (struct open_request *)job;
	struct server *s = q->connection->server;
	struct served_dataset *d = NULL;

	if (q->result == 0) {
		d = cache_find_dataset(&s->cache, &q->identity);
		if (!d && q->replaced)
			q->result =
			    error_set(&q->error, -ESTALE,
				      "the dataset's snapshot was replaced by a newer one: open it again");
	}
	if (d || q->result < 0) {
		finish(q, d);
		return;
	}
	q->max_bytes = s->cache.limit_bytes / 2;
	q->job = (struct pool_job){.work = load_work, .done = load_done};
	pool_submit(s->cache.pool, NULL, &q->job);
}

int connection_open_dataset(struct connection *c, uint64_t version, struct wire_fds *fds)
{
	struct open_request *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->connection = c;
	q->version = version;
	q->fds = *fds;
	fds->n = 0;
	q->job = (struct pool_job){.work = identify_work, .done = identify_done};
	c->opening = true;
	connection_listen(c, false);
	pool_submit(c->server->cache.pool, NULL, &q->job);
	return 0;
}
