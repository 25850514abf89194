/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <poll.h>
#include <stdint.h>

#include "lib/clock.h"

/* Waits for one descriptor. Returns the events that poll() found, 0 after a signal, or -ETIMEDOUT. */
static inline int redis_wait(int fd, short events, uint64_t until_ns)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct pollfd p = {.fd = fd, .events = events};
	int n = now_ns < until_ns ? poll(&p, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1) : 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n == 0 ? -ETIMEDOUT : p.revents;
}
