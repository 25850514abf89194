/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts how many of the job's threads were on a CPU at any time. */

#include "timeline.h"

struct cores {
	/* One entry for each moment at which a thread gets a CPU or leaves it. */
	uint64_t *at_ns;
	uint64_t *busy_ns; /* thread-ns since the start */
	uint64_t *full_ns; /* ns since the start with at least n_cpus threads on CPUs */
	uint32_t *n_busy;  /* number of busy threads from this moment on */
	uint32_t n_cpus;
	size_t n;
};

/* -ENOMEM. */
int cores_count(const struct timeline *timeline, uint32_t n_cpus, struct cores *ret_cores);
void cores_free(struct cores *cores);

/* Returns the thread-ns on CPUs in [begin_ns, end_ns), of all threads of the job. */
uint64_t cores_busy(const struct cores *cores, uint64_t begin_ns, uint64_t end_ns);
/* Returns the ns of [begin_ns, end_ns) in which the job's threads had all cores. */
uint64_t cores_full(const struct cores *cores, uint64_t begin_ns, uint64_t end_ns);
