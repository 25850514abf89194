/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a session can pin or wait for at one time, in bytes of segments: its next batch, and with views also
 * all batches that are not released. Computed from the real sizes of the chunks: a mean says nothing where
 * few samples are most of the bytes. Never more than all chunks.
 */

#include "daemon/cache/cached_dataset.h"

#include "dataset/shuffle.h"

struct session_shape {
	uint64_t batch_step; /* positions from the start of one batch of this session to its next */
	uint64_t n_chunks;   /* that it visits */
	uint64_t step;       /* positions of a step: all ranks' batches */
	uint64_t lanes;      /* of the order */
	uint64_t n_lanes;    /* that the session's batches have samples of */
	uint32_t batch;
	uint32_t window_chunks;
	uint32_t n_slots;
	bool views; /* ready and held batches pin their chunks */
	bool asked; /* no order: each sample may be in a chunk of its own */
};

/* The most in chunks, whatever their order. samples: the number of samples of each chunk that is visited,
 * ascending. cached_largest_bytes() turns it into bytes. */
uint64_t session_need_at_most(const struct session_shape *shape, const uint32_t *samples);

/* The most in one epoch's order. next: the following epoch, whose first batches may be held together with the
 * last of this one (NULL: not known yet). -ENOMEM. */
int session_need_bytes(const struct cached_dataset *d, const struct session_shape *shape,
		       const struct shuffle_plan *plan, const struct shuffle_plan *next, uint64_t *ret_bytes);
