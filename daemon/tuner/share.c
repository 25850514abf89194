/* SPDX-License-Identifier: Apache-2.0 */
/* Shares out a scarce resource: each job gets at least its floor, and the rest goes by marginal gain. */
#include "state.h"

#include <math.h>

static double sum_given(const struct claim *claims, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += claims[i].given;
	return sum;
}

/* Shares in proportion to the floors if they exceed the total. */
static void share_scarcity(struct claim *claims, size_t n, double total, double floors)
{
	for (size_t i = 0; i < n; i++)
		claims[i].given = floors > 0 ? claims[i].floor / floors * total : 0;
}

/* Returns the level up to which all claims can be met: above total / n if some jobs want less. */
static double equal_share(const struct claim *claims, size_t n, double total)
{
	double low = 0, high = total;

	for (int i = 0; i < 60; i++) { /* bisection: exact to a byte of any memory */
		double middle = (low + high) / 2, sum = 0;

		for (size_t k = 0; k < n; k++)
			sum += fmax(claims[k].floor, fmin(claims[k].want, middle));
		if (sum <= total)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static long best_gain(const struct claim *claims, size_t n)
{
	double best_rate = 0;
	long best = -1;

	for (size_t i = 0; i < n; i++) {
		double missing = claims[i].want - claims[i].given;

		if (missing > 0 && claims[i].gain / missing > best_rate) {
			best_rate = claims[i].gain / missing;
			best = (long)i;
		}
	}
	return best;
}

void share_out(struct claim *claims, size_t n, double total)
{
	double floors = 0, wants = 0, fair = n ? total / (double)n : 0, level;
	long i;

	for (size_t k = 0; k < n; k++) {
		if (claims[k].want < claims[k].floor)
			claims[k].want = claims[k].floor;
		floors += claims[k].floor;
		wants += claims[k].want;
	}
	if (floors > total) {
		share_scarcity(claims, n, total, floors);
		return;
	}
	if (wants < total)
		fair = total;
	/* Floors above an equal share may leave less than an equal share to the others. */
	level = fmin(fair, equal_share(claims, n, total));
	for (size_t k = 0; k < n; k++)
		claims[k].given = fmax(claims[k].floor, fmin(claims[k].want, level));
	while ((i = best_gain(claims, n)) >= 0) {
		double left = total - sum_given(claims, n);

		if (left <= 0)
			return;
		claims[i].given = fmin(claims[i].want, claims[i].given + left);
	}
	/* No job gains by the rest alone: it is shared equally rather than left unused. */
	level = equal_share(claims, n, total);
	for (size_t k = 0; k < n; k++)
		claims[k].given =
		    fmax(claims[k].given,
			 fmin(claims[k].want,
			      fmin(level, claims[k].given + fmax(0, total - sum_given(claims, n)))));
}
