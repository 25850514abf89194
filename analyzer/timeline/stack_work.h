/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds a thread's work that only stack samples show, not calls: copying and pickling a checkpoint before a
 * file is opened, or compiling. The work is recognised by Python functions of PyTorch, safetensors and JAX
 * anywhere in the stack.
 *
 * A span reaches from a thread's first sample with such a function to the last one before a sample of other
 * work, so sleeps in between are part of it. Unless calls give better edges, it reaches half a sampling
 * interval further on each side: this is right on average, and within a sampling interval each time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analyzer/trace/frame_work.h"
#include "analyzer/base/interval.h"
#include "timeline.h"

struct analysis_input;

struct work_sample {
	const struct timeline_thread *thread;
	uint64_t at_ns;
	enum stack_work work;
	bool python; /* has a Python stack; false in a Python thread if the stack was not readable */
};

/* Samples of all threads, by thread and time. */
struct stack_samples {
	struct work_sample *items;
	size_t n;
	uint64_t period_ns;
};

/* Collects the samples; the result is empty if none were taken. -ENOMEM. */
int stack_samples_find(const struct timeline *timeline, const struct analysis_input *input,
		       struct stack_samples *ret_samples);
void stack_samples_free(struct stack_samples *samples);

struct stack_bounds {
	const uint64_t *times; /* ascending; a span ends at these times, because the thread does other work */
	size_t n_times;
	const struct interval_list *known; /* spans known from calls, tidy: a sample within one does not
					      extend the span; NULL: none */
	bool wide;                         /* a span reaches to the adjacent samples of other work */
	uint64_t asleep_max_ns;            /* the longest sleep within a span; 0: any */
};

#define STACK_BACKGROUND_SLEEP_NS UINT64_C(50000000) /* a thread that only saves sleeps between two saves */

/* Appends the thread's spans. -ENOMEM. */
int stack_spans_find(const struct stack_samples *samples, const struct timeline_thread *thread,
		     enum stack_work work, const struct stack_bounds *bounds, struct interval_list *spans);
