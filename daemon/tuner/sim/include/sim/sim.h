/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Simulated jobs for the tuner: thousands of scenarios in seconds. The truth of a job is the stall model plus
 * effects that the tuner does not see: soft edges where stages are equally fast, storage that saturates, a
 * cache that takes epochs to fill, noise on every measured figure. Everything follows from the seed.
 *
 *   scenario -> sim_run() with a policy -> struct sim_outcome, compared with sim_best_static()
 */

#include "tuner/tuner.h"

#define SIM_MAX_JOBS   3
#define SIM_MAX_PHASES 3
#define SIM_MAX_S      400

/* A job in one phase; units as in struct stall_sample. */
struct sim_truth {
	double device_rate; /* G */
	double daemon_cpu_s, client_cpu_s, handoff_s;
	double sample_bytes, samples_per_chunk, dataset_bytes, window, ready;
	double storage_bytes_per_s, latency_s; /* figures for a chunk from idle storage */
	double reads_max;                      /* limit of reads in flight */
	double worker_bytes;
	double trainer_cores; /* cores that the trainer itself keeps busy */
	/* If the daemon decodes: bytes of a decoded copy (0: it does not decode), share of daemon_cpu_s that
	 * a sample out of a decoded copy takes, and share of the crops that decoded copies serve. */
	double decoded_bytes, decoded_part, decoded_serve;
};

struct sim_job {
	struct sim_truth phases[SIM_MAX_PHASES];
	struct tuner_knobs start;
};

struct sim_scenario {
	uint64_t seed;
	uint32_t n_jobs, n_phases;
	uint32_t phase_s;           /* each phase */
	double cores, memory_bytes; /* cores of the node; memory that caches and client workers may take */
	double noise;               /* standard deviation of the logarithm of a measured figure */
	double burst_period_s, burst_factor; /* a neighbour takes storage for half of each period; 0: none */
	struct sim_job jobs[SIM_MAX_JOBS];
};

/* Returns the seed-th scenario, with one job or n_jobs unequal ones. */
struct sim_scenario sim_scenario_random(uint64_t seed, uint32_t n_jobs);
/* Returns the seed-th scenario of one job whose images the daemon decodes, which needs more than the cores.
 */
struct sim_scenario sim_scenario_decoding(uint64_t seed);

/* ---- truth ---- */

struct sim_state {
	double hit_ratio; /* hit ratio of this epoch */
	double cached_bytes;
	double epoch_bytes;   /* bytes consumed so far in this epoch */
	double decoded_ratio; /* share of samples with a decoded copy */
	double decoded_hit;   /* share of this epoch's samples with a copy from an earlier epoch */
};

struct sim_rates {
	double rate;          /* consumption */
	double no_fetch_rate; /* the rate if storage were instant */
	double bandwidth, in_flight, latency_s;
};

double sim_need_bytes(const struct sim_truth *t);
double sim_cached_ratio(const struct sim_truth *t, const struct tuner_knobs *knobs);
/* Returns the share of the samples whose decoded copies fit in `bytes`. */
double sim_decoded_ratio(const struct sim_truth *t, double bytes);
/* Returns the truth with decoded copies for the share `have` of the samples, while decoded copies of the
 * share `made` are being made. */
struct sim_truth sim_with_decoded(const struct sim_truth *t, double have, double made);
/* Returns the rates with hit_ratio of the dataset in memory, and storage `storage` times as fast as the
 * truth's. */
struct sim_rates sim_rates(const struct sim_truth *t, double cores, const struct tuner_knobs *knobs,
			   double hit_ratio, double storage);
/* Returns the rate when the cache is filled; with a neighbour's bursts, the mean over one period. */
double sim_steady_rate(const struct sim_scenario *s, const struct sim_truth *t, double cores,
		       const struct tuner_knobs *knobs);
/* Returns the sum of CPU and memory, each as a part of the node's. */
double sim_cost(const struct sim_scenario *s, const struct sim_truth *t, const struct tuner_knobs *knobs);

/* The best steady rate of all static settings, and the cheapest setting within 2 % of it. */
struct sim_static {
	double rate, cheap_rate, cheap_cost;
	struct tuner_knobs cheap;
};
struct sim_static sim_best_static(const struct sim_scenario *s, const struct sim_truth *t, double cores,
				  double memory_bytes);

/* ---- policies ---- */

enum sim_policy {
	SIM_TUNER,
	SIM_CLIMBER, /* one knob per step, up or down; keeps the value that measured better */
	SIM_DEFAULT, /* workers = cores, prefetch 2, half of the memory as cache */
	SIM_FROZEN,  /* the knobs stay as they are at the start */
};

struct sim_outcome {
	uint32_t n_s; /* seconds simulated */
	/* Indexed by job and second. */
	float rate[SIM_MAX_JOBS][SIM_MAX_S];   /* the true rate, which nobody measures */
	float steady[SIM_MAX_JOBS][SIM_MAX_S]; /* rate that the knobs would give with a filled cache */
	float cost[SIM_MAX_JOBS][SIM_MAX_S];
	uint8_t n_changes[SIM_MAX_JOBS][SIM_MAX_S];
	struct tuner_knobs last[SIM_MAX_JOBS][SIM_MAX_PHASES]; /* knobs at the end of each phase */
	uint32_t n_undone, n_verified;
	bool limit_broken;
};

/* Runs the scenario under a policy. trace: prints each decision and verdict as a line on stderr. -ENOMEM. */
int sim_run(const struct sim_scenario *scenario, enum sim_policy policy, bool trace, struct sim_outcome *ret);

/* ---- judging a run of one job ---- */

struct sim_score {
	double regret;     /* 1 - steady rate of the last knobs / best static; the worst phase */
	double cost_ratio; /* cost of the last knobs / cheapest static within 2 %; the worst phase */
	double settle_start_s, settle_change_s; /* seconds after which the rate stays within 10 % of the best;
						   the latter for the worst change */
	uint32_t changes_settled; /* most knob changes in any 10 s later than 10 s after start, 15 s after a
				   * change */
	double area;              /* samples consumed, relative to the best statics in the same time */
	double mean_cost;         /* mean cost, relative to the cheapest statics */
};
void sim_judge(const struct sim_scenario *s, const struct sim_outcome *o, const struct sim_static *best,
	       struct sim_score *ret);

/* ---- random numbers: splitmix64 ---- */
struct sim_random {
	uint64_t state;
};
double sim_uniform(struct sim_random *r, double low, double high);
double sim_log_uniform(struct sim_random *r, double low, double high);
double sim_normal(struct sim_random *r);
