/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/assist/assist.h"
#include "daemon/control/control.h"
#include "job_events.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "daemon/sense/sensor.h"
#include "daemon/server/server.h"

/* Figures of each job. Labels: its number, which the history and dieselctl use too, and its rank. No label
 * is one that Prometheus sets itself: `job`, `instance`, and in Kubernetes `pod` and `namespace`. Figures
 * that need samples are left out until there are samples: absent is not zero. */

#define LABELS "training_job=\"%" PRIu64 "\",rank=\"%" PRIu32 "\""

static void metrics_head(FILE *text, const char *name, const char *type, const char *help)
{
	fprintf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_number(FILE *text, const char *name, const char *type, const char *help, uint64_t value)
{
	metrics_head(text, name, type, help);
	fprintf(text, "%s %" PRIu64 "\n", name, value);
}

/* Hidden names are empty: to Prometheus, an empty label is the same as none. */
static void infos(FILE *text, const struct server *s, bool hide_names)
{
	char program[64], uid[16];

	metrics_head(text, "diesel_job_info", "gauge", "User and program of the job; always 1.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
		job_events_program(j, program, sizeof(program));
		snprintf(uid, sizeof(uid), "%" PRIu32, j->uid);
		fprintf(text,
			"diesel_job_info{" LABELS ",world=\"%" PRIu32 "\",uid=\"%s\",program=\"%s\"} 1\n",
			j->id, j->rank, j->world, hide_names ? "" : uid, hide_names ? "" : program);
	}
}

/* Writes the origins as a separate metric, for joins: most nodes run either Slurm or Kubernetes, and many run
 * neither. */
static void origins(FILE *text, const struct server *s)
{
	metrics_head(text, "diesel_job_origin_info", "gauge",
		     "Owner of the job, as Slurm and Kubernetes report it; always 1.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		if (job_origin_is_known(&j->origin))
			fprintf(text,
				"diesel_job_origin_info{" LABELS
				",slurm_job=\"%s\",account=\"%s\",job_pod=\"%"
				"s\",pod_uid=\"%s\",job_namespace=\"%s\"} 1\n",
				j->id, j->rank, j->origin.slurm_job, j->origin.account, j->origin.pod,
				j->origin.pod_uid, j->origin.pod_namespace);
}

/* A figure of each row of a table: of each job, or of each user. */
struct family {
	const char *name, *type, *help; /* type and help NULL: a further label of the metric before */
	const char *label;              /* a comma and a further label, or "" */
	size_t offset;                  /* offset of a uint64_t in the row */
	double scale;
	size_t known; /* offset of the member without which, at 0, the figure is absent; 0: it never is */
};

static uint64_t member_at(const void *row, size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)row + offset, sizeof(value));
	return value;
}

static void write_figure(FILE *text, const struct family *f, const void *row, const char *labels)
{
	if (!f->known || member_at(row, f->known))
		fprintf(text, "%s{%s%s} %.15g\n", f->name, labels, f->label,
			(double)member_at(row, f->offset) * f->scale);
}

/* The figures of a job. */
struct job_row {
	struct job_counters counters;
	struct diesel_checkpoints checkpoints; /* as the job reports them; all zero: it reports none */
	uint64_t age_ns;                       /* age of the newest checkpoint */
	/* Knobs in force. Nobody may have set the cache's. */
	uint64_t has_cache_limit, cache_limit, prefetch_chunks, read_weight, workers, client_workers;
	uint64_t decoded_cache, held_ns;
	char labels[64];
};

#define ROW(member)         offsetof(struct job_row, member)
#define COUNTED(member)     ROW(counters.member)
#define CHECKPOINTS(member) ROW(checkpoints.member)

