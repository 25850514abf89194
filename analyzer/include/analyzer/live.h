/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Several running jobs, analysed again and again: takes the collector's events as they come, keeps those of
 * the last seconds, and analyses them like a recording. One call a job and second is cheap: shares, no
 * predictions.
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
 * -EEXIST: the process belongs to a job. Until the next live_add(), processes that are there already
 * (EVENT_ALIVE) and are nobody's yet become this job's, as an attached process's descendants tell no parent:
 * so attach it now, and give the events of that before anything else is added. Once it is removed they are
 * nobody's.
 */
int live_add(struct live *live, uint32_t root_tgid);
/* Forgets a job. An unknown one is fine. */
void live_remove(struct live *live, uint32_t root_tgid);

/* -ENOMEM: the event is left out, which the next analysis counts as a loss. Events of nobody's are ignored;
 * sums over all threads that are watched (tid 0) are a job's while it is the only one. */
int live_event(struct live *live, const struct event *event);

/* What the collector's notes of kind PLACES_NOTE say, for analyses to come. Others are ignored. -ENOMEM. */
int live_note(struct live *live, const char *kind, const void *data, size_t size);

/* Jobs are numbered from 0 in the order they were added; removing one moves up those behind it. */
size_t live_n_jobs(const struct live *live);
uint32_t live_root(const struct live *live, size_t job);

/* The job that a process belongs to, by its root; 0: none. */
uint32_t live_root_of(struct live *live, uint32_t tgid);

/* What the job did in the window before now_ns; caller frees. Too few steps are no error:
 * ANALYSIS_INSUFFICIENT. -ENOENT: no such job; -ENOMEM. */
int live_analyze(struct live *live, uint32_t root_tgid, uint64_t now_ns, struct analysis **ret_analysis,
		 struct error *err);
