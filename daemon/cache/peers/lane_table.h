/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The lanes that the chunks of a job's order lie in (dataset/shuffle.h): in the epoch that its sessions are
 * in, in the one before, whose lanes other nodes may still have in memory, and in the one after, which is
 * read ahead. Without drift all three are one.
 *
 * A job may have several orders of a dataset at a time, as of a part for training and one for validation. The
 * latest one counts: since lanes are cut out of one list, the others lie in nearly the same.
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
	uint32_t lanes, drift; /* of the order; lanes <= 1: there is no table */
	bool shuffle;
	uint64_t n_chunks, seen; /* seen: the first epoch that this node took part in */
	uint64_t epoch;
	uint32_t *chunk_samples;
	uint64_t *base;
	struct subset *subset;
	struct lane_row {
		uint64_t epoch;
		uint32_t *first, *end; /* [chunk]; NULL: not known */
	} rows[LANES_N];               /* without drift: LANES_NOW alone */
	struct owner_lanes served;     /* by this node's ranks */
};

/* A session of this order begins, whose rank takes samples of lanes [first, end). Returns whether something
 * changed. Without memory nothing is known of the order. */
bool lane_table_join(struct lane_table *t, const struct shuffle_spec *spec, uint32_t first, uint32_t end);
/* A session has come to an epoch. Returns whether it is a new one. */
bool lane_table_go_on(struct lane_table *t, uint64_t epoch);
void lane_table_free(struct lane_table *t);

/* Where the chunk lies. false: it is not known, or in no lane. */
bool lane_table_place(const struct lane_table *t, enum lane_epoch when, uint64_t chunk,
		      struct owner_place *ret);