static const struct family of_jobs[] = {
    {"diesel_job_batches_total", "counter", "Batches made ready for the job.", "", COUNTED(batches), 1, 0},
    {"diesel_job_shared_batches_total", "counter",
     "Batches of the job that had been decoded for another job.", "", COUNTED(shared_batches), 1, 0},
    {"diesel_job_samples_total", "counter", "Samples made ready for the job.", "", COUNTED(samples), 1, 0},
    {"diesel_job_bytes_total", "counter", "Bytes made ready for the job.", "", COUNTED(bytes), 1, 0},
    {"diesel_chunk_visits_total", "counter", "Chunks that the job's sessions visited, counted per window.",
     "", COUNTED(chunk_visits), 1, 0},
    {"diesel_job_chunk_reads_total", "counter",
     "Chunk visits of the job that had to read from storage (misses).", "", COUNTED(chunk_reads), 1, 0},
    {"diesel_read_bytes_total", "counter",
     "Bytes of chunks read for the job, by source: from storage or from other nodes of the job.",
     ",source=\"device\"", COUNTED(read_bytes), 1, 0},
    {"diesel_read_bytes_total", NULL, NULL, ",source=\"node\"", COUNTED(peer_bytes), 1, 0},
    {"diesel_read_seconds_total", "counter", "Time during which at least one read for the job was in flight.",
     "", COUNTED(reading_ns), 1e-9, 0},
    {"diesel_job_node_chunks_total", "counter", "Chunks that came from other nodes of the job.", "",
     COUNTED(peer_chunks), 1, 0},
    {"diesel_job_node_seconds_total", "counter",
     "Time that chunks from other nodes of the job took to arrive, summed.", "", COUNTED(peer_ns), 1e-9, 0},
    {"diesel_job_node_failures_total", "counter",
     "Chunks that another node of the job could not deliver, so that storage was read.", "",
     COUNTED(peer_failed), 1, 0},
    {"diesel_worker_seconds_total", "counter",
     "Thread time spent for the job, by state: reading (io), or computing in the daemon's workers (cpu).",
     ",state=\"io\"", COUNTED(read_ns), 1e-9, 0},
    {"diesel_worker_seconds_total", NULL, NULL, ",state=\"cpu\"", COUNTED(cpu_ns), 1e-9, 0},
    {"diesel_job_decoded_samples_total", "counter", "Samples that the daemon's decoders decoded for the job.",
     "", COUNTED(decoded.samples), 1, 0},
    {"diesel_job_samples_from_decoded_cache_total", "counter",
     "Samples of the job that came from the decoded-sample cache.", "", COUNTED(ways[CODEC_FROM_DECODED].n),
     1, 0},
    {"diesel_job_decoded_samples_cached_total", "counter",
     "Samples of the job that were put into the decoded-sample cache.", "",
     COUNTED(ways[CODEC_MADE_DECODED].n), 1, 0},
    {"diesel_job_damaged_samples_total", "counter", "Samples of the job that could not be decoded.", "",
     COUNTED(decoded.damaged), 1, 0},
    {"diesel_job_decoder_seconds_total", "counter",
     "CPU time of the job's decoders; part of diesel_worker_seconds_total.", "", COUNTED(decoded.cpu_ns),
     1e-9, 0},
    {"diesel_job_decoders_replaced_total", "counter",
     "Decoders of the job that were replaced because they crashed, hung or were killed.", "",
     COUNTED(decoded.replaced), 1, 0},
    {"diesel_client_wait_seconds_total", "counter",
     "Time that the job's loader waited for a batch, by cause, as the loader reports it.", ",stall=\"fetch\"",
     COUNTED(wait_fetch_ns), 1e-9, 0},
    {"diesel_client_wait_seconds_total", NULL, NULL, ",stall=\"preprocess\"", COUNTED(wait_prep_ns), 1e-9, 0},
    {"diesel_job_cache_limit_bytes", "gauge", "Limit on memory for the job's chunks.", "", ROW(cache_limit),
     1, ROW(has_cache_limit)},
    {"diesel_job_decoded_cache_bytes", "gauge",
     "Memory of the decoded-sample cache that holds samples of the job.", "", ROW(decoded_cache), 1, 0},
    {"diesel_job_prefetch_chunks", "gauge", "Chunks that the daemon prefetches for the job.", "",
     ROW(prefetch_chunks), 1, 0},
    {"diesel_job_read_weight", "gauge", "Weight of the job when several jobs read from one storage.", "",
     ROW(read_weight), 1, 0},
    {"diesel_job_read_ahead_held_seconds_total", "counter",
     "Time during which prefetching for the job was paused for a checkpoint of the same user.", "",
     ROW(held_ns), 1e-9, 0},
    {"diesel_job_workers", "gauge",
     "Maximum number of daemon workers that work for the job at the same time.", "", ROW(workers), 1, 0},
    {"diesel_job_client_workers", "gauge", "Worker processes that the job runs for its transforms.", "",
     ROW(client_workers), 1, 0},
    {"diesel_job_checkpoints_total", "counter", "Checkpoints that the job's Checkpointer began.", "",
     CHECKPOINTS(n_begun), 1, CHECKPOINTS(n_begun)},
    {"diesel_job_checkpoints_failed_total", "counter", "Checkpoints of the job that could not be written.",
     "", CHECKPOINTS(n_failed), 1, CHECKPOINTS(n_begun)},
    {"diesel_job_checkpoint_interval_steps", "gauge", "Steps from one checkpoint of the job to the next.", "",
     CHECKPOINTS(interval_steps), 1, CHECKPOINTS(interval_steps)},
    {"diesel_job_checkpoint_cost_seconds_total", "counter",
     "Time that checkpoints have added to the job: snapshots, and slower steps during writing.", "",
     CHECKPOINTS(spent_ns), 1e-9, CHECKPOINTS(n_begun)},
    {"diesel_job_checkpoint_measured_seconds_total", "counter",
     "Time of the steps during which the cost of the job's checkpoints was measured.", "",
     CHECKPOINTS(elapsed_ns), 1e-9, CHECKPOINTS(n_begun)},
    {"diesel_job_checkpoint_seconds", "gauge",
     "Times of the job's latest checkpoint: its snapshot, the slowdown of steps, and until it was on disk.",
     ",part=\"snapshot\"", CHECKPOINTS(snapshot_ns), 1e-9, CHECKPOINTS(snapshot_ns)},
    {"diesel_job_checkpoint_seconds", NULL, NULL, ",part=\"slowdown\"", CHECKPOINTS(slowdown_ns), 1e-9,
     CHECKPOINTS(written_ns)},
    {"diesel_job_checkpoint_seconds", NULL, NULL, ",part=\"written\"", CHECKPOINTS(written_ns), 1e-9,
     CHECKPOINTS(written_ns)},
    {"diesel_job_checkpoint_age_seconds", "gauge",
     "Age of the job's newest checkpoint on disk, which is what a failure would lose.", "", ROW(age_ns), 1e-9,
     CHECKPOINTS(newest_ns)},
};

