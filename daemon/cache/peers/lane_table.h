/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The lanes that hold the chunks of a job's order (dataset/shuffle.h), for three epochs: the current one, the
 * previous one, whose lanes other nodes may still have in memory, and the next one, which is prefetched.
 * Without drift all three are the same.
 *
 * A job may have several orders of a dataset at a time, for example one for training and one for validation.
 * The latest one counts: lanes are parts of one list, so the other orders have nearly the same lanes.
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/owner.h"

struct shuffle_spec;
struct subset;

enum lane_epoch {
	LANES_BEFORE,
	LANES_NOW,
	LANES_NEXT,
	LANES_N,
};

struct lane_table {
	uint32_t lanes, drift; /* parameters of the order; lanes <= 1: no table */
	bool shuffle;
	uint64_t n_chunks, seen; /* seen: the first epoch in which this node took part */
	uint64_t epoch;
	uint32_t *chunk_samples;
	uint64_t *base;
	struct subset *subset;
	struct lane_row {
		uint64_t epoch;
		uint32_t *first, *end; /* [chunk]: its lanes [first, end); NULL: not known */
	} rows[LANES_N];               /* without drift: only LANES_NOW */
	struct owner_lanes served;     /* lanes that this node's ranks take samples from */
};

/* Adds a session of this order, whose rank takes samples from lanes [first, end). Returns true if the table
 * changed. If memory runs out, the table is emptied. */
bool lane_table_join(struct lane_table *t, const struct shuffle_spec *spec, uint32_t first, uint32_t end);
/* Notes that a session has reached this epoch. Returns true if the lanes of chunks changed. */
bool lane_table_go_on(struct lane_table *t, uint64_t epoch);
void lane_table_free(struct lane_table *t);

/* Finds the lanes of the chunk. Returns false if they are not known, or if the chunk is in no lane. */
bool lane_table_place(const struct lane_table *t, enum lane_epoch when, uint64_t chunk,
		      struct owner_place *ret);
