/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JOBS, WHY and SET, and their answers: the JSON of jobs, decisions and the tuner. A figure that is not known
 * is null. Times are Unix seconds.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control_private.h"
#include "daemon/cache/cached_dataset.h"
#include "daemon/cache/peers/memberships.h"
#include "daemon/node/admin.h"
#include "daemon/serve/session.h"
#include "json_text.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/units.h"

/* ---- sources of values ---- */

static json_t *value_json(enum wire_setting_key key, uint64_t value)
{
	return key == WIRE_SET_TUNE ? json_string(settings_tune_name((enum wire_tune)value))
				    : json_u64(value);
}

/* Sets the source of a value: "default", "option" or "file", with file and line. */
static void put_source(json_t *object, const struct settings_source *source)
{
	json_object_set_new(object, "from",
			    json_string(!source->given ? "default"
					: source->file ? "file"
						       : "option"));
	if (!source->file)
		return;
	json_object_set_new(object, "file", json_text(source->file));
	json_object_set_new(object, "line", json_integer(source->line));
}

/* Returns a value that was set, its origin, and the value that it overrides. A knob that is not configured
 * has no such value. */
static json_t *set_json(const struct settings *s, enum wire_setting_key key, uint64_t value,
			const struct settings_by *by)
{
	bool has_value = s->is_configured[key] || !settings_is_knob(key);
	json_t *configured = json_object();

	json_object_set_new(configured, "value",
			    has_value ? value_json(key, settings_configured(s, key)) : json_null());
	put_source(configured, settings_source_of(s, key));
	return json_pack("{s:o, s:s, s:o, s:o, s:b, s:o}", "value", value_json(key, value), "from", "set",
			 "uid", by->at_s ? json_u64(by->uid) : json_null(), "at",
			 by->at_s ? json_u64(by->at_s) : json_null(), "until_restart", by->until_restart,
			 "configured", configured);
}

static void append(json_t *all, json_t *one, enum wire_setting_key key, uint64_t job)
{
	json_object_set_new(one, "name", json_string(settings_name(key)));
	json_object_set_new(one, "job", json_u64(job));
	json_array_append_new(all, one);
}

/* Lists each value that can be set, and its source. */
static json_t *control_settings_json(const struct control *c)
{
	const struct settings *s = &c->settings;
	json_t *all = json_array();

	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++) {
		json_t *one;

		if (settings_is_of_job(key) || (settings_is_knob(key) && !s->is_configured[key]))
			continue;
		if (s->is_set[key]) {
			one = set_json(s, key, s->set[key], &s->set_by[key]);
		} else {
			one = json_pack("{s:o}", "value", value_json(key, settings_get(s, key)));
			put_source(one, settings_source_of(s, key));
		}
		append(all, one, key, 0);
	}
	for (uint32_t i = 0; i < s->n_pins; i++) {
		enum wire_setting_key key = tuner_knob_table[s->pins[i].knob].key;

		append(all, set_json(s, key, s->pins[i].value, &s->pin_by[i]), key, s->pins[i].job);
	}
	return all;
}

static void format_value(char text[32], enum wire_setting_key key, uint64_t value)
{
	if (key == WIRE_SET_TUNE)
		snprintf(text, 32, "%s", settings_tune_name((enum wire_tune)value));
	else if (settings_is_bytes(key))
		units_format_bytes(text, 32, value);
	else
		snprintf(text, 32, "%llu", (unsigned long long)value);
}

static void log_override(const struct settings *s, enum wire_setting_key key, uint64_t job, uint64_t value,
			 const struct settings_by *by)
{
	const struct settings_source *source = settings_source_of(s, key);
	char is[32], was[32], who[80] = "", of[32] = "", job_word[24] = "", where[300], at[32];
	struct tm tm;
	time_t time = (time_t)by->at_s;

	format_value(is, key, value);
	format_value(was, key, settings_configured(s, key));
	if (by->at_s && localtime_r(&time, &tm) && strftime(at, sizeof(at), "%F %T", &tm) > 0)
		snprintf(who, sizeof(who), " by uid %u at %s", by->uid, at);
	if (job)
		snprintf(job_word, sizeof(job_word), "%llu ", (unsigned long long)job);
	if (job)
		snprintf(of, sizeof(of), " of job %llu", (unsigned long long)job);
	if (source->file)
		snprintf(where, sizeof(where), "%s:%d (%s)", source->file, source->line, was);
	else if (source->given)
		snprintf(where, sizeof(where), "the command line (%s)", was);
	else if (settings_is_knob(key))
		snprintf(where, sizeof(where), "the tuner");
	else
		snprintf(where, sizeof(where), "the default (%s)", was);
	log_write(source->given ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
		  "%s=%s%s, which was set%s, overrides %s. To undo that: dieselctl set %s--unset %s",
		  settings_name(key), is, of, who, where, job_word, settings_name(key));
}

