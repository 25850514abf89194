/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample_fields.h"

#define TEXT(type, member)                                                                                   \
	{                                                                                                    \
#member, FIELD_TEXT, offsetof(type, member), sizeof(((type *)0)->member)                     \
	}
#define REAL(type, member)                                                                                   \
	{                                                                                                    \
#member, FIELD_REAL, offsetof(type, member), sizeof(double)                                  \
	}
#define REAL_AS(type, name, member)                                                                          \
	{                                                                                                    \
		name, FIELD_REAL, offsetof(type, member), sizeof(double)                                     \
	}
#define COUNT_AS(type, name, member)                                                                         \
	{                                                                                                    \
		name, FIELD_COUNT, offsetof(type, member), sizeof(uint64_t)                                  \
	}
#define TEXT_AS(type, name, member)                                                                          \
	{                                                                                                    \
		name, FIELD_TEXT, offsetof(type, member), sizeof(((type *)0)->member)                        \
	}
#define COUNT(type, member)                                                                                  \
	{                                                                                                    \
#member, FIELD_COUNT, offsetof(type, member), sizeof(uint64_t)                               \
	}
#define FLAG(type, member)                                                                                   \
	{                                                                                                    \
#member, FIELD_FLAG, offsetof(type, member), sizeof(bool)                                    \
	}

#define J struct job_sample
static const struct sample_field job_fields[] = {
    TEXT(J, id),
    TEXT(J, name),
    TEXT(J, user),
    TEXT(J, state),
    TEXT(J, method),
    TEXT(J, verdict),
    TEXT(J, loader),
    TEXT(J, remark),
    TEXT_AS(J, "decision", served.decision),
    TEXT_AS(J, "why", served.why),
    COUNT(J, pid),
    COUNT(J, n_processes),
    COUNT(J, n_workers),
    COUNT(J, n_steps),
    COUNT(J, n_lost),
    REAL_AS(J, "device", share[SHARE_DEVICE]),
    REAL_AS(J, "fetch_stall", share[SHARE_FETCH_STALL]),
    REAL_AS(J, "prep_stall", share[SHARE_PREP_STALL]),
    REAL_AS(J, "checkpoint_stall", share[SHARE_CHECKPOINT_STALL]),
    REAL_AS(J, "cpu_starved", share[SHARE_CPU_STARVED]),
    REAL_AS(J, "compiling", share[SHARE_COMPILING]),
    REAL_AS(J, "other", share[SHARE_OTHER]),
    REAL(J, gpu_wait),
    REAL(J, gpu_spin),
    REAL(J, gpu_starved),
    REAL(J, launches_per_s),
    REAL(J, copies_per_s),
    TEXT(J, gpu_call),
    REAL(J, share_error),
    REAL(J, steps_per_s),
    REAL(J, step_p50_s),
    REAL(J, step_p95_s),
    REAL(J, wait_mean_s),
    REAL_AS(J, "samples_per_s", served.samples_per_s),
    REAL(J, cpu_ratio),
    REAL(J, read_bytes_per_s),
    REAL(J, hit_ratio),
    REAL(J, memory_bytes),
    REAL_AS(J, "cache_bytes", served.cache_bytes),
    REAL_AS(J, "cache_limit_bytes", served.cache_limit_bytes),
    COUNT_AS(J, "prefetch_chunks", served.prefetch_chunks),
    COUNT_AS(J, "daemon_workers", served.daemon_workers),
    COUNT_AS(J, "client_workers", served.client_workers),
    COUNT_AS(J, "n_ready", served.n_ready),
    REAL_AS(J, "decision_age_s", served.decision_age_s),
    REAL(J, age_s),
    REAL(J, ended_s),
    COUNT_AS(J, "n_decoded", served.n_decoded),
    COUNT_AS(J, "n_damaged", served.n_damaged),
    REAL_AS(J, "decoder_cpu_s", served.decoder_cpu_s),
    COUNT_AS(J, "n_replaced", served.n_replaced),
    COUNT_AS(J, "n_from_decoded_copies", served.n_from_decoded_copies),
    COUNT_AS(J, "n_decoded_copies", served.n_decoded_copies),
    REAL_AS(J, "decoded_bytes", served.decoded_bytes),
    COUNT_AS(J, "n_batches", served.n_batches),
    COUNT_AS(J, "n_shared", served.n_shared),
    COUNT_AS(J, "shared_from", served.shared_from),
    COUNT_AS(J, "n_checkpoints", served.n_checkpoints),
    COUNT_AS(J, "n_checkpoints_failed", served.n_checkpoints_failed),
    COUNT_AS(J, "checkpoint_steps", served.checkpoint_steps),
    REAL_AS(J, "checkpoint_overhead", served.checkpoint_overhead),
    REAL_AS(J, "snapshot_s", served.snapshot_s),
    REAL_AS(J, "checkpoint_slowdown_s", served.checkpoint_slowdown_s),
    REAL_AS(J, "checkpoint_written_s", served.checkpoint_written_s),
    REAL_AS(J, "checkpoint_age_s", served.checkpoint_age_s),
    REAL_AS(J, "memory_chunks_per_s", served.memory_chunks_per_s),
    REAL_AS(J, "memory_bytes_per_s", served.memory_bytes_per_s),
    REAL_AS(J, "node_chunks_per_s", served.node_chunks_per_s),
    REAL_AS(J, "node_bytes_per_s", served.node_bytes_per_s),
    REAL_AS(J, "node_latency_s", served.node_latency_s),
    REAL_AS(J, "storage_chunks_per_s", served.storage_chunks_per_s),
    REAL_AS(J, "storage_bytes_per_s", served.storage_bytes_per_s),
    REAL_AS(J, "storage_latency_s", served.storage_latency_s),
    COUNT_AS(J, "n_reached", served.n_reached),
    COUNT_AS(J, "n_members", served.n_members),
    COUNT_AS(J, "n_troubled", served.n_troubled),
    TEXT_AS(J, "troubled", served.troubled),
    TEXT(J, node),
    TEXT(J, dataset),
    REAL(J, stall_s),
    REAL(J, measured_s),
};

