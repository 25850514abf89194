/* SPDX-License-Identifier: Apache-2.0 */
#include "columns.h"

#include "ui/state/sample.h"

static double stall_of(const void *item)
{
	return sample_stall(item);
}

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define AT(member)  offsetof(struct ITEM, member)
/* The text may be followed by further fields. */
#define COL(column_kind, column_key, column_title, member, column_width, column_rank, ...)                   \
	{                                                                                                    \
		.kind = COLUMN_##column_kind, .key = (column_key), .title = (column_title),                  \
		.offset = AT(member), .width = (column_width), .rank = (column_rank), .meaning = __VA_ARGS__ \
	}

#define ITEM job_sample
static const struct column jobs[] = {
    COL(COUNT, "pid", "PID", pid, 7, 0, "first process of the job"),
    COL(TEXT, "user", "USER", user, 8, 10, "user of the job"),
    COL(TEXT, "job", "JOB", name, 12, 0, "name of the script or program", .grows = true),
    COL(PERCENT, "stall", "STALL", id, 5, 0, "% of the trainer's time lost: fetch, prep, checkpoint, starved",
	.value = stall_of),
    COL(PERCENT, "fetch", "FETCH", share[SHARE_FETCH_STALL], 5, 2, "% waiting for storage or network"),
    COL(PERCENT, "prep", "PREP", share[SHARE_PREP_STALL], 5, 2, "% waiting for data for another reason"),
    COL(PERCENT, "checkpoint", "CKPT", share[SHARE_CHECKPOINT_STALL], 4, 12, "% writing a checkpoint"),
    COL(PERCENT, "compiling", "COMP", share[SHARE_COMPILING], 4, 12,
	"% compiling (torch.compile, JAX), once"),
    COL(PERCENT, "starved", "STARV", share[SHARE_CPU_STARVED], 5, 12, "% ready to run, but without a core"),
    COL(PERCENT, "device", "DEV", share[SHARE_DEVICE], 4, 9, "% computing, or waiting for the device"),
    COL(PERCENT, "gpu", "GPUW", gpu_wait, 4, 10, "% in GPU driver calls that wait; part of DEV"),
    COL(RATE, "steps", "STEP/S", steps_per_s, 6, 0, "training steps per second"),
    COL(SECONDS, "p50", "P50", step_p50_s, 6, 0, "time per step, median"),
    COL(SECONDS, "p95", "P95", step_p95_s, 6, 1, "time per step, 95th percentile"),
    COL(PERCENT, "cpu", "CPU%", cpu_ratio, 5, 4, "of one core, used by all processes of the job"),
    COL(COUNT, "workers", "WRK", n_workers, 3, 3, "worker processes of the job's loader"),
    COL(BYTES, "read", "READ/S", read_bytes_per_s, 6, 6, "bytes read per second, from any source"),
    COL(PERCENT, "hit", "HIT", hit_ratio, 4, 8, "% of pages that were in the page cache"),
    COL(BYTES, "cache", "CACHE", served.cache_bytes, 5, 3, "size of the job's dataset in dieseld's cache"),
    COL(COUNT, "prefetch", "PREF", served.prefetch_chunks, 4, 5, "chunks that dieseld prefetches"),
    COL(COUNT, "dworkers", "DWRK", served.daemon_workers, 4, 11, "CPU workers in dieseld"),
    COL(COUNT, "ready", "READY", served.n_ready, 5, 11, "batches ready for the trainer"),
    COL(SECONDS, "age", "AGE", age_s, 5, 7, "time since shares and steps were measured"),
    COL(TEXT, "verdict", "VERDICT", verdict, 12, 8, "what limits the job's speed"),
    COL(TEXT, "method", "BY", method, 7, 13, "bpf: exact; sampled: approximate; client: own waits"),
    COL(TEXT, "decision", "LAST DECISION", served.decision, 16, 14, "last decision of dieseld's tuner",
	.grows = true),
};
const struct table_columns columns_jobs = {jobs, N_OF(jobs), sizeof(struct job_sample)};

