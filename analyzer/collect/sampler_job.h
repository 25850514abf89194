/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes of a sampled job. They are found through /proc, and forgotten when they end; the start time
 * distinguishes a process from a later one with the same PID. The main thread of each process is sampled
 * every time. In processes that are not workers, so are threads that read files or wait at pipes.
 *
 * Bounded: processes beyond SAMPLER_PROCESSES_MAX at once and threads beyond SAMPLER_THREADS_MAX are not
 * sampled, but counted as left out.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"

#define SAMPLER_PROCESSES_MAX 256
#define SAMPLER_THREADS_MAX   128 /* three descriptors each: 1,024 is the usual limit */

struct sampler_job;

int sampler_job_new(const char *root, bool no_children, struct sampler_job **ret_job);

/* NULL is fine. */
void sampler_job_free(struct sampler_job *job);

/* Adds a root process. -ESRCH: no process has that ID. */
int sampler_job_add(struct sampler_job *job, pid_t tgid);

/* Searches for new processes, and for threads worth sampling. own: a process that is not part of the job. */
int sampler_job_scan(struct sampler_job *job, pid_t own, uint64_t now_ns, const struct collector_sink *sink);

/* Samples every thread once. Reports processes that ended to the sink, and removes them. */
void sampler_job_look(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink);

/* Passes the samples that were held back, and the totals, to the sink. */
void sampler_job_flush(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink);

bool sampler_job_has(const struct sampler_job *job, pid_t tgid);
uint64_t sampler_job_alive(const struct sampler_job *job);
uint64_t sampler_job_left_out(const struct sampler_job *job);
