/* SPDX-License-Identifier: Apache-2.0 */
#include "shuffle_cut.h"

#include <errno.h>

/* Of n samples. */
static int cut_init(struct shuffle_cut *cut, uint64_t n_samples, uint32_t rank, uint32_t world,
		    uint32_t batch, bool drop_last)
{
	uint64_t step = (uint64_t)world * batch, rest = n_samples % step;

	*cut = (struct shuffle_cut){
	    .n_samples = n_samples,
	    .step_samples = step,
	    .n_full = n_samples / step,
	    .rank = rank,
	    .world = world,
	    .max_batch = batch,
	};
	cut->n_steps = cut->n_full;
	if (rest == 0 || drop_last)
		return 0;
	if (n_samples < world)
		return -EINVAL;
	if (rest >= world) {
		cut->tail_samples[0] = rest;
		cut->n_steps = cut->n_full + 1;
		return 0;
	}
	/* n_samples >= world, so there is a full step to share with. */
	cut->n_full--;
	if (batch == 1) {
		cut->tail_samples[0] = step + rest;
		cut->max_batch = 2;
		cut->n_steps = cut->n_full + 1;
	} else {
		cut->tail_samples[1] = (step + rest) / 2;
		cut->tail_samples[0] = step + rest - cut->tail_samples[1];
		cut->n_steps = cut->n_full + 2;
	}
	return 0;
}

int shuffle_cut_init(struct shuffle_cut *cut, uint64_t n_samples, uint64_t start, uint32_t rank,
		     uint32_t world, uint32_t batch, bool drop_last)
{
	struct shuffle_cut whole;
	int r;

	if (world == 0 || rank >= world || batch == 0 || n_samples < world || start > n_samples)
		return -EINVAL;
	(void)cut_init(&whole, n_samples, rank, world, batch, drop_last);
	r = cut_init(cut, n_samples - start, rank, world, batch, drop_last);
	if (r < 0)
		return r;
	/* Fewer samples never make more steps. */
	cut->start = start;
	cut->first_step = whole.n_steps - cut->n_steps;
	cut->n_steps = whole.n_steps;
	if (whole.max_batch > cut->max_batch)
		cut->max_batch = whole.max_batch;
	return 0;
}

int shuffle_cut_step(const struct shuffle_cut *cut, uint64_t step, uint64_t *ret_first, uint64_t *ret_count)
{
	if (step < cut->first_step || step >= cut->n_steps)
		return -ERANGE;
	step -= cut->first_step;
	if (step < cut->n_full) {
		*ret_first = cut->start + step * cut->step_samples;
		*ret_count = cut->step_samples;
		return 0;
	}
	*ret_first =
	    cut->start + cut->n_full * cut->step_samples + (step > cut->n_full ? cut->tail_samples[0] : 0);
	*ret_count = cut->tail_samples[step - cut->n_full];
	return 0;
}
