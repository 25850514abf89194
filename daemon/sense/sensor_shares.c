/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_shares.h"

#include <math.h>
#include <string.h>

#include "analyzer/analysis.h"

bool shares_of(const struct analysis *a, double ret_share[SENSOR_SHARES])
{
	static const enum sensor_share places[SHARE_COUNT] = {
	    [SHARE_DEVICE] = SENSOR_DEVICE,       [SHARE_FETCH_STALL] = SENSOR_FETCH,
	    [SHARE_PREP_STALL] = SENSOR_PREP,     [SHARE_CHECKPOINT_STALL] = SENSOR_CHECKPOINT,
	    [SHARE_CPU_STARVED] = SENSOR_STARVED, [SHARE_OTHER] = SENSOR_OTHER,
	    [SHARE_COMPILING] = SENSOR_OTHER, /* nothing that tuning could change */
	};

	if (a->n_steps < ANALYSIS_STEPS_MIN || !a->observed_ns)
		return false;
	for (size_t i = 0; i < SENSOR_SHARES; i++)
		ret_share[i] = 0;
	for (size_t i = 0; i < SHARE_COUNT; i++)
		ret_share[places[i]] += analysis_share_ratio(a, (enum analysis_share)i);
	ret_share[SENSOR_GPU_WAIT] =
	    a->gpu_wait_known ? (double)a->gpu_wait_ns / (double)a->observed_ns : NAN;
	return true;
}

void shares_combine(const double slice[SENSOR_SHARES], double wait, double ret_share[SENSOR_SHARES])
{
	static const enum sensor_share rests[] = {SENSOR_DEVICE, SENSOR_GPU_WAIT, SENSOR_CHECKPOINT,
						  SENSOR_STARVED, SENSOR_OTHER};
	double rest = 1 - wait, slice_wait, slice_rest;

	if (slice && !isfinite(wait)) {
		memcpy(ret_share, slice, SENSOR_SHARES * sizeof(*slice));
		return;
	}
	for (size_t i = 0; i < SENSOR_SHARES; i++)
		ret_share[i] = NAN;
	slice_wait = slice ? slice[SENSOR_FETCH] + slice[SENSOR_PREP] : 0;
	slice_rest = slice ? slice[SENSOR_DEVICE] + slice[SENSOR_CHECKPOINT] + slice[SENSOR_STARVED] +
				 slice[SENSOR_OTHER]
			   : 0;
	if (slice_wait > 0 || wait <= 0) {
		ret_share[SENSOR_FETCH] = slice_wait > 0 ? wait * slice[SENSOR_FETCH] / slice_wait : 0;
		ret_share[SENSOR_PREP] = slice_wait > 0 ? wait * slice[SENSOR_PREP] / slice_wait : 0;
	}
	if (slice_rest <= 0) {
		ret_share[SENSOR_DEVICE] = rest;
		return;
	}
	for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]); i++)
		ret_share[rests[i]] = rest * slice[rests[i]] / slice_rest;
}
