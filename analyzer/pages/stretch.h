/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts over a stretch of time, cut to the window: evenly spread, for want of better knowledge. */

#include <stdint.h>

#include "bpf/event.h"
#include "analyzer/waits/window.h"

static inline double stretch_part(const struct event *event, const struct window *window)
{
	uint64_t begin_ns = event->start_ns > window->begin_ns ? event->start_ns : window->begin_ns;
	uint64_t end_ns = event->end_ns < window->end_ns ? event->end_ns : window->end_ns;

	if (begin_ns >= end_ns)
		return 0;
	return (double)(end_ns - begin_ns) / (double)(event->end_ns - event->start_ns);
}

static inline uint64_t stretch_count(uint64_t count, double part)
{
	/* Exact where the stretch is all within; hostile counts must not leave the integers' range. */
	if (part >= 1)
		return count;
	return (uint64_t)((double)(count >> 1) * part * 2);
}
