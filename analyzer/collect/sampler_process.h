/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One process of a sampled job: what it is to its parent, and the threads of it that are looked at. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"

struct sampler_process;

/* parent: NULL for the first one; used during the call only. -ESRCH, -ENOENT: it ended. */
int sampler_process_new(const char *root, pid_t pid, const struct sampler_process *parent,
			struct sampler_process **ret_process);

/* NULL is fine. */
void sampler_process_free(struct sampler_process *process);

pid_t sampler_process_pid(const struct sampler_process *process);
size_t sampler_process_n_threads(const struct sampler_process *process); /* that are looked at */

/* Hands on EVENT_ALIVE and EVENT_SAMPLE_PROCESS where they are new or changed. */
void sampler_process_introduce(struct sampler_process *process, uint64_t now_ns,
			       const struct collector_sink *sink);

/* Looks for threads worth looking at, and adds at most `room` of them. -ESRCH: the process ended, or another
 * one has its number. */
int sampler_process_scan(struct sampler_process *process, size_t room, uint64_t now_ns,
			 const struct collector_sink *sink);

/* -ESRCH: the process ended. */
int sampler_process_look(struct sampler_process *process, uint64_t now_ns, const struct collector_sink *sink);

/* Hands on what is held back, and EVENT_EXIT or EVENT_TOTALS. */
void sampler_process_end(struct sampler_process *process, uint16_t type, uint64_t now_ns,
			 const struct collector_sink *sink);
