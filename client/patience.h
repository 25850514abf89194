/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Waits for a daemon that has exited: attempts at growing intervals, until the time is over.
 *
 *   struct patience p = patience_begin(most_ms, now);
 *   while (failed in a way that patience_helps() with, and patience_pause(&p) == 0) try again;
 */

#include <stdbool.h>
#include <stdint.h>

struct patience {
	uint64_t since_ns; /* start of the wait */
	uint32_t most_ms, pause_ms;
};

struct patience patience_begin(uint32_t most_ms, uint64_t since_ns);

/* Returns true if waiting can help after the error r: the daemon is starting, died while answering, or does
 * not answer. */
bool patience_helps(int r);

/* Returns how long the daemon has been away, in ms. */
uint64_t patience_gone_ms(const struct patience *p);

/* Waits until the next attempt. -ETIMEDOUT: no time is left; -EINTR. */
int patience_pause(struct patience *p);
