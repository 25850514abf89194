/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of each job. Labels: its number, which the history and dieselctl use too, and its rank. No label is
 * one that Prometheus sets itself: `job`, `instance`, and in Kubernetes `pod` and `namespace`. Figures that
 * only samples tell are left out until there are samples: absent is not zero. */
#include "metrics_private.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "job_events.h"
#include "lib/clock.h"
#include "server.h"

#define LABELS "training_job=\"%" PRIu64 "\",rank=\"%" PRIu32 "\""

/* Hidden names are empty, which is to Prometheus as if the label were not there. */
static void infos(FILE *text, const struct server *s, bool hide_names)
{
	char program[64], uid[16];

	metrics_head(text, "diesel_job_info", "gauge", "Whose job it is, and which program; always 1.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
		job_events_program(j, program, sizeof(program));
		snprintf(uid, sizeof(uid), "%" PRIu32, j->uid);
		fprintf(text,
			"diesel_job_info{" LABELS ",world=\"%" PRIu32 "\",uid=\"%s\",program=\"%s\"} 1\n",
			j->id, j->rank, j->world, hide_names ? "" : uid, hide_names ? "" : program);
	}
}

/* A metric of its own, for joining: most nodes have one of Slurm and Kubernetes, and many neither. */
static void origins(FILE *text, const struct server *s)
{
	metrics_head(text, "diesel_job_origin_info", "gauge",
		     "Who runs the job, as Slurm and Kubernetes tell it; always 1.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		if (job_origin_is_known(&j->origin))
			fprintf(text,
				"diesel_job_origin_info{" LABELS
				",slurm_job=\"%s\",account=\"%s\",job_pod=\"%"
				"s\",pod_uid=\"%s\",job_namespace=\"%s\"} 1\n",
				j->id, j->rank, j->origin.slurm_job, j->origin.account, j->origin.pod,
				j->origin.pod_uid, j->origin.pod_namespace);
}

struct family {
	const char *name, *type, *help, *label; /* label: one more, with its comma, or "" */
	size_t offset;                          /* of a uint64_t in struct job_counters */
	double scale;
};

#define COUNTER(member) offsetof(struct job_counters, member)

static const struct family counted[] = {
    {"diesel_job_batches_total", "counter", "Batches made ready for the job.", "", COUNTER(batches), 1},
    {"diesel_job_shared_batches_total", "counter", "Of these, those that were decoded for another job.", "",
     COUNTER(shared_batches), 1},
    {"diesel_job_samples_total", "counter", "Samples made ready for the job.", "", COUNTER(samples), 1},
    {"diesel_job_bytes_total", "counter", "Bytes made ready for the job.", "", COUNTER(bytes), 1},
    {"diesel_chunk_visits_total", "counter", "Chunks that the job needed, one by one.", "",
     COUNTER(chunk_visits), 1},
    {"diesel_job_chunk_reads_total", "counter", "Chunk visits that read from storage: misses.", "",
     COUNTER(chunk_reads), 1},
    {"diesel_read_bytes_total", "counter",
     "Bytes of chunks that came for the job: from storage, or from other nodes of it.", ",source=\"device\"",
     COUNTER(read_bytes), 1},
    {"diesel_read_bytes_total", NULL, NULL, ",source=\"node\"", COUNTER(peer_bytes), 1},
    {"diesel_read_seconds_total", "counter", "Time in which reads for the job were under way.", "",
     COUNTER(reading_ns), 1e-9},
    {"diesel_job_node_chunks_total", "counter", "Chunks that came from other nodes of the job.", "",
     COUNTER(peer_chunks), 1},
    {"diesel_job_node_seconds_total", "counter", "Sum of the times that these took.", "", COUNTER(peer_ns),
     1e-9},
    {"diesel_job_node_failures_total", "counter",
     "Chunks that another node of the job was asked for in vain, and that were read from storage.", "",
     COUNTER(peer_failed), 1},
    {"diesel_worker_seconds_total", "counter",
     "Thread time spent for the job: reads, and CPU of the daemon's workers.", ",state=\"io\"",
     COUNTER(read_ns), 1e-9},
    {"diesel_worker_seconds_total", NULL, NULL, ",state=\"cpu\"", COUNTER(cpu_ns), 1e-9},
    {"diesel_job_decoded_samples_total", "counter", "Samples that the daemon's decoders decoded for the job.",
     "", COUNTER(decoded.samples), 1},
    {"diesel_job_samples_from_forms_total", "counter",
     "Of these, samples that came out of a form that was kept.", "", COUNTER(ways[CODEC_FROM_FORM].n), 1},
    {"diesel_job_forms_made_total", "counter", "Of these, samples of which a form was kept.", "",
     COUNTER(ways[CODEC_MADE_FORM].n), 1},
    {"diesel_job_damaged_samples_total", "counter", "Samples of the job that could not be decoded.", "",
     COUNTER(decoded.damaged), 1},
    {"diesel_job_decoder_seconds_total", "counter",
     "CPU time of the job's decoders; part of diesel_worker_seconds_total.", "", COUNTER(decoded.cpu_ns),
     1e-9},
    {"diesel_job_decoders_replaced_total", "counter",
     "Decoders of the job that crashed or hung, or were killed.", "", COUNTER(decoded.replaced), 1},
    {"diesel_client_wait_seconds_total", "counter",
     "Time the job's loader slept for a batch, as it reports itself.", ",stall=\"fetch\"",
     COUNTER(wait_fetch_ns), 1e-9},
    {"diesel_client_wait_seconds_total", NULL, NULL, ",stall=\"preprocess\"", COUNTER(wait_prep_ns), 1e-9},
};

static void write_counted(FILE *text, const struct server *s)
{
	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
		const struct family *f = &counted[i];

		if (f->type)
			metrics_head(text, f->name, f->type, f->help);
		for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
			struct job_counters now;
			uint64_t value;

			serving_job_counters(&s->serving, j, &now);
			memcpy(&value, (const char *)&now + f->offset, sizeof(value));
			fprintf(text, "%s{" LABELS "%s} %.9g\n", f->name, j->id, j->rank, f->label,
				(double)value * f->scale);
		}
	}
}

