/* SPDX-License-Identifier: Apache-2.0 */
#include "neighbours.h"

#include <errno.h>

#include "analyzer/base/interval.h"
#include "analyzer/shares/partition.h"
#include "analyzer/shares/study.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

/* Lists the runnable intervals that ended on a core that a neighbour had used. */
static int queues_list(const struct timeline_thread *trainer, struct interval_list *ret_list)
{
	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if ((off->flags & EVENT_FLAG_NEIGHBOUR) &&
		    interval_list_add(ret_list, off->waking_ns, off->end_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(ret_list);
	return 0;
}

int neighbours_find(const struct study *study, uint64_t *ret_ns)
{
	struct interval_list waits = {0}, queues = {0};
	uint64_t ns = 0;
	int r = data_waits_intervals(study->waits, &waits);

	if (r == 0)
		r = queues_list(study->roles->trainer, &queues);
	if (r == 0)
		r = interval_list_subtract(&queues, &waits);
	if (r == 0)
		r = interval_list_subtract(&queues, &study->partition->checkpoints);
	if (r == 0)
		r = interval_list_subtract(&queues, &study->partition->compiling);
	for (size_t i = 0; r == 0 && i < study->window->n_steps; i++)
		ns += interval_list_cover(&queues, study->window->steps[i].begin_ns,
					  study->window->steps[i].end_ns);
	interval_list_free(&waits);
	interval_list_free(&queues);
	if (r == 0)
		*ret_ns = ns;
	return r;
}
