/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <jansson.h>
#include <unistd.h>

#include "connection.h"
#include "daemon/control/control.h"
#include "daemon/control/json_text.h"
#include "lib/clock.h"
#include "daemon/cache/peers/memberships.h"
#include "daemon/sandboxed/plugin.h"

/* ---- STATUS: other nodes of jobs, and traffic with them ---- */

/* Maximum number of nodes that STATUS lists, per group and in total. */
#define STATUS_MAX_PEERS 128

static json_t *peers_json(const struct cluster *cluster)
{
	struct cluster_peer_figures peers[STATUS_MAX_PEERS];
	size_t n = cluster_peers_get(cluster, peers, STATUS_MAX_PEERS);
	json_t *list = json_array();

	for (size_t i = 0; i < n && i < STATUS_MAX_PEERS; i++) {
		const struct cluster_peer_figures *p = &peers[i];

		json_array_append_new(
		    list, json_pack("{s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "node",
				    json_text(p->node), "address", json_text(p->address), "connected",
				    p->is_connected, "unreachable", p->is_unreachable, "chunks_in",
				    json_u64(p->chunks_in), "bytes_in", json_u64(p->bytes_in), "chunks_out",
				    json_u64(p->chunks_out), "bytes_out", json_u64(p->bytes_out), "failed",
				    json_u64(p->failed), "latency_s", json_known(p->latency_s), "bytes_per_s",
				    json_known(p->bytes_per_s)));
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
						      json_u64(m->weight_bytes), "self", m->is_self,
						      "unreachable", m->is_unreachable));
	}
	return list;
}

/* Returns true for the first membership of its group: several ranks of a job on this node are one member. */
static bool is_first(const struct membership *membership)
{
	const struct membership *m = membership->dataset->memberships;

	while (m->group != membership->group)
		m = m->next;
	return m == membership;
}

