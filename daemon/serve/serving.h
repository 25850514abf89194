/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The serving state: sessions, their jobs, and the cache that they read from. Clients reach it through
 * server.h, sensing reads it, and control sets its knobs. daemon/schedule/ decides which chunk is read next
 * for which session. Loop thread only.
 */

#include "client/diesel.h"
#include "daemon/cache/cache.h"
#include "daemon/cache/job.h"
#include "daemon/node/quota.h"
#include "serving_knobs.h"
#include "session.h"

struct serving {
	struct serving_options options;
	struct cache cache;
	struct session *sessions;
	struct jobs jobs;
	uint64_t n_reads; /* reads that were started for sessions */
	bool dirty;       /* check all sessions before the loop sleeps: something may have become possible */
};

/* Returns each user's quota of the resources that sessions share. */
static inline struct quota serving_quota(const struct serving *s)
{
	return (struct quota){.share_percent = s->options.user_share};
}

static inline void serving_touch(struct serving *s)
{
	s->dirty = true;
}

/* job_figures.c: sets each job's current share of the cache, and adds its use since the last call. */
void serving_count_cache(struct serving *s, uint64_t now_ns);
/* Returns the job's use of the cache so far, in bytes times seconds. */
double job_cache_byte_s(const struct job *job, uint64_t now_ns);

/* Returns the job's counters up to now, including live sessions. */
void serving_job_counters(const struct serving *s, const struct job *job, struct job_counters *ret);
/* Returns true if the daemon decodes samples for one of its sessions. */
bool serving_job_decodes(const struct serving *s, const struct job *job);
/* Returns false if the job has not reported a checkpoint. The figures are the client's own claim. */
bool serving_job_checkpoints(const struct serving *s, const struct job *job, struct diesel_checkpoints *ret);
/* Pauses prefetch from storage to which a job reports that it writes a checkpoint (read_holds.h). */
void serving_note_checkpoints(struct serving *s, uint64_t now_ns);
/* Returns the number of Python worker processes that the job reports. */
uint32_t serving_job_client_workers(const struct serving *s, const struct job *job);