/* One bucket per octave. */
static void read_latency(FILE *text, const struct server *s)
{
	static const char name[] = "diesel_chunk_read_seconds";

	metrics_head(text, name, "histogram", "How long reading a chunk from storage took.");
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
		     "Wall time of the trainer of which any share is known.");
	for (const struct job *j = first; j; j = j->next)
		if ((m = sampled(sources, j)))
			fprintf(text, "diesel_trainer_seconds_total{" LABELS "} %.9g\n", j->id, j->rank,
				m->trainer_s);
	metrics_head(
	    text, "diesel_stall_seconds_total", "counter",
	    "Wall time in which the trainer waited, by what it waited for; gpu_wait: for its device.");
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
		     "Wall time of the trainer of which it is known how much was this stall: divide by it.");
	for (const struct job *j = first; j; j = j->next) {
		if (!(m = sampled(sources, j)))
			continue;
		for (size_t i = 0; i < METRICS_N_STALLS; i++)
			if (m->known_s[i] > 0)
				fprintf(
				    text, "diesel_stall_known_seconds_total{" LABELS ",stall=\"%s\"} %.9g\n",
				    j->id, j->rank, metrics_stall_name((enum metrics_stall)i), m->known_s[i]);
	}
	metrics_head(text, "diesel_job_sensing", "gauge", "How the job's stalls are measured; always 1.");
	for (const struct job *j = first; j; j = j->next)
		if ((m = sampled(sources, j)) && m->source <= STALL_SOURCE_PROCESS)
			fprintf(text, "diesel_job_sensing{" LABELS ",source=\"%s\"} 1\n", j->id, j->rank,
				source_names[m->source]);
}

static uint64_t set_or(const struct job *job, enum tuner_knob knob, uint64_t otherwise)
{
	uint64_t value = job->knobs.value[knob];

	return value != tuner_knob_table[knob].free ? value : otherwise;
}

/* Knobs in force. A cache that nobody has set is absent. */
static void knobs(FILE *text, const struct server *s)
{
	metrics_head(text, "diesel_job_cache_limit_bytes", "gauge", "Memory that the job's chunks may take.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		if (j->knobs.value[TUNER_CACHE_BYTES] != TUNER_FREE_BYTES)
			fprintf(text, "diesel_job_cache_limit_bytes{" LABELS "} %" PRIu64 "\n", j->id,
				j->rank, j->knobs.value[TUNER_CACHE_BYTES]);
	metrics_head(text, "diesel_job_form_bytes", "gauge", "Decoded forms of the job's samples in memory.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next) {
		struct serving_job_memory memory;

		serving_job_memory(&s->serving, j, &memory);
		fprintf(text, "diesel_job_form_bytes{" LABELS "} %" PRIu64 "\n", j->id, j->rank,
			memory.forms);
	}
	metrics_head(text, "diesel_job_prefetch_chunks", "gauge", "Chunks read ahead for the job.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		fprintf(text, "diesel_job_prefetch_chunks{" LABELS "} %" PRIu64 "\n", j->id, j->rank,
			set_or(j, TUNER_PREFETCH_CHUNKS, s->serving.options.knobs.prefetch_chunks));
	metrics_head(text, "diesel_job_read_weight", "gauge",
		     "The job's part of a storage's bytes, beside other jobs.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		fprintf(text, "diesel_job_read_weight{" LABELS "} %" PRIu32 "\n", j->id, j->rank,
			j->read_weight);
	metrics_head(text, "diesel_job_read_ahead_held_seconds_total", "counter",
		     "Time in which the job's reading ahead gave way to a checkpoint of the same user's.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		fprintf(text, "diesel_job_read_ahead_held_seconds_total{" LABELS "} %.9g\n", j->id, j->rank,
			(double)job_held_ns(j, clock_monotonic_ns()) / 1e9);
	metrics_head(text, "diesel_job_workers", "gauge",
		     "Workers of the daemon that may work for the job at one time.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		fprintf(text, "diesel_job_workers{" LABELS "} %" PRIu64 "\n", j->id, j->rank,
			set_or(j, TUNER_DAEMON_WORKERS, pool_workers(s->serving.cache.pool)));
	metrics_head(text, "diesel_job_client_workers", "gauge",
		     "Worker processes that the job runs for its transforms.");
	for (const struct job *j = s->serving.jobs.first; j; j = j->next)
		fprintf(text, "diesel_job_client_workers{" LABELS "} %" PRIu32 "\n", j->id, j->rank,
			serving_job_client_workers(&s->serving, j));
}

void metrics_jobs_text(FILE *text, const struct metrics_sources *sources)
{
	infos(text, sources->server, *sources->hide_names);
	if (!*sources->hide_names)
		origins(text, sources->server);
	write_counted(text, sources->server);
	read_latency(text, sources->server);
	steps(text, sources);
	stalls(text, sources);
	knobs(text, sources->server);
}
