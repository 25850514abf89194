/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * All times inside DIESEL are CLOCK_MONOTONIC in nanoseconds, the clock of bpf_ktime_get_ns().
 * Policy code takes `now_ns` as an argument and never reads a clock.
 */

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

/* CLOCK_MONOTONIC now, in ns. */
uint64_t clock_monotonic_ns(void);

/* CLOCK_REALTIME now, in ns since 1970. */
uint64_t clock_realtime_ns(void);

/* CPU time of this process, in ns. */
uint64_t clock_process_ns(void);

/* The three clocks at (nearly) the same moment, for converting between them. CLOCK_MONOTONIC is read before
 * and after the others: monotonic_ns is the mean of the two readings, uncertainty_ns half their distance. */
struct clock_snapshot {
	uint64_t monotonic_ns;
	uint64_t boottime_ns;
	uint64_t realtime_ns;
	uint64_t uncertainty_ns;
};

struct clock_snapshot clock_snapshot_take(void);
