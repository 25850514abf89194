/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "lib/clock.h"
#include "server.h"

void metrics_head(FILE *text, const char *name, const char *type, const char *help)
{
	fprintf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_number(FILE *text, const char *name, const char *type, const char *help, uint64_t value)
{
	metrics_head(text, name, type, help);
	fprintf(text, "%s %" PRIu64 "\n", name, value);
}

static void build_info(FILE *text)
{
	struct utsname system;

	uname(&system);
	metrics_head(text, "diesel_build_info", "gauge",
		     "Version of the daemon and of the kernel it runs on; always 1.");
	fprintf(text, "diesel_build_info{version=\"%s\",kernel=\"%s\"} 1\n", DIESEL_VERSION, system.release);
}

static void cache_figures(FILE *text, const struct cache *c)
{
	const struct cache_counters *n = &c->counters;
	uint64_t claimed = cache_claimed_bytes(c);

	metrics_number(text, "diesel_cache_limit_bytes", "gauge",
		       "Memory that chunks, batches, snapshots and decoded forms may take.", c->budget_bytes);
	metrics_head(text, "diesel_cache_bytes", "gauge", "Memory taken, by kind.");
	fprintf(text, "diesel_cache_bytes{kind=\"chunks\"} %" PRIu64 "\n", c->segment_bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"batches\"} %" PRIu64 "\n", c->slot_bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"snapshots\"} %" PRIu64 "\n", c->snapshot_bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"forms\"} %" PRIu64 "\n", c->form_bytes);
	metrics_number(text, "diesel_cache_claimed_bytes", "gauge",
		       "Of the memory taken, what jobs insist on.", claimed);
	metrics_number(text, "diesel_cache_borrowed_bytes", "gauge",
		       "Of the memory taken, what is given back as soon as anybody wants it.",
		       cache_total_bytes(c) - claimed);
	metrics_number(text, "diesel_cache_kept_bytes", "gauge",
		       "Chunks that stay until somebody else needs the room.", c->kept_bytes);
	metrics_number(text, "diesel_chunk_reads_total", "counter",
		       "Reads of chunks from storage that were started.", n->reads);
	metrics_number(text, "diesel_chunk_read_bytes_total", "counter", "Bytes of chunks read from storage.",
		       n->read_bytes);
	metrics_number(text, "diesel_chunks_carried_total", "counter",
		       "Chunks from before a restart that saved a read.", n->carried);
	metrics_number(text, "diesel_chunks_shared_total", "counter",
		       "Chunks in memory of another version of the dataset that saved a read.", n->shared);
	metrics_number(text, "diesel_chunk_reads_in_flight", "gauge", "Reads of chunks under way.",
		       c->n_loading);
	metrics_number(text, "diesel_chunk_evictions_total", "counter", "Chunks given up to make room.",
		       n->evictions);
	metrics_number(text, "diesel_chunk_read_retries_total", "counter",
		       "Reads of chunks that storage failed twice, repeated seconds later.", n->retries);
	metrics_number(text, "diesel_chunks_quarantined_total", "counter", "Chunks found damaged.",
		       n->damaged);
}

static void quota_figures(FILE *text, const struct cache *c)
{
	uint64_t paid[CACHE_QUOTA_PAYERS];

	cache_paid_bytes(c, paid);
	metrics_head(text, "diesel_cache_quota_bytes", "gauge",
		     "What cache-quota grants; absent: there are no quotas. others: all who have none.");
	for (uint32_t i = 0; c->quotas.n > 0 && i <= c->quotas.n; i++)
		fprintf(text, "diesel_cache_quota_bytes{quota=\"%s\"} %" PRIu64 "\n",
			cache_quotas_name(&c->quotas, i), cache_quotas_bytes(&c->quotas, i, c->limit_bytes));
	metrics_head(text, "diesel_cache_quota_used_bytes", "gauge", "What counts for it now.");
	for (uint32_t i = 0; c->quotas.n > 0 && i <= c->quotas.n; i++)
		fprintf(text, "diesel_cache_quota_used_bytes{quota=\"%s\"} %" PRIu64 "\n",
			cache_quotas_name(&c->quotas, i), paid[i]);
}

static void read_figures(FILE *text, const struct read_turns *turns)
{
	uint64_t bytes_per_s, ops_per_s;

	read_turns_limits(turns, &bytes_per_s, &ops_per_s);
	metrics_head(text, "diesel_read_limit_bytes_per_second", "gauge",
		     "What may be read of all storages together; absent: no limit.");
	if (bytes_per_s)
		fprintf(text, "diesel_read_limit_bytes_per_second %" PRIu64 "\n", bytes_per_s);
	metrics_head(text, "diesel_read_limit_operations_per_second", "gauge",
		     "The same in requests of up to 1 MiB; absent: no limit.");
	if (ops_per_s)
		fprintf(text, "diesel_read_limit_operations_per_second %" PRIu64 "\n", ops_per_s);
	metrics_head(text, "diesel_read_limited_seconds_total", "counter",
		     "Time in which reads were kept back by the limit alone.");
	fprintf(text, "diesel_read_limited_seconds_total %.9g\n",
		(double)read_turns_limited_ns(turns, clock_monotonic_ns()) / 1e9);
}

static void stage_text(FILE *text, const struct stage *stage)
{
	struct stage_figures f;

	if (!stage)
		return;
	stage_figures_get(stage, &f);
	metrics_number(text, "diesel_stage_open", "gauge", "1 while the staging folder is in use.",
		       f.is_open);
	metrics_number(text, "diesel_stage_limit_bytes", "gauge", "What --stage-size says.", f.limit_bytes);
	metrics_number(text, "diesel_stage_bytes", "gauge", "Bytes of files in the staging folder.", f.bytes);
	metrics_number(text, "diesel_stage_chunks", "gauge", "Chunks in the staging folder.", f.files);
	metrics_number(text, "diesel_stage_hits_total", "counter",
		       "Chunks that came from staging in place of storage.", f.hits);
	metrics_number(text, "diesel_stage_read_bytes_total", "counter", "Bytes of chunks read from staging.",
		       f.read_bytes);
	metrics_number(text, "diesel_stage_writes_total", "counter", "Chunks written to staging.", f.written);
	metrics_number(text, "diesel_stage_written_bytes_total", "counter",
		       "Bytes of chunks written to staging.", f.written_bytes);
	metrics_number(text, "diesel_stage_evictions_total", "counter",
		       "Chunks removed from staging to make room.", f.evicted);
	metrics_number(text, "diesel_stage_skipped_total", "counter",
		       "Chunks that memory gave up before they could be written to staging.", f.skipped);
	metrics_head(text, "diesel_stage_failures_total", "counter",
		     "What did not work in staging: chunks then come from storage.");
	fprintf(text, "diesel_stage_failures_total{kind=\"damaged\"} %" PRIu64 "\n", f.damaged);
	fprintf(text, "diesel_stage_failures_total{kind=\"late\"} %" PRIu64 "\n", f.late);
	fprintf(text, "diesel_stage_failures_total{kind=\"read\"} %" PRIu64 "\n", f.failed);
	fprintf(text, "diesel_stage_failures_total{kind=\"write\"} %" PRIu64 "\n", f.write_failures);
}

static void cluster_text(FILE *text, const struct cache *cache)
{
	struct cluster_figures f;

	if (!cache->cluster)
		return;
	cluster_figures_get(cache->cluster, &f);
	metrics_number(text, "diesel_cluster_redis_up", "gauge",
		       "1 while the Redis in which nodes find each other answers.", f.redis_is_up);
	metrics_number(text, "diesel_cluster_chunks_in_total", "counter",
		       "Chunks that came from other nodes.", f.chunks_in);
	metrics_number(text, "diesel_cluster_bytes_in_total", "counter", "Bytes of these.", f.bytes_in);
	metrics_number(text, "diesel_cluster_chunks_out_total", "counter", "Chunks given to other nodes.",
		       f.chunks_out);
	metrics_number(text, "diesel_cluster_bytes_out_total", "counter", "Bytes of these.", f.bytes_out);
	metrics_head(text, "diesel_cluster_failures_total", "counter",
		     "Chunks that were asked of other nodes and read from storage.");
	fprintf(text, "diesel_cluster_failures_total{kind=\"late\"} %" PRIu64 "\n", f.late);
	fprintf(text, "diesel_cluster_failures_total{kind=\"failed\"} %" PRIu64 "\n", f.failed);
	fprintf(text, "diesel_cluster_failures_total{kind=\"spoilt\"} %" PRIu64 "\n", f.spoilt);
	fprintf(text, "diesel_cluster_failures_total{kind=\"refused\"} %" PRIu64 "\n", f.refused);
}

static void session_figures(FILE *text, const struct server *s)
{
	/* The session's word, and the value of the label: that of the other metrics of stalls. */
	static const struct {
		const char *waits_for, *stall;
	} kinds[] = {{"fetch", "fetch"}, {"prep", "preprocess"}, {"client", "client"}};
	uint64_t n_sessions = 0, n_waiting[3] = {0};

	for (const struct session *q = s->serving.sessions; q; q = q->next) {
		struct session_usage usage;

		session_usage(q, &usage);
		n_sessions++;
		for (size_t i = 0; i < 3; i++)
			n_waiting[i] += !strcmp(usage.waits_for, kinds[i].waits_for);
	}
	metrics_number(text, "diesel_sessions", "gauge", "Sequences of batches being served.", n_sessions);
	metrics_head(
	    text, "diesel_sessions_waiting", "gauge",
	    "Sessions whose next batch waits: for storage, for CPU work, or for the client to take one.");
	for (size_t i = 0; i < 3; i++)
		fprintf(text, "diesel_sessions_waiting{stall=\"%s\"} %" PRIu64 "\n", kinds[i].stall,
			n_waiting[i]);
	metrics_number(text, "diesel_batches_total", "counter", "Batches made ready for clients.",
		       s->serving.cache.counters.batches);
	metrics_number(text, "diesel_connections_total", "counter", "Clients that connected.", s->n_accepted);
	metrics_number(text, "diesel_workers", "gauge", "CPU threads that verify and gather.",
		       pool_workers(s->serving.cache.pool));
	metrics_number(text, "diesel_prefetch_chunks", "gauge", "Chunks read ahead of a session's window.",
		       s->serving.options.knobs.prefetch_chunks);
}

char *metrics_text(const struct metrics_sources *sources, size_t *ret_length)
{
	char *buffer = NULL;
	FILE *text = open_memstream(&buffer, ret_length);

	if (!text)
		return NULL;
	build_info(text);
	cache_figures(text, &sources->server->serving.cache);
	if (!*sources->hide_names)
		quota_figures(text, &sources->server->serving.cache);
	read_figures(text, sources->server->serving.cache.turns);
	stage_text(text, sources->server->serving.cache.stage);
	cluster_text(text, &sources->server->serving.cache);
	session_figures(text, sources->server);
	metrics_jobs_text(text, sources);
	if (!*sources->hide_names)
		metrics_users_text(text, sources->events);
	metrics_node_text(text, sources);
	metrics_service_text(text, sources);
	if (fclose(text)) {
		free(buffer);
		return NULL;
	}
	return buffer;
}
