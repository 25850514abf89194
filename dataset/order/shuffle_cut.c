/* SPDX-License-Identifier: Apache-2.0 */
#include "shuffle_cut.h"

#include <errno.h>

int shuffle_cut_init(struct shuffle_cut *cut, uint64_t n_samples, uint32_t rank, uint32_t world,
		     uint32_t batch, bool drop_last)
{
	if (world == 0 || rank >= world || batch == 0 || n_samples < world)
		return -EINVAL;
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

int shuffle_cut_step(const struct shuffle_cut *cut, uint64_t step, uint64_t *ret_first, uint64_t *ret_count)
{
	if (step >= cut->n_steps)
		return -ERANGE;
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

int shuffle_cut_range(const struct shuffle_cut *cut, uint64_t step, uint64_t *ret_first, uint32_t *ret_count)
{
	uint64_t first, n, each, extra;
	int r = shuffle_cut_step(cut, step, &first, &n);

	if (r < 0)
		return r;
	/* The first `extra` ranks take one more. */
	each = n / cut->world;
	extra = n % cut->world;
	*ret_first = first + cut->rank * each + (cut->rank < extra ? cut->rank : extra);
	*ret_count = (uint32_t)(each + (cut->rank < extra));
	return 0;
}
