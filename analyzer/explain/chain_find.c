/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "analyzer/shares/study.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/waits/waits.h"
#include "analyzer/shares/walk.h"
#include "analyzer/waits/window.h"

/* quantile of step times from which a step counts as slow */
#define SLOW_QUANTILE 0.9

static uint64_t length_ns(const struct analysis_step *step)
{
	return step->end_ns - step->begin_ns;
}

static int slow_ns(const struct window *window, uint64_t *ret_ns)
{
	_cleanup_(freep) uint64_t *ns = calloc(window->n_steps, sizeof(*ns));

	if (!ns)
		return -ENOMEM;
	for (size_t i = 0; i < window->n_steps; i++)
		ns[i] = length_ns(&window->steps[i]);
	qsort(ns, window->n_steps, sizeof(*ns), compare_u64);
	*ret_ns = ns[(size_t)((double)(window->n_steps - 1) * SLOW_QUANTILE)];
	return 0;
}

/* Returns the longest wait that ends in the step; NULL: none. */
static const struct data_wait *longest(const struct data_waits *waits, const struct analysis_step *step)
{
	const struct data_wait *best = NULL;

	for (size_t i = data_waits_from(waits, step->begin_ns); i < waits->n; i++) {
		const struct data_wait *wait = &waits->items[i];

		if (wait->begin_ns >= step->end_ns)
			break;
		if (wait->end_ns <= step->end_ns &&
		    (!best || wait->end_ns - wait->begin_ns > best->end_ns - best->begin_ns))
			best = wait;
	}
	return best;
}

int wait_chain_find(const struct study *study, struct wait_chain **ret_chain)
{
	const struct window *window = study->window;
	struct wait_chain *chain = NULL;
	uint64_t limit_ns = 0;

	if (window->n_steps && slow_ns(window, &limit_ns))
		return -ENOMEM;
	for (size_t i = window->n_steps; i > 0 && !chain; i--) {
		const struct analysis_step *step = &window->steps[i - 1];
		const struct data_wait *wait =
		    length_ns(step) >= limit_ns ? longest(study->waits, step) : NULL;

		if (!wait || wait->end_ns <= wait->begin_ns)
			continue;
		chain = calloc(1, sizeof(*chain));
		if (!chain)
			return -ENOMEM;
		chain->step_begin_ns = step->begin_ns;
		chain->step_end_ns = step->end_ns;
		chain->wait_begin_ns = wait->begin_ns;
		chain->wait_end_ns = wait->end_ns;
		walk_chain(study->timeline, study->roles, chain);
	}
	*ret_chain = chain;
	return 0;
}
