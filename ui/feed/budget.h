/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits a kind of work to a share of one core by doing the work less often. The caller reports the cost of
 * each run; the next run is not due before the budget has paid for that cost. Pure, except budget_cpu_ns().
 */

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "lib/clock.h"

struct budget {
	uint64_t interval_ns; /* least time between two runs */
	double ratio;         /* share of one core */
	uint64_t next_ns;     /* earliest start of the next run */
	uint64_t spent_ns;    /* CPU time of all runs */
};

static inline bool budget_allows(const struct budget *budget, uint64_t now_ns)
{
	return now_ns >= budget->next_ns;
}

static inline void budget_spend(struct budget *budget, uint64_t begin_ns, uint64_t cpu_ns)
{
	uint64_t pause_ns = (uint64_t)((double)cpu_ns / budget->ratio);

	budget->spent_ns += cpu_ns;
	budget->next_ns = begin_ns + (pause_ns > budget->interval_ns ? pause_ns : budget->interval_ns);
}

/* Returns the CPU time of the calling thread so far. */
static inline uint64_t budget_cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}
