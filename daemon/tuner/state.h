/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tuner's state, and the parts that make a decision. All plain data, all bounded.
 *
 *   figures   a raw sample -> struct job_figures, or refused; the last figures -> one estimate: medians
 *   decide    the phase of each job, and its limits
 *   target    figures -> the knobs that the stall model wants, and the rate it expects
 *   pressure  the node's memory -> how much all caches may take
 *   share     targets of all jobs -> limits for each
 *   judge     an earlier change -> verdict
 *   rules     all of these -> changes
 */

#include "tuner/tuner.h"

#define SEEN_MAX    8             /* samples kept per job: more than any rule looks back */
#define N_ENVELOPE  8             /* number of intervals for which the worst storage is kept */
#define ENVELOPE_NS 8000000000ull /* length of an interval; all of them cover a minute */
#define SECOND_NS   1000000000ull

#define BUSY_MIN         0.02 /* with a smaller share of time without waits, consumption over it is mostly noise */
#define ESTIMATE_SAMPLES 4 /* seconds in an estimate: a median of four ignores one outlier on either side */
#define SAMPLES_MIN      2 /* seconds after a change before it is judged: one may be a hiccup */

/* A cleaned sample, or an estimate from several. NAN: not known. Units as in struct stall_sample. */
struct job_figures {
	uint64_t at_ns, from_ns; /* covers from_ns .. at_ns */
	double rate;             /* consumption */
	double wait, fetch_wait, prep_wait;
	double busy;   /* share of time in which samples could have been asked for: no wait, no checkpoint */
	double demand; /* rate that the job would have without waits */
	double latency_s, latency_p95_s, bandwidth, in_flight, reading, hit;
	double chunk_bytes, samples_per_chunk, window, ready;
	double daemon_cpu_s, client_cpu_s, handoff_s, worker_bytes, daemon_busy, client_busy;
	double dataset_bytes, cached_bytes, need_bytes;
	double decoded, decoded_samples, decoded_bytes, decoded_space, decoded_size, decoded_hit;
	double decoded_serve, fresh_s, decoded_s;
};

/* A change whose effect is to be judged. */
struct knob_change {
	bool open;
	uint64_t id, at_ns;
	enum tuner_rule rule;
	uint64_t old_value, new_value;
	double rate_before, wait_before, fetch_before, prep_before, demand_before, bandwidth_before,
	    rate_expected;
	double cpu_before,
	    cpu_expected;    /* the daemon's CPU time per sample, now and expected with decoded copies */
	double stray_before; /* standard deviation of single seconds' rates, as a part of their mean */
};

/* Values of a knob that did not help, and for how long not to retry them. */
struct lesson {
	uint64_t up_value, up_until_ns, up_hold_ns;       /* values >= up_value are not tried */
	uint64_t down_value, down_until_ns, down_hold_ns; /* values <= down_value are not tried */
};

struct tuner_job {
	uint64_t job, dataset;
	uint64_t first_ns, last_ns; /* samples */
	enum tuner_phase phase;
	uint32_t tunable, n_trainers;
	struct job_figures seen[SEEN_MAX]; /* ring */
	uint32_t n_seen;                   /* samples since phase_ns */

	struct tuner_knobs in_force, wanted, model;
	bool asked[TUNER_N_KNOBS]; /* the value in `wanted` was requested and is awaited */
	uint64_t asked_ns[TUNER_N_KNOBS], refused_until_ns[TUNER_N_KNOBS];
	uint64_t took_ns; /* time of the first samples after the request for client workers; 0: none yet */
	struct knob_change changes[TUNER_N_KNOBS];
	struct lesson lessons[TUNER_N_KNOBS];

	uint64_t phase_ns;   /* figures from before this belong to another phase */
	uint64_t jump_ns;    /* time when jumping began */
	uint64_t changed_ns; /* last change of any knob */
	uint32_t n_jumps;
	uint64_t surplus_ns, stall_ns, idle_ns; /* times at which these states began; 0: not in the state */
	uint32_t n_differs;                     /* consecutive samples that differ from `settled` */
	struct job_figures settled;             /* estimate when the job settled */
	double wait_stray; /* mean distance of single seconds' waits from that of `settled` */
	struct tuner_knobs before_idle;
	uint64_t cache_before_pressure; /* cache size before pressure cut it; 0: not cut */
	bool rested;                    /* the job gave resources back because it was idle */

