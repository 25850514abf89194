/* SPDX-License-Identifier: Apache-2.0 */
#include "waits_seen.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "analyzer/timeline/calls.h"
#include "lib/sorted.h"
#include "analyzer/base/times.h"

#define BETWEEN_CPU_NS UINT64_C(500000) /* maximum CPU time between two naps, for checking for a batch */
#define POLLS_MIN      3 /* minimum naps in a row that count as polling: fewer may be intended */
#define SAMPLES_MIN    5 /* minimum stack samples of the trainer */

static bool is_nap(const struct timeline_thread *thread, const struct timeline_off *off)
{
	const struct timeline_call *call = off->state ? timeline_call_at(thread, off->begin_ns) : NULL;

	return call && call->kind == CALL_NAP;
}

static bool follows(const struct timeline_thread *trainer, uint64_t end_ns, uint64_t begin_ns)
{
	size_t step = sorted_count(trainer->n_steps, i, trainer->steps[i] < end_ns);

	if (step < trainer->n_steps && trainer->steps[step] < begin_ns)
		return false;
	return timeline_cpu_between(trainer, end_ns, begin_ns) < BETWEEN_CPU_NS;
}

/* Returns the usual length of a polling nap: the median of all naps in rows. 0: the trainer does not poll. */
static uint64_t usual_nap(const struct timeline_thread *trainer, uint64_t *scratch)
{
	size_t n = 0, row = 0;
	uint64_t end_ns = 0;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (!is_nap(trainer, off))
			continue;
		if (row && !follows(trainer, end_ns, off->begin_ns)) {
			n -= row < POLLS_MIN ? row : 0;
			row = 0;
		}
		scratch[n++] = off->waking_ns - off->begin_ns;
		row++;
		end_ns = off->end_ns;
	}
	n -= row < POLLS_MIN ? row : 0;
	qsort(scratch, n, sizeof(*scratch), compare_u64);
	return n >= POLLS_MIN ? scratch[n / 2] : 0;
}

int waits_of_polls(const struct timeline_thread *trainer, struct interval_list *list)
{
	uint64_t *scratch = calloc(trainer->n_offs + 1, sizeof(*scratch)), usual_ns;
	struct interval wait = {0};
	int r = 0;

	if (!scratch)
		return -ENOMEM;
	usual_ns = usual_nap(trainer, scratch);
	free(scratch);
	for (size_t i = 0; usual_ns && r == 0 && i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];
		uint64_t ns = off->waking_ns - off->begin_ns;

		if (!is_nap(trainer, off) || 3 * ns < usual_ns || ns > 3 * usual_ns)
			continue;
		if (wait.end_ns && follows(trainer, wait.end_ns, off->begin_ns)) {
			wait.end_ns = off->end_ns;
			continue;
		}
		if (wait.end_ns)
			r = interval_list_add(list, wait.begin_ns, wait.end_ns);
		wait = (struct interval){off->begin_ns, off->end_ns};
	}
	if (r == 0 && wait.end_ns)
		r = interval_list_add(list, wait.begin_ns, wait.end_ns);
	return r;
}

int waits_of_stacks(const struct timeline_thread *trainer, const struct stack_samples *samples,
		    struct interval_list *list)
{
	const struct stack_bounds bounds = {.times = trainer->steps, .n_times = trainer->n_steps};
	size_t n = 0;

	for (size_t i = sorted_count(samples->n, k, samples->items[k].thread < trainer);
	     i < samples->n && samples->items[i].thread == trainer; i++)
		n += samples->items[i].work == STACK_NEXT;
	if (n < SAMPLES_MIN)
		return 0;
	return stack_spans_find(samples, trainer, STACK_NEXT, &bounds, list);
}

int waits_merge(struct data_waits *waits, struct interval_list *seen)
{
	struct data_waits merged = {.loader = waits->loader, .marked = waits->marked};
	int r = 0;

	for (size_t i = 0; r == 0 && i < waits->n; i++)
		r = interval_list_add(seen, waits->items[i].begin_ns, waits->items[i].end_ns);
	interval_list_tidy(seen);
	for (size_t i = 0, k = 0; r == 0 && i < seen->n; i++) {
		struct data_wait wait = {.begin_ns = seen->items[i].begin_ns,
					 .end_ns = seen->items[i].end_ns,
					 .ready_ns = seen->items[i].end_ns};

		/* The first part may have begun before the recording. */
		for (bool first = true; k < waits->n && waits->items[k].begin_ns < wait.end_ns; k++) {
			wait.clipped |= first && waits->items[k].clipped;
			first = false;
		}
		r = data_waits_add(&merged, wait);
	}
	if (r < 0) {
		data_waits_free(&merged);
		return r;
	}
	merged.file_calls = waits->file_calls;
	free(waits->items);
	*waits = merged;
	return 0;
}