static uint64_t set_or(const struct job *job, enum tuner_knob knob, uint64_t otherwise)
{
	uint64_t value = job->knobs.value[knob];

	return value != tuner_knob_table[knob].free ? value : otherwise;
}

static void fill_row(struct job_row *row, const struct serving *s, const struct job *j, uint64_t now_ns)
{
	struct serving_job_memory memory;

	serving_job_memory(s, j, &memory);
	*row = (struct job_row){.has_cache_limit = j->knobs.value[TUNER_CACHE_BYTES] != TUNER_FREE_BYTES,
				.cache_limit = j->knobs.value[TUNER_CACHE_BYTES],
				.prefetch_chunks =
				    set_or(j, TUNER_PREFETCH_CHUNKS, s->options.knobs.prefetch_chunks),
				.read_weight = j->read_weight,
				.workers = set_or(j, TUNER_DAEMON_WORKERS, pool_workers(s->cache.pool)),
				.client_workers = serving_job_client_workers(s, j),
				.decoded_cache = memory.decoded_cache,
				.held_ns = job_held_ns(j, now_ns)};
	serving_job_counters(s, j, &row->counters);
	if (!serving_job_checkpoints(s, j, &row->checkpoints))
		row->checkpoints = (struct diesel_checkpoints){0};
	if (row->checkpoints.newest_ns < now_ns)
		row->age_ns = now_ns - row->checkpoints.newest_ns;
	snprintf(row->labels, sizeof(row->labels), LABELS, j->id, j->rank);
}

static void write_figures(FILE *text, const struct serving *s)
{
	_cleanup_(freep) struct job_row *rows = NULL;
	uint64_t now_ns = clock_monotonic_ns();
	size_t n = 0;

	for (const struct job *j = s->jobs.first; j; j = j->next)
		n++;
	rows = calloc(n + 1, sizeof(*rows));
	if (!rows)
		return;
	n = 0;
	for (const struct job *j = s->jobs.first; j; j = j->next)
		fill_row(&rows[n++], s, j, now_ns);
	for (size_t i = 0; i < sizeof(of_jobs) / sizeof(of_jobs[0]); i++) {
		if (of_jobs[i].type)
			metrics_head(text, of_jobs[i].name, of_jobs[i].type, of_jobs[i].help);
		for (size_t k = 0; k < n; k++)
			write_figure(text, &of_jobs[i], &rows[k], rows[k].labels);
	}
}

/* Writes a histogram of the time that reads took, with one bucket per octave. */
static void read_latency(FILE *text, const struct server *s)
{
	static const char name[] = "diesel_chunk_read_seconds";

	metrics_head(text, name, "histogram", "Time that reading a chunk from storage took.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
		const struct job_counters *n = &j->counters;
		uint64_t below;
		double end_s;

		for (size_t octave = 0; octave + 1 < READ_LATENCY_OCTAVES; octave++) {
			below = read_latency_below(&n->latency, octave, &end_s);
			fprintf(text, "%s_bucket{" LABELS ",le=\"%.6g\"} %" PRIu64 "\n", name, j->id, j->rank,
				end_s, below);
		}
		fprintf(text,
			"%s_bucket{" LABELS ",le=\"+Inf\"} %" PRIu64 "\n%s_sum{" LABELS
			"} %.9g\n%s_count{" LABELS "} %" PRIu64 "\n",
			name, j->id, j->rank, n->n_read, name, j->id, j->rank, (double)n->read_ns / 1e9, name,
			j->id, j->rank, n->n_read);
	}
}

static const struct metrics_job *sampled(const struct metrics_sources *sources, const struct job *j)
{
	return sources->totals ? metrics_totals_find(sources->totals, j->id) : NULL;
}

