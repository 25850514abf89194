/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Measurements of one job in one second (struct stall_sample), and of the node in the same second (struct
 * stall_node). Plain data, written by the daemon's sensors, read by the tuner, stored unchanged.
 *
 * Unknown values are NAN for a double and 0 for an integer, unless the field's comment differs. Any figure
 * may be unknown. Readers of samples check every figure (figures.c in the tuner does), so a sensor may pass
 * on unchecked values. Rates are samples/s, sizes bytes, times seconds unless the name says ns; shares are of
 * the covered time and lie in 0 .. 1. Clocks are CLOCK_MONOTONIC.
 */

#include "tuner/knob.h"

#include <stdbool.h>

/* Origin of the shares. Stored: never renumbered. */
enum stall_source {
	STALL_SOURCE_NONE,    /* shares are not known, only the daemon's own figures */
	STALL_SOURCE_BPF,     /* the analyzer's partition of the trainer's time */
	STALL_SOURCE_CLIENT,  /* the clients' own wait times; only the two stalls and their sum are known */
	STALL_SOURCE_PROCESS, /* samples of /proc without privilege: approximate */
};

struct stall_shares {
	double device;      /* the trainer computes, launches work or waits for the device */
	double gpu_wait;    /* part of device: waiting in a synchronisation */
	double fetch_stall; /* waits for data that instant storage would have avoided */
	double prep_stall;  /* waits for data for any other reason */
	double checkpoint_stall;
	double cpu_starved; /* runnable without a core, outside of data waits */
	double other;
};

/* Output of one memory tier per second, over the time of the hit ratios. */
struct stall_flow {
	double chunks_per_s; /* needed chunks that this tier supplied */
	double bytes_per_s;  /* memory tier: handed to the trainer; other tiers: brought into memory */
	double latency_s;    /* mean time from requesting a chunk to its arrival; NAN for memory */
};

/* For display only. Figures of other nodes are NAN if the job has none. */
struct stall_tiers {
	double peer_hit_ratio; /* chunk needs met by another node, 0 .. 1 */
	struct stall_flow memory, peer, storage;
};

/* Decoded copies of samples, if the daemon decodes. */
struct stall_forms {
	double usable; /* samples that can have a decoded copy: all samples of the job's ranks on this node */
	double samples;      /* usable samples with a decoded copy in memory */
	double bytes;        /* memory that decoded copies take */
	double space_bytes;  /* memory available to decoded copies: total minus claims */
	double sample_bytes; /* mean bytes of one decoded copy, existing or expected */
	double hit_ratio;    /* share of samples that were made from a decoded copy, 0 .. 1 */
	double
	    serve_ratio; /* share of crops that decoded copies could serve if every sample had one, 0 .. 1 */
	double fresh_cpu_s_per_sample; /* decoder's CPU time per sample decoded without its decoded copy: mean
					  of the job's life */
	double cpu_s_per_sample; /* decoder's CPU time per sample out of a decoded copy: mean of the job's
				    life */
};

struct stall_sample {
	uint64_t job;     /* the daemon's number of the job; never 0, never reused */
	uint64_t at_ns;   /* the end of the covered time */
	double covered_s; /* time the figures cover, about 1; 0: no data about the job */
	enum stall_source source;
	struct stall_shares shares;

	/* The trainer. With several ranks: sums of rates, means of shares and times. */
	double steps_per_s;
	double samples_per_s; /* consumption: handed to the trainer. 0 means that it took nothing */
	double step_p50_s, step_p95_s;
	uint32_t n_trainers; /* ranks of the job on this node */
	uint32_t batch;      /* samples per batch of one rank */

	/* The stall model's rates; INFINITY: no limit seen. */
	double fetch_rate;  /* F: with the cache, depth and storage of this second */
	double prep_rate;   /* P: with the workers of this second */
	double device_rate; /* G: rate without waits for data */

	/* Chunks that are not in memory: storage, and the job's other nodes, count as one source. If none
	 * arrived in the second: the last known values, or NAN. */
	double chunk_latency_s; /* mean time from requesting a chunk to its arrival */
	double chunk_latency_p95_s;
	double source_bytes_per_s; /* bytes received per second of the time in which at least one chunk was in
				      flight */
	double reads_in_flight;    /* mean over the time in which at least one chunk was in flight */
	double reading_ratio;      /* share of the covered time in which a chunk was in flight, 0 .. 1 */
	double memory_hit_ratio;  /* share of needed chunks found in memory, without a read or another node */
	double chunk_bytes;       /* mean chunk size of the dataset, as stored in segments */
	double samples_per_chunk; /* samples that this node uses: all, unless nodes share the order */
	uint32_t window_chunks;   /* chunks that the shuffle mixes: all are needed at the same time */
	double ready_samples;     /* samples that the slots of all sessions hold when full */

	struct stall_tiers tiers;

	/* Preparing. */
	double daemon_cpu_s_per_sample; /* verify, decode, gather: a daemon worker's CPU time */
	double client_cpu_s_per_sample; /* Python transforms, in a client worker or in the trainer */
	double handoff_s_per_sample;    /* trainer's time to take over a sample from a client worker; NAN
					   (unknown, not 0) without client workers */
	double client_worker_bytes;     /* private memory of one client worker */
	double daemon_workers_busy;     /* daemon threads at work for the job: mean */
	double client_workers_busy;
	double run_queue_ratio; /* time that its threads were runnable without a core, per covered time */

	/* Memory. */
	uint64_t dataset;     /* equal for jobs that read the same dataset: they share its chunks */
	double dataset_bytes; /* bytes that the job's ranks on this node need, as stored in segments */
	double cached_bytes;  /* part of dataset_bytes that is in memory now */
	double need_bytes;    /* minimum for its sessions to run: windows, slots, snapshot */

	struct stall_forms decoded_cache;

	struct tuner_knobs knobs; /* knobs in force at the end of the second */
	/* Knobs that may be set for this job, 1u << enum tuner_knob. The bit is missing if the client
	 * fixed the number, or has no workers. */
	uint32_t tunable;
};

/* The node. PSI figures are the kernel's avg10 in percent, 0 .. 100, of the cgroup if it has them. */
struct stall_node {
	double memory_some_avg10, memory_full_avg10;
	double cpu_some_avg10;
	double io_some_avg10, io_full_avg10;
	double memory_limit_bytes;    /* the smaller of the cgroup's limit and the machine's memory */
	double memory_headroom_bytes; /* memory that can still be used: the smaller of the cgroup's and the
					 machine's; page cache that can be dropped counts as usable */
	double memory_free_bytes;     /* part of the headroom that is entirely unused, even by page cache */
	double cores;                 /* usable cores: affinity, cgroup quota, machine */
	double cores_idle;            /* idle cores among these: mean over the second */
	double oom_kills;       /* OOM kills in the cgroup since the last sample; 0 means none, not unknown */
	double memory_some_now; /* percent of the time since the last sample; avg10 follows it slowly */
};

/* Return a sample with every figure unknown, and job, at_ns and covered_s 0. Sensors start from it. */
struct stall_sample stall_sample_unknown(void);
struct stall_node stall_node_unknown(void);

/* Returns the headroom that caches leave to others: the size of a fast allocation before caches have shrunk.
 * It is 1/16 of the limit up to 256 MiB, and at least 1/64: larger nodes have more cores and faster memory.
 */
double stall_reserve_bytes(double memory_limit_bytes);
