/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon_status.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "census.h"
#include "client/knob.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/json_read.h"
#include "ui/state/sample.h"

#define ITEMS_MAX 65536 /* maximum number of jobs, datasets or decisions, more than any daemon has */

static void get_real(const json_t *object, const char *key, double *ret)
{
	double number = json_number_of(object, key);

	if (!isnan(number))
		*ret = number;
}

static void get_id(const json_t *object, const char *key, char *buffer, size_t size)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value) && json_integer_value(value) > 0)
		snprintf(buffer, size, "d%lld", (long long)json_integer_value(value));
}

static void fill_sensing(const json_t *tune, struct daemon_sample *daemon)
{
	const json_t *sensing = json_object_get(tune, "sensing");
	char source[16] = "", why[SAMPLE_TEXT_BYTES] = "", mode[24] = "", problem[SAMPLE_TEXT_BYTES] = "";

	json_get_text(sensing, "source", source, sizeof(source));
	json_get_text(sensing, "why", why, sizeof(why));
	if (source[0])
		snprintf(daemon->sensing, sizeof(daemon->sensing), "%s%s%s", source, why[0] ? ": " : "", why);
	json_get_text(tune, "mode", mode, sizeof(mode));
	json_get_text(json_object_get(tune, "history"), "problem", problem, sizeof(problem));
	if (mode[0])
		snprintf(daemon->tuner, sizeof(daemon->tuner), "%s%s%s", mode,
			 problem[0] ? "; history is not kept: " : "", problem);
}

static void fill_daemon(const json_t *root, struct daemon_sample *daemon)
{
	const json_t *cache = json_object_get(root, "cache"), *knobs = json_object_get(root, "knobs");
	double segments = NAN, slots = 0, snapshots = 0;

	snprintf(daemon->state, sizeof(daemon->state), "up");
	json_get_text(root, "version", daemon->version, sizeof(daemon->version));
	json_get_text(root, "socket", daemon->socket, sizeof(daemon->socket));
	json_get_text(root, "io", daemon->io, sizeof(daemon->io));
	json_get_count(root, "pid", &daemon->pid);
	get_real(root, "uptime_s", &daemon->uptime_s);
	get_real(cache, "budget_bytes", &daemon->cache_budget_bytes);
	get_real(cache, "borrowed_bytes", &daemon->cache_borrowed_bytes);
	get_real(cache, "segment_bytes", &segments);
	get_real(cache, "slot_bytes", &slots);
	get_real(cache, "snapshot_bytes", &snapshots);
	daemon->cache_used_bytes = segments + slots + snapshots;
	json_get_count(knobs, "prefetch_chunks", &daemon->prefetch_chunks);
	json_get_count(knobs, "workers", &daemon->workers);
	json_get_count(cache, "loading", &daemon->n_loading);
	get_real(cache, "reads", &daemon->reads);
	get_real(cache, "read_bytes", &daemon->read_bytes);
	get_real(cache, "evictions", &daemon->evictions);
	json_get_count(cache, "quarantined", &daemon->n_bad);
	daemon->n_sessions = json_array_size(json_object_get(root, "sessions"));
	fill_sensing(json_object_get(root, "tune"), daemon);
}

/* Derives the job's name from the command line that the daemon reports, as for the node's own jobs. */
static void get_name(const json_t *object, const char *key, char *buffer, size_t size)
{
	char command[512] = "";

	json_get_text(object, key, command, sizeof(command));
	if (command[0])
		process_name(command, buffer, size);
}

static int fill_dataset(const json_t *from, struct top_sample *sample)
{
	struct dataset_sample *to = sample_add(sample, SAMPLE_DATASETS);

	if (!to)
		return -ENOMEM;
	json_get_text(from, "path", to->path, sizeof(to->path));
	json_get_count(from, "samples", &to->n_samples);
	json_get_count(from, "chunks", &to->n_chunks);
	json_get_count(from, "cached_chunks", &to->n_cached);
	json_get_count(from, "sessions", &to->n_sessions);
	get_real(from, "bytes", &to->bytes);
	if (json_is_array(json_object_get(from, "quarantined")))
		to->n_bad = json_array_size(json_object_get(from, "quarantined"));
	return 0;
}

