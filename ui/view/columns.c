/* SPDX-License-Identifier: Apache-2.0 */
#include "columns.h"

#include "ui/state/sample.h"

static double stall_of(const void *item)
{
	return sample_stall(item);
}

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define AT(member)  offsetof(struct ITEM, member)
#define TEXT(...)                                                                                            \
	{                                                                                                    \
		.kind = COLUMN_TEXT, __VA_ARGS__                                                             \
	}
#define PERCENT(...)                                                                                         \
	{                                                                                                    \
		.kind = COLUMN_PERCENT, __VA_ARGS__                                                          \
	}
#define SECONDS(...)                                                                                         \
	{                                                                                                    \
		.kind = COLUMN_SECONDS, __VA_ARGS__                                                          \
	}
#define BYTES(...)                                                                                           \
	{                                                                                                    \
		.kind = COLUMN_BYTES, __VA_ARGS__                                                            \
	}
#define RATE(...)                                                                                            \
	{                                                                                                    \
		.kind = COLUMN_RATE, __VA_ARGS__                                                             \
	}
#define COUNT(...)                                                                                           \
	{                                                                                                    \
		.kind = COLUMN_COUNT, __VA_ARGS__                                                            \
	}

#define ITEM job_sample
#define COL(column_key, column_title, member, column_width, column_rank, text)                               \
	.key = (column_key), .title = (column_title), .offset = AT(member), .width = (column_width),         \
	.rank = (column_rank), .meaning = text
static const struct column jobs[] = {
    COUNT(COL("pid", "PID", pid, 7, 0, "first process of the job")),
    TEXT(COL("user", "USER", user, 8, 10, "user of the job")),
    TEXT(COL("job", "JOB", name, 12, 0, "name of the script or program"), .grows = true),
    PERCENT(COL("stall", "STALL", id, 5, 0, "% of the trainer's time lost: fetch, prep, checkpoint, starved"),
	    .value = stall_of),
    PERCENT(COL("fetch", "FETCH", share[SHARE_FETCH_STALL], 5, 2, "% waiting for storage or network")),
    PERCENT(COL("prep", "PREP", share[SHARE_PREP_STALL], 5, 2, "% waiting for data for another reason")),
    PERCENT(COL("checkpoint", "CKPT", share[SHARE_CHECKPOINT_STALL], 4, 12, "% writing a checkpoint")),
    PERCENT(
	COL("compiling", "COMP", share[SHARE_COMPILING], 4, 12, "% compiling (torch.compile, JAX), once")),
    PERCENT(COL("starved", "STARV", share[SHARE_CPU_STARVED], 5, 12, "% ready to run, but without a core")),
    PERCENT(COL("device", "DEV", share[SHARE_DEVICE], 4, 9, "% computing, or waiting for the device")),
    PERCENT(COL("gpu", "GPUW", gpu_wait, 4, 10, "% in GPU driver calls that wait; part of DEV")),
    RATE(COL("steps", "STEP/S", steps_per_s, 6, 0, "training steps per second")),
    SECONDS(COL("p50", "P50", step_p50_s, 6, 0, "time per step, median")),
    SECONDS(COL("p95", "P95", step_p95_s, 6, 1, "time per step, 95th percentile")),
    PERCENT(COL("cpu", "CPU%", cpu_ratio, 5, 4, "of one core, used by all processes of the job")),
    COUNT(COL("workers", "WRK", n_workers, 3, 3, "worker processes of the job's loader")),
    BYTES(COL("read", "READ/S", read_bytes_per_s, 6, 6, "bytes read per second, from any source")),
    PERCENT(COL("hit", "HIT", hit_ratio, 4, 8, "% of pages that were in the page cache")),
    BYTES(COL("cache", "CACHE", served.cache_bytes, 5, 3, "size of the job's dataset in dieseld's cache")),
    COUNT(COL("prefetch", "PREF", served.prefetch_chunks, 4, 5, "chunks that dieseld prefetches")),
    COUNT(COL("dworkers", "DWRK", served.daemon_workers, 4, 11, "CPU workers in dieseld")),
    COUNT(COL("ready", "READY", served.n_ready, 5, 11, "batches ready for the trainer")),
    SECONDS(COL("age", "AGE", age_s, 5, 7, "time since shares and steps were measured")),
    TEXT(COL("verdict", "VERDICT", verdict, 12, 8, "what limits the job's speed")),
    TEXT(COL("method", "BY", method, 7, 13, "bpf: exact; sampled: approximate; client: own waits")),
    TEXT(COL("decision", "LAST DECISION", served.decision, 16, 14, "last decision of dieseld's tuner"),
	 .grows = true),
};
const struct table_columns columns_jobs = {jobs, N_OF(jobs), sizeof(struct job_sample)};

