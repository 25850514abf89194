/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

#include <math.h>

#define SIGMAS 2 /* about 95 %: samples fall at random */

struct estimate native_part(const struct profile *profile)
{
	const struct estimate unknown = {NAN, NAN, NAN};
	double n, decode, sure, part;

	if (!profile || profile->n_samples == 0)
		return unknown;
	n = (double)profile->n_samples;
	decode = (double)profile->images.n_decode;
	/* Pillow's own functions are the same for all kinds of images, so some must be in a codec. */
	if (decode < NATIVE_SAMPLES_MIN || decode < NATIVE_PART_MIN * n ||
	    (double)profile->images.n_codec < NATIVE_PART_MIN * decode)
		return unknown;
	part = (decode + (double)profile->images.n_transform) / n;
	sure = profile->images.n_foreign > 0 ? decode / n : part;
	return (struct estimate){.value = part,
				 .low = fmax(0, sure - SIGMAS * sqrt(sure * (1 - sure) / n)),
				 .high = fmin(1, part + SIGMAS * sqrt(part * (1 - part) / n))};
}

double native_cost(double part, double speedup)
{
	return 1 - part + part / speedup;
}
