/* SPDX-License-Identifier: Apache-2.0 */
#include "memberships.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "client/protocol.h"
#include "gives.h"
#include "lib/clock.h"
#include "lib/cleanup.h"
#include "lib/list.h"

_Static_assert(WIRE_CLUSTER_BYTES == REGISTRY_NAME_BYTES,
	       "the sizes of the client's and the registry's names must match");

/* Reports a new weight only if it differs by more than 1/WEIGHT_PART: each change moves chunks to other
 * owners. */
#define WEIGHT_PART 4

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

/* Refuses all requests of the group. Call when none of its members is left on this node. */
static void gives_refuse_group(struct cache *c, const struct cluster_group *group)
{
	for (struct give *g = c->gives.first, *next; g; g = next) {
		next = g->next;
		if (g->question && g->group == group)
			refuse(c, g, -ENOENT);
	}
}

struct membership *memberships_find(const struct cached_dataset *d, const struct job *job)
{
	struct membership *m = d->memberships;

	while (m && m->job != job)
		m = m->next;
	return m;
}

/* Returns a membership in the group, preferably one with a session. NULL: none. */
static struct membership *memberships_find_group(const struct cache *c, const struct cluster_group *group)
{
	struct membership *found = NULL;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next)
		for (struct membership *m = d->memberships; m; m = m->next)
			if (m->group == group && (!found || m->n_sessions > 0))
				found = m;
	return found;
}

struct membership *membership_ref(struct membership *m)
{
	m->refs++;
	return m;
}

void membership_unref(struct membership *m)
{
	if (!m || --m->refs > 0)
		return;
	if (m->group && m->cache->cluster) /* at shutdown the cluster is freed before the last loads */
		cluster_leave(m->group);
	lane_table_free(&m->lanes);
	free(m);
}

static struct membership *membership_new(struct cache *c, struct cached_dataset *d, struct job *job,
					 const char *name)
{
	struct membership *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	*m = (struct membership){.next = d->memberships,
				 .next_of_job = job->memberships,
				 .cache = c,
				 .dataset = d,
				 .job = job,
				 .refs = 1};
	m->key.uid = job->uid;
	snprintf(m->key.job, sizeof(m->key.job), "%s", name);
	snapshot_digest(d->snapshot, m->key.dataset);
	m->since_ns = clock_monotonic_ns();
	d->memberships = job->memberships = m;
	return m;
}

struct membership *memberships_join(struct cache *c, struct cached_dataset *d, struct job *job,
				    const char *name, uint32_t n_nodes, struct chunk_place *place)
{
	struct membership *m = memberships_find(d, job);

	if (!c->cluster || !name[0] || n_nodes == 1)
		return NULL;
	/* A job has only one name. */
	if (m && strcmp(m->key.job, name) != 0)
		return NULL;
	if (!m)
		m = membership_new(c, d, job, name);
	if (!m)
		return NULL;
	m->n_sessions++;
	m->n_nodes = n_nodes;
	place_ref(place);
	place_unref(m->place);
	m->place = place;
	c->needs_changed = true;
	return m;
}

void membership_leave(struct membership *m)
{
	if (!m)
		return;
	m->n_sessions--;
	if (m->n_sessions == 0)
		m->place = place_unref(m->place);
}

static void membership_end(struct membership *m)
{
	LL_DELETE(m->dataset->memberships, m);
	LL_DELETE2(m->job->memberships, m, next_of_job);
	m->place = place_unref(m->place);
	m->is_ended = true;
	if (m->group && !memberships_find_group(m->cache, m->group))
		gives_refuse_group(m->cache, m->group);
	membership_unref(m);
}

void memberships_end_job(struct job *job)
{
	while (job->memberships)
		membership_end(job->memberships);
}

void memberships_end_dataset(struct cached_dataset *d)
{
	while (d->memberships)
		membership_end(d->memberships);
}

void memberships_end_all(struct cache *c)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next)
		memberships_end_dataset(d);
}