/* Reads a knob by its name: {"value": n}, or null if nobody has set it yet. */
static void get_knob(const json_t *knobs, enum tuner_knob knob, uint64_t *ret)
{
	json_get_count(json_object_get(knobs, tuner_knob_name(knob)), "value", ret);
}

/* Writes a knob's value: 1.2G, 512M for a cache, else the number. */
static void value_text(const char *knob, const json_t *value, char *buffer, size_t size)
{
	double number = json_is_number(value) ? json_number_value(value) : NAN;
	static const char units[] = "KMGT";
	enum tuner_knob which;
	bool bytes = tuner_knob_parse(knob, &which) == 0 && tuner_knob_table[which].bytes;
	int unit = -1;

	if (isnan(number)) {
		snprintf(buffer, size, "?");
		return;
	}
	for (; bytes && number >= 1024 && unit < 3; unit++)
		number /= 1024;
	snprintf(buffer, size, unit >= 0 ? "%.3g%c" : "%.0f", number, unit >= 0 ? units[unit] : 0);
}

static void fill_last_decision(const json_t *decision, double now_s, struct job_sample *job)
{
	char knob[32] = "", from[24], to[24], reason[SAMPLE_TEXT_BYTES] = "", effect[SAMPLE_TEXT_BYTES] = "";
	double time_s = NAN;

	if (!json_is_object(decision))
		return;
	json_get_text(decision, "knob", knob, sizeof(knob));
	value_text(knob, json_object_get(decision, "from"), from, sizeof(from));
	value_text(knob, json_object_get(decision, "to"), to, sizeof(to));
	json_get_text(decision, "reason", reason, sizeof(reason));
	json_get_text(json_object_get(decision, "effect"), "text", effect, sizeof(effect));
	get_real(decision, "time", &time_s);
	snprintf(job->served.decision, sizeof(job->served.decision), "%s %s -> %s", knob, from, to);
	snprintf(job->served.why, sizeof(job->served.why), "%s%s%s", reason, effect[0] ? "; " : "", effect);
	job->served.decision_age_s = fmax(now_s - time_s, 0);
}

/* Sets the verdict by the analyzer's rule (advice.h). */
void daemon_job_judge(struct job_sample *job)
{
	double fetch = job->share[SHARE_FETCH_STALL], prep = job->share[SHARE_PREP_STALL],
	       checkpoint = job->share[SHARE_CHECKPOINT_STALL];
	enum analysis_verdict verdict = fetch >= prep ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND;

	if (isnan(fetch) || isnan(prep))
		return;
	if (checkpoint > fetch && checkpoint > prep)
		verdict = ANALYSIS_CHECKPOINT_BOUND;
	if (fetch + prep + (isnan(checkpoint) ? 0 : checkpoint) < ANALYSIS_STALL_THRESHOLD) {
		if (isnan(checkpoint)) /* the job may be bound by the device or by checkpoints */
			return;
		verdict = ANALYSIS_DEVICE_BOUND;
	}
	snprintf(job->verdict, sizeof(job->verdict), "%s", analysis_verdict_name(verdict));
}

static void fill_now(const json_t *now, struct job_sample *job)
{
	const json_t *shares = json_object_get(now, "shares");

	for (int i = 0; i < SHARE_COUNT; i++)
		get_real(shares, analysis_share_name((enum analysis_share)i), &job->share[i]);
	get_real(shares, "gpu_wait", &job->gpu_wait);
	json_get_text(now, "source", job->method, sizeof(job->method));
	get_real(now, "steps_per_s", &job->steps_per_s);
	get_real(now, "samples_per_s", &job->served.samples_per_s);
	get_real(now, "step_p50_s", &job->step_p50_s);
	get_real(now, "step_p95_s", &job->step_p95_s);
	get_real(now, "source_bytes_per_s", &job->read_bytes_per_s);
	get_real(now, "memory_hit_ratio", &job->hit_ratio);
	daemon_job_judge(job);
}

