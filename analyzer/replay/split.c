/* SPDX-License-Identifier: Apache-2.0 */
#include "split.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"

/* Stretches in which the trainer slept in libdiesel for chunks. */
static int mark_stretches(const struct timeline_thread *trainer, struct interval_list *ret_list)
{
	struct interval_list list = {0};
	uint64_t begin_ns = 0;

	for (size_t i = 0; i < trainer->n_marks; i++) {
		const struct timeline_mark *mark = &trainer->marks[i];

		if (mark->kind == MARK_WAIT_BEGIN) {
			begin_ns = mark->at_ns;
		} else if (mark->kind == MARK_WAIT_END && begin_ns) {
			if (mark_cause_fetches(mark->value) &&
			    interval_list_add(&list, begin_ns, mark->at_ns) < 0) {
				interval_list_free(&list);
				return -ENOMEM;
			}
			begin_ns = 0;
		}
	}
	interval_list_tidy(&list);
	*ret_list = list;
	return 0;
}

static void split_by_cover(const struct data_waits *waits, const struct interval_list *fetch,
			   struct split *split)
{
	for (size_t i = 0; i < waits->n; i++)
		split->fetch_ns[i] =
		    interval_list_cover(fetch, waits->items[i].begin_ns, waits->items[i].end_ns);
}

/* Splits the window's waits outside of the run in the run's proportion. */
static void split_extend(const struct split_input *input, struct split *split)
{
	const struct data_waits *waits = input->waits;
	const struct window *window = input->window, *run = input->run;
	double wait_ns = 0, fetch_ns = 0, ratio;

	for (size_t i = data_waits_from(waits, run->begin_ns);
	     i < waits->n && waits->items[i].begin_ns < run->end_ns; i++) {
		wait_ns += (double)(waits->items[i].end_ns - waits->items[i].begin_ns);
		fetch_ns += (double)split->fetch_ns[i];
	}
	ratio = wait_ns > 0 ? fetch_ns / wait_ns : 0;
	for (size_t i = data_waits_from(waits, window->begin_ns);
	     i < waits->n && waits->items[i].begin_ns < window->end_ns; i++) {
		const struct data_wait *wait = &waits->items[i];

		if (wait->begin_ns < run->begin_ns || wait->begin_ns >= run->end_ns)
			split->fetch_ns[i] = (uint64_t)(ratio * (double)(wait->end_ns - wait->begin_ns));
	}
}

static void split_by_walk(const struct split_input *input, struct split *split)
{
	const struct data_waits *waits = input->waits;

	for (size_t i = data_waits_from(waits, input->window->begin_ns);
	     i < waits->n && waits->items[i].begin_ns < input->window->end_ns; i++)
		split->fetch_ns[i] = walk_wait(input->timeline, input->roles, waits->items[i].begin_ns,
					       waits->items[i].end_ns, &split->tally);
}

static int split_of_workers(const struct split_input *input, struct split *split)
{
	bool replayed;
	int r = split_by_replay(input, split, &replayed);

	if (r < 0)
		return r;
	split->method = replayed ? METHOD_REPLAY : METHOD_WALK;
	if (replayed)
		split_extend(input, split);
	return 0;
}

static int split_by_marks(const struct split_input *input, struct split *split)
{
	_cleanup_(interval_list_free) struct interval_list marks = {0};
	int r = mark_stretches(input->roles->trainer, &marks);

	if (r < 0)
		return r;
	split->method = METHOD_MARKS;
	split_by_cover(input->waits, &marks, split);
	return 0;
}

int split_waits(const struct split_input *input, struct split *split)
{
	split_by_walk(input, split);
	switch (input->waits->loader) {
	case LOADER_NONE: break;
	case LOADER_THREADS: split->method = METHOD_WALK; break;
	case LOADER_WORKERS: return split_of_workers(input, split);
	case LOADER_INLINE:
		split->method = METHOD_WALK;
		split_by_cover(input->waits, &input->waits->file_calls, split);
		break;
	case LOADER_DIESEL: return split_by_marks(input, split);
	}
	return 0;
}

void split_free(struct split *split)
{
	free(split->fetch_ns);
	*split = (struct split){0};
}
