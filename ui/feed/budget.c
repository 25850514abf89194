/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include <time.h>

#include "lib/clock.h"

uint64_t budget_cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}
