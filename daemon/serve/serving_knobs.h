/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the serving path is told to do: the knobs that an operator sets and a tuner turns while sessions
 * run, and the entry that applies them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct serving_knobs {
	uint64_t cache_bytes;     /* segments, batch slots and snapshot copies together */
	uint32_t prefetch_chunks; /* read ahead of the windows that a session's next batch needs */
	uint32_t workers;         /* CPU threads that verify and gather */
};

enum serving_digest { /* of which datasets chunks must have a SHA-256 (--require-digest) */
		      SERVING_DIGEST_NEVER,
		      SERVING_DIGEST_SHARED, /* those that another uid opens than owns the snapshot */
		      SERVING_DIGEST_ALWAYS,
};

struct serving_options {
	struct serving_knobs knobs;
	uint32_t window_chunks; /* default for sessions that do not ask for one */
	/* The cache that this default is lowered for. Fixed while the daemon lives, whatever its cache is
	 * turned to: the order depends on it, and sessions of one job open at different times. */
	uint64_t window_cache_bytes;
	uint32_t n_slots; /* batches that are kept ready, per session */
	bool use_io_uring;
	uint32_t user_share;                /* percent that one user may take (quota.h) */
	enum serving_digest require_digest; /* of what is opened from now on */
};

struct serving;
struct job;
struct tuner_knobs;

/*
 * All of these take effect at once: reads and workers under way finish, batches go on in the same order, what
 * is in use stays until it is not. Memory that is given up goes back to the system within milliseconds for
 * some hundred MiB, without a pause for those who are served. Loop thread only.
 */

/*
 * The operator's limits and what holds for jobs that were given nothing of their own. 0; 1: the open sessions
 * need more cache than that, so it stays as large until they close; note says so in a line.
 */
int serving_apply_knobs(struct serving *s, const struct serving_knobs *knobs, struct error *note);

/*
 * One job's knobs, within the operator's limits. Cache: all the memory that the job claims; datasets that it
 * shares with another job count for both and are kept for whoever has more. What is in memory beyond that is
 * borrowed and stays until somebody wants the room. Less than its sessions need is raised to that: 1, and
 * note says so. -ENOENT: no such job.
 */
int serving_set_job(struct serving *s, uint64_t id, const struct tuner_knobs *knobs, struct error *note);

/* What is in force for the job: nothing in it is free but client workers (no wish). */
void serving_job_knobs(const struct serving *s, const struct job *job, struct tuner_knobs *ret);

/* Bytes. */
struct serving_job_memory {
	uint64_t need;     /* the least that its sessions can run with: chunks, batches, snapshots */
	uint64_t other;    /* of it, batches and snapshots */
	uint64_t cached;   /* chunks of its datasets in memory */
	uint64_t borrowed; /* of them, beyond what all jobs of these datasets claim */
	uint64_t dataset;  /* all chunks of its datasets */
	uint64_t chunks;   /* how many these are */
};

void serving_job_memory(const struct serving *s, const struct job *job, struct serving_job_memory *ret);

/* Recomputes who gets what; the server calls it when sessions come or go. */
void serving_refresh(struct serving *s);
