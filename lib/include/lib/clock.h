/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Time. Everything inside DIESEL is CLOCK_MONOTONIC in nanoseconds, the clock of bpf_ktime_get_ns().
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

/* The three clocks at (nearly) the same moment: CLOCK_MONOTONIC is read before and after the others and
 * the mean taken; uncertainty_ns is half the distance of the two readings. For conversion between them. */
struct clock_snapshot {
	uint64_t monotonic_ns;
	uint64_t boottime_ns;
	uint64_t realtime_ns;
	uint64_t uncertainty_ns;
};

struct clock_snapshot clock_snapshot_take(void);
