/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How an epoch of n samples, or what is left of it, is cut into steps and batches for (rank, world, batch):
 * the rules are in dataset/shuffle.h. Pure. */

#include <stdbool.h>
#include <stdint.h>

struct shuffle_cut {
	uint64_t start;        /* positions that are left out at the front */
	uint64_t n_samples;    /* behind them */
	uint64_t step_samples; /* world * batch: positions of a full step */
	uint64_t first_step;   /* the number of the first one: the epoch ends with the same number as without
				  start */
	uint64_t n_full;       /* steps of that size, at the front */
	uint64_t n_steps;      /* of the whole epoch */
	uint64_t tail_samples[2]; /* of the steps behind them */
	uint32_t rank, world;
	uint32_t max_batch;
};

/* n_samples: of the epoch; start: how many of them are left out. -EINVAL: a value is out of range, or there
 * are fewer samples than ranks, or fewer are left, but not 0. */
int shuffle_cut_init(struct shuffle_cut *cut, uint64_t n_samples, uint64_t start, uint32_t rank,
		     uint32_t world, uint32_t batch, bool drop_last);

/* The positions of all ranks' batches of a step. -ERANGE: step < first_step or >= n_steps. */
int shuffle_cut_step(const struct shuffle_cut *cut, uint64_t step, uint64_t *ret_first, uint64_t *ret_count);
