/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer's cost of copying a state that others write then: clone(), deepcopy() and .cpu() are computing
 * like any other. So a save's cost is the excess of the step in which it begins over other steps.
 */
#include "checkpoint_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "lib/sorted.h"
#include "window.h"

#define STEPS_MIN 5  /* without a save; fewer do not tell how long a step is */
#define SURE      4  /* standard errors that the excess must be above 0 */
#define BEFORE    16 /* steps by which a writer may be late: it takes the copy over, pickles, opens a file */

/* Computing of the step: waits for data have other causes, and stalls are counted already. */
static double compute_ns(const struct analysis_step *step)
{
	return (double)(step->share_ns[SHARE_DEVICE] + step->share_ns[SHARE_CPU_STARVED] +
			step->share_ns[SHARE_OTHER]);
}

/* The step in which the item begins; n_steps: in none, or in one that does other things, too. */
static size_t step_of(const struct window *window, const struct checkpoint_item *item)
{
	size_t k = sorted_count(window->n_steps, i, window->steps[i].end_ns <= item->begin_ns);

	return k < window->n_steps && k && !window->steps[k].apart ? k : window->n_steps;
}

/* Sums the excess of the steps that lie so many steps before those in which saves begin. *ret_n: how many. */
static double excess_ns(const struct window *window, const struct checkpoint_report *report, size_t before,
			double median_ns, size_t *ret_n)
{
	double sum_ns = 0;

	*ret_n = 0;
	for (size_t i = 0; i < report->n_items; i++) {
		size_t k = step_of(window, &report->items[i]);

		if (!report->items[i].background || k == window->n_steps || k <= before ||
		    window->steps[k - before].apart)
			continue;
		sum_ns += compute_ns(&window->steps[k - before]) - median_ns;
		++*ret_n;
	}
	return sum_ns;
}

/* The median of the steps, and how far from it they usually are: 1.48 times the median distance is what the
 * standard deviation would be. */
static double median_find(const struct window *window, double *values, double *ret_sigma_ns)
{
	size_t n = 0;
	double median_ns;

	for (size_t k = 1; k < window->n_steps; k++) /* the first one waits for workers to start */
		if (!window->steps[k].apart)
			values[n++] = compute_ns(&window->steps[k]);
	if (!n)
		return NAN;
	qsort(values, n, sizeof(*values), compare_double);
	median_ns = values[n / 2];
	for (size_t k = 0; k < n; k++)
		values[k] = fabs(values[k] - median_ns);
	qsort(values, n, sizeof(*values), compare_double);
	*ret_sigma_ns = 1.48 * values[n / 2];
	return median_ns;
}

/* Steps before a save's beginning that belong to no save before it, in any case. */
static size_t steps_between(const struct window *window, const struct checkpoint_report *report)
{
	size_t least = BEFORE + 1;

	for (size_t i = 1; i < report->n_items; i++) {
		size_t from = step_of(window, &report->items[i - 1]), to = step_of(window, &report->items[i]);

		if (to > from && to < window->n_steps && to - from < least)
			least = to - from;
	}
	return least;
}

int checkpoint_copy_find(const struct study *study, struct checkpoint_report *report)
{
	const struct window *window = study->window;
	double *values = calloc(window->n_steps + 1, sizeof(*values));
	double median_ns, sigma_ns = 0, most_ns = 0;
	size_t n_before;

	if (!values)
		return -ENOMEM;
	median_ns = median_find(window, values, &sigma_ns);
	free(values);
	if (isnan(median_ns) || window->n_steps < report->n_items + STEPS_MIN)
		return 0;
	n_before = steps_between(window, report);
	for (size_t before = 0; before < n_before; before++) {
		size_t n = 0;
		double sum_ns = excess_ns(window, report, before, median_ns, &n);

		if (n && sum_ns > SURE * sigma_ns * sqrt((double)n))
			most_ns = fmax(most_ns, sum_ns / (double)n);
	}
	report->copy_ns = most_ns;
	return 0;
}