static void steps(FILE *text, const struct metrics_sources *sources)
{
	const struct job *first = sources->server->serving.jobs.first;
	const struct metrics_job *m;

	metrics_head(text, "diesel_steps_total", "counter", "Steps of the trainer.");
	for (const struct job *j = first; j; j = j->next)
		if ((m = sampled(sources, j)))
			fprintf(text, "diesel_steps_total{" LABELS "} %.9g\n", j->id, j->rank, m->steps);
	metrics_head(text, "diesel_step_duration_seconds", "summary",
		     "Time of a step; quantiles of the last second.");
	for (const struct job *j = first; j; j = j->next) {
		if (!(m = sampled(sources, j)))
			continue;
		if (!isnan(m->step_p50_s))
			fprintf(text, "diesel_step_duration_seconds{" LABELS ",quantile=\"0.5\"} %.9g\n",
				j->id, j->rank, m->step_p50_s);
		if (!isnan(m->step_p95_s))
			fprintf(text, "diesel_step_duration_seconds{" LABELS ",quantile=\"0.95\"} %.9g\n",
				j->id, j->rank, m->step_p95_s);
		fprintf(text, "diesel_step_duration_seconds_sum{" LABELS "} %.9g\n", j->id, j->rank,
			m->step_s);
		fprintf(text, "diesel_step_duration_seconds_count{" LABELS "} %.9g\n", j->id, j->rank,
			m->steps);
	}
}

static void stalls(FILE *text, const struct metrics_sources *sources)
{
	static const char *const source_names[] = {"none", "bpf", "client", "process"};
	const struct job *first = sources->server->serving.jobs.first;
	const struct metrics_job *m;

	metrics_head(text, "diesel_trainer_seconds_total", "counter",
		     "Wall time of the trainer during which stalls were measured.");
	for (const struct job *j = first; j; j = j->next)
		if ((m = sampled(sources, j)))
			fprintf(text, "diesel_trainer_seconds_total{" LABELS "} %.9g\n", j->id, j->rank,
				m->trainer_s);
	metrics_head(text, "diesel_stall_seconds_total", "counter",
		     "Wall time during which the trainer waited, by cause; gpu_wait: for its device.");
	for (const struct job *j = first; j; j = j->next) {
		if (!(m = sampled(sources, j)))
			continue;
		for (size_t i = 0; i < METRICS_N_STALLS; i++)
			if (m->known_s[i] > 0)
				fprintf(text, "diesel_stall_seconds_total{" LABELS ",stall=\"%s\"} %.9g\n",
					j->id, j->rank, metrics_stall_name((enum metrics_stall)i),
					m->stall_s[i]);
	}
	metrics_head(text, "diesel_stall_known_seconds_total", "counter",
		     "Wall time of the trainer during which this stall was measured; the denominator of the "
		     "share of this stall.");
	for (const struct job *j = first; j; j = j->next) {
		if (!(m = sampled(sources, j)))
			continue;
		for (size_t i = 0; i < METRICS_N_STALLS; i++)
			if (m->known_s[i] > 0)
				fprintf(
				    text, "diesel_stall_known_seconds_total{" LABELS ",stall=\"%s\"} %.9g\n",
				    j->id, j->rank, metrics_stall_name((enum metrics_stall)i), m->known_s[i]);
	}
	metrics_head(text, "diesel_job_sensing", "gauge", "Method of measuring the job's stalls; always 1.");
	for (const struct job *j = first; j; j = j->next)
		if ((m = sampled(sources, j)) && m->source <= STALL_SOURCE_PROCESS)
			fprintf(text, "diesel_job_sensing{" LABELS ",source=\"%s\"} 1\n", j->id, j->rank,
				source_names[m->source]);
}

/* Writes the figures of each job. */
static void metrics_jobs_text(FILE *text, const struct metrics_sources *sources)
{
	infos(text, sources->server, *sources->hide_names);
	if (!*sources->hide_names)
		origins(text, sources->server);
	write_figures(text, &sources->server->serving);
	read_latency(text, sources->server);
	steps(text, sources);
	stalls(text, sources);
}

/* Totals of users, which stay when their jobs end. */

#define AMOUNT(member) offsetof(struct usage_amounts, member)

