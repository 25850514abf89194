/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Analyses running jobs repeatedly: takes the collector's events as they arrive, keeps the events of the last
 * seconds, and analyses them like a recording. One call per job per second is cheap, because the analysis has
 * shares but no predictions.
 *
 * A job is a process named by live_add() and all its descendants. Memory is bounded: with more events than
 * the limit the window becomes shorter. Pure: no clock, no I/O. For use by one thread.
 */

#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct analysis;
struct error;
struct live;

#define LIVE_WINDOW_NS  UINT64_C(15000000000)
#define LIVE_EVENTS_MAX (UINT64_C(1) << 19) /* maximum per job: 32 MiB */

struct live_config {
	uint64_t window_ns;  /* 0: LIVE_WINDOW_NS */
	size_t n_events_max; /* per job; 0: LIVE_EVENTS_MAX */
	uint32_t n_cpus;
};

/* Returns NULL if memory runs out. */
struct live *live_new(const struct live_config *config);
struct live *live_free(struct live *live);

/*
 * Adds a job. -EEXIST: the process already belongs to a job; -ENOMEM. Events about older processes
 * (EVENT_ALIVE) do not name the parent. So until the next live_add(), each such process without a job becomes
 * part of this job. The caller must therefore attach the process now, and pass on the resulting events before
 * it adds another job. Once the job is removed, such processes belong to no job.
 */
int live_add(struct live *live, uint32_t root_tgid);
/* Forgets a job. Ignores an unknown root_tgid. */
void live_remove(struct live *live, uint32_t root_tgid);

/* Adds an event to the job of its process; ignores events of processes without a job. Sums over all watched
 * threads (tid 0) count for a job while it is the only one. -ENOMEM: the event is left out, and the next
 * analysis counts it as lost. */
int live_event(struct live *live, const struct event *event);

/* Stores a metadata event of kind METADATA_PATH for later analyses; ignores other kinds. -ENOMEM. */
int live_note(struct live *live, const char *kind, const void *data, size_t size);

/* Returns the root_tgid of the job that a process belongs to; 0: none. */
uint32_t live_root_of(struct live *live, uint32_t tgid);

/* Analyses the window before now_ns; the caller frees the result with analysis_free(). With too few steps it
 * succeeds with ANALYSIS_INSUFFICIENT. -ENOENT: no such job; -ENOMEM. */
int live_analyze(struct live *live, uint32_t root_tgid, uint64_t now_ns, struct analysis **ret_analysis,
		 struct error *err);
