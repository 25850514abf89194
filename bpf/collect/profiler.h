/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Turns raw samples into events and metadata (bpf/metadata.h). The profiler looks names up when a sample
 * arrives, about 50 ms after it was taken. If the process has ended meanwhile, the profiler uses what it
 * knows of the process, or of the process that forked it. All tables have fixed sizes: a job with ever new
 * stacks loses names but takes no more memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"
#include "bpf/shared/stack_sample.h"

struct bpf_object;
struct collector_sink;
struct profiler;

/* Opens a clock of rate_hz on every CPU, which runs the object's program of stack samples. -ENOMEM; -errno:
 * this machine has no such clock, or denies it. */
int profiler_open(struct bpf_object *object, uint32_t rate_hz, struct profiler **ret_profiler);
/* Closes the clocks. Samples that were taken already can still be turned into events. */
void profiler_stop(struct profiler *profiler);
void profiler_free(struct profiler *profiler);

/* Receives EVENT_FORK, EVENT_EXEC and EVENT_EXIT, by which the profiler tracks the processes. */
void profiler_event(struct profiler *profiler, const struct event *event);

/* Turns a record of the ring into an event. Metadata that *ret_event needs goes to the sink (may be NULL).
 * Returns false if the record is not a sample. */
bool profiler_sample(struct profiler *profiler, const struct stack_sample *sample,
		     const struct collector_sink *sink, struct event *ret_event);
