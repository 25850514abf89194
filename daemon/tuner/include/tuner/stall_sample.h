/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What was measured: one job in one second (struct stall_sample), and the node in the same second
 * (struct stall_node). Plain data, written by the daemon's sensors, read by the tuner, stored as it is.
 *
 * Not known is NAN for a double and 0 for an integer, unless the field says otherwise. Any figure may be
 * unknown. Readers of samples check every figure (clean.c in the tuner does), so that a sensor may pass on
 * what it sees. Rates are samples/s, sizes bytes, times seconds unless the name says ns; shares are of the
 * covered time and lie in 0 .. 1. Clocks are CLOCK_MONOTONIC.
 */

#include "tuner/knob.h"

#include <stdbool.h>

/* Where the shares come from. Stored: never renumbered. */
enum stall_source {
	STALL_SOURCE_NONE,    /* shares are not known: only the daemon's own figures */
	STALL_SOURCE_BPF,     /* the analyzer's partition of the trainer's time */
	STALL_SOURCE_CLIENT,  /* the clients' own wait times; only the two stalls and their sum are known */
	STALL_SOURCE_PROCESS, /* looks at /proc without privilege: approximate */
};

struct stall_shares {
	double device;      /* the trainer computes, launches work or waits for the device */
	double gpu_wait;    /* part of device: waiting in a synchronisation */
	double fetch_stall; /* waits for data, and would not wait if storage were instant */
	double prep_stall;  /* waits for data for any other reason */
	double checkpoint_stall;
	double cpu_starved; /* runnable without a core, outside of data waits */
	double other;
};

/* What comes out of one tier a second, over the time of the hit ratios. */
struct stall_flow {
	double chunks_per_s; /* needed, and met by it */
	double bytes_per_s;  /* of memory: handed to the trainer; else brought into memory */
	double latency_s;    /* from asking for a chunk to having it: mean; NAN of memory */
};

/* For people. What is said of other nodes is NAN where the job has none. */
struct stall_tiers {
	double peer_hit_ratio; /* chunk needs met by another node, 0 .. 1 */
	struct stall_flow memory, peer, storage;
};

/* Decoded forms of samples, where the daemon decodes. */
struct stall_forms {
	double usable;                 /* samples of which forms can be used: all that ranks here come to */
	double samples;                /* of these, the ones with a form in memory */
	double bytes;                  /* memory that forms take */
	double room_bytes;             /* that they could take: what claims leave */
	double sample_bytes;           /* that the form of a sample takes or would take: mean */
	double hit_ratio;              /* samples that came out of a form, 0 .. 1 */
	double serve_ratio;            /* that would, if all had one: crops that forms serve, 0 .. 1 */
	double fresh_cpu_s_per_sample; /* decoder's CPU time for a sample that could come out of a form and
					  does not: mean of the job's life */
	double cpu_s_per_sample;       /* the same for one that comes out of a form */
};

struct stall_sample {
	uint64_t job;     /* the daemon's number for it; never 0, never used for another job */
	uint64_t at_ns;   /* the end of the covered time */
	double covered_s; /* time the figures cover, about 1; 0: nothing was seen of the job */
	enum stall_source source;
	struct stall_shares shares;

	/* The trainer. With several ranks: sums of rates, means of shares and times. */
	double steps_per_s;
	double samples_per_s; /* consumption: handed to the trainer. 0 is known: it took nothing */
	double step_p50_s, step_p95_s;
	uint32_t n_trainers; /* ranks of the job on this node */
	uint32_t batch;      /* samples per batch of one rank */

	/* The stall model's rates; INFINITY: no limit seen. */
	double fetch_rate;  /* F: with the cache, depth and storage as they were */
	double prep_rate;   /* P: with the workers as they were */
	double device_rate; /* G: had no data been waited for */

	/* What memory does not have: storage, and other nodes of the job, as one source. Where nothing came
	 * in the second: the last known values, or NAN. */
	double chunk_latency_s; /* from asking for a chunk to having it: mean */
	double chunk_latency_p95_s;
	double
	    source_bytes_per_s;  /* bytes that came over the time in which at least one chunk was under way */
	double reads_in_flight;  /* mean over that time */
	double reading_ratio;    /* that time over the covered time, 0 .. 1 */
	double memory_hit_ratio; /* chunk needs met from memory, without a read or another node, 0 .. 1 */
	double chunk_bytes;      /* mean of the dataset, as stored in a segment */
	double samples_per_chunk; /* that are this node's: all, unless other nodes walk the same order */
	uint32_t window_chunks;   /* chunks that the shuffle mixes: all are needed at once */
	double ready_samples;     /* samples that the slots of all sessions hold when full */

	struct stall_tiers tiers;

	/* Preparing. */
	double daemon_cpu_s_per_sample; /* verify, decode, gather: a daemon worker's CPU time */
	double client_cpu_s_per_sample; /* Python transforms, in a worker or in the trainer */
	double handoff_s_per_sample;    /* trainer's time to take over a sample from a client worker; NAN
					 * without client workers: not known, not 0 */
	double client_worker_bytes;     /* private memory of one client worker */
	double daemon_workers_busy;     /* daemon threads at work for the job: mean */
	double client_workers_busy;
	double run_queue_ratio; /* time its threads were runnable without a core, over covered time */

	/* Memory. */
	uint64_t dataset;     /* equal for jobs that read the same dataset: they share its chunks */
	double dataset_bytes; /* as stored in segments: all that the job's ranks on this node need of it */
	double cached_bytes;  /* the part of it in memory now */
	double need_bytes;    /* the least that its sessions can run with: windows, slots, snapshot */

	struct stall_forms forms;

	struct tuner_knobs knobs; /* in force at the end of the second */
	/* Knobs that may be set for this job, 1u << enum tuner_knob: a client that asked for an exact number,
	 * or that has no workers at all, lacks the bit. */
	uint32_t tunable;
};

/* The node. PSI figures are the kernel's avg10 in percent, 0 .. 100, of the cgroup if it has them. */
struct stall_node {
	double memory_some_avg10, memory_full_avg10;
	double cpu_some_avg10;
	double io_some_avg10, io_full_avg10;
	double memory_limit_bytes;    /* the smaller of the cgroup's limit and the machine's memory */
	double memory_headroom_bytes; /* that can still be used: the smaller of the cgroup's and the
					 machine's; page cache that can be dropped counts as usable */
	double memory_free_bytes;     /* the part of that used by nothing, not even page cache */
	double cores;                 /* cores that may be used: affinity, cgroup quota, machine */
	double cores_idle;            /* of these, idle: mean over the second */
	double oom_kills;             /* in the cgroup since the last sample; 0 is known */
	double memory_some_now; /* percent of the time since the last sample, which avg10 follows slowly */
};

/* Everything is unknown; job, at_ns and covered_s are 0. Start from it, and fill in what is seen. */
struct stall_sample stall_sample_unknown(void);
struct stall_node stall_node_unknown(void);

/* Headroom that caches leave to others, of a node with so much memory: what a fast allocation takes before
 * they have given way. A sixteenth up to 256 MiB, and no less than a 64th: larger nodes have more cores and
 * faster memory. */
double stall_reserve_bytes(double memory_limit_bytes);
