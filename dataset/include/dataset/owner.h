/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which member owns a chunk: weighted rendezvous hashing. Each member has a score for each chunk, the highest
 * one owns it, and the next one does when that is away; so a member that comes or goes moves its own chunks
 * alone, and of two nodes with the same members both find the same owner, without asking. Pure.
 *
 * The score of a member of weight w is w / -ln(u), with u in (0, 1) drawn from XXH3 of the member's name and
 * the chunk's id (Thaler and Ravishankar 1998; the weights as in Schindelhauer and Schomaker 2005).
 *
 * Of an order in lanes (dataset/shuffle.h), a member serves some lanes. A chunk is owned by a member that
 * serves a lane that it lies in, as long as there is any: where each lane is one member's, nothing moves.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/chunk_id.h"

#define OWNER_RUNS_MAX 16

/* Lanes that a member serves, as runs that neither touch nor overlap, ascending. */
struct owner_lanes {
	uint32_t lanes, drift; /* of the order; lanes 0: it has said nothing */
	uint32_t n_runs;
	struct owner_run {
		uint32_t first, end; /* first < end <= lanes */
	} runs[OWNER_RUNS_MAX];
};

/* A chunk's position in an order: lanes [first, end). */
struct owner_place {
	uint32_t lanes, drift, first, end;
};

/* Adds lanes [first, end), with first < end <= lanes->lanes. Where there would be too many runs, the two that
 * are nearest to each other are joined, with what is between them. */
void owner_lanes_add(struct owner_lanes *lanes, uint32_t first, uint32_t end);
/* How many it serves. */
uint32_t owner_lanes_count(const struct owner_lanes *lanes);
bool owner_lanes_ok(const struct owner_lanes *lanes);
/* Returns true if it serves a lane of the place's, in the same order. */
bool owner_lanes_have(const struct owner_lanes *lanes, const struct owner_place *place);

struct owner_member {
	struct owner_lanes lanes;
	uint64_t name_hash;  /* owner_hash() of its node's name */
	uint64_t weight;     /* 0: it owns nothing, unless all have 0 */
	bool is_unreachable; /* it cannot be reached now: it owns nothing */
};

uint64_t owner_hash(const char *node);
/* The index of the owner. n: at least one member that is not away, else SIZE_MAX. place: NULL: all members
 * serve it. */
size_t owner_of(const struct owner_member *members, size_t n, const struct chunk_id *chunk,
		const struct owner_place *place);