static json_t *groups_json(const struct cache *c, const struct control_viewer *viewer)
{
	json_t *list = json_array();

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (const struct membership *m = d->memberships; m; m = m->next) {
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

/* Returns the cluster's status; null: no cluster. Lists only groups of jobs that the viewer may see. */
static json_t *status_cluster(const struct cache *c, const struct control_viewer *viewer)
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

static json_t *dataset_status(const struct cached_dataset *d)
{
	json_t *bad = json_array(), *unread = json_array();

	for (uint64_t i = 0, n = 0; i < d->info.n_chunks && n < d->loads.n_bad; i++) {
		if (d->chunks[i].state != CHUNK_BAD)
			continue;
		n++;
		json_array_append_new(d->chunks[i].failure == -EBADMSG ? bad : unread,
				      json_text(d->chunks[i].error ? d->chunks[i].error : "?"));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "path", json_text(d->path),
			 "version", json_u64(d->info.version), "samples", json_u64(d->info.n_samples),
			 "chunks", json_u64(d->info.n_chunks), "cached_chunks", json_u64(d->n_cached),
			 "bytes", json_u64(d->info.total_bytes), "sessions", (int)d->n_sessions,
			 "quarantined", bad, "unread", unread);
}

static json_t *session_status(const struct session *s)
{
	struct session_usage usage;

	session_usage(s, &usage);
	return json_pack(
	    "{s:I, s:I, s:i, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:o, s:o, s:i, s:i, s:i, s:i, s:o, "
	    "s:o, s:s}",
	    "job", (json_int_t)s->job->id, "pid", (json_int_t)s->pid, "uid", (int)s->uid, "dataset",
	    json_text(s->order.dataset->path), "samples", json_u64(s->order.n_samples), "epoch",
	    json_u64(s->order.epoch), "next_batch", json_u64(s->order.index), "batches",
	    s->order.asked ? json_null() : json_u64(s->order.n_batches), "batch", (int)s->order.request.batch,
	    "rank", (int)s->order.request.rank, "world", (int)s->order.request.world, "window_chunks",
	    (int)s->order.request.window_chunks, "lanes",
	    json_u64(s->order.request.lanes > 1 ? s->order.request.lanes : 1), "drift",
	    json_u64(s->order.request.drift), "slots", (int)s->slots.n, "ready", (int)usage.ready, "held",
	    (int)usage.held, "pinned_chunks", (int)usage.pinned_chunks, "delivered", json_u64(s->n_delivered),
	    "shared", json_u64(s->member.n_shared), "waits_for", usage.waits_for);
}

static json_t *cache_status(const struct cache *c)
{
	uint64_t pinned = 0, restored = 0, claimed;

	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *s = c->segments.all[i];

		pinned += s && cache_chunk_of(s) && cache_chunk_of(s)->pins > 0;
		restored += s && s->restored ? s->memory.bytes : 0;
	}
	claimed = cache_claimed_bytes(c);
	return json_pack(
	    "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:i, s:o, s:o, s:o, s:o, "
	    "s:o, s:o, s:o, s:o, s:o}",
	    "budget_bytes", json_u64(c->budget_bytes), "claimed_bytes", json_u64(claimed), "borrowed_bytes",
	    json_u64(cache_total_bytes(c) - claimed), "decoded_bytes", json_u64(c->decoded_cache.bytes),
	    "releasing_bytes", json_u64(c->releasing_bytes), "segment_bytes", json_u64(c->segment_bytes),
	    "slot_bytes", json_u64(c->slot_bytes), "snapshot_bytes", json_u64(c->snapshot_bytes), "segments",
	    (int)c->segments.n, "kept_bytes", json_u64(c->kept_bytes), "pinned_chunks", json_u64(pinned),
	    "loading", (int)c->n_loading, "reads", json_u64(c->counters.reads), "read_bytes",
	    json_u64(c->counters.read_bytes), "evictions", json_u64(c->counters.evictions), "quarantined",
	    json_u64(c->counters.damaged), "buffered", json_u64(c->counters.buffered), "restored",
	    json_u64(c->counters.restored), "restored_bytes", json_u64(restored), "shared",
	    json_u64(c->counters.shared), "kept_batch_bytes", json_u64(c->kept_batches.bytes));
}

static json_t *stage_status(const struct stage *stage)
{
	struct stage_figures f;

	if (!stage)
		return json_null();
	stage_figures_get(stage, &f);
	return json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "open",
			 f.is_open, "limit_bytes", json_u64(f.limit_bytes), "bytes", json_u64(f.bytes),
			 "chunks", json_u64(f.files), "hits", json_u64(f.hits), "read_bytes",
			 json_u64(f.read_bytes), "written", json_u64(f.written), "written_bytes",
			 json_u64(f.written_bytes), "evicted", json_u64(f.evicted), "skipped",
			 json_u64(f.skipped), "damaged", json_u64(f.damaged), "late", json_u64(f.late),
			 "failed", json_u64(f.failed), "write_failures", json_u64(f.write_failures));
}

/* Lists the codecs that a job may name, and why a codec that the operator named is missing. */
static json_t *codecs_status(const struct plugins *p)
{
	json_t *codecs = json_array();

	for (uint32_t i = 0; p && i < p->n; i++) {
		const struct plugin *q = &p->all[i];

		json_array_append_new(
		    codecs, q->name[0] ? json_pack("{s:s, s:o}", "name", q->name, "path", json_text(q->path))
				       : json_pack("{s:n, s:o, s:o}", "name", "path", json_text(q->path),
						   "problem", json_text(q->problem.text)));
	}
	return codecs;
}

/* Lists the rows of quotas: all, or only those that count for the viewer if the viewer may not see all. */
static json_t *quotas_status(const struct server *s, const struct control_viewer *viewer)
{
	const struct cache *c = &s->serving.cache;
	uint64_t paid[CACHE_QUOTA_PAYERS];
	json_t *quotas = json_array();

	cache_paid_bytes(c, paid);
	for (uint32_t i = 0; c->quotas.n > 0 && i <= c->quotas.n; i++) {
		const struct connection *own = s->connections;

		while (own && !(own->uid == viewer->uid && own->payer == i))
			own = own->next;
		if (own || viewer->all)
			json_array_append_new(
			    quotas, json_pack("{s:o, s:o, s:o, s:o}", "name",
					      json_text(cache_quotas_name(&c->quotas, i)), "percent",
					      json_u64(cache_quotas_bytes(&c->quotas, i, 100)), "bytes",
					      json_u64(cache_quotas_bytes(&c->quotas, i, c->limit_bytes)),
					      "used_bytes", json_u64(paid[i])));
	}
	return quotas;
}

