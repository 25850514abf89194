/* SPDX-License-Identifier: Apache-2.0 */
#include "apart.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/sorted.h"

/* A step is apart if it compiles for at least a tenth of its time, and for longer than the edge of a span is
 * uncertain. */
#define COMPILING_PART 10
#define VALIDATION_MIN                                                                                       \
	3 /* batches before one backward pass: an epoch's end, one of validation, the step's own */

static void compiling_fill(const struct measurement *m, struct analysis *analysis)
{
	const struct interval_list *spans = &m->compiling.process;

	analysis->compiling.known = m->compiling.known;
	for (size_t i = 0; i < spans->n; i++)
		analysis->compiling.ns += spans->items[i].end_ns - spans->items[i].begin_ns;
	for (size_t i = 0; i < analysis->n_steps; i++) {
		struct analysis_step *step = &analysis->steps[i];
		uint64_t ns = step->share_ns[SHARE_COMPILING];

		if (COMPILING_PART * ns < step->end_ns - step->begin_ns || ns <= m->looks.period_ns / 2)
			continue;
		step->apart = true;
		analysis->compiling.n_steps++;
	}
}

/* The calls of next() in a step. */
struct batches {
	size_t n;
	uint64_t first_ns, last_ns; /* start of the first and of the last next() */
	uint64_t wait_ns;           /* in all but the last */
};

/* *mark: the first mark that was not looked at yet. */
static struct batches batches_of(const struct timeline_thread *trainer, const struct analysis_step *step,
				 size_t *mark)
{
	struct batches batches = {0};
	uint64_t begin_ns = 0, last_wait_ns = 0;

	for (; *mark < trainer->n_marks && trainer->marks[*mark].at_ns < step->end_ns; (*mark)++) {
		const struct timeline_mark *at = &trainer->marks[*mark];

		if (at->at_ns < step->begin_ns)
			continue;
		if (at->kind == MARK_BATCH_BEGIN || at->kind == MARK_NEXT_BEGIN) {
			begin_ns = at->at_ns;
		} else if ((at->kind == MARK_BATCH_END || at->kind == MARK_NEXT_END) && begin_ns) {
			batches.first_ns = batches.n ? batches.first_ns : begin_ns;
			batches.last_ns = begin_ns;
			batches.wait_ns += last_wait_ns;
			last_wait_ns = at->at_ns - begin_ns;
			batches.n++;
			begin_ns = 0;
		}
	}
	return batches;
}

static int validation_find(const struct measurement *m, struct analysis *analysis)
{
	const struct timeline_thread *trainer = m->roles.trainer;
	struct batches *batches = calloc(analysis->n_steps + 1, sizeof(*batches));
	size_t *counts = calloc(analysis->n_steps + 1, sizeof(*counts));
	size_t usual, mark = 0;

	for (size_t i = 0; batches && counts && i < analysis->n_steps; i++) {
		batches[i] = batches_of(trainer, &analysis->steps[i], &mark);
		counts[i] = batches[i].n;
	}
	if (batches && counts && analysis->n_steps) {
		qsort(counts, analysis->n_steps, sizeof(*counts), compare_u64);
		usual = counts[analysis->n_steps / 2];
		analysis->validation.known = usual > 0;
		for (size_t i = 0; usual && i < analysis->n_steps; i++) {
			if (batches[i].n < VALIDATION_MIN || batches[i].n < 2 * usual)
				continue;
			analysis->validation.n_steps++;
			analysis->validation.ns += batches[i].last_ns - batches[i].first_ns;
			analysis->validation.wait_ns += batches[i].wait_ns;
			analysis->steps[i].apart = true;
		}
	}
	mark = batches && counts;
	free(counts);
	free(batches);
	return mark ? 0 : -ENOMEM;
}

int apart_find(const struct measurement *m, struct analysis *analysis)
{
	compiling_fill(m, analysis);
	return validation_find(m, analysis);
}