void control_log_overrides(const struct control *c)
{
	const struct settings *s = &c->settings;

	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++)
		if (s->is_set[key])
			log_override(s, key, 0, s->set[key], &s->set_by[key]);
	for (uint32_t i = 0; i < s->n_pins; i++)
		log_override(s, tuner_knob_table[s->pins[i].knob].key, s->pins[i].job, s->pins[i].value,
			     &s->pin_by[i]);
}

/* ---- jobs and decisions ---- */

static json_t *shares_json(const struct stall_shares *s)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device", json_known(s->device), "gpu_wait",
			 json_known(s->gpu_wait), "fetch_stall", json_known(s->fetch_stall), "prep_stall",
			 json_known(s->prep_stall), "checkpoint_stall", json_known(s->checkpoint_stall),
			 "cpu_starved", json_known(s->cpu_starved), "other", json_known(s->other));
}

static const char *source_name(enum stall_source source)
{
	switch (source) {
	case STALL_SOURCE_NONE: return "none";
	case STALL_SOURCE_BPF: return "bpf";
	case STALL_SOURCE_CLIENT: return "client";
	case STALL_SOURCE_PROCESS: return "process";
	}
	return "none";
}

static void add_figures(json_t *root, const struct stall_sample *s)
{
	const struct {
		const char *name;
		double value;
	} figures[] = {
	    {"steps_per_s", s->steps_per_s},
	    {"samples_per_s", s->samples_per_s},
	    {"step_p50_s", s->step_p50_s},
	    {"step_p95_s", s->step_p95_s},
	    {"fetch_rate", s->fetch_rate},
	    {"prep_rate", s->prep_rate},
	    {"device_rate", s->device_rate},
	    {"chunk_latency_s", s->chunk_latency_s},
	    {"chunk_latency_p95_s", s->chunk_latency_p95_s},
	    {"source_bytes_per_s", s->source_bytes_per_s},
	    {"memory_hit_ratio", s->memory_hit_ratio},
	    {"peer_hit_ratio", s->tiers.peer_hit_ratio},
	    {"daemon_cpu_s_per_sample", s->daemon_cpu_s_per_sample},
	    {"client_cpu_s_per_sample", s->client_cpu_s_per_sample},
	    {"daemon_workers_busy", s->daemon_workers_busy},
	    {"client_workers_busy", s->client_workers_busy},
	    {"run_queue_ratio", s->run_queue_ratio},
	    {"dataset_bytes", s->dataset_bytes},
	    {"cached_bytes", s->cached_bytes},
	    {"need_bytes", s->need_bytes},
	    {"chunk_bytes", s->chunk_bytes},
	    {"samples_per_chunk", s->samples_per_chunk},
	    {"decoded_samples", s->decoded_cache.usable},
	    {"decoded_samples", s->decoded_cache.samples},
	    {"decoded_bytes", s->decoded_cache.bytes},
	    {"decoded_space_bytes", s->decoded_cache.space_bytes},
	    {"decoded_sample_bytes", s->decoded_cache.sample_bytes},
	    {"decoded_hit_ratio", s->decoded_cache.hit_ratio},
	    {"decoded_serve_ratio", s->decoded_cache.serve_ratio},
	    {"fresh_cpu_s_per_sample", s->decoded_cache.fresh_cpu_s_per_sample},
	    {"decoded_cpu_s_per_sample", s->decoded_cache.cpu_s_per_sample},
	};

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		json_object_set_new(root, figures[i].name, json_known(figures[i].value));
}

static json_t *flow_json(const struct stall_flow *f)
{
	return json_pack("{s:o, s:o, s:o}", "chunks_per_s", json_known(f->chunks_per_s), "bytes_per_s",
			 json_known(f->bytes_per_s), "latency_s", json_known(f->latency_s));
}

static json_t *tiers_json(const struct stall_sample *s)
{
	return json_pack("{s:o, s:o, s:o}", "memory", flow_json(&s->tiers.memory), "nodes",
			 flow_json(&s->tiers.peer), "storage", flow_json(&s->tiers.storage));
}