static const struct column fleet[] = {
    COL(TEXT, "node", "NODE", node, 12, 0, "node of the job"),
    COL(COUNT, "pid", "PID", pid, 7, 3, "first process of the job, on its node"),
    COL(TEXT, "user", "USER", user, 6, 10, "user ID of the job"),
    COL(TEXT, "job", "JOB", name, 12, 0, "name of the script or program", .grows = true),
    COL(SECONDS, "waited", "WAITED", stall_s, 6, 0, "time waited for data since the job began"),
    COL(PERCENT, "stall", "STALL", id, 5, 0, "% of the trainer's time lost: fetch, prep, checkpoint, starved",
	.value = stall_of),
    COL(PERCENT, "fetch", "FETCH", share[SHARE_FETCH_STALL], 5, 2, "% waiting for storage or network"),
    COL(PERCENT, "prep", "PREP", share[SHARE_PREP_STALL], 5, 2, "% waiting for data for another reason"),
    COL(PERCENT, "checkpoint", "CKPT", share[SHARE_CHECKPOINT_STALL], 4, 12, "% writing a checkpoint"),
    COL(PERCENT, "starved", "STARV", share[SHARE_CPU_STARVED], 5, 12, "% ready to run, but without a core"),
    COL(PERCENT, "device", "DEV", share[SHARE_DEVICE], 4, 9, "% computing, or waiting for the device"),
    COL(RATE, "samples", "SAMPLE/S", served.samples_per_s, 8, 1, "samples per second"),
    COL(RATE, "steps", "STEP/S", steps_per_s, 6, 6, "training steps per second"),
    COL(TEXT, "state", "STATE", state, 7, 4, "silent: the job's node no longer reports"),
    COL(SECONDS, "age", "AGE", age_s, 5, 7, "time since the node's last report on the job"),
    COL(TEXT, "verdict", "VERDICT", verdict, 12, 8, "what limits the job's speed"),
    COL(TEXT, "method", "BY", method, 7, 13, "bpf: exact; client: the client's own waits"),
    COL(TEXT, "dataset", "DATASET", dataset, 16, 5, "dataset that the job reads", .grows = true),
};
const struct table_columns columns_fleet = {fleet, N_OF(fleet), sizeof(struct job_sample)};

static const struct column gpu_jobs[] = {
    COL(COUNT, "pid", "PID", pid, 7, 0, "first process of the job"),
    COL(TEXT, "job", "JOB", name, 12, 0, "name of the script or program", .grows = true),
    COL(PERCENT, "device", "DEV", share[SHARE_DEVICE], 4, 0, "% computing, or waiting for the device"),
    COL(PERCENT, "gpu", "GPUW", gpu_wait, 4, 0, "% in GPU driver calls that wait; part of DEV"),
    COL(PERCENT, "spin", "SPIN", gpu_spin, 4, 0, "% in GPU driver calls that poll on a core"),
    COL(PERCENT, "idle", "IDLE>", gpu_starved, 5, 0, "% at least, with an idle GPU while waiting for data"),
    COL(RATE, "launches", "LAUNCH/S", launches_per_s, 8, 1, "kernels and graphs launched per second"),
    COL(RATE, "copies", "COPY/S", copies_per_s, 6, 2, "copies per second"),
    COL(TEXT, "call", "MOST TIME IN", gpu_call, 20, 1, "driver call that took the most time"),
    COL(TEXT, "verdict", "VERDICT", verdict, 12, 3, "what limits the job's speed"),
};
const struct table_columns columns_gpu_jobs = {gpu_jobs, N_OF(gpu_jobs), sizeof(struct job_sample)};
#undef ITEM

#define ITEM gpu_sample_row
static const struct column gpus[] = {
    COL(COUNT, "index", "GPU", index, 3, 0, ""),
    COL(TEXT, "name", "NAME", name, 14, 0, "", .grows = true),
    COL(PERCENT, "busy", "BUSY%", busy_ratio, 5, 0, ""),
    COL(BYTES, "used", "MEM", memory_used_bytes, 5, 0, ""),
    COL(BYTES, "memory", "OF", memory_bytes, 5, 0, ""),
    COL(RATE, "power", "WATT", power_w, 5, 1, ""),
    COL(COUNT, "processes", "PROC", n_processes, 4, 1, ""),
    COL(TEXT, "jobs", "JOBS", jobs, 16, 0, "", .grows = true),
};
const struct table_columns columns_gpus = {gpus, N_OF(gpus), sizeof(struct gpu_sample_row)};
#undef ITEM

