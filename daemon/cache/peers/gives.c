/* SPDX-License-Identifier: Apache-2.0 */
#include "gives.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "lib/cleanup.h"
#include "lib/list.h"
#include "memberships.h"

struct give {
	struct give *next;
	struct cluster_group *group;
	struct chunk_id id;
	struct cluster_question *question; /* NULL: answered */
	/* Once the request is answered: the chunk, pinned until it was sent. */
	struct cached_dataset *dataset;
	uint64_t chunk;
	int fd; /* descriptor for reading */
};

static void give_remove(struct cache *c, struct give *g)
{
	LL_DELETE(c->gives.first, g);
	c->gives.n--;
	if (g->dataset)
		cache_unpin(g->dataset, g->chunk);
	closep(&g->fd);
	free(g);
}

static void refuse(struct cache *c, struct give *g, int code)
{
	cluster_refuse(g->question, code);
	give_remove(c, g);
}

void gives_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		 struct cluster_question *question)
{
	struct cache *c = user;
	struct give *g = c->gives.n < GIVES_MAX ? calloc(1, sizeof(*g)) : NULL;

	if (!g) {
		cluster_refuse(question, -EBUSY);
		return;
	}
	*g = (struct give){.group = group, .id = *chunk, .question = question, .fd = -EBADF};
	LL_APPEND(c->gives.first, g);
	c->gives.n++;
	cache_changed(c);
}

void gives_given(void *user, void *answer)
{
	struct cache *c = user;
	const struct give *g = answer;
	const struct membership *m = memberships_find_group(c, g->group);

	if (m && m->dataset == g->dataset)
		membership_taken(m, g->chunk);
	give_remove(c, answer);
	cache_changed(c);
}

static void answer(struct cache *c, struct give *g, struct cached_dataset *d, uint64_t chunk)
{
	struct segment *s = d->chunks[chunk].segment;
	struct cluster_question *question = g->question;
	struct snapshot_chunk meta;
	int r = snapshot_chunk_get(d->snapshot, chunk, &meta);

	/* The sending process can read the chunk, but change nothing. */
	if (r == 0)
		r = shared_memory_reader(s->memory.fd, &g->fd);
	if (r < 0) {
		refuse(c, g, r);
		return;
	}
	cache_pin(c, d, chunk);
	g->dataset = d;
	g->chunk = chunk;
	g->question = NULL;
	c->counters.given++;
	c->counters.given_bytes += meta.file_bytes;
	cluster_answer(question, g->fd, meta.file_bytes, g);
}

/* Returns 1 if the chunk must be read, with *ret filled in; 0 if the request was answered, refused, or waits
 * for a load in progress. */
static int consider(struct cache *c, struct give *g, struct give_want *ret)
{
	struct membership *m = memberships_find_group(c, g->group);
	const struct cached_chunk *k;
	uint64_t chunk;

	if (!m || cached_find_chunk(m->dataset, &g->id, &chunk) < 0) {
		refuse(c, g, -ENOENT);
		return 0;
	}
	k = &m->dataset->chunks[chunk];
	if (k->state == CHUNK_READY && !k->part)
		answer(c, g, m->dataset, chunk);
	else if (cached_is_loading(k) && k->from != CHUNK_FROM_NODE)
		return 0;
	/* Refuses a node that asks because the chunk was in this node's lanes until now: that node reads it
	 * from storage. */
	else if (m->n_sessions == 0 || !membership_serves(m, chunk))
		refuse(c, g, -ENOENT);
	else if (k->state == CHUNK_BAD)
		refuse(c, g, -EIO);
	/* Otherwise nodes that disagree on the owner would wait for each other. */
	else if (k->from == CHUNK_FROM_NODE)
		refuse(c, g, -EAGAIN);
	else {
		*ret = (struct give_want){.membership = m, .chunk = chunk};
		return 1;
	}
	return 0;
}

void gives_pump(struct cache *c)
{
	struct give_want want;

	for (struct give *g = c->gives.first, *next; g; g = next) {
		next = g->next;
		if (g->question)
			(void)consider(c, g, &want);
	}
}

static bool is_among(const struct give_want *wants, size_t n, const struct membership *m)
{
	while (n-- > 0)
		if (wants[n].membership == m)
			return true;
	return false;
}

size_t gives_wanted(struct cache *c, struct give_want *wants, size_t n)
{
	size_t found = 0;

	for (struct give *g = c->gives.first, *next; g && found < n; g = next) {
		struct give_want want;

		next = g->next;
		if (g->question && consider(c, g, &want) == 1 && !is_among(wants, found, want.membership))
			wants[found++] = want;
	}
	return found;
}

static bool is_about(const struct give *g, const struct give_want *want)
{
	uint64_t chunk;

	return g->question && g->group == want->membership->group &&
	       cached_find_chunk(want->membership->dataset, &g->id, &chunk) == 0 && chunk == want->chunk;
}

void gives_refuse(struct cache *c, const struct give_want *want)
{
	for (struct give *g = c->gives.first, *next; g; g = next) {
		next = g->next;
		if (is_about(g, want))
			refuse(c, g, -EBUSY);
	}
}

void gives_refuse_group(struct cache *c, const struct cluster_group *group)
{
	for (struct give *g = c->gives.first, *next; g; g = next) {
		next = g->next;
		if (g->question && g->group == group)
			refuse(c, g, -ENOENT);
	}
}

void gives_free(struct cache *c)
{
	while (c->gives.first)
		give_remove(c, c->gives.first);
}