static json_t *node_json(const struct stall_node *n)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "memory_some_avg10",
			 json_known(n->memory_some_avg10), "cpu_some_avg10", json_known(n->cpu_some_avg10),
			 "io_some_avg10", json_known(n->io_some_avg10), "memory_headroom_bytes",
			 json_known(n->memory_headroom_bytes), "memory_free_bytes",
			 json_known(n->memory_free_bytes), "cores", json_known(n->cores), "cores_idle",
			 json_known(n->cores_idle));
}

json_t *control_sample_json(const struct stall_sample *s, const struct stall_node *node)
{
	json_t *root = json_pack("{s:s, s:o, s:o}", "source", source_name(s->source), "covered_s",
				 json_known(s->covered_s), "shares", shares_json(&s->shares));

	add_figures(root, s);
	json_object_set_new(root, "tiers", tiers_json(s));
	if (node)
		json_object_set_new(root, "node", node_json(node));
	return root;
}

static json_t *entry_json(const struct history_entry *e)
{
	const struct tuner_decision *d = &e->decision;
	const struct tuner_verdict *v = &e->verdict;
	json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o}",
				 "id", json_u64(d->id), "time", json_real((double)e->at_ms / 1e3), "job",
				 json_u64(d->job), "job_name", json_text(e->job_name), "knob",
				 tuner_knob_name(d->knob), "rule", tuner_rule_name(d->rule), "from",
				 json_u64(d->old_value), "to", json_u64(d->new_value), "applied", e->applied,
				 "reason", json_text(d->reason), "rate_before", json_known(d->rate_before),
				 "rate_expected", json_known(d->rate_expected), "wait_before",
				 json_known(d->wait_before), "wait_expected", json_known(d->wait_expected));
	json_t *effect = json_null();

	if (e->has_verdict)
		effect =
		    json_pack("{s:s, s:o, s:o, s:o, s:o}", "outcome", tuner_outcome_name(v->outcome), "time",
			      json_real((double)e->verdict_ms / 1e3), "rate_after", json_known(v->rate_after),
			      "wait_after", json_known(v->wait_after), "text", json_text(v->text));
	json_object_set_new(root, "effect", effect);
	return root;
}

static json_t *log_entry_json(const struct control_log_entry *e)
{
	json_t *root = entry_json(&e->entry), *sample = NULL;

	if (e->has_sample)
		sample = control_sample_json(&e->sample, &e->node);
	else if (e->entry.sample)
		sample = json_loads(e->entry.sample, 0, NULL);
	json_object_set_new(root, "sample", sample ? sample : json_null());
	return root;
}

/* The value is null if nobody has set the knob and no sample has it. */
static json_t *knob_json(const struct control *c, const struct job *job, const struct control_job *known,
			 enum tuner_knob knob)
{
	uint64_t set = job->knobs.value[knob];
	json_t *value = json_null(), *wanted = json_null();
	uint64_t pin = 0;
	bool pinned = settings_find_pin(&c->settings, job->id, knob, &pin);

	if (set != tuner_knob_table[knob].free)
		value = json_u64(set);
	else if (known && known->has_sample)
		value = json_u64(known->sample.knobs.value[knob]);
	if (known && known->has_view)
		wanted = json_u64(known->view.wanted.value[knob]);
	return json_pack("{s:o, s:o, s:b, s:b}", "value", value, "wanted", wanted, "pinned", pinned,
			 "tunable",
			 !known || !known->has_sample || (known->sample.tunable & 1u << knob) != 0);
}

static json_t *knobs_json(const struct control *c, const struct job *job, const struct control_job *known)
{
	json_t *root = json_object();

	for (int i = 0; i < TUNER_N_KNOBS; i++)
		json_object_set_new(root, tuner_knob_table[i].name,
				    knob_json(c, job, known, (enum tuner_knob)i));
	return root;
}

static json_t *last_decision(const struct control *c, uint64_t job)
{
	const struct control_log_entry *entry;

	for (uint64_t i = 0; (entry = control_log_newest(&c->log, i)); i++)
		if (entry->entry.decision.job == job)
			return entry_json(&entry->entry);
	return json_null();
}

/* Returns the job's use of memory. */
static json_t *memory_json(const struct control *c, const struct job *job)
{
	struct serving_job_memory m;

	serving_job_memory(c->serving, job, &m);
	return json_pack("{s:o, s:o, s:o}", "claimed_bytes", json_u64(m.other + m.cached - m.borrowed),
			 "borrowed_bytes", json_u64(m.borrowed), "decoded_bytes", json_u64(m.decoded_cache));
}

