/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From raw samples to events and notes: see bpf/notes.h. Names are looked up when a sample comes, some 50 ms
 * after it was taken; of a process that ended meanwhile what is known of it, or of the process that forked
 * it, still serves. All tables have fixed sizes: a job with endless different stacks loses names, not memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"
#include "stack_sample.h"

struct bpf_object;
struct collector_sink;
struct profiler;

struct profiler *profiler_new(struct bpf_object *object);
void profiler_free(struct profiler *profiler);

/* Opens a clock of rate_hz on every CPU. -errno: this machine has no such clock, or does not let us. */
int profiler_start(struct profiler *profiler, uint32_t rate_hz);
void profiler_stop(struct profiler *profiler);

/* EVENT_FORK, EVENT_EXEC, EVENT_EXIT: which processes there are. */
void profiler_event(struct profiler *profiler, const struct event *event);

/* One record of the ring. Notes that *ret_event needs go to the sink (may be NULL). false: no sample. */
bool profiler_sample(struct profiler *profiler, const struct stack_sample *sample,
		     const struct collector_sink *sink, struct event *ret_event);