static const struct column fleet[] = {
    TEXT(COL("node", "NODE", node, 12, 0, "node of the job")),
    COUNT(COL("pid", "PID", pid, 7, 3, "first process of the job, on its node")),
    TEXT(COL("user", "USER", user, 6, 10, "user ID of the job")),
    TEXT(COL("job", "JOB", name, 12, 0, "name of the script or program"), .grows = true),
    SECONDS(COL("waited", "WAITED", stall_s, 6, 0, "time waited for data since the job began")),
    PERCENT(COL("stall", "STALL", id, 5, 0, "% of the trainer's time lost: fetch, prep, checkpoint, starved"),
	    .value = stall_of),
    PERCENT(COL("fetch", "FETCH", share[SHARE_FETCH_STALL], 5, 2, "% waiting for storage or network")),
    PERCENT(COL("prep", "PREP", share[SHARE_PREP_STALL], 5, 2, "% waiting for data for another reason")),
    PERCENT(COL("checkpoint", "CKPT", share[SHARE_CHECKPOINT_STALL], 4, 12, "% writing a checkpoint")),
    PERCENT(COL("starved", "STARV", share[SHARE_CPU_STARVED], 5, 12, "% ready to run, but without a core")),
    PERCENT(COL("device", "DEV", share[SHARE_DEVICE], 4, 9, "% computing, or waiting for the device")),
    RATE(COL("samples", "SAMPLE/S", served.samples_per_s, 8, 1, "samples per second")),
    RATE(COL("steps", "STEP/S", steps_per_s, 6, 6, "training steps per second")),
    TEXT(COL("state", "STATE", state, 7, 4, "silent: the job's node no longer reports")),
    SECONDS(COL("age", "AGE", age_s, 5, 7, "time since the node's last report on the job")),
    TEXT(COL("verdict", "VERDICT", verdict, 12, 8, "what limits the job's speed")),
    TEXT(COL("method", "BY", method, 7, 13, "bpf: exact; client: the client's own waits")),
    TEXT(COL("dataset", "DATASET", dataset, 16, 5, "dataset that the job reads"), .grows = true),
};
const struct table_columns columns_fleet = {fleet, N_OF(fleet), sizeof(struct job_sample)};

static const struct column gpu_jobs[] = {
    COUNT(COL("pid", "PID", pid, 7, 0, "first process of the job")),
    TEXT(COL("job", "JOB", name, 12, 0, "name of the script or program"), .grows = true),
    PERCENT(COL("device", "DEV", share[SHARE_DEVICE], 4, 0, "% computing, or waiting for the device")),
    PERCENT(COL("gpu", "GPUW", gpu_wait, 4, 0, "% in GPU driver calls that wait; part of DEV")),
    PERCENT(COL("spin", "SPIN", gpu_spin, 4, 0, "% in GPU driver calls that poll on a core")),
    PERCENT(COL("idle", "IDLE>", gpu_starved, 5, 0, "% at least, with an idle GPU while waiting for data")),
    RATE(COL("launches", "LAUNCH/S", launches_per_s, 8, 1, "kernels and graphs launched per second")),
    RATE(COL("copies", "COPY/S", copies_per_s, 6, 2, "copies per second")),
    TEXT(COL("call", "MOST TIME IN", gpu_call, 20, 1, "driver call that took the most time")),
    TEXT(COL("verdict", "VERDICT", verdict, 12, 3, "what limits the job's speed")),
};
const struct table_columns columns_gpu_jobs = {gpu_jobs, N_OF(gpu_jobs), sizeof(struct job_sample)};
#undef ITEM

#define ITEM gpu_sample_row
static const struct column gpus[] = {
    COUNT(COL("index", "GPU", index, 3, 0, "")),
    TEXT(COL("name", "NAME", name, 14, 0, ""), .grows = true),
    PERCENT(COL("busy", "BUSY%", busy_ratio, 5, 0, "")),
    BYTES(COL("used", "MEM", memory_used_bytes, 5, 0, "")),
    BYTES(COL("memory", "OF", memory_bytes, 5, 0, "")),
    RATE(COL("power", "WATT", power_w, 5, 1, "")),
    COUNT(COL("processes", "PROC", n_processes, 4, 1, "")),
    TEXT(COL("jobs", "JOBS", jobs, 16, 0, ""), .grows = true),
};
const struct table_columns columns_gpus = {gpus, N_OF(gpus), sizeof(struct gpu_sample_row)};
#undef ITEM

