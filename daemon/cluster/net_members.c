/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of this node, and who is in them. The registry's thread hands lists over; the last one of a group
 * counts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "net.h"

/* ---- the registry's thread ----------------------------------------------------------------------------- */

static void on_members(void *user, const struct registry_group_id *group,
		       const struct registry_member *members, size_t count)
{
	struct net *n = user;
	struct net_update *u, **at = &n->updates;

	if (count > CLUSTER_MAX_MEMBERS)
		count = CLUSTER_MAX_MEMBERS;
	u = malloc(sizeof(*u) + count * sizeof(u->members[0]));
	if (!u)
		return; /* the last known ones stay, until there is other news */
	u->next = NULL;
	u->group = *group;
	u->n = count;
	memcpy(u->members, members, count * sizeof(u->members[0]));
	pthread_mutex_lock(&n->lock);
	while (*at)
		at = &(*at)->next;
	*at = u;
	pthread_mutex_unlock(&n->lock);
	uv_async_send(&n->wake);
}

static void on_server(void *user, bool is_up, const char *problem)
{
	struct net *n = user;

	if (!is_up)
		log_warning("Redis for the nodes: %s; the last known nodes stay",
			    problem ? problem : "it is gone");
	else if (problem)
		log_warning("Redis for the nodes: %s", problem);
	else
		log_info("Redis for the nodes: connected");
	pthread_mutex_lock(&n->lock);
	n->server_is_up = is_up;
	n->server_changed = true;
	pthread_mutex_unlock(&n->lock);
	uv_async_send(&n->wake);
}

int net_members_start(struct net *n)
{
	const struct registry_handler handler = {.members = on_members, .server = on_server, .user = n};
	struct registry_member self = {.incarnation = n->incarnation};
	struct error err = ERROR_INIT;
	int r;

	strcpy(self.node, n->config->node);
	strcpy(self.address, n->config->address);
	r = registry_start(n->config->redis, &self, &handler, &n->registry, &err);
	if (r < 0)
		log_error("--cluster: %s", err.text);
	return r;
}

/* ---- the loop's thread --------------------------------------------------------------------------------- */

static struct net_group *find(const struct net *n, const struct registry_group_id *id)
{
	struct net_group *g = n->groups;

	while (g && strcmp(g->text.text, id->text) != 0)
		g = g->next;
	return g;
}

static void mark_members(struct net *n)
{
	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++)
		if (n->peers[i])
			n->peers[i]->is_member = false;
	for (const struct net_group *g = n->groups; g; g = g->next) {
		for (size_t i = 0; i < g->n; i++) {
			const struct registry_member *m = &g->members[i];
			struct net_peer *p =
			    strcmp(m->node, n->config->node) == 0 ? NULL : net_peer_get(n, m->node);

			if (!p)
				continue;
			p->is_member = true;
			net_peer_set_address(n, p, m->address);
		}
	}
}

static void report_member(struct net *n, const struct net_group *g, const struct registry_member *m)
{
	struct cluster_report report = {.news = CLUSTER_MEMBER,
					.group = g->id,
					.peer = CLUSTER_SELF,
					.bytes = m->weight_bytes,
					.lanes = m->lanes};

	if (strcmp(m->node, n->config->node) != 0) {
		struct net_peer *p = net_peer_get(n, m->node);

		if (!p)
			return;
		report.peer = p->index;
		if (p->is_changed)
			net_peer_report(n, p);
	}
	strcpy(report.peer_is.node, m->node);
	strcpy(report.peer_is.address, m->address);
	net_report(n, &report);
}

static void report_members(struct net *n, const struct net_group *g)
{
	struct cluster_report report = {.news = CLUSTER_MEMBERS, .group = g->id};

	net_report(n, &report); /* they follow */
	for (size_t i = 0; i < g->n; i++)
		report_member(n, g, &g->members[i]);
	report.count = 1; /* that was all */
	net_report(n, &report);
}

/* What a node may say of itself was checked when it was read (dataset/registry.h); this is what this room
 * counts on. */
static size_t keep_usable(struct net *n, struct registry_member *members, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		struct registry_member *m = &members[i];

		m->address[sizeof(m->address) - 1] = '\0';
		if (!net_is_name(m->node))
			continue;
		if (strcmp(m->node, n->config->node) == 0 && m->incarnation != n->incarnation)
			log_limited(&n->said_problem, LOG_LEVEL_WARNING,
				    "another node has the name %s, too, or had it until now: nodes need "
				    "names of their own "
				    "(--cluster-name)",
				    m->node);
		members[kept++] = *m;
	}
	return kept;
}

static void apply(struct net *n, struct net_update *u)
{
	struct net_group *g = find(n, &u->group);
	struct registry_member *members;

	if (!g)
		return;
	members = u->n ? malloc(u->n * sizeof(*members)) : NULL;
	if (u->n && !members)
		return;
	if (u->n)
		memcpy(members, u->members, u->n * sizeof(*members));
	free(g->members);
	g->members = members;
	g->n = keep_usable(n, members, u->n);
	mark_members(n);
	report_members(n, g);
	for (uint32_t i = 0; i < CLUSTER_MAX_PEERS; i++)
		if (n->peers[i])
			net_peer_tick(n, n->peers[i]);
}

void net_members_on_wake(uv_async_t *async)
{
	struct net *n = async->data;
	struct net_update *u;
	bool changed, is_up;

	n->now_ns = clock_monotonic_ns();
	pthread_mutex_lock(&n->lock);
	u = n->updates;
	n->updates = NULL;
	changed = n->server_changed;
	is_up = n->server_is_up;
	n->server_changed = false;
	pthread_mutex_unlock(&n->lock);
	if (changed) {
		const struct cluster_report report = {.news = CLUSTER_SERVER,
						      .code = is_up ? 0 : -ECONNRESET};

		net_report(n, &report);
	}
	while (u) {
		struct net_update *next = u->next;

		apply(n, u);
		free(u);
		u = next;
	}
}

void net_members_join(struct net *n, const struct cluster_order *o)
{
	struct registry_group_id id;
	struct net_group *g;
	int r;

	registry_group_id(&o->key, &id);
	g = find(n, &id);
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g || net_group_id_parse(&id, &g->id) < 0) {
			free(g);
			return;
		}
		g->key = o->key;
		g->text = id;
		g->next = n->groups;
		n->groups = g;
	}
	r = n->registry ? registry_join(n->registry, &o->key, o->path, o->bytes, &o->lanes) : 0;
	if (r < 0)
		log_limited(&n->said_problem, LOG_LEVEL_WARNING, "job %s is not shared with other nodes: %s",
			    o->key.job, strerror(-r));
}

void net_members_leave(struct net *n, const struct cluster_order *o)
{
	struct registry_group_id id;
	struct net_group *g, **at = &n->groups;

	registry_group_id(&o->key, &id);
	g = find(n, &id);
	if (!g)
		return;
	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	if (n->registry)
		registry_leave(n->registry, &g->key);
	free(g->members);
	free(g);
	mark_members(n);
}

void net_members_publish(struct net *n, const struct cluster_order *o, int memory_fd)
{
	_cleanup_(closep) int fd = memory_fd;
	char text[REGISTRY_REPORT_BYTES];

	if (!n->registry || o->bytes > sizeof(text) || pread(fd, text, o->bytes, 0) != (ssize_t)o->bytes ||
	    !memchr(text, '\0', o->bytes))
		return;
	(void)registry_publish(n->registry, text); /* without memory: the next one, then */
}