/* Returns null if the job's samples are served as they are stored. */
static json_t *decoding_json(const struct control *c, const struct job *job, const struct job_counters *n)
{
	const struct decode_counters *d = &n->decoded;
	struct serving_job_memory m;

	if (!serving_job_decodes(c->serving, job) && d->samples + d->damaged + d->replaced == 0)
		return json_null();
	serving_job_memory(c->serving, job, &m);
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "samples", json_u64(d->samples), "damaged",
			 json_u64(d->damaged), "cpu_s", json_real((double)d->cpu_ns / 1e9), "replaced",
			 json_u64(d->replaced), "from_decoded_copies",
			 json_u64(n->ways[CODEC_FROM_DECODED].n), "samples_with_decoded_copy",
			 json_u64(m.n_decoded_copies));
}

/* Returns null if the job's prefetch was never paused for a checkpoint. */
static json_t *held_json(const struct job *job)
{
	const struct job_held *held = &job->held;
	uint64_t now_ns = clock_monotonic_ns();

	if (held->n == 0)
		return json_null();
	return json_pack("{s:b, s:o, s:o, s:o}", "now", job_is_held(job, now_ns), "times", json_u64(held->n),
			 "seconds", json_real((double)job_held_ns(job, now_ns) / 1e9), "writer",
			 json_u64(held->writer));
}

static json_t *known_seconds(uint64_t ns)
{
	return ns ? json_real((double)ns / 1e9) : json_null();
}

/* Returns null if the job has no Checkpointer, or that has not begun a checkpoint yet. */
static json_t *checkpoints_json(const struct control *c, const struct job *job)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct diesel_checkpoints n;

	if (!serving_job_checkpoints(c->serving, job, &n))
		return json_null();
	return json_pack(
	    "{s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "begun", json_u64(n.n_begun), "failed",
	    json_u64(n.n_failed), "writing", n.writing != 0, "interval_steps",
	    n.interval_steps ? json_u64(n.interval_steps) : json_null(), "step_s", known_seconds(n.step_ns),
	    "snapshot_s", known_seconds(n.snapshot_ns), "slowdown_s",
	    n.written_ns ? json_real((double)n.slowdown_ns / 1e9) : json_null(), "written_s",
	    known_seconds(n.written_ns), "overhead",
	    n.elapsed_ns ? json_real((double)n.spent_ns / (double)n.elapsed_ns) : json_null(), "newest_age_s",
	    n.newest_ns ? json_real(n.newest_ns < now_ns ? (double)(now_ns - n.newest_ns) / 1e9 : 0)
			: json_null());
}

/* Counts three kinds of lanes: those of the job's order; those from which ranks of this node take samples
 * (here); and those of the latter that ranks of other nodes share. */
static void count_lanes(const struct job *job, uint64_t *ret_lanes, uint64_t *ret_here, uint64_t *ret_shared)
{
	*ret_lanes = *ret_here = *ret_shared = 1;
	for (const struct membership *m = job->memberships; m; m = m->next_of_job) {
		const struct owner_lanes *here = m->group ? cluster_lanes(m->group) : &m->lanes.served;

		if (m->lanes.lanes <= *ret_lanes)
			continue;
		*ret_lanes = m->lanes.lanes;
		*ret_here = owner_lanes_count(here);
		*ret_shared = 0;
		if (m->group) {
			const struct owner_lanes shared = cluster_shared_lanes(m->group);

			*ret_shared = owner_lanes_count(&shared);
		}
	}
}

/* Returns what the job's other nodes delivered instead of storage; null: the job has no other nodes. */
static json_t *nodes_json(const struct control *c, const struct job *job, const struct job_counters *n)
{
	uint64_t lanes, here, shared;
	uint32_t most = 0;

	if (!job->memberships)
		return json_null();
	for (const struct membership *m = job->memberships; m; m = m->next_of_job) {
		uint32_t n_members = m->group ? cluster_n_members(m->group) : 1;

		most = n_members > most ? n_members : most;
	}
	count_lanes(job, &lanes, &here, &shared);
	return json_pack(
	    "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", json_text(job->memberships->key.job),
	    "reachable", json_u64(most), "lanes", json_u64(lanes), "lanes_here", json_u64(here),
	    "lanes_shared", json_u64(shared), "chunks", json_u64(n->peer_chunks), "bytes",
	    json_u64(n->peer_bytes), "failed", json_u64(n->peer_failed), "mean_s",
	    n->peer_chunks ? json_real((double)n->peer_ns / 1e9 / (double)n->peer_chunks) : json_null());
}

