/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: their members, and the owner of a chunk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster_state.h"
#include "lib/minmax.h"

/* A weight is sent again when it differs by more than 1/WEIGHT_PART of the last one sent. */
#define WEIGHT_PART 8

struct cluster_group *cluster_group_find(const struct cluster *c, const struct net_group_id *id)
{
	struct cluster_group *g = c->groups;

	while (g && memcmp(&g->id, id, sizeof(*id)) != 0)
		g = g->next;
	return g;
}

static void members_free(struct cluster_members *m)
{
	free(m->owners);
	free(m->at);
	*m = (struct cluster_members){.n = 0};
}

static void tell(struct cluster_group *g, enum cluster_verb verb)
{
	struct cluster_order order = {
	    .verb = verb, .bytes = g->weight_bytes, .group = g->id, .key = g->key, .lanes = g->lanes};

	memcpy(order.path, g->path, sizeof(order.path));
	(void)cluster_order(g->cluster, &order, -EBADF);
}

void cluster_group_tell_all(struct cluster *c)
{
	for (struct cluster_group *g = c->groups; g; g = g->next)
		tell(g, CLUSTER_JOIN);
}

int cluster_join(struct cluster *c, const struct registry_group_key *key, const char *path,
		 uint64_t weight_bytes, const struct owner_lanes *lanes, struct cluster_group **ret)
{
	struct registry_group_id text;
	struct net_group_id id;
	struct cluster_group *g;

	registry_group_id(key, &text);
	if (net_group_id_parse(&text, &id) < 0)
		return -EINVAL;
	g = cluster_group_find(c, &id);
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return -ENOMEM;
		*g = (struct cluster_group){.cluster = c,
					    .key = *key,
					    .id = id,
					    .weight_bytes = weight_bytes,
					    .lanes = *lanes,
					    .next = c->groups};
		strncpy(g->path, path, sizeof(g->path) - 1);
		c->groups = g;
		tell(g, CLUSTER_JOIN);
	}
	g->refs++;
	*ret = g;
	return 0;
}

static void group_free(struct cluster_group *g)
{
	members_free(&g->members);
	members_free(&g->coming);
	free(g);
}

void cluster_leave(struct cluster_group *group)
{
	struct cluster_group **at;

	if (--group->refs > 0)
		return;
	at = &group->cluster->groups;
	while (*at != group)
		at = &(*at)->next;
	*at = group->next;
	tell(group, CLUSTER_LEAVE);
	group_free(group);
}

void cluster_group_free_all(struct cluster *c)
{
	while (c->groups) {
		struct cluster_group *g = c->groups;

		c->groups = g->next;
		group_free(g);
	}
}

void cluster_set_weight(struct cluster_group *group, uint64_t weight_bytes)
{
	uint64_t told = group->weight_bytes,
		 differs = weight_bytes > told ? weight_bytes - told : told - weight_bytes;

	if (differs <= told / WEIGHT_PART)
		return;
	group->weight_bytes = weight_bytes;
	tell(group, CLUSTER_JOIN);
}

void cluster_set_lanes(struct cluster_group *group, const struct owner_lanes *lanes)
{
	if (memcmp(&group->lanes, lanes, sizeof(*lanes)) == 0)
		return;
	group->lanes = *lanes;
	for (size_t i = 0; i < group->members.n; i++) {
		if (group->members.at[i].peer == CLUSTER_SELF)
			group->members.owners[i].lanes = *lanes;
	}
	tell(group, CLUSTER_JOIN);
}

const struct owner_lanes *cluster_lanes(const struct cluster_group *group)
{
	return &group->lanes;
}

struct owner_lanes cluster_shared_lanes(const struct cluster_group *group)
{
	const struct owner_lanes *own = &group->lanes;
	struct owner_lanes shared = {.lanes = own->lanes, .drift = own->drift};

	for (size_t i = 0; i < group->members.n; i++) {
		const struct owner_lanes *other = &group->members.owners[i].lanes;

		if (group->members.at[i].peer == CLUSTER_SELF || group->members.owners[i].is_unreachable ||
		    other->lanes != own->lanes || other->drift != own->drift)
			continue;
		for (uint32_t a = 0; a < own->n_runs; a++) {
			for (uint32_t b = 0; b < other->n_runs; b++) {
				uint64_t first = max_u64(own->runs[a].first, other->runs[b].first),
					 end = min_u64(own->runs[a].end, other->runs[b].end);

				if (first < end)
					owner_lanes_add(&shared, (uint32_t)first, (uint32_t)end);
			}
		}
	}
	return shared;
}

const struct registry_group_key *cluster_group_key(const struct cluster_group *group)
{
	return &group->key;
}

const struct cluster_member_at *cluster_group_owner(const struct cluster_group *g,
						    const struct chunk_id *chunk,
						    const struct owner_place *place)
{
	size_t i = g->members.n > 1 ? owner_of(g->members.owners, g->members.n, chunk, place) : SIZE_MAX;

	return i < g->members.n && g->members.at[i].peer != CLUSTER_SELF ? &g->members.at[i] : NULL;
}

bool cluster_is_ours(const struct cluster_group *group, const struct chunk_id *chunk,
		     const struct owner_place *place)
{
	return !cluster_group_owner(group, chunk, place);
}

