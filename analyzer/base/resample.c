/* SPDX-License-Identifier: Apache-2.0 */
#include "resample.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/sorted.h"

#define LOW_RATIO  0.025
#define HIGH_RATIO 0.975

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Draws n steps in blocks of about sqrt(n) steps, with random starts and wrap-around. */
static void draw(uint64_t *random, uint32_t *weight, size_t n)
{
	size_t block = (size_t)ceil(sqrt((double)n));

	for (size_t k = 0; k < n; k++)
		weight[k] = 0;
	for (size_t left = n; left;) {
		size_t at = next_random(random) % n, length = block < left ? block : left;

		for (size_t k = 0; k < length; k++)
			weight[(at + k) % n]++;
		left -= length;
	}
}

static double quantile(const double *sorted, size_t n, double ratio)
{
	double at = ratio * (double)(n - 1);
	size_t i = (size_t)at;

	return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

int resample(size_t n, resample_fn *fn, const void *context, struct estimate *ret_estimate)
{
	uint32_t *weight = calloc(n + 1, sizeof(*weight));
	double values[RESAMPLE_DRAWS];
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
	size_t n_values = 0;

	if (!weight)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		weight[k] = 1;
	*ret_estimate = (struct estimate){n ? fn(weight, n, context) : NAN, NAN, NAN};
	for (size_t i = 0; n && i < RESAMPLE_DRAWS; i++) {
		draw(&random, weight, n);
		values[n_values] = fn(weight, n, context);
		n_values += !isnan(values[n_values]);
	}
	free(weight);
	if (2 * n_values < RESAMPLE_DRAWS)
		return 0;
	qsort(values, n_values, sizeof(*values), compare_double);
	/* The quantiles of the draws can narrowly exclude the value itself. */
	ret_estimate->low = fmin(quantile(values, n_values, LOW_RATIO), ret_estimate->value);
	ret_estimate->high = fmax(quantile(values, n_values, HIGH_RATIO), ret_estimate->value);
	return 0;
}
