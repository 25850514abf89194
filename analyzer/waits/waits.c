/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"

#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "lib/array.h"
#include "lib/sorted.h"

int data_waits_add(struct data_waits *waits, struct data_wait wait)
{
	/* Hostile marks may say that a wait begins before its predecessor ended. */
	if (waits->n && wait.begin_ns < waits->items[waits->n - 1].end_ns)
		wait.begin_ns = waits->items[waits->n - 1].end_ns;
	if (wait.begin_ns >= wait.end_ns)
		return 0;
	if (array_room(waits->items, waits->n, waits->n_allocated) < 0)
		return -ENOMEM;
	waits->items[waits->n++] = wait;
	return 0;
}

void data_waits_free(struct data_waits *waits)
{
	free(waits->items);
	interval_list_free(&waits->file_calls);
	*waits = (struct data_waits){0};
}

size_t data_waits_from(const struct data_waits *waits, uint64_t at_ns)
{
	return sorted_count(waits->n, i, waits->items[i].end_ns <= at_ns);
}

int data_waits_find_marks(const struct timeline_thread *trainer, uint32_t begin_kind, uint32_t end_kind,
			  struct data_waits *waits)
{
	uint64_t begin_ns = 0;

	for (size_t i = 0; i < trainer->n_marks; i++) {
		const struct timeline_mark *mark = &trainer->marks[i];

		if (mark->kind == begin_kind) {
			begin_ns = mark->at_ns;
		} else if (mark->kind == end_kind && begin_ns) {
			if (data_waits_add(waits, (struct data_wait){.begin_ns = begin_ns,
								     .end_ns = mark->at_ns,
								     .ready_ns = mark->at_ns}) < 0)
				return -ENOMEM;
			begin_ns = 0;
		}
	}
	return 0;
}

/* If the job uses a loader for something other than its training data, that loader's marks are few. */
static bool marks_lead(const struct timeline_thread *trainer, uint32_t kind)
{
	size_t n = 0;

	for (size_t i = 0; i < trainer->n_marks; i++)
		n += trainer->marks[i].kind == kind;
	return n && 2 * n >= trainer->n_steps;
}

int data_waits_find(const struct timeline *timeline, const struct roles *roles,
		    const struct interval_list *checkpoints, struct data_waits *ret_waits)
{
	struct data_waits waits = {0};
	int r;

	if (marks_lead(roles->trainer, MARK_NEXT_END)) {
		waits.loader = LOADER_DIESEL;
		waits.marked = true;
		r = data_waits_find_marks(roles->trainer, MARK_NEXT_BEGIN, MARK_NEXT_END, &waits);
	} else if (roles->n_workers) {
		waits.loader = LOADER_WORKERS;
		r = data_waits_find_workers(timeline, roles, &waits);
	} else if (roles->n_loaders || roles->fed) {
		waits.loader = LOADER_THREADS;
		r = data_waits_find_fed(timeline, roles, &waits);
	} else if (marks_lead(roles->trainer, MARK_BATCH_END)) {
		waits.loader = LOADER_INLINE;
		waits.marked = true;
		r = data_waits_find_batches(roles->trainer, &waits);
	} else if (!roles->trainer->n_steps) {
		waits.loader = LOADER_INLINE;
		r = data_waits_find_rhythm(roles->trainer, &waits);
	} else {
		waits.loader = LOADER_INLINE;
		r = data_waits_find_inline(roles->trainer, checkpoints, &waits);
	}
	if (r < 0) {
		data_waits_free(&waits);
		return r;
	}
	if (!waits.n)
		waits.loader = LOADER_NONE;
	*ret_waits = waits;
	return 0;
}

void data_waits_leave_gaps(struct data_waits *waits, const struct interval_list *gaps)
{
	size_t n = 0;

	for (size_t k = 0; k < waits->n; k++) {
		const struct data_wait wait = waits->items[k];
		size_t i = interval_list_from(gaps, wait.begin_ns);

		if (i == gaps->n || gaps->items[i].begin_ns >= wait.end_ns)
			waits->items[n++] = wait;
	}
	waits->n = n;
}

int data_waits_intervals(const struct data_waits *waits, struct interval_list *list)
{
	*list = (struct interval_list){0};
	for (size_t i = 0; i < waits->n; i++)
		if (interval_list_add(list, waits->items[i].begin_ns, waits->items[i].end_ns) < 0)
			return -ENOMEM;
	interval_list_tidy(list);
	return 0;
}