static json_t *job_json(const struct control *c, const struct job *job)
{
	const struct control_job *known = control_find_job(c, job->id);
	struct job_counters n;
	json_t *root;

	serving_job_counters(c->serving, job, &n);
	root = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o}", "id",
			 json_u64(job->id), "pid", json_u64((uint64_t)job->pid), "uid", json_u64(job->uid),
			 "rank", json_u64(job->rank), "world", json_u64(job->world), "name",
			 json_text(job->name), "sessions", json_u64(job->n_sessions), "age_s",
			 (double)(clock_monotonic_ns() - job->begin_ns) / 1e9, "batches", json_u64(n.batches),
			 "shared_batches", json_u64(n.shared_batches), "samples", json_u64(n.samples),
			 "read_bytes", json_u64(n.read_bytes), "knobs", knobs_json(c, job, known));
	json_object_set_new(root, "read_weight", json_u64(job->read_weight));
	json_object_set_new(root, "held", held_json(job));
	json_object_set_new(root, "checkpoints", checkpoints_json(c, job));
	json_object_set_new(root, "group", job->group[0] ? json_text(job->group) : json_null());
	json_object_set_new(root, "shared_from", job->shared_from ? json_u64(job->shared_from) : json_null());
	json_object_set_new(root, "nodes", nodes_json(c, job, &n));
	json_object_set_new(root, "memory", memory_json(c, job));
	json_object_set_new(root, "decoding", decoding_json(c, job, &n));
	json_object_set_new(root, "now",
			    known && known->has_sample ? control_sample_json(&known->sample, NULL)
						       : json_null());
	if (known && known->has_view)
		json_object_set_new(
		    root, "tuner",
		    json_pack("{s:s, s:o, s:o, s:o, s:o}", "phase", tuner_phase_name(known->view.phase),
			      "text", json_text(known->view.text), "rate", json_known(known->view.rate),
			      "demand", json_known(known->view.demand), "wait",
			      json_known(known->view.wait)));
	else
		json_object_set_new(root, "tuner", json_null());
	json_object_set_new(root, "last_decision", last_decision(c, job->id));
	return root;
}

json_t *control_jobs_json(struct control *c, const struct control_viewer *viewer)
{
	json_t *jobs = json_array();

	for (const struct job *j = c->serving->jobs.first; j; j = j->next)
		if (viewer->all || j->uid == viewer->uid)
			json_array_append_new(jobs, job_json(c, j));
	return jobs;
}

json_t *control_reads_json(const struct cache *cache)
{
	uint64_t bytes_per_s, ops_per_s;

	read_turns_limits(cache->turns, &bytes_per_s, &ops_per_s);
	return json_pack("{s:o, s:o, s:o}", "limit_bytes_per_s",
			 bytes_per_s ? json_u64(bytes_per_s) : json_null(), "limit_ops_per_s",
			 ops_per_s ? json_u64(ops_per_s) : json_null(), "limited_s",
			 json_real((double)read_turns_limited_ns(cache->turns, clock_monotonic_ns()) / 1e9));
}

static json_t *history_json(const struct control *c)
{
	struct history_status status;

	(void)control_history_status(c, &status);
	return json_pack(
	    "{s:o, s:o, s:o, s:o, s:o}", "path", c->history_path ? json_text(c->history_path) : json_null(),
	    "bytes", json_u64(status.bytes), "written", json_u64(status.n_written), "dropped",
	    json_u64(status.n_dropped), "problem", status.error[0] ? json_text(status.error) : json_null());
}

static json_t *sensing_json(const struct control *c)
{
	struct sensor_status s;

	if (!c->sensor)
		return json_null();
	sensor_status_get(c->sensor, &s);
	/* cpu_s is the child's own. The BPF programs run on the jobs' CPU time, and how long they run is
	 * not always known. */
	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "source", source_name(s.source),
			 "active", s.active, "why", s.why[0] ? json_text(s.why) : json_null(), "restarts",
			 json_u64(s.n_restarts), "lost", json_u64(s.n_lost), "cpu_s",
			 json_real((double)s.cpu_ns / 1e9), "bpf_run_s",
			 s.bpf_run_ns ? json_real((double)s.bpf_run_ns / 1e9) : json_null(), "active_s",
			 json_real((double)s.active_ns / 1e9), "resident_bytes", json_u64(s.resident_bytes));
}