#define ITEM worker_sample
static const struct column workers[] = {
    COUNT(COL("pid", "PID", pid, 7, 0, "process")),
    COUNT(COL("parent", "PARENT", parent_pid, 7, 5, "parent process")),
    TEXT(COL("role", "ROLE", role, 10, 0, "trainer, rank, worker, helper"), .grows = true),
    TEXT(COL("state", "S", state, 1, 0, "R running, S asleep, D in storage, Z ended")),
    PERCENT(COL("cpu", "CPU%", cpu_ratio, 5, 0, "of one core")),
    PERCENT(COL("queue", "QUEUE", queue_ratio, 5, 1, "% ready to run, but without a core")),
    BYTES(COL("read", "READ/S", read_bytes_per_s, 6, 1, "bytes per second from read calls")),
    BYTES(COL("memory", "MEM", memory_bytes, 5, 2, "resident")),
    TEXT(COL("wait", "ASLEEP IN", wait, 18, 3, "kernel function")),
    TEXT(COL("name", "NAME", name, 16, 4, "name that the thread gave itself")),
    TEXT(COL("job", "JOB", job_name, 10, 1, "job of the process"), .grows = true),
};
const struct table_columns columns_workers = {workers, N_OF(workers), sizeof(struct worker_sample)};
#undef ITEM

#define ITEM device_sample
static const struct column devices[] = {
    TEXT(COL("name", "DEVICE", name, 12, 0, ""), .grows = true),
    TEXT(COL("kind", "KIND", kind, 5, 0, "")),
    PERCENT(COL("busy", "BUSY%", busy_ratio, 5, 0, "")),
    BYTES(COL("read", "READ/S", read_bytes_per_s, 6, 0, "")),
    BYTES(COL("write", "WRITE/S", write_bytes_per_s, 7, 0, "")),
    RATE(COL("reads", "READS", reads_per_s, 6, 0, "")),
    SECONDS(COL("await", "AWAIT", await_s, 6, 0, "")),
    RATE(COL("queue", "QUEUE", queue, 5, 0, "")),
};
const struct table_columns columns_devices = {devices, N_OF(devices), sizeof(struct device_sample)};
#undef ITEM

#define ITEM place_sample
static const struct column places[] = {
    BYTES(COL("used", "USED/S", used_bytes_per_s, 6, 0, "bytes requested by read calls and faults")),
    BYTES(COL("cold", "COLD/S", cold_bytes_per_s, 6, 0, "bytes that came from storage")),
    PERCENT(COL("hit", "HIT", hit_ratio, 4, 0, "% of pages found in the page cache")),
    TEXT(COL("path", "FILE OR FOLDER", path, 30, 0, "? : path not known"), .grows = true),
    TEXT(COL("job", "JOB", job, 14, 1, "job that reads the file")),
};
const struct table_columns columns_places = {places, N_OF(places), sizeof(struct place_sample)};
#undef ITEM

#define ITEM dataset_sample
static const struct column datasets[] = {
    TEXT(COL("path", "DATASET", path, 30, 0, ""), .grows = true),
    COUNT(COL("samples", "SAMPLES", n_samples, 7, 0, "")),
    BYTES(COL("bytes", "BYTES", bytes, 5, 0, "")),
    COUNT(COL("chunks", "CHUNKS", n_chunks, 6, 0, "")),
    COUNT(COL("cached", "CACHED", n_cached, 6, 0, "")),
    COUNT(COL("sessions", "SESS", n_sessions, 4, 0, "")),
    COUNT(COL("bad", "BAD", n_bad, 3, 0, "")),
};
const struct table_columns columns_datasets = {datasets, N_OF(datasets), sizeof(struct dataset_sample)};
#undef ITEM

#define ITEM decision_sample
static const struct column decisions[] = {
    SECONDS(COL("age", "AGO", age_s, 5, 0, "when")),
    TEXT(COL("job", "JOB", job, 12, 0, "whose"), .grows = true),
    TEXT(COL("knob", "KNOB", knob, 15, 0, "what was turned")),
    TEXT(COL("from", "FROM", from, 6, 0, "")),
    TEXT(COL("to", "TO", to, 6, 0, "")),
    TEXT(COL("why", "WHY", why, 24, 0, "in numbers"), .grows = true),
    TEXT(COL("effect", "EFFECT", effect, 12, 1, "what it did"), .grows = true),
};
const struct table_columns columns_decisions = {decisions, N_OF(decisions), sizeof(struct decision_sample)};
#undef ITEM

#define ITEM hop_sample
static const struct column hops[] = {
    SECONDS(COL("at", "AT", begin_s, 6, 0, "from the start of the wait")),
    SECONDS(COL("for", "FOR", length_s, 6, 0, "")),
    TEXT(COL("role", "THREAD", role, 16, 0, ""), .grows = true),
    COUNT(COL("tid", "TID", tid, 7, 1, "")),
    TEXT(COL("what", "WHAT", what, 28, 0, ""), .grows = true),
    TEXT(COL("edge", "", edge, 16, 0, ""), .grows = true),
};
const struct table_columns columns_hops = {hops, N_OF(hops), sizeof(struct hop_sample)};
