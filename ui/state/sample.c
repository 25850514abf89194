/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample_fields.h"

#define KIND(value)                                                                                          \
	_Generic((value), char * : FIELD_TEXT, double : FIELD_REAL, uint64_t : FIELD_COUNT, bool : FIELD_FLAG)
#define FIELD_AS(type, name, member)                                                                         \
	{                                                                                                    \
		name, KIND(((type *)0)->member), offsetof(type, member), sizeof(((type *)0)->member)         \
	}
#define FIELD(type, member) FIELD_AS(type, #member, member)

#define J struct job_sample
static const struct sample_field job_fields[] = {
    FIELD(J, id),
    FIELD(J, name),
    FIELD(J, user),
    FIELD(J, state),
    FIELD(J, method),
    FIELD(J, verdict),
    FIELD(J, loader),
    FIELD(J, remark),
    FIELD_AS(J, "decision", served.decision),
    FIELD_AS(J, "why", served.why),
    FIELD(J, pid),
    FIELD(J, n_processes),
    FIELD(J, n_workers),
    FIELD(J, n_steps),
    FIELD(J, n_lost),
    FIELD_AS(J, "device", share[SHARE_DEVICE]),
    FIELD_AS(J, "fetch_stall", share[SHARE_FETCH_STALL]),
    FIELD_AS(J, "prep_stall", share[SHARE_PREP_STALL]),
    FIELD_AS(J, "checkpoint_stall", share[SHARE_CHECKPOINT_STALL]),
    FIELD_AS(J, "cpu_starved", share[SHARE_CPU_STARVED]),
    FIELD_AS(J, "compiling", share[SHARE_COMPILING]),
    FIELD_AS(J, "other", share[SHARE_OTHER]),
    FIELD(J, gpu_wait),
    FIELD(J, gpu_spin),
    FIELD(J, gpu_starved),
    FIELD(J, launches_per_s),
    FIELD(J, copies_per_s),
    FIELD(J, gpu_call),
    FIELD(J, share_error),
    FIELD(J, steps_per_s),
    FIELD(J, step_p50_s),
    FIELD(J, step_p95_s),
    FIELD(J, wait_mean_s),
    FIELD_AS(J, "samples_per_s", served.samples_per_s),
    FIELD(J, cpu_ratio),
    FIELD(J, read_bytes_per_s),
    FIELD(J, hit_ratio),
    FIELD(J, memory_bytes),
    FIELD_AS(J, "cache_bytes", served.cache_bytes),
    FIELD_AS(J, "cache_limit_bytes", served.cache_limit_bytes),
    FIELD_AS(J, "prefetch_chunks", served.prefetch_chunks),
    FIELD_AS(J, "daemon_workers", served.daemon_workers),
    FIELD_AS(J, "client_workers", served.client_workers),
    FIELD_AS(J, "n_ready", served.n_ready),
    FIELD_AS(J, "decision_age_s", served.decision_age_s),
    FIELD(J, age_s),
    FIELD(J, ended_s),
    FIELD_AS(J, "n_decoded", served.n_decoded),
    FIELD_AS(J, "n_damaged", served.n_damaged),
    FIELD_AS(J, "decoder_cpu_s", served.decoder_cpu_s),
    FIELD_AS(J, "n_replaced", served.n_replaced),
    FIELD_AS(J, "n_from_decoded_copies", served.n_from_decoded_copies),
    FIELD_AS(J, "n_decoded_copies", served.n_decoded_copies),
    FIELD_AS(J, "decoded_bytes", served.decoded_bytes),
    FIELD_AS(J, "n_batches", served.n_batches),
    FIELD_AS(J, "n_shared", served.n_shared),
    FIELD_AS(J, "shared_from", served.shared_from),
    FIELD_AS(J, "n_checkpoints", served.n_checkpoints),
    FIELD_AS(J, "n_checkpoints_failed", served.n_checkpoints_failed),
    FIELD_AS(J, "checkpoint_steps", served.checkpoint_steps),
    FIELD_AS(J, "checkpoint_overhead", served.checkpoint_overhead),
    FIELD_AS(J, "snapshot_s", served.snapshot_s),
    FIELD_AS(J, "checkpoint_slowdown_s", served.checkpoint_slowdown_s),
    FIELD_AS(J, "checkpoint_written_s", served.checkpoint_written_s),
    FIELD_AS(J, "checkpoint_age_s", served.checkpoint_age_s),
    FIELD_AS(J, "memory_chunks_per_s", served.memory_chunks_per_s),
    FIELD_AS(J, "memory_bytes_per_s", served.memory_bytes_per_s),
    FIELD_AS(J, "node_chunks_per_s", served.node_chunks_per_s),
    FIELD_AS(J, "node_bytes_per_s", served.node_bytes_per_s),
    FIELD_AS(J, "node_latency_s", served.node_latency_s),
    FIELD_AS(J, "storage_chunks_per_s", served.storage_chunks_per_s),
    FIELD_AS(J, "storage_bytes_per_s", served.storage_bytes_per_s),
    FIELD_AS(J, "storage_latency_s", served.storage_latency_s),
    FIELD_AS(J, "n_reached", served.n_reached),
    FIELD_AS(J, "n_members", served.n_members),
    FIELD_AS(J, "n_troubled", served.n_troubled),
    FIELD_AS(J, "troubled", served.troubled),
    FIELD(J, node),
    FIELD(J, dataset),
    FIELD(J, stall_s),
    FIELD(J, measured_s)};

