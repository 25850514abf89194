/* SPDX-License-Identifier: Apache-2.0 */
#include "patience.h"

#include <errno.h>
#include <time.h>

#include "lib/clock.h"

#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 500

struct patience patience_begin(uint32_t most_ms, uint64_t since_ns)
{
	return (struct patience){.since_ns = since_ns, .most_ms = most_ms, .pause_ms = PAUSE_MIN_MS};
}

bool patience_helps(int r)
{
	return r == -ECONNREFUSED || r == -ECONNRESET || r == -ETIMEDOUT;
}

uint64_t patience_gone_ms(const struct patience *p)
{
	return (clock_monotonic_ns() - p->since_ns) / NS_PER_MS;
}

int patience_pause(struct patience *p)
{
	uint64_t gone_ms = patience_gone_ms(p), wait_ms = p->pause_ms;
	struct timespec pause;

	if (gone_ms >= p->most_ms)
		return -ETIMEDOUT;
	if (wait_ms > p->most_ms - gone_ms)
		wait_ms = p->most_ms - gone_ms;
	pause = (struct timespec){.tv_sec = (time_t)(wait_ms / 1000),
				  .tv_nsec = (long)(wait_ms % 1000 * NS_PER_MS)};
	if (nanosleep(&pause, NULL) < 0)
		return -EINTR;
	p->pause_ms = p->pause_ms * 2 < PAUSE_MAX_MS ? p->pause_ms * 2 : PAUSE_MAX_MS;
	return 0;
}
