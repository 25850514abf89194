/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The stall model computes how fast a loader and a device are together, in one of two ways:
 *
 *   formulas  rates in, a limit out: quick, smooth, blind to queues and to cores that are shared
 *   replay    the service times of recorded batches and steps, run through a simulated DataLoader: what the
 *             same job would have taken with something changed
 *
 * Pure: no clock, no I/O, no randomness, no global state. It knows nothing of the timeline, so a tuner and
 * simulations can use it too. Inputs are borrowed and never changed. Times are ns (double: they are scaled),
 * rates are samples/s, sizes bytes. Any input gives finite results as long as its numbers are finite and not
 * negative.
 */

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- formulas ---------------------------------------------------------------------------------------- */

enum model_bound {
	MODEL_DEVICE_BOUND, /* the loader keeps up */
	MODEL_FETCH_BOUND,
	MODEL_PREP_BOUND,
};

/* Returns F(x) = 1 / (x s / Bm + (1 - x) s / Bs); INFINITY for samples without bytes. */
double model_fetch_rate(double cached_ratio, double sample_bytes, double memory_bytes_per_s,
			double storage_bytes_per_s);

/* P(w) = min(w, cores) / CPU seconds per sample; without workers the trainer counts as one. */
double model_prep_rate(double n_workers, double cores, double cpu_s_per_sample);

/* V = min(F, P, G) */
double model_speed(double fetch_rate, double prep_rate, double device_rate);

/* A job stalls iff G > min(F, P), and for fetch if F is the smaller of the two. */
enum model_bound model_bound_of(double fetch_rate, double prep_rate, double device_rate);

/* Returns x*, the least cached share of the dataset with F(x) >= rate: from 0 to 1, or NAN where even memory
 * is too slow. */
double model_cache_needed(double sample_bytes, double memory_bytes_per_s, double storage_bytes_per_s,
			  double rate);

/* ceil(CPU seconds per sample x rate), at least 1. */
uint32_t model_workers_needed(double cpu_s_per_sample, double rate);

/* Little's law: ceil(latency x rate / samples per chunk) + 1. */
uint32_t model_prefetch_depth(double chunk_latency_s, double rate, double samples_per_chunk);

/* ---- decoded copies ------------------------------------------------------------------------------------ */

/*
 * Defaults until measured. PART: the part of a sample's CPU time that remains when the sample is read from
 * its decoded copy. TIMES: size of a decoded copy over that of the stored sample. A photograph of 100 KB and
 * 500 x 375 pixels has a decoded copy of 280 KB, in planes. With decoded copies of 85 % of such samples,
 * `bench decoded` gave 1.51 times the samples per CPU second. LOW and HIGH are guesses around that.
 */
#define MODEL_DECODED_PART      0.6
#define MODEL_DECODED_PART_LOW  0.5
#define MODEL_DECODED_PART_HIGH 0.75
#define MODEL_DECODED_TIMES     3.0

/* Returns the bytes that the decoded copies of n samples take, each of decoded_bytes. */
double model_decoded_memory(double n_samples, double decoded_bytes);

/* c: the share of the samples whose decoded copies fit into `bytes`, if all decoded copies take all_bytes; 0
 * to 1. */
double model_decoded_cover(double bytes, double all_bytes);

/* CPU seconds per sample = fresh - h (fresh - decoded copy), where h is the share of the samples read from a
 * decoded copy. Each sample is used once per epoch, and all are equally likely to have a decoded copy. So h
 * is c, times the share of their crops that decoded copies can serve. */
double model_decoded_cpu(double fresh_s, double decoded_s, double hit);

/* ---- storage ----------------------------------------------------------------------------------------- */

/*
 * One first-come-first-served server that all readers share: a request is done when the earlier requests are
 * done and its own bytes have passed. Unused bandwidth is saved for up to burst_ns (token bucket), as
 * throttled volumes do. Each request's own latency is added; it does not delay other requests.
 */
struct model_storage {
	double bytes_per_s; /* INFINITY: no shared server, only latencies */
	double burst_ns;
	double latency_ns; /* latency of any request */
	bool drained;      /* no bandwidth is saved at the start: the job has run for long */
};

struct model_request {
	double at_ns;   /* time of the request */
	double wait_ns; /* duration of the wait for it */
	double bytes;
	uint32_t reader; /* number of the requester, which makes one request at a time */
};

/* Fits the server to requests sorted by at_ns: replayed with each reader's pauses between requests, they wait
 * as long as recorded. bytes_per_s is INFINITY if readers do not wait for each other, or with too few
 * requests. -ENOMEM. */
int model_storage_fit(const struct model_request *requests, size_t n_requests,
		      struct model_storage *ret_storage);

/* Returns how long a request made at at_ns waits for the server. *state is the server's state, -INFINITY
 * before the first request. */
double model_storage_wait(const struct model_storage *storage, double *state, double at_ns, double bytes);

/* ---- replay ------------------------------------------------------------------------------------------ */

#define MODEL_WORKERS_MAX 256

