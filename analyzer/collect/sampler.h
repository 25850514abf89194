/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sampler replaces the collector of bpf/collector.h without privilege, less exactly. It reads /proc many
 * times per second, and emits EVENT_SAMPLE and EVENT_SAMPLE_PROCESS (bpf/event.h), in addition to EVENT_ALIVE
 * and EVENT_EXIT for processes. Time on the CPU and in the run queue is exact; the reason why a thread sleeps
 * is sampled.
 *
 * The order of calls and the contracts are the collector's. The job is never stopped or changed. The sampler
 * limits its own cost to SAMPLER_COST_MAX of one CPU by sampling less often.
 */

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"

struct error;
struct sampler;

#define SAMPLER_COST_MAX 0.02

/* root: "/proc". -ENOENT: root is not a /proc. */
int sampler_open(const char *root, bool no_children, struct sampler **ret_sampler, struct error *err);

int sampler_launch(struct sampler *sampler, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		   struct error *err);
int sampler_attach(struct sampler *sampler, pid_t tgid, struct error *err);

/* Takes the samples that are due. Returns the number of events, or -errno. */
int sampler_poll(struct sampler *sampler, const struct collector_sink *sink);

/* Returns a descriptor that is readable when samples are due. */
int sampler_fd(const struct sampler *sampler);

uint64_t sampler_alive(const struct sampler *sampler); /* processes */
/* Switches detail on or off. off: samples only five times per second, to keep the recording small. Returns
 * the CLOCK_MONOTONIC ns of the change. */
uint64_t sampler_detail(struct sampler *sampler, bool on);
bool sampler_has(const struct sampler *sampler, pid_t tgid);
int sampler_stop(struct sampler *sampler, const struct collector_sink *sink);
void sampler_close(struct sampler *sampler);
void sampler_stats_get(struct sampler *sampler, struct collector_stats *ret_stats);