json_t *control_tune_json(struct control *c)
{
	json_t *limits = json_object(), *pins = json_array();
	struct settings *s = &c->settings;

	for (enum wire_setting_key key = WIRE_SET_CACHE_MAX; key < WIRE_N_SETTINGS; key++)
		if (!settings_is_knob(key) && !settings_is_of_job(key))
			json_object_set_new(limits, settings_name(key), json_u64(settings_get(s, key)));
	settings_fill(s, &c->config);
	for (uint32_t i = 0; i < c->config.n_pins; i++)
		json_array_append_new(
		    pins, json_pack("{s:o, s:s, s:o, s:o}", "job", json_u64(c->config.pins[i].job), "knob",
				    tuner_knob_name(c->config.pins[i].knob), "value",
				    json_u64(c->config.pins[i].value), "in_force",
				    json_u64(settings_pin_in_force(s, &c->config.pins[i]))));
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mode",
			 settings_tune_name((enum wire_tune)settings_get(s, WIRE_SET_TUNE)), "limits", limits,
			 "pins", pins, "settings", control_settings_json(c), "sensing", sensing_json(c),
			 "history", history_json(c), "rounds", json_u64(c->n_rounds), "samples_refused",
			 json_u64(c->n_refused));
}

/* ---- files read ahead for jobs that do not use dieseld (--assist) ---- */

void control_assist(struct control *c, const struct assist *assist)
{
	c->assist = assist;
}

static json_t *ahead_json(const struct assist_job *j)
{
	const struct assist_figures *f = &j->figures;

	return json_pack("{s:o, s:o, s:o, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid",
			 json_u64((uint64_t)j->pid), "uid", json_u64(j->uid), "name", json_text(j->name),
			 "state", assist_job_state(j), "why", json_text(j->why), "charged_to_job",
			 j->charged != 0, "batches", json_u64(f->batches), "samples", json_u64(f->samples),
			 "known_samples", json_u64(f->known), "hits", json_u64(f->hits), "misses",
			 json_u64(f->misses), "files_read_ahead", json_u64(f->files), "bytes_read_ahead",
			 json_u64(f->bytes), "failed", json_u64(f->failed), "lost_records",
			 json_u64(j->lost));
}

/* Returns the figures of assist; null without --assist. */
static json_t *control_assist_json(const struct control *c, const struct control_viewer *viewer)
{
	const struct assist_job *job;
	json_t *jobs;

	if (!c->assist)
		return json_null();
	jobs = json_array();
	for (uint32_t i = 0; (job = assist_job_at(c->assist, i)); i++)
		if (viewer->all || viewer->uid == job->uid)
			json_array_append_new(jobs, ahead_json(job));
	return json_pack("{s:o, s:o}", "problem",
			 *assist_problem(c->assist) ? json_text(assist_problem(c->assist)) : json_null(),
			 "jobs", jobs);
}

/* ---- this node's report to other nodes (diesel-top --nodes) ---- */

#define MAX_JOBS   64
#define TEXT_BYTES 160

/* Bytes reserved for the rest of the report. */
#define RESERVED 256