static const struct family of_users[] = {
    {"diesel_user_jobs_total", "counter", "Jobs of the user that began.", "", AMOUNT(jobs), 1, 0},
    {"diesel_user_samples_total", "counter", "Samples made ready for the user's jobs.", "", AMOUNT(samples),
     1, 0},
    {"diesel_user_bytes_total", "counter", "Bytes made ready for the user's jobs.", "", AMOUNT(bytes), 1, 0},
    {"diesel_user_read_bytes_total", "counter", "Bytes read from storage for the user's jobs.", "",
     AMOUNT(read_bytes), 1, 0},
    {"diesel_user_node_bytes_total", "counter", "Bytes that came from other nodes for the user's jobs.", "",
     AMOUNT(node_bytes), 1, 0},
    {"diesel_user_cache_bytes", "gauge",
     "Memory charged to the user's jobs; memory shared by several users is split equally.", "",
     AMOUNT(cache_bytes), 1, 0},
    {"diesel_user_cache_byte_seconds_total", "counter", "Integral over time of diesel_user_cache_bytes.", "",
     AMOUNT(cache_kib_s), 1024, 0},
    {"diesel_user_cpu_seconds_total", "counter",
     "CPU time of the daemon's workers and decoders for the user's jobs.", "", AMOUNT(cpu_ns), 1e-9, 0},
    {"diesel_user_wait_seconds_total", "counter",
     "Time that the user's loaders waited for a batch, by cause, as the loaders report it.",
     ",stall=\"fetch\"", AMOUNT(wait_fetch_ns), 1e-9, 0},
    {"diesel_user_wait_seconds_total", NULL, NULL, ",stall=\"preprocess\"", AMOUNT(wait_prep_ns), 1e-9, 0},
};

static void write_user(FILE *text, const struct family *f, const struct usage_row *row)
{
	char labels[64 + 2 * USAGE_NAME_BYTES], uid[16] = USAGE_OTHER;

	if (!row->is_other_user)
		snprintf(uid, sizeof(uid), "%" PRIu32, row->uid);
	snprintf(labels, sizeof(labels), "uid=\"%s\",account=\"%s\",job_namespace=\"%s\"", uid,
		 row->is_other_user ? USAGE_OTHER : row->account,
		 row->is_other_user ? USAGE_OTHER : row->pod_namespace);
	write_figure(text, f, &row->amounts, labels);
}

/* Writes the totals of users. */
static void metrics_users_text(FILE *text, const struct job_events *events)
{
	_cleanup_(freep) struct usage_totals *usage = calloc(1, sizeof(*usage));

	if (!usage)
		return;
	job_events_usage(events, usage);
	for (size_t i = 0; i < sizeof(of_users) / sizeof(of_users[0]); i++) {
		if (of_users[i].type)
			metrics_head(text, of_users[i].name, of_users[i].type, of_users[i].help);
		for (uint32_t k = 0; k < usage->n; k++)
			write_user(text, &of_users[i], &usage->rows[k]);
	}
}

/* Free resources of the node. Unknown figures are absent. */

static void gauge(FILE *text, const char *name, const char *labels, double value)
{
	if (!isnan(value))
		fprintf(text, "%s%s %.9g\n", name, labels, value);
}

static void decisions(FILE *text, const struct control *control)
{
	metrics_head(text, "diesel_tuner_decisions_total", "counter",
		     "Decisions of the tuner that were applied, by rule.");
	for (unsigned i = 0; control && i < CONTROL_N_RULES; i++)
		fprintf(text, "diesel_tuner_decisions_total{rule=\"%s\"} %" PRIu64 "\n",
			tuner_rule_name((enum tuner_rule)i), control_n_applied(control, (enum tuner_rule)i));
}

static void sensing(FILE *text, const struct sensor *sensor)
{
	struct sensor_status status = {0};

	if (sensor)
		sensor_status_get(sensor, &status);
	metrics_head(text, "diesel_sensor_active", "gauge", "1 while BPF programs measure where jobs wait.");
	fprintf(text, "diesel_sensor_active %d\n", status.active);
	metrics_head(text, "diesel_sensor_restarts_total", "counter",
		     "Restarts of the process that measures stalls.");
	fprintf(text, "diesel_sensor_restarts_total %" PRIu32 "\n", status.n_restarts);
	metrics_head(text, "diesel_sensor_cpu_seconds_total", "counter",
		     "CPU time of the process that measures stalls.");
	fprintf(text, "diesel_sensor_cpu_seconds_total %.9g\n", (double)status.cpu_ns / 1e9);
	metrics_head(text, "diesel_bpf_run_seconds_total", "counter",
		     "CPU time of the BPF programs; absent where the kernel does not count it.");
	if (status.bpf_run_ns)
		fprintf(text, "diesel_bpf_run_seconds_total{program=\"all\"} %.9g\n",
			(double)status.bpf_run_ns / 1e9);
	metrics_head(text, "diesel_events_lost_total", "counter",
		     "Records that the BPF programs lost because their buffer was full.");
	fprintf(text, "diesel_events_lost_total{ring=\"sensing\",kind=\"any\"} %" PRIu64 "\n", status.n_lost);
}