/* Part of a batch's work: first computing, then at most one group of reads. */
struct model_segment {
	double compute_ns; /* needs `width` cores */
	/* Cores that computing uses at once, including helper threads (a tokenizer's, OpenMP's). 0: one. A
	 * worker that takes over the trainer's work has one thread: PyTorch and tokenizers limit it. */
	double width;
	double delay_ns; /* needs no core: locks, naps */
	double fetch_cpu_ns;
	double latency_ns; /* latency of the group, in addition to the server's */
	double bytes;      /* read from the storage server; 0: cached, or nothing was read */
	double size_bytes; /* read in total, from cache or storage */
};

struct model_batch {
	size_t first_segment, n_segments;
};

/* The trainer between two waits for data. */
struct model_step {
	double cpu_ns;   /* CPU time with `gang` cores */
	double sleep_ns; /* asleep: waiting for a device, or for other ranks */
	double peers_ns; /* part of sleep_ns: for other ranks */
	double fixed_ns; /* independent of loader and device: checkpoints, unexplained */
};

/* Batches of one pass over the loader. Batches of the next pass are not requested early. */
struct model_epoch {
	size_t first_step;
	double start_ns;   /* time from the first wait until the first worker takes an index */
	double spacing_ns; /* interval from one worker's start to the next one's */
	bool fresh;        /* its workers were started for this epoch */
};

struct model_loader {
	uint32_t n_workers; /* 0: the trainer reads and prepares itself */
	uint32_t prefetch;  /* batches requested ahead per worker */
	/* publish: from the end of a batch to its message. handover: from the message until the trainer
	 * continues. idle: while the worker's interpreter is idle or in a call; busy: while it computes.
	 * idle <= busy. */
	double publish_idle_ns, publish_busy_ns;
	double handover_idle_ns, handover_busy_ns;
};

struct model_job {
	const struct model_segment *segments;
	size_t n_segments;
	const struct model_batch *batches; /* in the order of consumption; one per step */
	const struct model_step *steps;
	size_t n_steps;
	const struct model_epoch *epochs; /* the first epoch begins with step 0 */
	size_t n_epochs;
	struct model_loader loader;
	struct model_storage storage;
	double cores; /* at least 1 */
	double gang;  /* cores that a step's cpu_ns uses at once; at least 1 */
	/* How much longer a thread takes with all other cores busy: 0.3 is 30 %. Shared caches and hardware
	 * threads. The times above do not include it. */
	double sharing_ratio;
	double cached_cpu_ns_per_byte; /* cost of reads from memory */
	double cached_cpu_ns;          /* per group */
};

/* Defaults for a recording without workers, which does not show how much busy cores slow a thread down, nor
 * the cost of handing a batch over. The ratios are from PyTorch jobs in Python and with Pillow, the times
 * from PyTorch 2 on a machine of 2.6 GHz (bench/jobs/fresh/bench_advised.py). */
#define MODEL_SHARING      0.15
#define MODEL_SHARING_HIGH 0.35
#define MODEL_PUBLISH_NS   250e3
#define MODEL_HANDOVER_NS  500e3

#define MODEL_CORES_MIN       0.05
#define MODEL_CORES_MAX       4096.0
#define MODEL_QUOTA_PERIOD_NS 100e6 /* the kernel's default period of cpu.max */

/* Changes relative to the recording. model_scenario_recorded() has none. */
struct model_scenario {
	double prep_cost;     /* factor on computing; 0: no time. The hand-over stays */
	bool fetch_free;      /* reads take only the CPU time of a read from memory */
	bool device_free;     /* steps take no time */
	double cached_ratio;  /* cached share of all groups read, at random; NAN: as recorded */
	double storage_speed; /* factor */
	double device_speed;  /* factor */
	double peers_wait;    /* factor on the waits for other ranks */
	double sample_size;   /* factor on bytes, and on computing, assumed proportional to them */
	uint32_t n_workers;   /* UINT32_MAX: as recorded */
	double sharing_ratio; /* for a job that gets its first workers; otherwise as recorded */
	/* Cores that the job may use, at least MODEL_CORES_MIN; NAN: as recorded. A whole number is a set of
	 * cores of its own. Any other number is a quota of CPU time, as in cpu.max: the job runs on
	 * MODEL_QUOTA_PERIOD_NS' worth of it, on at least as many cores as recorded, then pauses until the
	 * period ends. */
	double cores;
	bool persistent; /* workers persist: only the first epoch waits for their start */
};

struct model_outcome {
	double wall_ns;
	double wait_ns;    /* waits for data */
	double device_ns;  /* CPU time, sleep, and waits for cores that others occupied */
	double starved_ns; /* part of device_ns in excess of the time that its work takes by itself */
	size_t n_events;
};

struct model_scenario model_scenario_recorded(void);

/* Returns true if the scenario gives the job its first workers. */
bool model_gives_workers(const struct model_job *job, const struct model_scenario *scenario);

/* Returns the share of the groups read that did not wait for storage; 1 for a job that reads nothing. */
double model_cached_ratio(const struct model_job *job);

/* Replays the job in the scenario. step_ns, wait_ns: n_steps results each; may be NULL. -ENOMEM, -EINVAL
 * (batches outside of the segments, no step, more than MODEL_WORKERS_MAX workers, epochs out of order). */
int model_replay(const struct model_job *job, const struct model_scenario *scenario, double *step_ns,
		 double *wait_ns, struct model_outcome *ret_outcome);