	/* Maximum bandwidth that storage is known to deliver, at this depth and beyond; 0: not known. */
	double full_bandwidth;
	uint64_t full_depth;
	double handoff_s;                   /* last known value; NAN or 0: never measured */
	double worst_bandwidth[N_ENVELOPE]; /* lowest per interval; 0: none seen */
	double worst_latency[N_ENVELOPE];
	uint64_t envelope_ns; /* start of the current interval */
	uint32_t envelope_at;
	uint64_t flips_ns[3]; /* times of the last phase changes, newest first */
};

struct tuner_pressure {
	bool tight;
	double ceiling_bytes; /* ceiling for all caches together; 0: none */
	double before_bytes;  /* bytes of all caches before the cut */
	double some_at_cut;
	uint64_t cut_ns, clear_ns, raised_ns;
	/* Headroom lost to others, in bytes per second: `falls` in the last second, `fell` in the one before.
	 */
	double headroom, held, falls, fell;
	uint64_t seen_ns; /* time when headroom and held were read; 0: never */
};

struct tuner_state {
	uint64_t last_now_ns, next_id;
	uint32_t n_jobs;
	struct tuner_job jobs[TUNER_MAX_JOBS];
	struct tuner_pressure pressure;
};

/* ---- figures.c ---- */

/* Adds the sample to its job, which is added if it is new. Returns the job; NULL: the sample is refused, for
 * example because it is from the future, older than 5 s, or not newer than the job's last one. */
struct tuner_job *state_see(struct tuner_state *state, const struct stall_sample *raw, uint64_t now_ns);
/* Estimates from samples entirely after since_ns; figures that do not depend on knobs are taken from the
 * whole phase. Returns the number of samples since since_ns; if 0, the figures that depend on knobs are
 * NAN. */
uint32_t job_estimate(const struct tuner_job *job, uint64_t since_ns, struct job_figures *ret);
/* Returns the number of seconds after since_ns, which may exceed those that an estimate uses. *ret_stray:
 * standard deviation of their rates, as a part of the mean; 0 with fewer than two seconds. */
uint32_t job_stray(const struct tuner_job *job, uint64_t since_ns, double *ret_stray);

/* ---- target.c ---- */

struct memory_space {
	double cache_bytes;
	uint64_t prefetch, daemon_workers, client_workers;
	double cores; /* cores available to the job: its own and idle ones; NAN: not known */
};

/* Returns the rate that the model expects with these knobs; NAN if too little is known. */
double target_rate(const struct tuner_job *job, const struct job_figures *f, const struct memory_space *space,
		   const struct tuner_knobs *knobs);
/* Writes the smallest knobs for the best rate within *space. A knob about which too little is known stays. */
void target_knobs(const struct tuner_job *job, const struct job_figures *f, const struct memory_space *space,
		  struct tuner_knobs *ret);
/* Returns the share of the dataset that a cache of this size keeps. */
double target_cached_ratio(const struct job_figures *f, double cache_bytes);

/* ---- target.c: savings of decoded copies ---- */

/* Returns the bytes that the decoded copies of all samples would take. */
double decoded_all_bytes(const struct job_figures *f);
/* Returns the share of samples whose decoded copies fit in `bytes`, 0 .. 1. The share of hits may be lower,
 * because copies of random crops serve only some epochs' crops (decoded_serve). */
double decoded_cover(const struct job_figures *f, double bytes);
/* Returns the daemon's CPU time per sample once decoded copies fill `bytes`. */
double decoded_daemon_cpu_s(const struct tuner_job *job, const struct job_figures *f, uint64_t bytes);
/* Returns true while the memory for decoded copies is filling: their hit ratio is well below what `bytes`
 * should give. Filling takes an epoch or two. */
bool decoded_fill(const struct job_figures *f, uint64_t bytes);

/* ---- pressure.c ---- */

/* Updates *p. Returns the bytes that all caches together may take; INFINITY: no such bound. held: bytes of
 * chunks that they hold. */
double pressure_ceiling(struct tuner_pressure *p, const struct tuner_config *config,
			const struct stall_node *node, double held, uint64_t now_ns);
double pressure_reserve(const struct tuner_config *config, const struct stall_node *node);

/* ---- share.c ---- */

struct claim {
	double floor; /* minimum that the job needs */
	double want;
	double gain; /* relative gain in rate from having `want` instead of an equal share; >= 0 */
	double given;
};

/* Shares `total` out: no job gets less than its want or an equal share, whichever is smaller; the rest goes
 * by gain per unit. The sum of `given` is at most total. */
void share_out(struct claim *claims, size_t n, double total);