static void assisting(FILE *text, const struct assist *assist)
{
	uint32_t n[ASSIST_N_STATES] = {0};
	const struct assist_job *job;
	uint64_t files, bytes;

	for (uint32_t i = 0; (job = assist_job_at(assist, i)); i++)
		n[job->state]++;
	metrics_head(text, "diesel_assist_jobs", "gauge",
		     "Jobs that do not use dieseld and whose files the daemon can prefetch.");
	for (int state = 0; state < ASSIST_N_STATES; state++)
		fprintf(text, "diesel_assist_jobs{state=\"%s\"} %" PRIu32 "\n",
			assist_state_name((enum assist_state)state), n[state]);
	assist_totals(assist, &files, &bytes);
	metrics_number(text, "diesel_assist_files_total", "counter",
		       "Files prefetched for jobs that do not use dieseld.", files);
	metrics_number(text, "diesel_assist_bytes_total", "counter",
		       "Bytes of the files prefetched for jobs that do not use dieseld.", bytes);
}

/* Writes the figures of the node. */
static void metrics_node_text(FILE *text, const struct metrics_sources *sources)
{
	const struct metrics_totals *t = sources->totals;
	const struct stall_node *n = t && t->has_node ? &t->node : NULL;

	metrics_head(text, "diesel_memory_headroom_bytes", "gauge",
		     "Memory that is still available: the minimum of what the node and the daemon's cgroup "
		     "have left.");
	if (n)
		gauge(text, "diesel_memory_headroom_bytes", "", n->memory_headroom_bytes);
	metrics_head(text, "diesel_idle_cores", "gauge", "Cores that were idle in the last second.");
	if (n)
		gauge(text, "diesel_idle_cores", "", n->cores_idle);
	metrics_head(text, "diesel_pressure_ratio", "gauge",
		     "Share of the last ten seconds in which a task waited for the resource (PSI).");
	if (n) {
		gauge(text, "diesel_pressure_ratio", "{resource=\"memory\"}", n->memory_some_avg10 / 100);
		gauge(text, "diesel_pressure_ratio", "{resource=\"cpu\"}", n->cpu_some_avg10 / 100);
		gauge(text, "diesel_pressure_ratio", "{resource=\"io\"}", n->io_some_avg10 / 100);
	}
	decisions(text, sources->control);
	sensing(text, sources->sensor);
	if (sources->assist)
		assisting(text, sources->assist);
}

/* Figures of the process, its configuration and its history. */

static uint64_t open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!folder)
		return 0;
	for (struct dirent *entry; (entry = readdir(folder));)
		n += entry->d_name[0] != '.';
	closedir(folder);
	return n - 1; /* without the descriptor of this folder */
}

