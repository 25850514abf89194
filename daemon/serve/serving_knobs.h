/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Settings of the serving path: the knobs that the operator and the tuner change while sessions run, and the
 * functions that apply them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/cache_quota.h"
#include "lib/error.h"
#include "daemon/cache/sources/stage.h"

struct serving_knobs {
	uint64_t cache_bytes;     /* segments, batch slots and snapshot copies together */
	uint32_t prefetch_chunks; /* chunks read ahead, beyond the windows of a session's next batch */
	uint32_t workers;         /* CPU threads that verify and gather */
};

enum serving_digest { /* datasets that must have a SHA-256 of each chunk (--require-digest) */
		      SERVING_DIGEST_NEVER,
		      SERVING_DIGEST_SHARED, /* datasets opened by another uid than the snapshot's owner */
		      SERVING_DIGEST_ALWAYS,
};

struct plugins;

struct serving_options {
	struct serving_knobs knobs;
	uint32_t window_chunks; /* default window, in chunks, for sessions that do not ask for one */
	/* The cache size that this default is lowered for. It does not change while the daemon lives,
	 * whatever the setting of the cache: the order depends on it, and sessions of one job open at
	 * different times. */
	uint64_t window_cache_bytes;
	uint32_t n_slots; /* batches that are kept ready, per session */
	bool use_io_uring;
	uint32_t user_share;                /* percent that one user may take (quota.h) */
	struct cache_quotas quotas;         /* quotas of the cache */
	enum serving_digest require_digest; /* applies to datasets opened later */
	bool observe;                       /* refuse to open anything more */
	struct stage_options stage;         /* its folder is borrowed */
	struct plugins *plugins;            /* the operator's codecs (plugin.h); borrowed; NULL: none */
};

struct serving;
struct job;
struct tuner_knobs;

/*
 * The functions below take effect at once: running reads and workers finish, batches continue in the same
 * order, and memory in use stays until it is released. Returning a few hundred MiB to the system takes
 * milliseconds and does not pause serving. Loop thread only.
 */

/* Takes options that were read again, except the limits that serving_apply_knobs() applies. */
void serving_set_options(struct serving *s, const struct serving_options *again);

/*
 * Applies the operator's limits, and the values for jobs whose own knobs are free. Returns 0, or 1 if the
 * open sessions need more cache than that: then the cache stays as large as they need until they close, and
 * note reports this in one line.
 */
int serving_apply_knobs(struct serving *s, const struct serving_knobs *knobs, struct error *note);

/*
 * Sets one job's knobs, within the operator's limits. Cache: all the memory that the job claims. A dataset
 * that it shares with another job counts for both, and gets the larger of their claims. Memory beyond that is
 * borrowed, and stays until the space is needed. Returns 0; 1 if the cache is less than the job's sessions
 * need: it is raised to that, and note reports this; -ENOENT: no such job.
 */
int serving_set_job(struct serving *s, uint64_t id, const struct tuner_knobs *knobs, struct error *note);

/* The knobs in force for the job. None is free, except perhaps client workers (no wish). */
void serving_job_knobs(const struct serving *s, const struct job *job, struct tuner_knobs *ret);

/* Bytes. */
struct serving_job_memory {
	uint64_t need;             /* minimum for its sessions to run: chunks, batches, snapshots */
	uint64_t other;            /* the part of need that batches and snapshots take */
	uint64_t cached;           /* chunks of its datasets in memory */
	uint64_t borrowed;         /* the part of cached beyond what all jobs of these datasets claim */
	uint64_t dataset;          /* bytes of all chunks of its datasets */
	uint64_t chunks;           /* number of chunks in its datasets */
	uint64_t decoded_cache;    /* decoded copies of its samples in memory */
	uint64_t decoded_limit;    /* current limit of decoded copies */
	uint64_t n_decoded_copies; /* number of samples that have a decoded copy */
	uint64_t decoded;          /* samples that its sessions decode in an epoch */
};

void serving_job_memory(const struct serving *s, const struct job *job, struct serving_job_memory *ret);

/* Returns the maximum bytes for decoded copies: what the needs of sessions and the claims of all jobs leave.
 */
uint64_t serving_decoded_space(const struct serving *s);

/* Recomputes how resources are shared among jobs. To be called when sessions open or close. */
void serving_refresh(struct serving *s);
