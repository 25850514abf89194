/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is served to whom: the sessions, the jobs they belong to, and the cache they read from. Clients reach
 * it through server.h; sensing looks at it, and control turns its knobs. Which chunk is read next for whom:
 * daemon/schedule/. Loop thread only.
 */

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
	uint64_t n_reads; /* that were begun for sessions */
	bool dirty; /* look at all sessions before the loop sleeps: something may have become possible */
};

/* What each user may take of all that sessions share. */
static inline struct quota serving_quota(const struct serving *s)
{
	return (struct quota){.share_percent = s->options.user_share};
}

static inline void serving_touch(struct serving *s)
{
	s->dirty = true;
}

/* job_figures.c: sets what each job has of the cache now, and adds up what it had since the last call. */
void serving_count_cache(struct serving *s, uint64_t now_ns);
/* Its use of the cache so far, in bytes times seconds. */
double job_cache_byte_s(const struct job *job, uint64_t now_ns);

/* The job's counters up to now, live sessions included. */
void serving_job_counters(const struct serving *s, const struct job *job, struct job_counters *ret);
/* Returns true if the daemon decodes samples for one of its sessions. */
bool serving_job_decodes(const struct serving *s, const struct job *job);
/* Python worker processes that the job says it runs. */
uint32_t serving_job_client_workers(const struct serving *s, const struct job *job);