uint32_t cluster_n_members(const struct cluster_group *group)
{
	uint32_t n = 1;

	for (size_t i = 0; i < group->members.n; i++)
		n += group->members.at[i].peer != CLUSTER_SELF && !group->members.owners[i].is_unreachable;
	return n;
}

/* ---- reports of the process ---------------------------------------------------------------------------- */

static void changed(struct cluster_group *g)
{
	g->cluster->handler.changed(g->cluster->handler.user, g);
}

void cluster_group_take_members(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_group *g = cluster_group_find(c, &report->group);

	if (!g)
		return;
	if (report->count == 0) {
		g->coming.n = 0;
		return;
	}
	members_free(&g->members);
	g->members = g->coming;
	g->coming = (struct cluster_members){.n = 0};
	changed(g);
}

static int members_grow(struct cluster_members *m)
{
	size_t space = m->space ? 2 * m->space : 8;
	struct owner_member *owners = realloc(m->owners, space * sizeof(*owners));
	struct cluster_member_at *at;

	if (!owners)
		return -ENOMEM;
	m->owners = owners;
	at = realloc(m->at, space * sizeof(*at));
	if (!at)
		return -ENOMEM;
	m->at = at;
	m->space = space;
	return 0;
}

void cluster_group_take_member(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_group *g = cluster_group_find(c, &report->group);
	const struct cluster_peer *p = report->peer < CLUSTER_MAX_PEERS ? &c->peers[report->peer] : NULL;
	struct cluster_members *m;
	struct cluster_member_at *at;

	if (!g || !owner_lanes_ok(&report->lanes) || (report->peer != CLUSTER_SELF && (!p || !p->is_used)) ||
	    g->coming.n >= CLUSTER_MAX_MEMBERS)
		return;
	m = &g->coming;
	if (m->n == m->space && members_grow(m) < 0)
		return;
	/* This node's entry may be older than its present lanes. */
	m->owners[m->n] = (struct owner_member){.lanes = p ? report->lanes : g->lanes,
						.name_hash = owner_hash(report->peer_is.node),
						.weight = report->bytes,
						.is_unreachable = p && p->figures.is_unreachable};
	at = &m->at[m->n++];
	at->peer = report->peer;
	memcpy(at->node, report->peer_is.node, sizeof(at->node));
	memcpy(at->address, report->peer_is.address, sizeof(at->address));
}

/* Sets whether a peer is unreachable, in all groups, and reports the groups that changed. */
static void set_unreachable(struct cluster *c, uint32_t peer, bool is_unreachable)
{
	for (struct cluster_group *g = c->groups, *next; g; g = next) {
		bool differs = false;

		next = g->next;
		for (size_t i = 0; i < g->members.n; i++) {
			if (g->members.at[i].peer != peer ||
			    g->members.owners[i].is_unreachable == is_unreachable)
				continue;
			g->members.owners[i].is_unreachable = is_unreachable;
			differs = true;
		}
		for (size_t i = 0; i < g->coming.n; i++)
			if (g->coming.at[i].peer == peer)
				g->coming.owners[i].is_unreachable = is_unreachable;
		if (differs)
			changed(g);
	}
}

void cluster_group_take_peer(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_peer *p = report->peer < CLUSTER_MAX_PEERS ? &c->peers[report->peer] : NULL;
	const struct cluster_peer_figures *now = &report->peer_is;

	if (!p)
		return;
	if (!now->node[0]) {
		set_unreachable(c, report->peer, true);
		*p = (struct cluster_peer){.is_used = false};
		return;
	}
	c->figures.chunks_out += now->chunks_out - p->figures.chunks_out;
	c->figures.bytes_out += now->bytes_out - p->figures.bytes_out;
	p->is_used = true;
	p->figures = *now;
	p->name_hash = owner_hash(now->node);
	set_unreachable(c, report->peer, now->is_unreachable);
}

void cluster_group_forget_all(struct cluster *c)
{
	memset(c->peers, 0, sizeof(c->peers));
	for (struct cluster_group *g = c->groups, *next; g; g = next) {
		bool had = g->members.n > 0;

		next = g->next;
		members_free(&g->members);
		members_free(&g->coming);
		if (had)
			changed(g);
	}
}

/* ---- for people ---------------------------------------------------------------------------------------- */

size_t cluster_peers_get(const struct cluster *c, struct cluster_peer_figures *ret, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < CLUSTER_MAX_PEERS; i++) {
		if (!c->peers[i].is_used)
			continue;
		if (found < n)
			ret[found] = c->peers[i].figures;
		found++;
	}
	return found;
}

size_t cluster_members_get(const struct cluster_group *g, struct cluster_member *ret, size_t n)
{
	for (size_t i = 0; i < g->members.n && i < n; i++) {
		const struct cluster_member_at *at = &g->members.at[i];

		ret[i] = (struct cluster_member){.weight_bytes = g->members.owners[i].weight,
						 .is_self = at->peer == CLUSTER_SELF,
						 .is_unreachable = g->members.owners[i].is_unreachable};
		memcpy(ret[i].node, at->node, sizeof(ret[i].node));
		memcpy(ret[i].address, at->address, sizeof(ret[i].address));
	}
	return g->members.n;
}
