/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which member owns a chunk: weighted rendezvous hashing. Each member has a score for each chunk, the highest
 * one owns it, and the next one does when that is away; so a member that comes or goes moves its own chunks
 * alone, and of two nodes with the same members both find the same owner, without asking. Pure.
 *
 * The score of a member of weight w is w / -ln(u), with u in (0, 1) drawn from XXH3 of the member's name and
 * the chunk's id (Thaler and Ravishankar 1998; the weights as in Schindelhauer and Schomaker 2005).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/chunk_id.h"

struct owner_member {
	uint64_t name_hash; /* owner_hash() of its node's name */
	uint64_t weight;    /* 0: it owns nothing, unless all have 0 */
	bool is_away;       /* it cannot be reached now: it owns nothing */
};

uint64_t owner_hash(const char *node);
/* The index of the owner. n: at least one member that is not away, else SIZE_MAX. */
size_t owner_of(const struct owner_member *members, size_t n, const struct chunk_id *chunk);
