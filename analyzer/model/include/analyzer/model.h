/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The stall model: how fast a loader and a device are together. Two answers to one question:
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

/* F(x) = 1 / (x s / Bm + (1 - x) s / Bs); INFINITY for samples without bytes. */
double model_fetch_rate(double cached_ratio, double sample_bytes, double memory_bytes_per_s,
			double storage_bytes_per_s);

/* P(w) = min(w, cores) / CPU seconds a sample; without workers the trainer counts as one. */
double model_prep_rate(double n_workers, double cores, double cpu_s_per_sample);

/* V = min(F, P, G) */
double model_speed(double fetch_rate, double prep_rate, double device_rate);

/* A job stalls iff G > min(F, P), for fetch if F is the smaller. */
enum model_bound model_bound_of(double fetch_rate, double prep_rate, double device_rate);

/* x*: the least cached share of the dataset with F(x) >= rate; 0 to 1; NAN where even memory is too slow. */
double model_cache_needed(double sample_bytes, double memory_bytes_per_s, double storage_bytes_per_s,
			  double rate);

/* ceil(CPU seconds a sample x rate), at least 1. */
uint32_t model_workers_needed(double cpu_s_per_sample, double rate);

/* Little's law: ceil(latency x rate / samples a chunk) + 1. */
uint32_t model_prefetch_depth(double chunk_latency_s, double rate, double samples_per_chunk);

/* ---- decoded forms ------------------------------------------------------------------------------------ */

/*
 * Until it is measured: the part of a sample's CPU time that is left when it comes out of its decoded form,
 * and how many times as large as the stored sample a form is. A photograph of 100 KB and 500 x 375 pixels has
 * 280 KB, in planes; with forms of 85 % of such `bench forms` gave 1.51 times the samples a CPU second. Low
 * and high are guesses around that.
 */
#define MODEL_FORM_PART      0.6
#define MODEL_FORM_PART_LOW  0.5
#define MODEL_FORM_PART_HIGH 0.75
#define MODEL_FORM_TIMES     3.0

/* What forms of n samples take, if each takes form_bytes. */
double model_form_memory(double n_samples, double form_bytes);

/* c: the share of the samples that have a form in so many bytes, if forms of all take all_bytes; 0 to 1. */
double model_form_cover(double bytes, double all_bytes);

/* CPU seconds a sample = fresh - h (fresh - form), where h is the share of the samples that come out of a
 * form: each is used once an epoch, and as likely as any other to have one, so that h is c, times the share
 * of their crops that forms serve. */
double model_form_cpu(double fresh_s, double form_s, double hit);

/* ---- storage ----------------------------------------------------------------------------------------- */

/*
 * One server that all readers share, first come, first served: a request is done when the requests before it
 * are and its own bytes have passed. Unused bandwidth is kept for up to burst_ns (token bucket), as
 * throttled volumes do. On top comes the request's own latency, which is nobody else's.
 */
struct model_storage {
	double bytes_per_s; /* INFINITY: no shared server, only latencies */
	double burst_ns;
	double latency_ns; /* of any request */
	bool drained;      /* nothing is saved up at the start: a job that has run for long */
};

struct model_request {
	double at_ns;   /* when it was made */
	double wait_ns; /* how long it was waited for */
	double bytes;
	uint32_t reader; /* whose; a reader makes one request at a time */
};

/* Fits the server to requests sorted by at_ns, such that each reader's requests wait as long as recorded when
 * they are run again with what the reader did between them. bytes_per_s is INFINITY where readers do not wait
 * for each other, and with too few requests. -ENOMEM. */
int model_storage_fit(const struct model_request *requests, size_t n_requests,
		      struct model_storage *ret_storage);

/* Returns how long a request made at at_ns waits for the server; *state is its memory, -INFINITY before the
 * first request. */
double model_storage_wait(const struct model_storage *storage, double *state, double at_ns, double bytes);

/* ---- replay ------------------------------------------------------------------------------------------ */

#define MODEL_WORKERS_MAX 256

/* A stretch of a batch's work: first computing, then at most one group of reads. */
struct model_segment {
	double compute_ns; /* needs `width` cores */
	/* Cores that computing has at once, with the threads that help it: a tokenizer's, OpenMP's. 0: one. A
	 * worker that takes over what the trainer did has one thread: PyTorch and tokenizers see to that. */
	double width;
	double delay_ns; /* does not: locks, naps */
	double fetch_cpu_ns;
	double latency_ns; /* of the group, beside the server's */
	double bytes;      /* that the server had to bring; 0: cached, or nothing was read */
	double size_bytes; /* that were read, from wherever */
};