/* Fills in the decoding counters. If the job's samples are served as stored, decoding is null and the
 * counters stay unknown. */
static void fill_decoding(const json_t *decoding, struct job_sample *job)
{
	json_get_count(decoding, "samples", &job->served.n_decoded);
	json_get_count(decoding, "damaged", &job->served.n_damaged);
	get_real(decoding, "cpu_s", &job->served.decoder_cpu_s);
	json_get_count(decoding, "replaced", &job->served.n_replaced);
	json_get_count(decoding, "from_decoded_copies", &job->served.n_from_decoded_copies);
	json_get_count(decoding, "samples_with_decoded_copy", &job->served.n_decoded_copies);
}

/* A job without a Checkpointer has null. */
static void fill_checkpoints(const json_t *from, struct job_sample *job)
{
	json_get_count(from, "begun", &job->served.n_checkpoints);
	json_get_count(from, "failed", &job->served.n_checkpoints_failed);
	json_get_count(from, "interval_steps", &job->served.checkpoint_steps);
	get_real(from, "overhead", &job->served.checkpoint_overhead);
	get_real(from, "snapshot_s", &job->served.snapshot_s);
	get_real(from, "slowdown_s", &job->served.checkpoint_slowdown_s);
	get_real(from, "written_s", &job->served.checkpoint_written_s);
	get_real(from, "newest_age_s", &job->served.checkpoint_age_s);
}

static void fill_flow(const json_t *tiers, const char *tier, double *ret_chunks, double *ret_bytes)
{
	const json_t *flow = json_object_get(tiers, tier);

	get_real(flow, "chunks_per_s", ret_chunks);
	get_real(flow, "bytes_per_s", ret_bytes);
}

static void fill_tiers(const json_t *now, struct job_sample *job)
{
	const json_t *tiers = json_object_get(now, "tiers");

	fill_flow(tiers, "memory", &job->served.memory_chunks_per_s, &job->served.memory_bytes_per_s);
	fill_flow(tiers, "nodes", &job->served.node_chunks_per_s, &job->served.node_bytes_per_s);
	fill_flow(tiers, "storage", &job->served.storage_chunks_per_s, &job->served.storage_bytes_per_s);
	get_real(json_object_get(tiers, "nodes"), "latency_s", &job->served.node_latency_s);
	get_real(json_object_get(tiers, "storage"), "latency_s", &job->served.storage_latency_s);
}

/* Factor by which a slow node's chunks take longer than those of the other nodes. */
#define SLOW 3.0

static double node_latency_s(const json_t *nodes, const json_t *member)
{
	double latency_s = NAN;

	for (size_t i = 0; i < json_array_size(nodes) && i < ITEMS_MAX; i++) {
		const json_t *node = json_array_get(nodes, i);

		if (json_equal(json_object_get(node, "node"), json_object_get(member, "node")))
			get_real(node, "latency_s", &latency_s);
	}
	return latency_s;
}

/* Returns the mean latency of the other reachable nodes; NAN if none is known. */
static double others_latency_s(const json_t *nodes, const json_t *members, const json_t *but)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < json_array_size(members) && i < ITEMS_MAX; i++) {
		const json_t *member = json_array_get(members, i);
		double latency_s = node_latency_s(nodes, member);

		if (member == but || json_is_true(json_object_get(member, "unreachable")) || isnan(latency_s))
			continue;
		sum += latency_s;
		n++;
	}
	return n ? sum / (double)n : NAN;
}

static void add_trouble(struct job_sample *job, const char *node, const char *what, double latency_s)
{
	size_t at = strlen(job->served.troubled), space = sizeof(job->served.troubled) - at;

	job->served.n_troubled++;
	if (isnan(latency_s))
		snprintf(job->served.troubled + at, space, "%s%s %s", at ? ", " : "", node, what);
	else
		snprintf(job->served.troubled + at, space, "%s%s %s (%.3g ms)", at ? ", " : "", node, what,
			 1e3 * latency_s);
}