#define W struct worker_sample
static const struct sample_field worker_fields[] = {
    FIELD(W, job),          FIELD(W, role),
    FIELD(W, name),         FIELD(W, state),
    FIELD(W, wait),         FIELD(W, pid),
    FIELD(W, parent_pid),   FIELD(W, cpu_ratio),
    FIELD(W, queue_ratio),  FIELD(W, read_bytes_per_s),
    FIELD(W, memory_bytes),
};

#define D struct device_sample
static const struct sample_field device_fields[] = {FIELD(D, name),
						    FIELD(D, kind),
						    FIELD(D, read_bytes_per_s),
						    FIELD(D, write_bytes_per_s),
						    FIELD(D, reads_per_s),
						    FIELD(D, await_s),
						    FIELD(D, queue),
						    FIELD(D, busy_ratio)};

#define P struct place_sample
static const struct sample_field place_fields[] = {
    FIELD(P, job),       FIELD(P, path), FIELD(P, used_bytes_per_s), FIELD(P, cold_bytes_per_s),
    FIELD(P, hit_ratio),
};

#define S struct dataset_sample
static const struct sample_field dataset_fields[] = {
    FIELD(S, path),       FIELD(S, n_samples), FIELD(S, n_chunks), FIELD(S, n_cached),
    FIELD(S, n_sessions), FIELD(S, n_bad),     FIELD(S, bytes),
};

#define C struct decision_sample
static const struct sample_field decision_fields[] = {
    FIELD(C, job), FIELD(C, knob),   FIELD(C, from),  FIELD(C, to),
    FIELD(C, why), FIELD(C, effect), FIELD(C, age_s),
};

#define H struct hop_sample
static const struct sample_field hop_fields[] = {
    FIELD(H, job), FIELD(H, role),    FIELD(H, name),     FIELD(H, what),  FIELD(H, edge),
    FIELD(H, tid), FIELD(H, begin_s), FIELD(H, length_s), FIELD(H, fetch),
};

#define G struct gpu_sample_row
static const struct sample_field gpu_fields[] = {
    FIELD(G, name),         FIELD(G, jobs),       FIELD(G, index),
    FIELD(G, n_processes),  FIELD(G, busy_ratio), FIELD(G, memory_used_bytes),
    FIELD(G, memory_bytes), FIELD(G, power_w),
};

#define N struct node_sample
static const struct sample_field node_fields[] = {
    FIELD(N, name),     FIELD(N, state),  FIELD(N, version),   FIELD(N, age_s),
    FIELD(N, uptime_s), FIELD(N, n_jobs), FIELD(N, n_omitted),
};

#define A struct daemon_sample
static const struct sample_field daemon_fields[] = {FIELD(A, state),
						    FIELD(A, version),
						    FIELD(A, socket),
						    FIELD(A, io),
						    FIELD(A, sensing),
						    FIELD(A, tuner),
						    FIELD(A, problem),
						    FIELD(A, pid),
						    FIELD(A, uptime_s),
						    FIELD(A, cache_budget_bytes),
						    FIELD(A, cache_used_bytes),
						    FIELD(A, cache_borrowed_bytes),
						    FIELD(A, prefetch_chunks),
						    FIELD(A, workers),
						    FIELD(A, n_loading),
						    FIELD(A, n_sessions),
						    FIELD(A, read_bytes),
						    FIELD(A, reads),
						    FIELD(A, evictions),
						    FIELD(A, read_bytes_per_s),
						    FIELD(A, n_bad),
						    FIELD(A, age_s)};

#define O struct host_sample
static const struct sample_field host_fields[] = {
    FIELD(O, name),    FIELD(O, n_cpus),       FIELD(O, cpu_ratio),
    FIELD(O, load1),   FIELD(O, memory_bytes), FIELD(O, available_bytes),
    FIELD(O, psi_cpu), FIELD(O, psi_io),       FIELD(O, psi_memory),
    FIELD(O, gpus),
};

#define X struct self_sample
static const struct sample_field self_fields[] = {
    FIELD(X, source),       FIELD(X, cpu_ratio),  FIELD(X, memory_bytes),   FIELD(X, bpf_ratio),
    FIELD(X, events_per_s), FIELD(X, poll_ratio), FIELD(X, analysis_ratio), FIELD(X, scan_ratio),
    FIELD(X, draw_ratio),   FIELD(X, oldest_s),   FIELD(X, cells_per_s),    FIELD(X, n_lost),
    FIELD(X, n_tasks),
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