/* Writes figures of the process under the names that Prometheus' own client libraries use. */
static void process_figures(FILE *text, const struct server *s)
{
	uint64_t pages = 0;
	struct rusage usage;
	struct rlimit files;
	FILE *statm = fopen("/proc/self/statm", "re");

	if (statm) {
		if (fscanf(statm, "%*u %" SCNu64, &pages) != 1)
			pages = 0;
		fclose(statm);
	}
	getrusage(RUSAGE_SELF, &usage);
	metrics_head(text, "process_cpu_seconds_total", "counter", "CPU time of the daemon.");
	fprintf(text, "process_cpu_seconds_total %.6f\n",
		(double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
	metrics_number(text, "process_resident_memory_bytes", "gauge", "Memory in RAM.",
		       pages * (uint64_t)sysconf(_SC_PAGESIZE));
	metrics_number(text, "process_open_fds", "gauge", "Open files.", open_files());
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
		metrics_number(text, "process_max_fds", "gauge", "Maximum number of open files.",
			       files.rlim_cur);
	metrics_head(text, "process_start_time_seconds", "gauge", "Start time of the daemon, in Unix time.");
	fprintf(text, "process_start_time_seconds %.3f\n", (double)s->start_unix_ns / (double)NS_PER_S);
}

static void reload_figures(FILE *text, const struct metrics_reloads *reloads)
{
	metrics_head(text, "diesel_config_last_reload_successful", "gauge",
		     "1 while the configuration file is valid; 0: the earlier configuration is in force.");
	fprintf(text, "diesel_config_last_reload_successful %d\n", !reloads->refused);
	metrics_head(text, "diesel_config_last_reload_success_timestamp_seconds", "gauge",
		     "Time at which the configuration in force was read, in Unix time.");
	fprintf(text, "diesel_config_last_reload_success_timestamp_seconds %.3f\n",
		(double)reloads->taken_unix_ns / (double)NS_PER_S);
	metrics_head(text, "diesel_config_reloads_total", "counter",
		     "Times that the configuration was read, including at the start.");
	fprintf(text,
		"diesel_config_reloads_total{outcome=\"taken\"} %" PRIu64
		"\ndiesel_config_reloads_total{outcome=\"refused\"} %" PRIu64 "\n",
		reloads->n_taken, reloads->n_refused);
}

static void setting_figures(FILE *text, const struct control *control)
{
	metrics_head(text, "diesel_setting_overridden", "gauge",
		     "1 while dieselctl set overrides this setting of the configuration.");
	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++)
		if (!settings_is_of_job(key))
			fprintf(text, "diesel_setting_overridden{setting=\"%s\"} %d\n", settings_name(key),
				control_is_overridden(control, key));
}

static void history_figures(FILE *text, const struct control *control)
{
	struct history_status status;

	metrics_head(text, "diesel_history_writable", "gauge",
		     "1 while decisions can be written to the history file; absent: the history is off.");
	if (!control_history_status(control, &status) && !status.error[0])
		return; /* off */
	fprintf(text, "diesel_history_writable %d\n", !status.error[0]);
	metrics_number(text, "diesel_history_bytes", "gauge", "Size of the history file.", status.bytes);
	metrics_number(text, "diesel_history_records_total", "counter", "Records written to the history.",
		       status.n_written);
	metrics_number(text, "diesel_history_dropped_total", "counter",
		       "Records that could not be written to the history.", status.n_dropped);
}

/* Writes the figures of the process and of its service. */
static void metrics_service_text(FILE *text, const struct metrics_sources *sources)
{
	struct error err = ERROR_INIT;

	process_figures(text, sources->server);
	metrics_number(text, "diesel_ready", "gauge",
		       "1 while clients can connect; else /readyz prints the reason.",
		       server_check_ready(sources->server, &err) == 0);
	metrics_number(text, "diesel_observes", "gauge",
		       "1 while the daemon only observes and serves no jobs (option observe).",
		       sources->server->serving.options.observe);
	reload_figures(text, sources->reloads);
	if (!sources->control)
		return;
	setting_figures(text, sources->control);
	history_figures(text, sources->control);
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
		       "Limit on memory for chunks, batches, snapshots and decoded samples together.",
		       c->budget_bytes);
	metrics_head(text, "diesel_cache_bytes", "gauge", "Memory in use by the cache, by kind.");
	fprintf(text, "diesel_cache_bytes{kind=\"chunks\"} %" PRIu64 "\n", c->segment_bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"batches\"} %" PRIu64 "\n", c->slot_bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"snapshots\"} %" PRIu64 "\n", c->snapshot_bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"decoded\"} %" PRIu64 "\n", c->decoded_cache.bytes);
	fprintf(text, "diesel_cache_bytes{kind=\"kept_batches\"} %" PRIu64 "\n", c->kept_batches.bytes);
	metrics_number(text, "diesel_cache_claimed_bytes", "gauge", "Cache memory that jobs have claimed.",
		       claimed);
	metrics_number(text, "diesel_cache_borrowed_bytes", "gauge",
		       "Cache memory that is borrowed: evicted as soon as it is needed elsewhere.",
		       cache_total_bytes(c) - claimed);
	metrics_number(text, "diesel_cache_kept_bytes", "gauge",
		       "Bytes of cached chunks that no job needs now.", c->kept_bytes);
	metrics_number(text, "diesel_chunk_reads_total", "counter",
		       "Reads of chunks from storage that were started.", n->reads);
	metrics_number(text, "diesel_chunk_read_bytes_total", "counter", "Bytes of chunks read from storage.",
		       n->read_bytes);
	metrics_number(text, "diesel_chunks_restored_total", "counter",
		       "Chunks restored after a restart, each of which saved a read.", n->restored);
	metrics_number(
	    text, "diesel_chunks_shared_total", "counter",
	    "Chunks taken from memory of another version of the dataset, each of which saved a read.",
	    n->shared);
	metrics_number(text, "diesel_chunk_reads_in_flight", "gauge", "Reads of chunks in flight.",
		       c->n_loading);
	metrics_number(text, "diesel_chunk_evictions_total", "counter", "Chunks evicted.", n->evictions);
	metrics_number(text, "diesel_chunk_read_retries_total", "counter",
		       "Reads of chunks that failed twice and were repeated some seconds later.", n->retries);
	metrics_number(text, "diesel_chunks_quarantined_total", "counter", "Chunks found damaged.",
		       n->damaged);
}

static void quota_figures(FILE *text, const struct cache *c)
{
	uint64_t paid[CACHE_QUOTA_PAYERS];

	cache_paid_bytes(c, paid);
	metrics_head(text, "diesel_cache_quota_bytes", "gauge",
		     "Cache memory that cache-quota grants to this owner; absent without quotas. "
		     "quota=others: all users without a quota.");
	for (uint32_t i = 0; c->quotas.n > 0 && i <= c->quotas.n; i++)
		fprintf(text, "diesel_cache_quota_bytes{quota=\"%s\"} %" PRIu64 "\n",
			cache_quotas_name(&c->quotas, i), cache_quotas_bytes(&c->quotas, i, c->limit_bytes));
	metrics_head(text, "diesel_cache_quota_used_bytes", "gauge", "Cache memory charged to this quota.");
	for (uint32_t i = 0; c->quotas.n > 0 && i <= c->quotas.n; i++)
		fprintf(text, "diesel_cache_quota_used_bytes{quota=\"%s\"} %" PRIu64 "\n",
			cache_quotas_name(&c->quotas, i), paid[i]);
}

