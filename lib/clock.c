/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/clock.h"

#include <time.h>

static uint64_t read_clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
	return read_clock_ns(CLOCK_MONOTONIC);
}

uint64_t clock_realtime_ns(void)
{
	return read_clock_ns(CLOCK_REALTIME);
}

uint64_t clock_process_ns(void)
{
	return read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

struct clock_snapshot clock_snapshot_take(void)
{
	struct clock_snapshot s;
	uint64_t before = clock_monotonic_ns();

	s.boottime_ns = read_clock_ns(CLOCK_BOOTTIME);
	s.realtime_ns = clock_realtime_ns();
	uint64_t after = clock_monotonic_ns();

	s.monotonic_ns = before + (after - before) / 2;
	s.uncertainty_ns = (after - before + 1) / 2;
	return s;
}
