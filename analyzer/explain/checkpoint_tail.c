/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "lib/sorted.h"
#include "partition.h"
#include "window.h"

#define STEPS_MIN 5 /* of either kind */

_Static_assert(CHECKPOINT_TAIL_SHARES == SHARE_COUNT, "a share each");

/* Sums over steps of one kind. Checkpoint stalls are counted elsewhere, and compiling has nothing to do with
 * checkpoints: both are left out. */
struct kind {
	size_t n;
	double ns, squares, gil_ns;
	double share_ns[SHARE_COUNT];
};

static bool is_beside(const struct checkpoint_report *report, const struct analysis_step *step)
{
	for (size_t i = sorted_count(report->n_items, k, report->items[k].end_ns <= step->begin_ns);
	     i < report->n_items && report->items[i].begin_ns < step->end_ns; i++)
		if (report->items[i].background)
			return true;
	return false;
}

static void step_add(const struct study *study, const struct analysis_step *step, struct kind *kind)
{
	double ns = (double)(step->end_ns - step->begin_ns - step->share_ns[SHARE_CHECKPOINT_STALL] -
			     step->share_ns[SHARE_COMPILING]);

	kind->n++;
	kind->ns += ns;
	kind->squares += ns * ns;
	kind->gil_ns += (double)partition_gil_ns(study->partition, step->begin_ns, step->end_ns);
	for (size_t k = 0; k < SHARE_COUNT; k++)
		if (k != SHARE_CHECKPOINT_STALL && k != SHARE_COMPILING)
			kind->share_ns[k] += (double)step->share_ns[k];
}

static double variance(const struct kind *kind)
{
	double n = (double)kind->n, mean_ns = kind->ns / n;

	return fmax(0, kind->squares / n - mean_ns * mean_ns) / (n - 1);
}

/* Leaves out the first step, which waits for workers to start. */
int checkpoint_tail_find(const struct study *study, struct checkpoint_report *report)
{
	const struct window *window = study->window;
	struct kind beside = {0}, others = {0};
	struct checkpoint_tail *tail;
	double ratio;

	for (size_t i = 1; i < window->n_steps; i++)
		step_add(study, &window->steps[i], is_beside(report, &window->steps[i]) ? &beside : &others);
	if (beside.n < STEPS_MIN || others.n < STEPS_MIN)
		return 0;
	tail = report->tail = calloc(1, sizeof(*tail));
	if (!tail)
		return -ENOMEM;
	ratio = (double)beside.n / (double)others.n;
	tail->n_beside = beside.n;
	tail->n_others = others.n;
	tail->ns = beside.ns - ratio * others.ns;
	tail->error_ns = 2 * (double)beside.n * sqrt(variance(&beside) + variance(&others));
	tail->gil_ns = beside.gil_ns - ratio * others.gil_ns;
	for (size_t k = 0; k < SHARE_COUNT; k++)
		tail->share_ns[k] = beside.share_ns[k] - ratio * others.share_ns[k];
	return 0;
}