#define W struct worker_sample
static const struct sample_field worker_fields[] = {
    TEXT(W, job),          TEXT(W, role),
    TEXT(W, name),         TEXT(W, state),
    TEXT(W, wait),         COUNT(W, pid),
    COUNT(W, parent_pid),  REAL(W, cpu_ratio),
    REAL(W, queue_ratio),  REAL(W, read_bytes_per_s),
    REAL(W, memory_bytes),
};

#define D struct device_sample
static const struct sample_field device_fields[] = {
    TEXT(D, name),
    TEXT(D, kind),
    REAL(D, read_bytes_per_s),
    REAL(D, write_bytes_per_s),
    REAL(D, reads_per_s),
    REAL(D, await_s),
    REAL(D, queue),
    REAL(D, busy_ratio),
};

#define P struct place_sample
static const struct sample_field place_fields[] = {
    TEXT(P, job), TEXT(P, path), REAL(P, used_bytes_per_s), REAL(P, cold_bytes_per_s), REAL(P, hit_ratio),
};

#define S struct dataset_sample
static const struct sample_field dataset_fields[] = {
    TEXT(S, path),        COUNT(S, n_samples), COUNT(S, n_chunks), COUNT(S, n_cached),
    COUNT(S, n_sessions), COUNT(S, n_bad),     REAL(S, bytes),
};

#define C struct decision_sample
static const struct sample_field decision_fields[] = {
    TEXT(C, job), TEXT(C, knob), TEXT(C, from), TEXT(C, to), TEXT(C, why), TEXT(C, effect), REAL(C, age_s),
};

#define H struct hop_sample
static const struct sample_field hop_fields[] = {
    TEXT(H, job),  TEXT(H, role),    TEXT(H, name),     TEXT(H, what),  TEXT(H, edge),
    COUNT(H, tid), REAL(H, begin_s), REAL(H, length_s), FLAG(H, fetch),
};

#define G struct gpu_sample_row
static const struct sample_field gpu_fields[] = {
    TEXT(G, name),         TEXT(G, jobs),       COUNT(G, index),
    COUNT(G, n_processes), REAL(G, busy_ratio), REAL(G, memory_used_bytes),
    REAL(G, memory_bytes), REAL(G, power_w),
};

#define N struct node_sample
static const struct sample_field node_fields[] = {
    TEXT(N, name),     TEXT(N, state),   TEXT(N, version),    REAL(N, age_s),
    REAL(N, uptime_s), COUNT(N, n_jobs), COUNT(N, n_omitted),
};

#define A struct daemon_sample
static const struct sample_field daemon_fields[] = {
    TEXT(A, state),
    TEXT(A, version),
    TEXT(A, socket),
    TEXT(A, io),
    TEXT(A, sensing),
    TEXT(A, tuner),
    TEXT(A, problem),
    COUNT(A, pid),
    REAL(A, uptime_s),
    REAL(A, cache_budget_bytes),
    REAL(A, cache_used_bytes),
    REAL(A, cache_borrowed_bytes),
    COUNT(A, prefetch_chunks),
    COUNT(A, workers),
    COUNT(A, n_loading),
    COUNT(A, n_sessions),
    REAL(A, read_bytes),
    REAL(A, reads),
    REAL(A, evictions),
    REAL(A, read_bytes_per_s),
    COUNT(A, n_bad),
    REAL(A, age_s),
};

#define O struct host_sample
static const struct sample_field host_fields[] = {
    TEXT(O, name),    COUNT(O, n_cpus),      REAL(O, cpu_ratio),
    REAL(O, load1),   REAL(O, memory_bytes), REAL(O, available_bytes),
    REAL(O, psi_cpu), REAL(O, psi_io),       REAL(O, psi_memory),
    TEXT(O, gpus),
};