static void read_figures(FILE *text, const struct read_turns *turns)
{
	uint64_t bytes_per_s, ops_per_s;

	read_turns_limits(turns, &bytes_per_s, &ops_per_s);
	metrics_head(text, "diesel_read_limit_bytes_per_second", "gauge",
		     "Limit on bytes read per second from all storages together; absent: no limit.");
	if (bytes_per_s)
		fprintf(text, "diesel_read_limit_bytes_per_second %" PRIu64 "\n", bytes_per_s);
	metrics_head(
	    text, "diesel_read_limit_operations_per_second", "gauge",
	    "Limit on requests of up to 1 MiB per second to all storages together; absent: no limit.");
	if (ops_per_s)
		fprintf(text, "diesel_read_limit_operations_per_second %" PRIu64 "\n", ops_per_s);
	metrics_head(text, "diesel_read_limited_seconds_total", "counter",
		     "Time during which reads waited only because of the read limits.");
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
	metrics_number(text, "diesel_stage_limit_bytes", "gauge",
		       "Maximum size of the staging folder (stage-size).", f.limit_bytes);
	metrics_number(text, "diesel_stage_bytes", "gauge", "Bytes of files in the staging folder.", f.bytes);
	metrics_number(text, "diesel_stage_chunks", "gauge", "Chunks in the staging folder.", f.files);
	metrics_number(text, "diesel_stage_hits_total", "counter",
		       "Chunks read from staging instead of storage.", f.hits);
	metrics_number(text, "diesel_stage_read_bytes_total", "counter", "Bytes of chunks read from staging.",
		       f.read_bytes);
	metrics_number(text, "diesel_stage_writes_total", "counter", "Chunks written to staging.", f.written);
	metrics_number(text, "diesel_stage_written_bytes_total", "counter",
		       "Bytes of chunks written to staging.", f.written_bytes);
	metrics_number(text, "diesel_stage_evictions_total", "counter", "Chunks evicted from staging.",
		       f.evicted);
	metrics_number(text, "diesel_stage_skipped_total", "counter",
		       "Chunks evicted from memory before they could be written to staging.", f.skipped);
	metrics_head(text, "diesel_stage_failures_total", "counter",
		     "Failed operations in the staging folder, after which chunks came from storage.");
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
		       "1 while the Redis server through which nodes find each other answers.",
		       f.redis_is_up);
	metrics_number(text, "diesel_cluster_chunks_in_total", "counter",
		       "Chunks that came from other nodes.", f.chunks_in);
	metrics_number(text, "diesel_cluster_bytes_in_total", "counter",
		       "Bytes of chunks that came from other nodes.", f.bytes_in);
	metrics_number(text, "diesel_cluster_chunks_out_total", "counter", "Chunks sent to other nodes.",
		       f.chunks_out);
	metrics_number(text, "diesel_cluster_bytes_out_total", "counter",
		       "Bytes of chunks sent to other nodes.", f.bytes_out);
	metrics_head(text, "diesel_cluster_failures_total", "counter",
		     "Chunks requested from other nodes but then read from storage.");
	fprintf(text, "diesel_cluster_failures_total{kind=\"late\"} %" PRIu64 "\n", f.late);
	fprintf(text, "diesel_cluster_failures_total{kind=\"failed\"} %" PRIu64 "\n", f.failed);
	fprintf(text, "diesel_cluster_failures_total{kind=\"spoilt\"} %" PRIu64 "\n", f.spoilt);
	fprintf(text, "diesel_cluster_failures_total{kind=\"refused\"} %" PRIu64 "\n", f.refused);
}

static void session_figures(FILE *text, const struct server *s)
{
	/* A session's word for its wait, and the value of the label, as in the other metrics of stalls. */
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
	metrics_number(text, "diesel_sessions", "gauge",
		       "Open sessions, each of which serves a sequence of batches.", n_sessions);
	metrics_head(text, "diesel_sessions_waiting", "gauge",
		     "Sessions whose next batch waits, by cause: for storage, for CPU work, or for the "
		     "client to take or release a batch.");
	for (size_t i = 0; i < 3; i++)
		fprintf(text, "diesel_sessions_waiting{stall=\"%s\"} %" PRIu64 "\n", kinds[i].stall,
			n_waiting[i]);
	metrics_number(text, "diesel_batches_total", "counter", "Batches made ready for clients.",
		       s->serving.cache.counters.batches);
	metrics_number(text, "diesel_connections_total", "counter", "Clients that connected.", s->n_accepted);
	metrics_number(text, "diesel_workers", "gauge",
		       "Threads of the daemon that verify chunks and gather batches.",
		       pool_workers(s->serving.cache.pool));
	metrics_number(text, "diesel_prefetch_chunks", "gauge",
		       "Chunks prefetched beyond the window of a session.",
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
