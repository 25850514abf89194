/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Everything that diesel-top knows at one moment: jobs, their processes, storage, the daemon, and its own
 * cost. Every source fills it, every view reads it, a recording stores it, and --once prints it.
 *
 * Unknown numbers are NAN, unknown counts are SAMPLE_UNKNOWN, unknown texts are "". A view shows N/A for
 * them, never 0. Texts are unchecked input (command lines, the daemon's texts), which the screen makes
 * harmless. All structs are plain: the tables in sample.c list every field once, for writing and reading
 * JSON.
 *
 * Lists are owned by the sample; sample_free() takes NULL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analyzer/share.h"

#define SAMPLE_UNKNOWN UINT64_MAX
#define SAMPLE_SCHEMA  "diesel.top/1"

/* Buffer sizes: for a text from dieseld or an analysis, and for an error with its subject. */
#define SAMPLE_TEXT_BYTES  256
#define SAMPLE_ERROR_BYTES 576

/* Figures of a job that only dieseld reports. */
struct served_sample {
	char decision[200]; /* the tuner's last decision */
	char why[2 * SAMPLE_TEXT_BYTES];
	double samples_per_s;
	double cache_bytes,
	    cache_limit_bytes; /* the dataset's bytes in the daemon's cache, and their limit */
	uint64_t prefetch_chunks, daemon_workers, client_workers;
	uint64_t n_ready;              /* batches ready for the trainer */
	uint64_t n_decoded, n_damaged; /* samples that the daemon decoded, or found damaged */
	double decoder_cpu_s;
	uint64_t n_replaced; /* decoders replaced because they died or were killed during their work */
	uint64_t n_from_decoded_copies,
	    n_decoded_copies; /* samples made from decoded copies; samples that have a decoded copy */
	double decoded_bytes;
	uint64_t n_batches, n_shared; /* batches from the daemon; those decoded for another session */
	uint64_t shared_from;         /* job that decoded the newest shared batch */
	/* For a job that shares its dataset with other nodes: the rate of each tier, and the mean time to get
	 * a chunk from it. */
	double memory_chunks_per_s, memory_bytes_per_s;
	double node_chunks_per_s, node_bytes_per_s, node_latency_s;
	double storage_chunks_per_s, storage_bytes_per_s, storage_latency_s;
	uint64_t n_reached, n_members;        /* nodes of the job, with this one: reached, and all */
	uint64_t n_troubled;                  /* number of members that are unreachable or slow */
	char troubled[SAMPLE_TEXT_BYTES / 2]; /* their names: "node-3 unreachable, node-2 slow (210 ms)" */
	double decision_age_s;
	/* Checkpoints that a Checkpointer began, those that failed, steps from one to the next, their cost as
	 * part of the time. Times of the latest. Age of the newest on disk. */
	uint64_t n_checkpoints, n_checkpoints_failed, checkpoint_steps;
	double checkpoint_overhead, snapshot_s, checkpoint_slowdown_s, checkpoint_written_s, checkpoint_age_s;
};

struct job_sample {
	char id[48];    /* constant over the job's life, and never used for another job */
	char name[160]; /* name for people */
	char user[32];
	char node[64], dataset[160]; /* set only with --nodes */
	char state[12];              /* "running", "exited"; "silent": the job's node has stopped reporting */
	char method[12];             /* source of the shares: "bpf", "sampled" (approximate), "client", "" */
	char verdict[20];            /* "fetch-bound", ... */
	char loader[12];
	char remark[SAMPLE_TEXT_BYTES]; /* reason for missing shares, or other remarks for the reader */
	uint64_t pid;
	uint64_t n_processes, n_workers;
	uint64_t n_steps, n_lost;
	double share[SHARE_COUNT]; /* shares of the trainer's wall time; the known ones sum to 1 */
	double gpu_wait;           /* part of share[SHARE_DEVICE] */
	double gpu_spin;           /* part of gpu_wait in which the driver polls on a core */
	double gpu_starved;        /* lower bound of the time in data waits with nothing queued on the GPU */
	double launches_per_s, copies_per_s;
	char gpu_call[48];  /* the driver call that took the most time */
	double share_error; /* error of each share (+-, 95 %); 0: exact */
	double steps_per_s, step_p50_s, step_p95_s;
	double wait_mean_s; /* data wait per step */
	double cpu_ratio;   /* cores in use by all processes of the job */
	double read_bytes_per_s;
	double hit_ratio; /* hit ratio of the page cache, or of the daemon's cache */
	double memory_bytes;
	double age_s;   /* age of shares and steps */
	double ended_s; /* time since the job ended; NAN while it runs */
	struct served_sample served;
	double stall_s,
	    measured_s; /* time waited for data since the job began; time in which that was measured */
};

/* A process or thread of a job. */
struct worker_sample {
	char job[48], job_name[40];
	char role[16]; /* "trainer", "rank", "worker", "helper" */
	char name[24]; /* name that the program gives itself */
	char state[4]; /* R S D ... */
	char wait[24]; /* reason for the sleep in which it was sampled */
	uint64_t pid, parent_pid;
	double cpu_ratio, queue_ratio; /* shares of time on a core, and runnable without one */
	double read_bytes_per_s;
	double memory_bytes;
};

struct device_sample {
	char name[40];
	char kind[8]; /* "disk" */
	double read_bytes_per_s, write_bytes_per_s;
	double reads_per_s;
	double await_s; /* mean time of a read, with queueing */
	double queue;   /* requests in progress */
	double busy_ratio;
};

/* A GPU, as NVML shows it. */
struct gpu_sample_row {
	char name[48];
	char jobs[96]; /* jobs whose processes use the GPU */
	uint64_t index, n_processes;
	double busy_ratio; /* share of time in which a kernel ran */
	double memory_used_bytes, memory_bytes;
	double power_w;
};

/* A file or folder that a job reads. */
struct place_sample {
	char job[48];
	char path[256];
	double used_bytes_per_s, cold_bytes_per_s;
	double hit_ratio;
};

struct dataset_sample {
	char path[256];
	uint64_t n_samples, n_chunks, n_cached, n_sessions, n_bad;
	double bytes;
};

/* One decision of the daemon's tuner. */
struct decision_sample {
	char job[48];
	char knob[32];
	char from[24], to[24];
	char why[SAMPLE_TEXT_BYTES];
	char effect[SAMPLE_TEXT_BYTES];
	double age_s;
};

/* One link of the wake-up chain of a slow step's wait. The last link in time comes first. */
struct hop_sample {
	char job[48];
	char role[20];
	char name[24];
	char what[48];
	char edge[40]; /* link to the rest of the chain: "woken by 123" */
	uint64_t tid;
	double begin_s, length_s; /* begin_s counts from the start of the wait */
	bool fetch;
};

struct daemon_sample {
	char state[16]; /* "" (no daemon was asked), "up", "away" (no longer up), "none" */
	char version[24], socket[112], io[16];
	char sensing[SAMPLE_TEXT_BYTES + 32],
	    tuner[SAMPLE_TEXT_BYTES + 64]; /* sensing method, and whether the tuner may act */
	char problem[SAMPLE_ERROR_BYTES];  /* reason in one line if the daemon does not answer */
	uint64_t pid;
	double uptime_s;
	double cache_budget_bytes, cache_used_bytes, cache_borrowed_bytes;
	uint64_t prefetch_chunks, workers, n_loading, n_sessions;
	double read_bytes, reads, evictions; /* totals so far */
	double read_bytes_per_s;
	uint64_t n_bad;
	double age_s;
};

struct host_sample {
	char name[64];
	uint64_t n_cpus;
	double cpu_ratio; /* cores in use */
	double load1;
	double memory_bytes, available_bytes;
	double psi_cpu, psi_io, psi_memory; /* "some" figures of pressure stall information, over 10 s */
	char gpus[160]; /* why no GPU is shown; "": GPUs are shown, or were not requested */
};

/* A node of a cluster (--nodes). */
struct node_sample {
	char name[64];
	char state[12]; /* "up", "silent", "unknown": the node's report cannot be parsed */
	char version[24];
	double age_s; /* age of the node's newest report */
	double uptime_s;
	uint64_t n_jobs, n_omitted; /* jobs of the node; those of them that did not fit in the report */
};

struct self_sample {
	char source[SAMPLE_ERROR_BYTES]; /* measurement method, and the reason if it is not the best one */
	double cpu_ratio;                /* share of one core */
	double memory_bytes;
	double bpf_ratio; /* CPU time of the BPF programs, as a share of one core */
	double events_per_s;
	double poll_ratio, analysis_ratio, scan_ratio, draw_ratio; /* parts of cpu_ratio */
	double oldest_s;                                           /* age of the oldest shares */
	double cells_per_s;
	uint64_t n_lost, n_tasks;
};

struct top_sample {
	double time_s;     /* seconds since 1970 */
	double interval_s; /* time since the previous sample; NAN: first sample */
	struct host_sample host;
	struct daemon_sample daemon;
	struct self_sample self;
	struct job_sample *jobs;
	struct worker_sample *workers;
	struct device_sample *devices;
	struct place_sample *places;
	struct dataset_sample *datasets;
	struct decision_sample *decisions; /* decisions, with the newest first */
	struct hop_sample *hops;
	struct gpu_sample_row *gpus;
	struct node_sample *nodes;
	size_t n_jobs, n_workers, n_devices, n_places, n_datasets, n_decisions, n_hops, n_gpus, n_nodes;
};

enum sample_list {
	SAMPLE_JOBS,
	SAMPLE_WORKERS,
	SAMPLE_DEVICES,
	SAMPLE_PLACES,
	SAMPLE_DATASETS,
	SAMPLE_DECISIONS,
	SAMPLE_HOPS,
	SAMPLE_GPUS,
	SAMPLE_NODES,
	SAMPLE_LISTS,
};

/* Returns a sample in which nothing is known yet. NULL: no memory. */
struct top_sample *sample_new(void);
struct top_sample *sample_free(struct top_sample *sample);

/* Adds an item with nothing known to a list; valid until the next call for this list. NULL: no memory. */
void *sample_add(struct top_sample *sample, enum sample_list list);

/* Returns the possible gain: the shares of data wait, checkpoint and starving. NAN if not known. */
double sample_stall(const struct job_sample *job);

/* Returns the job with this id, or NULL. */
const struct job_sample *sample_job(const struct top_sample *sample, const char *id);
