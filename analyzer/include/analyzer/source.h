/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Source of a recording's events: the collector (BPF, exact) if the kernel permits it, else the sampler
 * (/proc, approximate, without privilege). Each function has the contract of its namesake in bpf/collector.h.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"

struct error;
struct source;

enum source_choice {
	SOURCE_COLLECTOR,
	SOURCE_SAMPLER,
};

/* Opens the chosen source. The sampler uses only options->no_children and proc_path. Fails if the kernel
 * refuses the collector: the caller decides whether the sampler suffices, and tells the user. */
int source_open(enum source_choice choice, const struct collector_options *options,
		struct source **ret_source, struct error *err);

/* Returns true if the source's events are sampled, hence approximate. */
bool source_is_sampled(const struct source *source);

/* All functions below have the contracts and results of collector_*() in bpf/collector.h. */
int source_launch(struct source *source, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		  struct error *err);
int source_attach(struct source *source, pid_t tgid, struct error *err);
bool source_has(const struct source *source, pid_t tgid);
int source_poll(struct source *source, int timeout_ms, const struct collector_sink *sink);
int source_fd(const struct source *source);
uint64_t source_detail(struct source *source, bool on); /* off: the sampler samples less often */
uint64_t source_alive(const struct source *source);
int source_stop(struct source *source, const struct collector_sink *sink, struct error *err);
void source_stats_get(struct source *source, struct collector_stats *ret_stats);

/* NULL is fine. */
void source_close(struct source *source);