#define ITEM worker_sample
static const struct column workers[] = {
    COL(COUNT, "pid", "PID", pid, 7, 0, "process"),
    COL(COUNT, "parent", "PARENT", parent_pid, 7, 5, "parent process"),
    COL(TEXT, "role", "ROLE", role, 10, 0, "trainer, rank, worker, helper", .grows = true),
    COL(TEXT, "state", "S", state, 1, 0, "R running, S asleep, D in storage, Z ended"),
    COL(PERCENT, "cpu", "CPU%", cpu_ratio, 5, 0, "of one core"),
    COL(PERCENT, "queue", "QUEUE", queue_ratio, 5, 1, "% ready to run, but without a core"),
    COL(BYTES, "read", "READ/S", read_bytes_per_s, 6, 1, "bytes per second from read calls"),
    COL(BYTES, "memory", "MEM", memory_bytes, 5, 2, "resident"),
    COL(TEXT, "wait", "ASLEEP IN", wait, 18, 3, "kernel function"),
    COL(TEXT, "name", "NAME", name, 16, 4, "name that the thread gave itself"),
    COL(TEXT, "job", "JOB", job_name, 10, 1, "job of the process", .grows = true),
};
const struct table_columns columns_workers = {workers, N_OF(workers), sizeof(struct worker_sample)};
#undef ITEM

#define ITEM device_sample
static const struct column devices[] = {
    COL(TEXT, "name", "DEVICE", name, 12, 0, "", .grows = true),
    COL(TEXT, "kind", "KIND", kind, 5, 0, ""),
    COL(PERCENT, "busy", "BUSY%", busy_ratio, 5, 0, ""),
    COL(BYTES, "read", "READ/S", read_bytes_per_s, 6, 0, ""),
    COL(BYTES, "write", "WRITE/S", write_bytes_per_s, 7, 0, ""),
    COL(RATE, "reads", "READS", reads_per_s, 6, 0, ""),
    COL(SECONDS, "await", "AWAIT", await_s, 6, 0, ""),
    COL(RATE, "queue", "QUEUE", queue, 5, 0, ""),
};
const struct table_columns columns_devices = {devices, N_OF(devices), sizeof(struct device_sample)};
#undef ITEM

#define ITEM place_sample
static const struct column places[] = {
    COL(BYTES, "used", "USED/S", used_bytes_per_s, 6, 0, "bytes requested by read calls and faults"),
    COL(BYTES, "cold", "COLD/S", cold_bytes_per_s, 6, 0, "bytes that came from storage"),
    COL(PERCENT, "hit", "HIT", hit_ratio, 4, 0, "% of pages found in the page cache"),
    COL(TEXT, "path", "FILE OR FOLDER", path, 30, 0, "? : path not known", .grows = true),
    COL(TEXT, "job", "JOB", job, 14, 1, "job that reads the file"),
};
const struct table_columns columns_places = {places, N_OF(places), sizeof(struct place_sample)};
#undef ITEM

#define ITEM dataset_sample
static const struct column datasets[] = {
    COL(TEXT, "path", "DATASET", path, 30, 0, "", .grows = true),
    COL(COUNT, "samples", "SAMPLES", n_samples, 7, 0, ""),
    COL(BYTES, "bytes", "BYTES", bytes, 5, 0, ""),
    COL(COUNT, "chunks", "CHUNKS", n_chunks, 6, 0, ""),
    COL(COUNT, "cached", "CACHED", n_cached, 6, 0, ""),
    COL(COUNT, "sessions", "SESS", n_sessions, 4, 0, ""),
    COL(COUNT, "bad", "BAD", n_bad, 3, 0, ""),
};
const struct table_columns columns_datasets = {datasets, N_OF(datasets), sizeof(struct dataset_sample)};
#undef ITEM

#define ITEM decision_sample
static const struct column decisions[] = {
    COL(SECONDS, "age", "AGO", age_s, 5, 0, "when"),
    COL(TEXT, "job", "JOB", job, 12, 0, "whose", .grows = true),
    COL(TEXT, "knob", "KNOB", knob, 15, 0, "what was turned"),
    COL(TEXT, "from", "FROM", from, 6, 0, ""),
    COL(TEXT, "to", "TO", to, 6, 0, ""),
    COL(TEXT, "why", "WHY", why, 24, 0, "in numbers", .grows = true),
    COL(TEXT, "effect", "EFFECT", effect, 12, 1, "what it did", .grows = true),
};
const struct table_columns columns_decisions = {decisions, N_OF(decisions), sizeof(struct decision_sample)};
#undef ITEM

#define ITEM hop_sample
static const struct column hops[] = {
    COL(SECONDS, "at", "AT", begin_s, 6, 0, "from the start of the wait"),
    COL(SECONDS, "for", "FOR", length_s, 6, 0, ""),
    COL(TEXT, "role", "THREAD", role, 16, 0, "", .grows = true),
    COL(COUNT, "tid", "TID", tid, 7, 1, ""),
    COL(TEXT, "what", "WHAT", what, 28, 0, "", .grows = true),
    COL(TEXT, "edge", "", edge, 16, 0, "", .grows = true),
};
const struct table_columns columns_hops = {hops, N_OF(hops), sizeof(struct hop_sample)};