bool membership_waits(struct membership *m, uint64_t now_ns, uint64_t *again_ns)
{
	uint64_t end_ns = m->since_ns + MEMBERSHIP_WAIT_NS;

	if (m->is_complete || !m->group)
		return false;
	m->is_complete = now_ns >= end_ns || cluster_n_members(m->group) >= m->n_nodes;
	if (!m->is_complete && end_ns < *again_ns)
		*again_ns = end_ns;
	return !m->is_complete;
}

/* ---- lanes ---- */

/* Returns the lanes of all ranks of this node: these are one member, whichever job of the daemon each belongs
 * to. */
static struct owner_lanes served_with(const struct membership *m)
{
	struct owner_lanes lanes = m->lanes.served;

	for (const struct membership *o = m->dataset->memberships; o; o = o->next) {
		const struct owner_lanes *more = &o->lanes.served;

		if (o->group != m->group || more->lanes != lanes.lanes || more->drift != lanes.drift)
			continue;
		for (uint32_t i = 0; i < more->n_runs; i++)
			owner_lanes_add(&lanes, more->runs[i].first, more->runs[i].end);
	}
	return lanes;
}

static void tell_lanes(const struct membership *m)
{
	struct owner_lanes lanes;

	if (!m->group || m->lanes.lanes <= 1)
		return;
	lanes = served_with(m);
	cluster_set_lanes(m->group, &lanes);
}

void membership_join_lanes(struct membership *m, const struct shuffle_spec *spec, uint64_t first,
			   uint64_t end)
{
	if (!m || !lane_table_join(&m->lanes, spec, (uint32_t)first, (uint32_t)end))
		return;
	tell_lanes(m);
	memberships_find_owners(m->cache, m->dataset);
}

void membership_go_on(struct membership *m, uint64_t epoch)
{
	if (m && lane_table_go_on(&m->lanes, epoch))
		memberships_find_owners(m->cache, m->dataset);
}

static bool is_served_here(const struct membership *m, enum lane_epoch when, uint64_t chunk)
{
	struct owner_place place;

	return lane_table_place(&m->lanes, when, chunk, &place) &&
	       owner_lanes_have(cluster_lanes(m->group), &place);
}

/* Returns true if this node should read the chunk for another node that asks for it. */
static bool membership_serves(const struct membership *m, uint64_t chunk)
{
	return m->lanes.lanes <= 1 || !m->group || is_served_here(m, LANES_NOW, chunk);
}

/* ---- owners ---- */

static bool is_elsewhere(const struct membership *m, uint64_t chunk, struct owner_place *ret)
{
	struct owner_place place = {.lanes = 0};
	struct snapshot_chunk meta;
	bool is_known;

	if (!m->group || snapshot_chunk_get(m->dataset->snapshot, chunk, &meta) < 0)
		return false;
	is_known = lane_table_place(&m->lanes, LANES_NOW, chunk, &place);
	*ret = place;
	if (!cluster_is_ours(m->group, &meta.id, is_known ? &place : NULL))
		return true;
	/* This epoch dealt the chunk to a lane of this node: the node that served it before has it in
	 * memory. */
	return is_known && m->lanes.drift > 0 && lane_table_place(&m->lanes, LANES_BEFORE, chunk, ret) &&
	       !cluster_is_ours(m->group, &meta.id, ret);
}

bool membership_has_elsewhere(const struct membership *m, uint64_t chunk)
{
	struct owner_place place;

	return m && !m->is_ended && is_elsewhere(m, chunk, &place);
}

struct owner_place membership_asks(const struct membership *m, uint64_t chunk)
{
	struct owner_place place = {.lanes = 0};

	(void)is_elsewhere(m, chunk, &place);
	return place;
}

bool membership_has_left(const struct membership *m, uint64_t epoch, uint64_t chunk)
{
	int64_t when = m ? (int64_t)(epoch - m->lanes.epoch) + LANES_NOW : 0;

	return m && m->group && m->lanes.drift > 0 && when > 0 && when < LANES_N &&
	       is_served_here(m, (enum lane_epoch)(when - 1), chunk) &&
	       !is_served_here(m, (enum lane_epoch)when, chunk);
}

/* Returns false for a chunk that should stay here: ranks of this node take samples of it in this epoch or the
 * next, or it left with this epoch and the other node does not have it yet. */
