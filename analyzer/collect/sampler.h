/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sampler: what the collector of bpf/collector.h does, without any privilege and less exactly. It looks
 * at /proc, many times a second, and hands on EVENT_SAMPLE and EVENT_SAMPLE_PROCESS (bpf/event.h), beside
 * EVENT_ALIVE and EVENT_EXIT for processes. Time on the CPU and in the run queue is exact; what a thread
 * sleeps in is sampled.
 *
 * The order of calls and the contracts are the collector's. The job is never stopped or changed. Its own cost
 * is held at SAMPLER_COST_MAX of one CPU by looking less often.
 */

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"

struct error;
struct sampler;

#define SAMPLER_COST_MAX 0.02

/* root: "/proc". -ENOENT: root is no /proc. */
int sampler_open(const char *root, bool no_children, struct sampler **ret_sampler, struct error *err);

int sampler_launch(struct sampler *sampler, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		   struct error *err);
int sampler_attach(struct sampler *sampler, pid_t tgid, struct error *err);

/* Takes the looks that are due. Returns the number of events, or -errno. */
int sampler_poll(struct sampler *sampler, const struct collector_sink *sink);

/* Readable when it is time to look. */
int sampler_fd(const struct sampler *sampler);

uint64_t sampler_alive(const struct sampler *sampler); /* processes */
/* Off: looks only five times a second, to save room in the recording. Returns CLOCK_MONOTONIC ns of the
 * change. */
uint64_t sampler_detail(struct sampler *sampler, bool on);
bool sampler_has(const struct sampler *sampler, pid_t tgid);
int sampler_stop(struct sampler *sampler, const struct collector_sink *sink);
void sampler_close(struct sampler *sampler);
void sampler_stats_get(struct sampler *sampler, struct collector_stats *ret_stats);