/* Returns the job's group, by name and user: jobs of different users may have the same name. */
static const json_t *group_of(const json_t *cluster, const json_t *job)
{
	const json_t *groups = json_object_get(cluster, "groups");
	const json_t *name = json_object_get(json_object_get(job, "nodes"), "name");

	for (size_t i = 0; i < json_array_size(groups) && i < ITEMS_MAX; i++) {
		const json_t *group = json_array_get(groups, i);

		if (json_equal(json_object_get(group, "name"), name) &&
		    json_equal(json_object_get(group, "uid"), json_object_get(job, "uid")))
			return group;
	}
	return NULL;
}

/* Fills in the job's nodes, and which of them are unreachable, or slower than the others and than storage. */
static void fill_nodes(const json_t *cluster, const json_t *from, struct job_sample *job)
{
	const json_t *nodes = json_object_get(cluster, "nodes"), *own = json_object_get(from, "nodes");
	const json_t *members = json_object_get(group_of(cluster, from), "members");

	json_get_count(own, "reachable", &job->served.n_reached);
	if (!json_array_size(members))
		return;
	job->served.n_members = json_array_size(members);
	job->served.n_troubled = 0;
	for (size_t i = 0; i < json_array_size(members) && i < ITEMS_MAX; i++) {
		const json_t *member = json_array_get(members, i);
		const char *node = json_string_value(json_object_get(member, "node"));
		double latency_s = node_latency_s(nodes, member);

		if (!node || json_is_true(json_object_get(member, "self")))
			continue;
		if (json_is_true(json_object_get(member, "unreachable")))
			add_trouble(job, node, "unreachable", NAN);
		else if (latency_s > SLOW * others_latency_s(nodes, members, member) ||
			 latency_s > job->served.storage_latency_s)
			add_trouble(job, node, "slow", latency_s);
	}
}

static int fill_job(const json_t *from, const json_t *cluster, double now_s, struct top_sample *sample)
{
	struct job_sample *to = sample_add(sample, SAMPLE_JOBS);
	const json_t *knobs = json_object_get(from, "knobs");
	uint64_t cache = SAMPLE_UNKNOWN;

	if (!to)
		return -ENOMEM;
	get_id(from, "id", to->id, sizeof(to->id));
	get_name(from, "name", to->name, sizeof(to->name));
	snprintf(to->state, sizeof(to->state), "running");
	snprintf(to->loader, sizeof(to->loader), "diesel");
	json_get_count(from, "pid", &to->pid);
	get_knob(knobs, TUNER_CACHE_BYTES, &cache);
	if (cache != SAMPLE_UNKNOWN)
		to->served.cache_bytes = (double)cache;
	get_real(json_object_get(from, "now"), "cached_bytes", &to->served.cache_bytes);
	if (cache != SAMPLE_UNKNOWN)
		to->served.cache_limit_bytes = (double)cache;
	get_knob(knobs, TUNER_PREFETCH_CHUNKS, &to->served.prefetch_chunks);
	get_knob(knobs, TUNER_DAEMON_WORKERS, &to->served.daemon_workers);
	get_knob(knobs, TUNER_CLIENT_WORKERS, &to->served.client_workers);
	to->n_workers = to->served.client_workers;
	fill_now(json_object_get(from, "now"), to);
	if (json_is_object(json_object_get(from, "nodes"))) {
		fill_tiers(json_object_get(from, "now"), to);
		fill_nodes(cluster, from, to);
	}
	fill_decoding(json_object_get(from, "decoding"), to);
	if (to->served.n_decoded_copies != SAMPLE_UNKNOWN)
		get_real(json_object_get(from, "memory"), "decoded_bytes", &to->served.decoded_bytes);
	json_get_count(from, "batches", &to->served.n_batches);
	json_get_count(from, "shared_batches", &to->served.n_shared);
	json_get_count(from, "shared_from", &to->served.shared_from);
	fill_checkpoints(json_object_get(from, "checkpoints"), to);
	json_get_text(json_object_get(from, "tuner"), "text", to->remark, sizeof(to->remark));
	fill_last_decision(json_object_get(from, "last_decision"), now_s, to);
	to->age_s = 0;
	return 0;
}

