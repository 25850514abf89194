/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Fair scheduling by usage, for resources shared among lanes: workers (pool.h), reads (read_turns.h).
 * The lane with the least usage divided by its weight goes first. A lane that becomes active again gets no
 * credit for its idle time. Pure.
 */

#include <stdint.h>

#define TURN_WEIGHT      100 /* default weight of a lane */
#define TURN_WEIGHT_MOST 10000

struct turn { /* usage of a lane */
	uint64_t used;
};

struct turns {
	uint64_t now; /* highest usage of a lane at the time it was served */
};

/* Called when a lane becomes active again after a pause. Raises its usage if that is more than `behind`
 * below the usage of the others. */
static inline void turn_enter(const struct turns *turns, struct turn *turn, uint64_t behind)
{
	uint64_t least = turns->now > behind ? turns->now - behind : 0;

	if (turn->used < least)
		turn->used = least;
}

/* Called when a lane with the usage `now` is served. */
static inline void turns_reach(struct turns *turns, int64_t now)
{
	if (now > 0 && (uint64_t)now > turns->now)
		turns->now = (uint64_t)now;
}

static inline void turn_charge(struct turn *turn, uint64_t amount, uint32_t weight)
{
	turn->used += weight == TURN_WEIGHT ? amount : amount * TURN_WEIGHT / weight;
}
