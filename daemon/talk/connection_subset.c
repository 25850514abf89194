/* SPDX-License-Identifier: Apache-2.0 */
/* The subset of the dataset that a client's session is to serve. It comes in parts, and is taken by the
 * session. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "dataset/subset.h"

void connection_drop_subset(struct connection *c)
{
	free(c->subset_words);
	c->subset_words = NULL;
	c->server->serving.cache.slot_bytes -= c->subset_bytes;
	c->subset_bytes = 0;
	connection_expect(c, 0);
}

static int refuse_room(const struct connection *c, uint64_t bytes, struct error *err)
{
	return error_set(err, -ENOSPC,
			 "the cache has no room for a subset of %s (%llu KiB): start dieseld with a larger "
			 "--cache",
			 c->dataset->path, (unsigned long long)(bytes >> 10));
}

/* Reserves room for the whole of it, and for its index, at the first part. */
static int reserve(struct connection *c, struct error *err)
{
	struct cache *cache = &c->server->serving.cache;
	uint64_t n_samples = c->dataset->info.n_samples, bytes = subset_bytes(n_samples);
	int r;

	if (cache_floor_bytes(cache) + bytes > cache->limit_bytes)
		return refuse_room(c, bytes, err);
	c->subset_words = calloc(subset_words(n_samples), sizeof(*c->subset_words));
	if (!c->subset_words)
		return error_errno(err, -ENOMEM, "cannot take a subset of %s", c->dataset->path);
	cache->slot_bytes += bytes;
	c->subset_bytes = bytes;
	r = server_check_usage(c->server, c, err);
	if (r == 0 && !cache_make_room(cache, 0))
		r = refuse_room(c, bytes, err);
	if (r < 0)
		connection_drop_subset(c);
	return r;
}

static bool is_zero(const uint64_t *words, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (words[i])
			return false;
	}
	return true;
}

int connection_take_part(struct connection *c, const struct wire_subset *m)
{
	uint64_t n_words = subset_words(c->dataset->info.n_samples), first, n;
	struct error err = ERROR_INIT;
	union wire_message answer;
	int r = 0;

	if (m->part >= (n_words + WIRE_SUBSET_WORDS - 1) / WIRE_SUBSET_WORDS)
		return -EPROTO;
	first = m->part * WIRE_SUBSET_WORDS;
	n = n_words - first < WIRE_SUBSET_WORDS ? n_words - first : WIRE_SUBSET_WORDS;
	if (!is_zero(m->words + n, WIRE_SUBSET_WORDS - n))
		return -EPROTO;
	if (!c->subset_words)
		r = reserve(c, &err);
	if (r < 0)
		return connection_reply_error(c, &err, r);
	memcpy(c->subset_words + first, m->words, n * sizeof(*m->words));
	connection_expect(c, CONNECTION_SUBSET_MS);
	protocol_init(&answer, WIRE_SUBSET_REPLY);
	return connection_reply(c, &answer, NULL, 0);
}

int connection_steal_subset(struct connection *c, uint64_t n_chosen, struct subset **ret)
{
	uint64_t *words = c->subset_words;
	struct subset *subset;
	int r;

	if (!words)
		return -EPROTO;
	c->subset_words = NULL;
	connection_drop_subset(c); /* the session counts it from now on */
	r = subset_new(c->dataset->info.n_samples, words, &subset);
	if (r < 0)
		return r == -EINVAL ? -EPROTO : r;
	if (subset_count(subset) != n_chosen) {
		subset_free(subset);
		return -EPROTO;
	}
	*ret = subset;
	return 0;
}
