/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_shares.h"

#include <math.h>

#include "analyzer/analysis.h"

void shares_combine(const struct stall_shares *slice, double wait, struct stall_shares *ret)
{
	double rest = 1 - wait, slice_wait, slice_rest;

	if (slice && !isfinite(wait)) {
		*ret = *slice;
		return;
	}
	*ret = (struct stall_shares){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
	slice_wait = slice ? slice->fetch_stall + slice->prep_stall : 0;
	slice_rest = slice ? slice->device + slice->checkpoint_stall + slice->cpu_starved + slice->other : 0;
	if (slice_wait > 0 || wait <= 0) {
		ret->fetch_stall = slice_wait > 0 ? wait * slice->fetch_stall / slice_wait : 0;
		ret->prep_stall = slice_wait > 0 ? wait * slice->prep_stall / slice_wait : 0;
	}
	if (slice_rest <= 0) {
		ret->device = rest;
		return;
	}
	ret->device = rest * slice->device / slice_rest;
	ret->gpu_wait = rest * slice->gpu_wait / slice_rest;
	ret->checkpoint_stall = rest * slice->checkpoint_stall / slice_rest;
	ret->cpu_starved = rest * slice->cpu_starved / slice_rest;
	ret->other = rest * slice->other / slice_rest;
}
