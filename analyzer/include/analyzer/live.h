/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Several running jobs, analysed again and again: takes the collector's events as they come, keeps those of
 * the last seconds, and analyses them like a recording. One call per job per second is cheap: it gives shares
 * but no predictions.
 *
 * A job is a process that was named and all its descendants. Memory is bounded: with more events than the
 * limit the window becomes shorter. Pure: no clock, no I/O. One thread.
 */

#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct analysis;
struct error;
struct live;

#define LIVE_WINDOW_NS  UINT64_C(15000000000)
#define LIVE_EVENTS_MAX (UINT64_C(1) << 19) /* of one job: 32 MiB */

struct live_config {
	uint64_t window_ns;  /* 0: LIVE_WINDOW_NS */
	size_t n_events_max; /* of one job; 0: LIVE_EVENTS_MAX */
	uint32_t n_cpus;
};

/* NULL: no memory. */
struct live *live_new(const struct live_config *config);
struct live *live_free(struct live *live);

/*
 * -EEXIST: the process belongs to a job already; -ENOMEM. Events about processes that were there before
 * (EVENT_ALIVE) do not tell the parent. So until the next live_add(), each such process that belongs to no
 * job becomes part of this one: attach the process now, and pass on the events of that before anything else
 * is added. Once the job is removed, such processes belong to none.
 */
int live_add(struct live *live, uint32_t root_tgid);
/* Forgets a job. An unknown one is fine. */
void live_remove(struct live *live, uint32_t root_tgid);

/* -ENOMEM: the event is left out, which the next analysis counts as a loss. Events of processes that belong
 * to no job are ignored. Sums over all watched threads (tid 0) count for a job while it is the only one. */
int live_event(struct live *live, const struct event *event);

/* What the collector's notes of kind PLACES_NOTE say, for analyses to come. Others are ignored. -ENOMEM. */
int live_note(struct live *live, const char *kind, const void *data, size_t size);

/* The job that a process belongs to, by its root; 0: none. */
uint32_t live_root_of(struct live *live, uint32_t tgid);

/* What the job did in the window before now_ns; caller frees. Too few steps are no error:
 * ANALYSIS_INSUFFICIENT. -ENOENT: no such job; -ENOMEM. */
int live_analyze(struct live *live, uint32_t root_tgid, uint64_t now_ns, struct analysis **ret_analysis,
		 struct error *err);
