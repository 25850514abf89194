/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Taking turns by what was used, for whatever is shared among lanes: workers (work_turns.h), reads
 * (read_turns.h). The lane that used least, divided by its weight, goes first. A lane that comes back gets no
 * credit for the time that it was away. Pure.
 */

#include <stdint.h>

#define TURN_WEIGHT      100 /* of a lane that nobody weighed */
#define TURN_WEIGHT_MOST 10000

struct turn { /* a lane's */
	uint64_t used;
};

struct turns {
	uint64_t now; /* the most that a lane had used when it was served */
};

/* The lane wants something again, after a time without; it may be behind the others by `behind` at most. */
static inline void turn_enter(const struct turns *turns, struct turn *turn, uint64_t behind)
{
	uint64_t least = turns->now > behind ? turns->now - behind : 0;

	if (turn->used < least)
		turn->used = least;
}

/* A lane is served whose turn counts as so much. */
static inline void turns_reach(struct turns *turns, int64_t now)
{
	if (now > 0 && (uint64_t)now > turns->now)
		turns->now = (uint64_t)now;
}

static inline void turn_charge(struct turn *turn, uint64_t amount, uint32_t weight)
{
	turn->used += weight == TURN_WEIGHT ? amount : amount * TURN_WEIGHT / weight;
}