struct model_batch {
	size_t first_segment, n_segments;
};

/* The trainer between two waits for data. */
struct model_step {
	double cpu_ns;   /* with `gang` cores */
	double sleep_ns; /* asleep: waiting for a device */
	double fixed_ns; /* nothing of the loader or the device: checkpoints, unexplained */
};

/* Batches of one pass over the loader; nothing is asked for beyond its end. */
struct model_epoch {
	size_t first_step;
	double start_ns;   /* from the first wait to when the first worker takes its first index */
	double spacing_ns; /* from one worker's start to the next one's */
	bool fresh;        /* its workers were started for it */
};

struct model_loader {
	uint32_t n_workers; /* 0: the trainer reads and prepares itself */
	uint32_t prefetch;  /* batches a worker is asked for ahead */
	/* From the end of a batch to its message (publish), and from the message until the trainer goes on
	 * (handover): while the worker's interpreter is idle or in a call, and while it computes. idle <=
	 * busy. */
	double publish_idle_ns, publish_busy_ns;
	double handover_idle_ns, handover_busy_ns;
};

struct model_job {
	const struct model_segment *segments;
	size_t n_segments;
	const struct model_batch *batches; /* in the order they are consumed; one a step */
	const struct model_step *steps;
	size_t n_steps;
	const struct model_epoch *epochs; /* the first one begins with step 0 */
	size_t n_epochs;
	struct model_loader loader;
	struct model_storage storage;
	double cores; /* at least 1 */
	double gang;  /* cores that a step's cpu_ns wants; at least 1 */
	/* How much longer a thread takes with all other cores busy: 0.3 is 30 %. Shared caches and hardware
	 * threads. The times above do not include it. */
	double sharing_ratio;
	double cached_cpu_ns_per_byte; /* of reads from memory */
	double cached_cpu_ns;          /* a group */
};

/* A recording without workers does not show how much longer a thread takes beside busy cores, nor what
 * handing a batch over takes: these stand for it. The ratios are those of PyTorch's jobs in Python and with
 * Pillow, the times those of PyTorch 2 on a machine of 2.6 GHz (bench/jobs/fresh/bench_advised.py). */
#define MODEL_SHARING      0.15
#define MODEL_SHARING_HIGH 0.35
#define MODEL_PUBLISH_NS   250e3
#define MODEL_HANDOVER_NS  500e3

/* What is different from the recording. In model_scenario_recorded() nothing is. */
struct model_scenario {
	double prep_cost;     /* factor on computing; 0: it takes nothing. Handing over stays */
	bool fetch_free;      /* reading takes nothing but the CPU time of a read from memory */
	bool device_free;     /* steps take nothing */
	double cached_ratio;  /* of all groups read, at random; NAN: as recorded */
	double storage_speed; /* factor */
	double device_speed;  /* factor */
	double sample_size;   /* factor on bytes, and on computing as far as it is per byte: all of it */
	uint32_t n_workers;   /* UINT32_MAX: as recorded */
	double sharing_ratio; /* of a job that is given its first workers; for others as recorded */
	bool persistent;      /* workers stay from epoch to epoch: only the first one waits for their start */
};

struct model_outcome {
	double wall_ns;
	double wait_ns;    /* for data */
	double device_ns;  /* cpu, sleep, and waiting for cores that others had */
	double starved_ns; /* part of device_ns: more than its work alone takes */
	size_t n_events;
};

struct model_scenario model_scenario_recorded(void);

/* Does the scenario give the job its first workers? */
bool model_gives_workers(const struct model_job *job, const struct model_scenario *scenario);

/* Share of the groups read that did not have to wait for storage; 1 for a job that reads nothing. */
double model_cached_ratio(const struct model_job *job);

/* step_ns, wait_ns: per step, n_steps each; may be NULL. -ENOMEM, -EINVAL (batches outside of the segments,
 * no step, more than MODEL_WORKERS_MAX workers, epochs out of order). */
int model_replay(const struct model_job *job, const struct model_scenario *scenario, double *step_ns,
		 double *wait_ns, struct model_outcome *ret_outcome);
