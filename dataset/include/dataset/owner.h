/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds the member that owns a chunk, by weighted rendezvous hashing. Each member has a score for each chunk.
 * The member with the highest score owns the chunk, or the next one if that member is unreachable. So a
 * member that joins or leaves moves only its own chunks, and nodes with the same members find the same owner
 * without asking. Pure.
 *
 * The score of a member of weight w is w / -ln(u), with u in (0, 1) drawn from XXH3 of the member's name and
 * the chunk's id (Thaler and Ravishankar 1998; the weights as in Schindelhauer and Schomaker 2005).
 *
 * If the order has lanes (dataset/shuffle.h), a member serves some lanes. A chunk is owned by a member that
 * serves one of the chunk's lanes, if there is such a member. If each lane belongs to one member, members own
 * the chunks that they read, and only chunks that lie in lanes of two members are sent between nodes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/chunk_id.h"

#define OWNER_RUNS_MAX 16

/* Lanes that a member serves, as runs that neither touch nor overlap, ascending. */
struct owner_lanes {
	uint32_t lanes, drift; /* of the order; lanes 0: the member has not reported any */
	uint32_t n_runs;
	struct owner_run {
		uint32_t first, end; /* first < end <= lanes */
	} runs[OWNER_RUNS_MAX];
};

/* A chunk's position in an order: lanes [first, end). */
struct owner_place {
	uint32_t lanes, drift, first, end;
};

/* Adds lanes [first, end), with first < end <= lanes->lanes. If there would be too many runs, the two nearest
 * runs are joined, including the lanes between them. */
void owner_lanes_add(struct owner_lanes *lanes, uint32_t first, uint32_t end);
/* Returns the number of lanes that the member serves. */
uint32_t owner_lanes_count(const struct owner_lanes *lanes);
bool owner_lanes_ok(const struct owner_lanes *lanes);
/* Returns true if the member serves one of the chunk's lanes, in the same order. */
bool owner_lanes_have(const struct owner_lanes *lanes, const struct owner_place *place);

struct owner_member {
	struct owner_lanes lanes;
	uint64_t name_hash;  /* owner_hash() of its node's name */
	uint64_t weight;     /* 0: the member owns nothing, unless all have weight 0 */
	bool is_unreachable; /* the member cannot be reached now and owns nothing */
};

uint64_t owner_hash(const char *node);
/* Returns the index of the owner, or SIZE_MAX if no member is reachable. place NULL: all members serve the
 * chunk. */
size_t owner_of(const struct owner_member *members, size_t n, const struct chunk_id *chunk,
		const struct owner_place *place);
