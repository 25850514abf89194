/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS: other nodes of jobs, what came from them and went there. */
#include "server.h"

#include <jansson.h>

#include "control.h"
#include "json_text.h"
#include "peers/sharers.h"
#include "status_cluster.h"

static json_t *peers_json(const struct cluster *cluster)
{
	struct cluster_peer_figures peers[STATUS_MAX_PEERS];
	size_t n = cluster_peers_get(cluster, peers, STATUS_MAX_PEERS);
	json_t *list = json_array();

	for (size_t i = 0; i < n && i < STATUS_MAX_PEERS; i++) {
		const struct cluster_peer_figures *p = &peers[i];

		json_array_append_new(
		    list,
		    json_pack("{s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "node",
			      json_text(p->node), "address", json_text(p->address), "connected",
			      p->is_connected, "away", p->is_away, "chunks_in", json_u64(p->chunks_in),
			      "bytes_in", json_u64(p->bytes_in), "chunks_out", json_u64(p->chunks_out),
			      "bytes_out", json_u64(p->bytes_out), "failed", json_u64(p->failed), "latency_s",
			      json_known(p->latency_s), "bytes_per_s", json_known(p->bytes_per_s)));
	}
	return list;
}

static json_t *members_json(const struct cluster_group *group)
{
	struct cluster_member members[STATUS_MAX_PEERS];
	size_t n = cluster_members_get(group, members, STATUS_MAX_PEERS);
	json_t *list = json_array();

	for (size_t i = 0; i < n && i < STATUS_MAX_PEERS; i++) {
		const struct cluster_member *m = &members[i];

		json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:b, s:b}", "node", json_text(m->node),
						      "address", json_text(m->address), "weight_bytes",
						      json_u64(m->weight_bytes), "self", m->is_self, "away",
						      m->is_away));
	}
	return list;
}

/* Several ranks of a job on this node are one member of the group. */
static bool is_first(const struct sharer *sharer)
{
	const struct sharer *m = sharer->dataset->sharers;

	while (m->group != sharer->group)
		m = m->next;
	return m == sharer;
}

static json_t *groups_json(const struct cache *c, const struct control_viewer *viewer)
{
	json_t *list = json_array();

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (const struct sharer *m = d->sharers; m; m = m->next) {
			if (!m->group || !is_first(m) || (!viewer->all && viewer->uid != m->key.uid))
				continue;
			json_array_append_new(
			    list, json_pack("{s:o, s:o, s:o, s:o, s:o}", "name", json_text(m->key.job), "uid",
					    json_u64(m->key.uid), "dataset", json_text(d->path), "reachable",
					    json_u64(cluster_n_members(m->group)), "members",
					    members_json(m->group)));
		}
	}
	return list;
}

json_t *status_cluster(const struct cache *c, const struct control_viewer *viewer)
{
	struct cluster_figures f;

	if (!c->cluster)
		return json_null();
	cluster_figures_get(c->cluster, &f);
	return json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "redis",
			 f.redis_is_up, "chunks_in", json_u64(f.chunks_in), "bytes_in", json_u64(f.bytes_in),
			 "chunks_out", json_u64(f.chunks_out), "bytes_out", json_u64(f.bytes_out), "late",
			 json_u64(f.late), "failed", json_u64(f.failed), "spoilt", json_u64(f.spoilt),
			 "refused", json_u64(f.refused), "waiting", (int)c->gives.n, "nodes",
			 peers_json(c->cluster), "groups", groups_json(c, viewer));
}