/* Returns the use by the user's running jobs, up to one second old. */
static json_t *user_status(const struct server *s, uint32_t uid)
{
	uint64_t n = 0, cache = 0, read = 0, node = 0, cpu_ns = 0;
	uint32_t workers = pool_workers(s->serving.cache.pool);

	for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
		struct job_counters counters;

		if (j->uid != uid)
			continue;
		serving_job_counters(&s->serving, j, &counters);
		n++;
		workers = j->lane.user_limit < workers ? j->lane.user_limit : workers;
		cache += j->cache_use.bytes;
		read += counters.read_bytes;
		node += counters.peer_bytes;
		cpu_ns += counters.cpu_ns;
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "uid", json_u64(uid), "jobs", json_u64(n),
			 "workers", json_u64(workers), "cache_bytes", json_u64(cache), "read_bytes",
			 json_u64(read), "node_bytes", json_u64(node), "cpu_s",
			 json_real((double)cpu_ns / 1e9));
}

static json_t *users_status(const struct server *s, const struct control_viewer *viewer)
{
	json_t *users = json_array();

	for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
		const struct job *before = s->serving.jobs.first;

		while (before != j && before->uid != j->uid)
			before = before->next;
		if (before == j && (viewer->all || j->uid == viewer->uid))
			json_array_append_new(users, user_status(s, j->uid));
	}
	return users;
}

/* Datasets of other users are hidden, because their names would reveal who trains on which data. */
static bool may_see(const struct server *s, const struct cached_dataset *d,
		    const struct control_viewer *viewer)
{
	const struct connection *c = s->connections;

	while (c && !(c->uid == viewer->uid && c->dataset == d))
		c = c->next;
	return viewer->all || c;
}

char *server_status(const struct server *s, const struct control_viewer *viewer)
{
	json_t *datasets = json_array(), *sessions = json_array();
	json_t *root;
	char *text;

	for (const struct cached_dataset *d = s->serving.cache.datasets; d; d = d->next)
		if (may_see(s, d, viewer))
			json_array_append_new(datasets, dataset_status(d));
	for (const struct session *q = s->serving.sessions; q; q = q->next)
		if (viewer->all || q->uid == viewer->uid)
			json_array_append_new(sessions, session_status(q));
	root =
	    json_pack("{s:s, s:s, s:i, s:s, s:f, s:s, s:{s:o, s:i, s:i}, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		      "schema", "diesel.status/1", "version", DIESEL_VERSION, "pid", (int)getpid(), "socket",
		      s->socket_path, "uptime_s", (double)(clock_monotonic_ns() - s->start_ns) / 1e9, "io",
		      s->serving.cache.readers.use_uring ? "io_uring" : "threads", "knobs", "cache_bytes",
		      json_u64(s->serving.options.knobs.cache_bytes), "prefetch_chunks",
		      (int)s->serving.options.knobs.prefetch_chunks, "workers",
		      (int)pool_workers(s->serving.cache.pool), "cache", cache_status(&s->serving.cache),
		      "stage", stage_status(s->serving.cache.stage), "datasets", datasets, "sessions",
		      sessions, "codecs", codecs_status(s->serving.options.plugins), "tune",
		      control_tune_json(s->control), "jobs", control_jobs_json(s->control, viewer));
	if (!root)
		return NULL;
	json_object_set_new(root, "observes", json_boolean(s->serving.options.observe));
	json_object_set_new(root, "reads", control_reads_json(&s->serving.cache));
	json_object_set_new(root, "quotas", quotas_status(s, viewer));
	json_object_set_new(root, "users", users_status(s, viewer));
	json_object_set_new(root, "cluster", status_cluster(&s->serving.cache, viewer));
	text = json_dumps(root, JSON_INDENT(2));
	json_decref(root);
	return text;
}
