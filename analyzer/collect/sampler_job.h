/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes of a sampled job: they are found through /proc, told by their start time from processes that
 * get their number later, and forgotten when they end. The main thread of each is looked at every time; of
 * processes that are not workers, also the threads that read files or wait at pipes.
 *
 * Bounded: beyond SAMPLER_PROCESSES_MAX processes at once and SAMPLER_THREADS_MAX threads, more are counted
 * as left out and not looked at.
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

/* Adds a first process. -ESRCH: there is none with that ID. */
int sampler_job_add(struct sampler_job *job, pid_t tgid);

/* Looks for new processes, and for threads worth looking at. own: a process that is not part of the job. */
int sampler_job_scan(struct sampler_job *job, pid_t own, uint64_t now_ns, const struct collector_sink *sink);

/* One look at every thread. Processes that ended are handed on and forgotten. */
void sampler_job_look(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink);

/* Hands on what is held back, and totals. */
void sampler_job_flush(struct sampler_job *job, uint64_t now_ns, const struct collector_sink *sink);

bool sampler_job_has(const struct sampler_job *job, pid_t tgid);
uint64_t sampler_job_alive(const struct sampler_job *job);
uint64_t sampler_job_left_out(const struct sampler_job *job);
