/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that read a dataset's chunks for us (fetcher.h). */
#include <errno.h>

#include "connection.h"
#include "fetcher.h"

void connection_drop_fetcher(struct connection *c)
{
	fetcher_end(c->fetcher);
	c->fetcher = NULL;
	c->server->serving.cache.slot_bytes -= c->landing_bytes;
	c->landing_bytes = 0;
}

/* Reserves room for what it reads. */
static int reserve(struct connection *c, struct error *err)
{
	struct cache *cache = &c->server->serving.cache;
	int r;

	cache->slot_bytes += FETCHER_BYTES;
	c->landing_bytes = FETCHER_BYTES;
	r = server_check_usage(c->server, c, err);
	if (r == 0 && !cache_make_room(cache, 0))
		r = error_set(err, -ENOSPC,
			      "the cache has no room to read %s into (%llu MiB): start dieseld with a larger "
			      "--cache",
			      c->dataset->path, (unsigned long long)(FETCHER_BYTES >> 20));
	return r;
}

int connection_take_fetcher(struct connection *c)
{
	struct error err = ERROR_INIT;
	union wire_message answer;
	int fd, r;

	if (!c->dataset->identity.is_fetched || c->session || c->fetcher)
		return -EPROTO;
	r = reserve(c, &err);
	if (r == 0) {
		r = fetcher_new(&c->dataset->fetchers, c->server->serving.cache.pool, c->fd, &c->fetcher);
		if (r < 0)
			error_errno(&err, r, "cannot read %s", c->dataset->path);
	}
	if (r < 0) {
		connection_drop_fetcher(c);
		return connection_reply_error(c, &err, r);
	}
	protocol_init(&answer, WIRE_FETCHER_REPLY);
	answer.fetcher_reply.bytes = FETCHER_BYTES;
	fd = fetcher_memory(c->fetcher);
	r = connection_reply(c, &answer, &fd, 1);
	/* What failed for want of a fetcher is tried again. */
	cached_forget_errors(c->dataset);
	serving_touch(&c->server->serving);
	return r;
}

int connection_take_fetched(struct connection *c, const struct wire_fetched *m)
{
	return c->fetcher ? fetcher_answer(c->fetcher, m) : -EPROTO;
}