#define X struct self_sample
static const struct sample_field self_fields[] = {
    TEXT(X, source),       REAL(X, cpu_ratio),  REAL(X, memory_bytes),   REAL(X, bpf_ratio),
    REAL(X, events_per_s), REAL(X, poll_ratio), REAL(X, analysis_ratio), REAL(X, scan_ratio),
    REAL(X, draw_ratio),   REAL(X, oldest_s),   REAL(X, cells_per_s),    COUNT(X, n_lost),
    COUNT(X, n_tasks),
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define LIST(type, fields, member)                                                                           \
	{                                                                                                    \
#member, sizeof(type), fields, N_OF(fields), offsetof(struct top_sample, member),            \
		    offsetof(struct top_sample, n_##member)                                                  \
	}

const struct field_table sample_lists[SAMPLE_LISTS] = {
    [SAMPLE_JOBS] = LIST(J, job_fields, jobs),
    [SAMPLE_WORKERS] = LIST(W, worker_fields, workers),
    [SAMPLE_DEVICES] = LIST(D, device_fields, devices),
    [SAMPLE_PLACES] = LIST(P, place_fields, places),
    [SAMPLE_DATASETS] = LIST(S, dataset_fields, datasets),
    [SAMPLE_DECISIONS] = LIST(C, decision_fields, decisions),
    [SAMPLE_HOPS] = LIST(H, hop_fields, hops),
    [SAMPLE_GPUS] = LIST(G, gpu_fields, gpus),
    [SAMPLE_NODES] = LIST(N, node_fields, nodes),
};

const struct field_table sample_objects[SAMPLE_OBJECTS] = {
    {"host", sizeof(O), host_fields, N_OF(host_fields), offsetof(struct top_sample, host), 0},
    {"daemon", sizeof(A), daemon_fields, N_OF(daemon_fields), offsetof(struct top_sample, daemon), 0},
    {"self", sizeof(X), self_fields, N_OF(self_fields), offsetof(struct top_sample, self), 0},
};

/* Sets all fields to unknown: texts to "", counts to SAMPLE_UNKNOWN, numbers to NAN, flags to false. */
static void fields_clear(const struct field_table *table, void *item)
{
	memset(item, 0, table->item_size);
	for (size_t i = 0; i < table->n_fields; i++) {
		const struct sample_field *field = &table->fields[i];

		if (field->kind == FIELD_REAL)
			*(double *)((char *)item + field->offset) = NAN;
		else if (field->kind == FIELD_COUNT)
			*(uint64_t *)((char *)item + field->offset) = SAMPLE_UNKNOWN;
	}
}

struct top_sample *sample_new(void)
{
	struct top_sample *sample = calloc(1, sizeof(*sample));

	if (!sample)
		return NULL;
	sample->time_s = sample->interval_s = NAN;
	for (size_t i = 0; i < SAMPLE_OBJECTS; i++)
		fields_clear(&sample_objects[i], (char *)sample + sample_objects[i].items_offset);
	return sample;
}

static void **items_of(struct top_sample *sample, const struct field_table *table)
{
	return (void **)((char *)sample + table->items_offset);
}

static size_t *n_of(struct top_sample *sample, const struct field_table *table)
{
	return (size_t *)((char *)sample + table->n_offset);
}

struct top_sample *sample_free(struct top_sample *sample)
{
	if (!sample)
		return NULL;
	for (size_t i = 0; i < SAMPLE_LISTS; i++)
		free(*items_of(sample, &sample_lists[i]));
	free(sample);
	return NULL;
}

void *sample_add(struct top_sample *sample, enum sample_list list)
{
	const struct field_table *table = &sample_lists[list];
	void **items = items_of(sample, table);
	size_t *n = n_of(sample, table);
	char *item;

	/* The capacity doubles, so it is exhausted whenever n is 0 or a power of two. */
	if (!(*n & (*n - 1))) {
		void *grown = reallocarray(*items, *n ? 2 * *n : 1, table->item_size);

		if (!grown)
			return NULL;
		*items = grown;
	}
	item = (char *)*items + *n * table->item_size;
	fields_clear(table, item);
	(*n)++;
	return item;
}

double sample_stall(const struct job_sample *job)
{
	return job->share[SHARE_FETCH_STALL] + job->share[SHARE_PREP_STALL] +
	       job->share[SHARE_CHECKPOINT_STALL] + job->share[SHARE_CPU_STARVED];
}

const struct job_sample *sample_job(const struct top_sample *sample, const char *id)
{
	for (size_t i = 0; i < sample->n_jobs; i++)
		if (!strcmp(sample->jobs[i].id, id))
			return &sample->jobs[i];
	return NULL;
}
