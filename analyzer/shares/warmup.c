/* SPDX-License-Identifier: Apache-2.0 */
#include "warmup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/sorted.h"

#define ROW          5    /* steps in a row */
#define SPREAD       5.0  /* times the spread of a normal distribution */
#define NOTABLE      0.25 /* fraction of the median; a smaller difference is not significant */
#define MAD_TO_SIGMA 1.4826

/* Returns the median; sorts the values. */
static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare_double);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Returns the step's time without checkpoints and compiling, which do not make it unlike the rest. */
static double step_ns(const struct analysis_step *step)
{
	return (double)(step->end_ns - step->begin_ns - step->share_ns[SHARE_CHECKPOINT_STALL] -
			step->share_ns[SHARE_COMPILING]);
}

static double median_of(const struct analysis_step *steps, size_t n, double *scratch)
{
	for (size_t k = 0; k < n; k++)
		scratch[k] = step_ns(&steps[k]);
	return median(scratch, n);
}

/* Returns the limit of step times: a step that takes longer is unlike the others. */
static double limit_of(const struct analysis_step *steps, size_t n, double *scratch)
{
	double middle = median_of(steps, n, scratch);

	for (size_t k = 0; k < n; k++)
		scratch[k] = fabs(step_ns(&steps[k]) - middle);
	return middle + fmax(SPREAD * MAD_TO_SIGMA * median(scratch, n), NOTABLE * middle);
}

static size_t slow_start(const struct analysis_step *steps, size_t n, double limit_ns)
{
	for (size_t k = 0; k < n / 3; k++) {
		double sum_ns = 0;

		for (size_t i = k; i < k + ROW; i++)
			sum_ns += step_ns(&steps[i]);
		if (sum_ns <= ROW * limit_ns && step_ns(&steps[k]) <= limit_ns)
			return k;
	}
	return n / 3;
}

int warmup_find(const struct analysis_step *steps, size_t n_steps, size_t n_first_epoch, size_t *ret_n)
{
	double *scratch;
	size_t n;

	if (n_steps < (size_t)3 * ROW) {
		*ret_n = 0;
		return 0;
	}
	scratch = calloc(n_steps, sizeof(*scratch));
	if (!scratch)
		return -ENOMEM;
	n = slow_start(steps, n_steps, limit_of(steps + n_steps / 3, n_steps - n_steps / 3, scratch));
	if (n_first_epoch > n && n_first_epoch + ROW <= n_steps &&
	    median_of(steps, n_first_epoch, scratch) >
		(1 + NOTABLE) * median_of(steps + n_first_epoch, n_steps - n_first_epoch, scratch))
		n = n_first_epoch;
	free(scratch);
	*ret_n = n;
	return 0;
}