/* Counts the batches that are ready for the trainer, over all sessions of a job. */
static void fill_ready(const json_t *sessions, struct top_sample *sample)
{
	for (size_t i = 0; i < json_array_size(sessions) && i < ITEMS_MAX; i++) {
		const json_t *session = json_array_get(sessions, i);
		char id[48] = "";
		uint64_t ready = SAMPLE_UNKNOWN;
		struct job_sample *job;

		get_id(session, "job", id, sizeof(id));
		json_get_count(session, "ready", &ready);
		job = id[0] ? (struct job_sample *)sample_job(sample, id) : NULL;
		if (job && ready != SAMPLE_UNKNOWN)
			job->served.n_ready =
			    (job->served.n_ready == SAMPLE_UNKNOWN ? 0 : job->served.n_ready) + ready;
	}
}

static int fill_decision(const json_t *from, double now_s, struct top_sample *sample)
{
	struct decision_sample *to = sample_add(sample, SAMPLE_DECISIONS);
	double time_s = NAN;

	if (!to)
		return -ENOMEM;
	get_id(from, "job", to->job, sizeof(to->job));
	get_name(from, "job_name", to->job, sizeof(to->job));
	json_get_text(from, "knob", to->knob, sizeof(to->knob));
	value_text(to->knob, json_object_get(from, "from"), to->from, sizeof(to->from));
	value_text(to->knob, json_object_get(from, "to"), to->to, sizeof(to->to));
	json_get_text(from, "reason", to->why, sizeof(to->why));
	json_get_text(json_object_get(from, "effect"), "text", to->effect, sizeof(to->effect));
	if (json_is_false(json_object_get(from, "applied")))
		snprintf(to->effect, sizeof(to->effect), "dry run: not applied");
	get_real(from, "time", &time_s);
	to->age_s = now_s - time_s;
	return 0;
}

static int fill_status(const json_t *root, double now_s, struct top_sample *sample)
{
	const json_t *list = json_object_get(root, "datasets");
	int r = 0;

	fill_daemon(root, &sample->daemon);
	for (size_t i = 0; r == 0 && i < json_array_size(list) && i < ITEMS_MAX; i++)
		r = fill_dataset(json_array_get(list, i), sample);
	list = json_object_get(root, "jobs");
	for (size_t i = 0; r == 0 && i < json_array_size(list) && i < ITEMS_MAX; i++)
		r = fill_job(json_array_get(list, i), json_object_get(root, "cluster"), now_s, sample);
	fill_ready(json_object_get(root, "sessions"), sample);
	return r;
}

static int fill_why(const json_t *root, double now_s, struct top_sample *sample)
{
	const json_t *list = json_object_get(root, "decisions");
	int r = 0;

	for (size_t i = 0; r == 0 && i < json_array_size(list) && i < ITEMS_MAX; i++)
		r = fill_decision(json_array_get(list, i), now_s, sample);
	return r;
}

int daemon_answer_fill(const char *json, double now_s, struct top_sample *sample, struct error *err)
{
	static const struct {
		const char *schema;
		int (*fill)(const json_t *root, double now_s, struct top_sample *sample);
	} answers[] = {{"diesel.status/1", fill_status}, {"diesel.why/1", fill_why}};
	_cleanup_(json_freep) json_t *root = json_loads(json, 0, NULL);
	const char *schema = json_string_of(root, "schema");

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (strcmp(schema, answers[i].schema) == 0)
			return answers[i].fill(root, now_s, sample) < 0
				   ? error_set(err, -ENOMEM, "no memory for dieseld's answer")
				   : 0;
	return error_set(err, -EBADMSG,
			 "cannot read dieseld's answer: diesel-top and dieseld must be of the same version");
}
