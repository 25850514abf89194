/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cuts counts over an interval to the window. The counts are assumed to be spread evenly over the interval.
 */

#include <stdint.h>

#include "bpf/event.h"
#include "analyzer/waits/window.h"

static inline double interval_part(const struct event *event, const struct window *window)
{
	uint64_t begin_ns = event->start_ns > window->begin_ns ? event->start_ns : window->begin_ns;
	uint64_t end_ns = event->end_ns < window->end_ns ? event->end_ns : window->end_ns;

	if (begin_ns >= end_ns)
		return 0;
	return (double)(end_ns - begin_ns) / (double)(event->end_ns - event->start_ns);
}

static inline uint64_t interval_count(uint64_t count, double part)
{
	/* An interval within the window keeps its exact count. For others, the shift keeps hostile counts
	 * from overflowing. */
	if (part >= 1)
		return count;
	return (uint64_t)((double)(count >> 1) * part * 2);
}
