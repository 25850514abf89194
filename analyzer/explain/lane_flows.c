/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes_find.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "bpf/gpu.h"
#include "roles.h"
#include "split.h"
#include "waits.h"
#include "window.h"

#define CHAIN_MAX 8 /* hops back from the end of one wait */

int lanes_waits_find(const struct study *study, size_t max, struct lanes *lanes)
{
	const struct data_waits *waits = study->waits;

	lanes->waits = calloc(waits->n + 1, sizeof(*lanes->waits));
	if (!lanes->waits)
		return -ENOMEM;
	for (size_t i = data_waits_from(waits, study->window->begin_ns); i < waits->n; i++) {
		if (waits->items[i].begin_ns >= study->window->end_ns || lanes->n_waits == max)
			break;
		lanes->waits[lanes->n_waits++] = (struct lane_wait){
		    waits->items[i].begin_ns, waits->items[i].end_ns, study->split->fetch_ns[i]};
	}
	return 0;
}

/* Goes back from the end of a wait: who ended the thread's last sleep in it, who had made that one runnable,
 * ... */
static void chain_add(const struct study *study, const uint32_t *of_thread, const struct lane_wait *wait,
		      size_t max, struct lanes *lanes)
{
	const struct timeline *timeline = study->timeline;
	const struct timeline_thread *thread = study->roles->trainer;
	uint64_t at_ns = wait->end_ns;

	for (unsigned int hop = 0; hop < CHAIN_MAX && lanes->n_wakes < max; hop++) {
		const struct timeline_off *off = timeline_off_before(thread, at_ns);
		const struct timeline_thread *waker;
		uint32_t from, to;

		/* Sleeps that an interrupt ended have no waker: look further back. */
		while (off && off > thread->offs && off->begin_ns > wait->begin_ns &&
		       (!off->waker_tid || off->waking_ns >= at_ns))
			off--;
		if (!off || !off->waker_tid || off->waking_ns <= wait->begin_ns || off->waking_ns >= at_ns)
			return;
		waker = timeline_find(timeline, off->waker_tid, off->waking_ns);
		if (!waker || waker == thread)
			return;
		from = of_thread[waker - timeline->threads];
		to = of_thread[thread - timeline->threads];
		if (from == UINT32_MAX || to == UINT32_MAX)
			return;
		lanes->wakes[lanes->n_wakes++] =
		    (struct lane_wake){off->waking_ns, off->end_ns < at_ns ? off->end_ns : at_ns, from, to};
		thread = waker;
		at_ns = off->waking_ns;
	}
}

static int wake_compare(const void *left, const void *right)
{
	const struct lane_wake *a = left, *b = right;

	return a->run_ns < b->run_ns ? -1 : a->run_ns > b->run_ns;
}

int lanes_wakes_find(const struct study *study, const uint32_t *of_thread, size_t max, struct lanes *lanes)
{
	lanes->wakes = calloc(max, sizeof(*lanes->wakes));
	if (!lanes->wakes)
		return -ENOMEM;
	for (size_t i = 0; i < lanes->n_waits; i++)
		chain_add(study, of_thread, &lanes->waits[i], max, lanes);
	qsort(lanes->wakes, lanes->n_wakes, sizeof(*lanes->wakes), wake_compare);
	return 0;
}

int lanes_gpu_calls_find(const struct study *study, const uint32_t *of_thread, size_t max,
			 struct lanes *lanes)
{
	const struct timeline *timeline = study->timeline;
	const struct window *window = study->window;
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++)
		n += of_thread[i] == UINT32_MAX ? 0 : timeline->threads[i].n_gpu_waits;
	n = n < max ? n : max;
	if (!n)
		return 0;
	lanes->gpu_calls = calloc(n, sizeof(*lanes->gpu_calls));
	if (!lanes->gpu_calls)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		for (size_t k = 0; of_thread[i] != UINT32_MAX && k < thread->n_gpu_waits; k++) {
			const struct timeline_gpu_wait *wait = &thread->gpu_waits[k];

			if (wait->begin_ns >= window->begin_ns && wait->end_ns <= window->end_ns &&
			    lanes->n_gpu_calls < n)
				lanes->gpu_calls[lanes->n_gpu_calls++] =
				    (struct lane_gpu_call){wait->begin_ns, wait->end_ns, of_thread[i],
							   gpu_function_name(wait->function)};
		}
	}
	return 0;
}

struct change {
	uint64_t at_ns;
	int by;
};

static int change_compare(const void *left, const void *right)
{
	const struct change *a = left, *b = right;

	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* When the step's batch was taken: at the end of its last data wait. */
static uint64_t taken_ns(const struct lanes *lanes, const struct analysis_step *step, size_t *next_wait)
{
	uint64_t at_ns = step->begin_ns;

	for (; *next_wait < lanes->n_waits && lanes->waits[*next_wait].end_ns <= step->backward_ns;
	     ++*next_wait)
		if (lanes->waits[*next_wait].end_ns > step->begin_ns)
			at_ns = lanes->waits[*next_wait].end_ns;
	return at_ns;
}

/* The level rises when a worker finishes a batch and falls when a step takes one. How many there were before
 * the window is not known, so the lowest level counts as 0. */
int lanes_levels_find(const struct window *window, size_t max, struct lanes *lanes)
{
	struct change *changes;
	size_t n = 0, next_wait = 0;
	int level = 0, lowest = 0;

	for (size_t i = 0; i < lanes->n_items; i++)
		n += lanes->items[i].n_batches;
	if (!n)
		return 0;
	changes = calloc(n + window->n_steps, sizeof(*changes));
	lanes->levels = calloc(max, sizeof(*lanes->levels));
	if (!changes || !lanes->levels) {
		free(changes);
		return -ENOMEM;
	}
	n = 0;
	for (size_t i = 0; i < lanes->n_items; i++)
		for (size_t k = 0; k < lanes->items[i].n_batches; k++)
			changes[n++] = (struct change){lanes->items[i].batches[k].end_ns, 1};
	for (size_t i = 0; i < window->n_steps; i++)
		changes[n++] = (struct change){taken_ns(lanes, &window->steps[i], &next_wait), -1};
	qsort(changes, n, sizeof(*changes), change_compare);
	for (size_t i = 0; i < n; i++) {
		level += changes[i].by;
		lowest = level < lowest ? level : lowest;
	}
	level = -lowest;
	for (size_t i = 0; i < n && lanes->n_levels < max; i++) {
		level += changes[i].by;
		lanes->levels[lanes->n_levels++] = (struct lane_level){changes[i].at_ns, (uint32_t)level};
	}
	free(changes);
	return 0;
}