static json_t *short_text(const char *text)
{
	char cut[TEXT_BYTES];
	size_t n = strnlen(text, sizeof(cut));

	if (n == sizeof(cut)) /* between characters */
		for (n--; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
			n--;
	memcpy(cut, text, n);
	cut[n] = '\0';
	return json_text(cut);
}

static const struct session *newest_session(const struct control *c, const struct job *job)
{
	for (const struct session *s = c->serving->sessions; s; s = s->next)
		if (s->job == job)
			return s;
	return NULL;
}

static json_t *short_json(const struct control *c, const struct job *job)
{
	const struct control_job *known = control_find_job(c, job->id);
	const struct session *session = newest_session(c, job);
	const struct stall_sample *s = known && known->has_sample ? &known->sample : NULL;
	json_t *root = json_pack(
	    "{s:o, s:o, s:o, s:o, s:o, s:o}", "id", json_u64(job->id), "pid", json_u64((uint64_t)job->pid),
	    "uid", json_u64(job->uid), "name", short_text(job->name), "age_s",
	    json_real((double)(clock_monotonic_ns() - job->begin_ns) / 1e9), "job",
	    session && session->order.request.cluster[0] ? short_text(session->order.request.cluster)
							 : json_null());

	json_object_set_new(root, "dataset",
			    session ? short_text(session->order.dataset->path) : json_null());
	json_object_set_new(root, "measured_s", json_real(known ? known->measured_s : 0));
	json_object_set_new(root, "stall_s",
			    known && known->measured_s > 0 ? json_real(known->stall_s) : json_null());
	if (s) {
		json_object_set_new(root, "source", json_string(source_name(s->source)));
		json_object_set_new(root, "samples_per_s", json_known(s->samples_per_s));
		json_object_set_new(root, "steps_per_s", json_known(s->steps_per_s));
		json_object_set_new(root, "shares", shares_json(&s->shares));
	}
	return root;
}

static double stall_of(const struct control *c, const struct job *job)
{
	const struct control_job *known = control_find_job(c, job->id);

	return known ? known->stall_s : 0;
}

/* Lists the jobs that waited longest, longest first; `jobs` has space for MAX_JOBS. Returns the number of all
 * jobs. */
static size_t worst_jobs(const struct control *c, const struct job **jobs, size_t *ret_n)
{
	size_t n = 0, n_all = 0;

	for (const struct job *j = c->serving->jobs.first; j; j = j->next, n_all++) {
		size_t at = n < MAX_JOBS ? n++ : MAX_JOBS;

		for (; at > 0 && stall_of(c, jobs[at - 1]) < stall_of(c, j); at--)
			if (at < MAX_JOBS)
				jobs[at] = jobs[at - 1];
		if (at < MAX_JOBS)
			jobs[at] = j;
	}
	*ret_n = n;
	return n_all;
}

char *control_report(const struct control *c, double uptime_s, size_t max_bytes)
{
	const struct job *jobs[MAX_JOBS];
	json_t *list = json_array(), *root;
	size_t n = 0, n_all = c->serving ? worst_jobs(c, jobs, &n) : 0, n_told = 0, bytes = RESERVED;
	char *text;

	for (; n_told < n; n_told++) {
		json_t *job = short_json(c, jobs[n_told]);

		text = json_dumps(job, JSON_COMPACT);
		bytes += text ? strlen(text) + 1 : max_bytes;
		free(text);
		if (bytes > max_bytes) {
			json_decref(job);
			break;
		}
		json_array_append_new(list, job);
	}
	root = json_pack("{s:s, s:s, s:o, s:o, s:o}", "schema", "diesel.node/1", "version", DIESEL_VERSION,
			 "uptime_s", json_real(uptime_s), "omitted", json_u64(n_all - n_told), "jobs", list);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}

/* ---- verbs ---- */

struct control_viewer control_viewer_of(uint32_t uid)
{
	return (struct control_viewer){.uid = uid, .all = admin_is(uid)};
}

static char *dump(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;

	json_decref(root);
	return text;
}

char *control_jobs(struct control *c, const struct control_viewer *viewer)
{
	return dump(json_pack("{s:s, s:s, s:o, s:o, s:o}", "schema", "diesel.jobs/1", "socket", c->socket,
			      "tune", control_tune_json(c), "jobs", control_jobs_json(c, viewer), "assist",
			      control_assist_json(c, viewer)));
}

static bool may_see(const struct control_viewer *viewer, uint32_t uid)
{
	return viewer->all || viewer->uid == uid;
}

static int no_job(uint64_t id, struct error *err)
{
	return error_set(err, -ENOENT, "there is no job %llu: run `dieselctl jobs` to list the jobs",
			 (unsigned long long)id);
}

int control_why(struct control *c, const struct control_viewer *viewer, const struct wire_why *m,
		char **ret_text, struct error *err)
{
	const struct job *job = m->job ? jobs_find(&c->serving->jobs, m->job) : NULL;
	json_t *decisions = json_array();
	const struct control_log_entry *entry;
	bool found = !m->job || (job && may_see(viewer, job->uid));
	char *text;

	/* A job that has ended is known as long as any of its decisions is. */
	for (uint64_t i = 0; (entry = control_log_newest(&c->log, i)); i++) {
		if ((m->job && entry->entry.decision.job != m->job) || !may_see(viewer, entry->entry.uid))
			continue;
		found = true;
		if (json_array_size(decisions) < m->max)
			json_array_append_new(decisions, log_entry_json(entry));
	}
	if (!found) {
		json_decref(decisions);
		return no_job(m->job, err);
	}
	text =
	    dump(json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "schema", "diesel.why/1", "socket",
			   c->socket, "job", (json_int_t)m->job, "tune", control_tune_json(c), "jobs",
			   control_jobs_json(c, viewer), "decisions", decisions, "assist",
			   control_assist_json(c, viewer), "reads", control_reads_json(&c->serving->cache)));
	if (!text)
		return error_errno(err, -ENOMEM, "cannot build the reply");
	*ret_text = text;
	return 0;
}