static bool is_foreign(const struct membership *m, uint64_t chunk)
{
	struct owner_place place;

	if (m->lanes.lanes <= 1 || !m->group || !lane_table_place(&m->lanes, LANES_NOW, chunk, &place))
		return is_elsewhere(m, chunk, &place);
	return !is_served_here(m, LANES_NOW, chunk) && !is_served_here(m, LANES_NEXT, chunk) &&
	       (m->dataset->chunks[chunk].is_taken || !membership_has_left(m, m->lanes.epoch, chunk));
}

bool memberships_is_foreign(const struct cached_dataset *d, uint64_t chunk)
{
	uint32_t n_sessions = 0;

	for (const struct membership *m = d->memberships; m; m = m->next) {
		if (!is_foreign(m, chunk))
			return false;
		n_sessions += m->n_sessions;
	}
	return d->memberships && n_sessions >= d->n_sessions;
}

/* Returns true if the chunk leaves this node with this epoch, or with the next one, which the other node
 * prefetches. */
static bool leaves(const struct membership *m, uint64_t chunk)
{
	return membership_has_left(m, m->lanes.epoch, chunk) ||
	       membership_has_left(m, m->lanes.epoch + 1, chunk);
}

static void find_owner(struct cache *c, struct cached_dataset *d, uint64_t chunk)
{
	struct cached_chunk *k = &d->chunks[chunk];

	k->is_foreign = memberships_is_foreign(d, chunk);
	if (k->is_foreign && k->segment)
		cache_keep(c, k->segment, false);
}

/* Notes that another node of the group got the chunk. */
static void membership_taken(const struct membership *m, uint64_t chunk)
{
	if (!leaves(m, chunk))
		return;
	m->dataset->chunks[chunk].is_taken = true;
	find_owner(m->cache, m->dataset, chunk);
}

static bool any_leaves(const struct cached_dataset *d, uint64_t chunk)
{
	const struct membership *m = d->memberships;

	while (m && !leaves(m, chunk))
		m = m->next;
	return m;
}

void memberships_find_owners(struct cache *c, struct cached_dataset *d)
{
	for (uint32_t i = 0; i < c->segments.size; i++) {
		struct segment *s = c->segments.all[i];
		const struct cached_chunk *k = s && s->dataset == d ? cache_chunk_of(s) : NULL;

		if (!k)
			continue;
		if (k->is_taken && !any_leaves(d, s->chunk))
			d->chunks[s->chunk].is_taken = false;
		find_owner(c, d, s->chunk);
	}
	cache_forget_victims(c);
}

void memberships_note_changed(struct cache *c, const struct cluster_group *group)
{
	const struct membership *m = memberships_find_group(c, group);

	if (m)
		memberships_find_owners(c, m->dataset);
}

/* Returns the bytes of the dataset's chunks that are kept for ever: the other chunks pass through the rest of
 * its space. A dataset that claims all of its bytes may be larger than the cache. */
static uint64_t weight_of(const struct cache *c, const struct cached_dataset *d)
{
	uint64_t bytes = d->keep_bytes < c->limit_bytes ? d->keep_bytes : c->limit_bytes;

	return bytes > d->segment_bytes ? bytes : d->segment_bytes;
}

static void tell_space(struct membership *m)
{
	uint64_t weight = weight_of(m->cache, m->dataset), was = m->weight_bytes;

	if (!m->group) {
		m->weight_bytes = weight;
		if (cluster_join(m->cache->cluster, &m->key, m->dataset->path, weight, &m->lanes.served,
				 &m->group) < 0)
			m->group = NULL;
		tell_lanes(m);
		return;
	}
	if (m->dataset->n_sessions == 0 ||
	    (weight <= was + was / WEIGHT_PART && weight >= was - was / WEIGHT_PART))
		return;
	m->weight_bytes = weight;
	cluster_set_weight(m->group, weight);
}

void memberships_tell_space(struct cache *c)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct membership *m = d->memberships; m; m = m->next)
			tell_space(m);
		if (d->memberships)
			memberships_find_owners(c, d);
	}
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

void gives_free(struct cache *c)
{
	while (c->gives.first)
		give_remove(c, c->gives.first);
}
