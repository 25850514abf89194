/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <errno.h>
#include <stdbool.h>

#include "analyzer/base/interval.h"
#include "analyzer/shares/partition.h"
#include "analyzer/shares/study.h"
#include "analyzer/timeline/cores.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

/* Lists the runnable intervals that ended on a core that a neighbour had used, or the other ones. */
static int queues_list(const struct timeline_thread *trainer, bool neighbour, struct interval_list *ret_list)
{
	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (!(off->flags & EVENT_FLAG_NEIGHBOUR) == !neighbour &&
		    interval_list_add(ret_list, off->waking_ns, off->end_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(ret_list);
	return 0;
}

/* Lists the queues that count as cpu_starved. */
static int starved_list(const struct study *study, bool neighbour, struct interval_list *queues)
{
	struct interval_list waits = {0};
	int r = data_waits_intervals(study->waits, &waits);

	if (r == 0)
		r = queues_list(study->roles->trainer, neighbour, queues);
	if (r == 0)
		r = interval_list_subtract(queues, &waits);
	if (r == 0)
		r = interval_list_subtract(queues, &study->partition->checkpoints);
	if (r == 0)
		r = interval_list_subtract(queues, &study->partition->compiling);
	interval_list_free(&waits);
	return r;
}

int neighbours_find(const struct study *study, uint64_t *ret_ns)
{
	struct interval_list queues = {0};
	uint64_t ns = 0;
	int r = starved_list(study, true, &queues);

	for (size_t i = 0; r == 0 && i < study->window->n_steps; i++)
		ns += interval_list_cover(&queues, study->window->steps[i].begin_ns,
					  study->window->steps[i].end_ns);
	interval_list_free(&queues);
	if (r == 0)
		*ret_ns = ns;
	return r;
}

static uint64_t overlap_busy(const struct cores *cores, const struct interval *queue,
			     const struct window *window)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < window->n_steps; i++) {
		uint64_t begin = queue->begin_ns, end = queue->end_ns;

		if (window->steps[i].end_ns <= begin)
			continue;
		if (window->steps[i].begin_ns >= end)
			break;
		begin = begin > window->steps[i].begin_ns ? begin : window->steps[i].begin_ns;
		end = end < window->steps[i].end_ns ? end : window->steps[i].end_ns;
		ns += cores_full(cores, begin, end);
	}
	return ns;
}

int neighbours_find_own(const struct study *study, uint64_t *ret_ns)
{
	struct interval_list queues = {0};
	struct cores cores = {0};
	uint64_t ns = 0;
	int r = starved_list(study, false, &queues);

	if (r == 0)
		r = cores_count(study->timeline, 1, &cores); /* full: at least one thread runs */
	for (size_t i = 0; r == 0 && i < queues.n; i++)
		ns += overlap_busy(&cores, &queues.items[i], study->window);
	cores_free(&cores);
	interval_list_free(&queues);
	if (r == 0)
		*ret_ns = ns;
	return r;
}