/* Refuses to set a knob whose value the client has fixed. */
static int check_tunable(const struct control *c, const struct wire_set *m, struct error *err)
{
	const struct control_job *known = control_find_job(c, m->job);

	for (uint32_t i = 0; i < m->n_settings; i++) {
		enum wire_setting_key key = (enum wire_setting_key)m->settings[i].key;
		enum tuner_knob knob;

		if (tuner_knob_of_key(key, &knob) < 0 || m->settings[i].flags == WIRE_SETTING_AUTO ||
		    !known || !known->has_sample || known->sample.tunable & 1u << knob)
			continue;
		if (knob == TUNER_CLIENT_WORKERS)
			return error_set(err, -EOPNOTSUPP,
					 "cannot set client-workers of job %llu: its loader keeps "
					 "their number. Leave out num_workers=N, or write \"auto\"",
					 (unsigned long long)m->job);
		return error_set(err, -EOPNOTSUPP,
				 "cannot set %s of job %llu: dieseld decodes no images for this job",
				 settings_name(key), (unsigned long long)m->job);
	}
	return 0;
}

static void forget_all(struct control *c)
{
	for (const struct control_job *j = c->jobs; j; j = j->next)
		control_forget(c, j->id);
}

static void log_settings(const struct control_viewer *viewer, const struct wire_set *m)
{
	for (uint32_t i = 0; i < m->n_settings; i++) {
		const struct wire_setting *w = &m->settings[i];
		char value[24] = "auto", job[32] = "";

		if (w->flags != WIRE_SETTING_AUTO)
			snprintf(value, sizeof(value), "%llu", (unsigned long long)w->value);
		if (m->job)
			snprintf(job, sizeof(job), " of job %llu", (unsigned long long)m->job);
		log_info("uid %u set %s%s to %s%s", viewer->uid, settings_name((enum wire_setting_key)w->key),
			 job, value, w->flags == WIRE_SETTING_UNTIL_RESTART ? " until restart" : "");
	}
}

/* Returns true if the message has any of the job's own settings. */
static bool set_job(struct control *c, const struct wire_set *m)
{
	struct job *job = jobs_find(&c->serving->jobs, m->job);
	struct control_job *known = control_find_job(c, m->job);
	bool any = false;

	for (uint32_t i = 0; job && i < m->n_settings; i++) {
		const struct wire_setting *w = &m->settings[i];

		if (w->key != WIRE_SET_READ_WEIGHT)
			continue;
		job->read_weight = w->flags & WIRE_SETTING_AUTO ? TURN_WEIGHT : (uint32_t)w->value;
		if (known)
			known->read_weight = job->read_weight;
		any = true;
	}
	return any;
}

int control_set(struct control *c, const struct control_viewer *viewer, const struct wire_set *m,
		char **ret_text, struct error *err)
{
	uint64_t mode = settings_get(&c->settings, WIRE_SET_TUNE);
	char *text;
	int r;

	if (!viewer->all)
		return admin_refuse(err);
	if (m->job && !jobs_find(&c->serving->jobs, m->job))
		return no_job(m->job, err);
	r = check_tunable(c, m, err);
	c->settings.by = (struct settings_by){.uid = viewer->uid, .at_s = clock_realtime_ns() / NS_PER_S};
	if (r == 0)
		r = settings_apply(&c->settings, m, err);
	c->settings.by = (struct settings_by){0};
	if (r < 0)
		return r;
	/* Data that the tuner learnt while no decision was carried out is useless once decisions are carried
	 * out, and vice versa. */
	if (settings_get(&c->settings, WIRE_SET_TUNE) != mode)
		forget_all(c);
	if (set_job(c, m))
		control_save_state(c);
	control_apply_limits(c);
	control_save_settings(c);
	log_settings(viewer, m);
	text = dump(json_pack("{s:s, s:s, s:o, s:o}", "schema", "diesel.set/1", "socket", c->socket, "tune",
			      control_tune_json(c), "jobs", control_jobs_json(c, viewer)));
	if (!text)
		return error_errno(err, -ENOMEM, "cannot build the reply");
	*ret_text = text;
	return 0;
}
