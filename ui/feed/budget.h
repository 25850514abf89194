/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keeps a kind of work within a share of one core by doing it less often: the caller says what the work cost,
 * and does not do it again before the budget has paid for that. Pure, except budget_cpu_ns().
 */

#include <stdbool.h>
#include <stdint.h>

struct budget {
	uint64_t interval_ns; /* not more often than this */
	double ratio;         /* of one core */
	uint64_t next_ns;     /* not before */
	uint64_t spent_ns;    /* in all */
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

/* CPU time of this thread so far. */
uint64_t budget_cpu_ns(void);
