/* SPDX-License-Identifier: Apache-2.0 */
#include "excluded.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/sorted.h"
#include "analyzer/base/times.h"

/* A step is excluded if it compiles for at least a tenth of its time, and for longer than the edge of a span
 * is uncertain. */
#define COMPILING_PART 10
#define VALIDATION_MIN                                                                                       \
	3 /* batches before a backward pass: an epoch's end, one of validation, the step's own */

static void compiling_fill(const struct measurement *m, struct analysis *analysis)
{
	const struct interval_list *spans = &m->compiling.process;

	analysis->compiling.known = m->compiling.known;
	for (size_t i = 0; i < spans->n; i++)
		analysis->compiling.ns += spans->items[i].end_ns - spans->items[i].begin_ns;
	for (size_t i = 0; i < analysis->n_steps; i++) {
		struct analysis_step *step = &analysis->steps[i];
		uint64_t ns = step->share_ns[SHARE_COMPILING];

		if (COMPILING_PART * ns < step->end_ns - step->begin_ns || ns <= m->samples.period_ns / 2)
			continue;
		step->excluded = true;
		analysis->compiling.n_steps++;
	}
}

/* The calls of next() from one backward pass to the next: with workers, a step begins within one. */
struct batches {
	size_t n;
	uint64_t first_ns, last_ns; /* start of the first and of the last next() */
	uint64_t end_ns;            /* end of the last one */
	uint64_t wait_ns;           /* wait in all batches but the last */
};

/* Position in the trainer's marks. */
struct marks_cursor {
	size_t i;
	uint64_t begin_ns; /* start of the next() at this position; 0: in none */
};

/* Consumes all calls of next() that ended before end_ns. */
static struct batches batches_until(const struct timeline_thread *trainer, uint64_t end_ns,
				    struct marks_cursor *cursor)
{
	struct batches batches = {0};
	uint64_t last_wait_ns = 0;

	for (; cursor->i < trainer->n_marks && trainer->marks[cursor->i].at_ns < end_ns; cursor->i++) {
		const struct timeline_mark *at = &trainer->marks[cursor->i];

		if (at->kind == MARK_BATCH_BEGIN || at->kind == MARK_NEXT_BEGIN) {
			cursor->begin_ns = at->at_ns;
		} else if ((at->kind == MARK_BATCH_END || at->kind == MARK_NEXT_END) && cursor->begin_ns) {
			batches.first_ns = batches.n ? batches.first_ns : cursor->begin_ns;
			batches.last_ns = cursor->begin_ns;
			batches.end_ns = at->at_ns;
			batches.wait_ns += last_wait_ns;
			last_wait_ns = at->at_ns - cursor->begin_ns;
			batches.n++;
			cursor->begin_ns = 0;
		}
	}
	return batches;
}

static bool is_validation(const struct batches *batches, size_t usual)
{
	return batches->n >= VALIDATION_MIN && batches->n >= 2 * usual;
}

static void validation_add(const struct batches *batches, uint64_t end_ns, uint64_t wait_ns,
			   struct analysis *analysis)
{
	analysis->validation.n_steps++;
	analysis->validation.ns += end_ns - batches->first_ns;
	analysis->validation.wait_ns += wait_ns;
}

/* Adds the last validation pass, if no step follows it. All of its batches belong to the pass. */
static void last_pass_find(const struct measurement *m, struct batches *last, size_t usual,
			   struct analysis *analysis)
{
	uint64_t ns;

	if (!is_validation(last, usual))
		return;
	ns = last->end_ns - last->first_ns;
	validation_add(last, last->end_ns, last->wait_ns + last->end_ns - last->last_ns, analysis);
	if (last->end_ns > m->window.end_ns)
		analysis->window.teardown_ns -=
		    min_ns(analysis->window.teardown_ns, min_ns(ns, last->end_ns - m->window.end_ns));
}

static int validation_find(const struct measurement *m, struct analysis *analysis)
{
	const struct timeline_thread *trainer = m->roles.trainer;
	size_t n = analysis->n_steps, usual;
	struct batches *batches = calloc(n + 1, sizeof(*batches));
	size_t *counts = calloc(n + 1, sizeof(*counts));
	struct marks_cursor cursor = {0};

	if (!batches || !counts) {
		free(counts);
		free(batches);
		return -ENOMEM;
	}
	/* Batches before the first step may belong to anything, so they are not counted. */
	if (n && trainer->n_steps)
		batches_until(trainer, analysis->steps[0].begin_ns, &cursor);
	for (size_t i = 0; i < n; i++) {
		const struct analysis_step *step = &analysis->steps[i];

		batches[i] =
		    batches_until(trainer, trainer->n_steps ? step->backward_ns : step->end_ns, &cursor);
		counts[i] = batches[i].n;
	}
	batches[n] = batches_until(trainer, UINT64_MAX, &cursor);
	qsort(counts, n, sizeof(*counts), compare_u64);
	usual = n ? counts[n / 2] : 0;
	analysis->validation.known = usual > 0;
	for (size_t i = 0; usual && i < n; i++) {
		if (!is_validation(&batches[i], usual))
			continue;
		validation_add(&batches[i], batches[i].last_ns, batches[i].wait_ns, analysis);
		analysis->steps[i].excluded = true;
	}
	if (usual && trainer->n_steps &&
	    analysis->steps[n - 1].backward_ns == trainer->steps[trainer->n_steps - 1])
		last_pass_find(m, &batches[n], usual, analysis);
	free(counts);
	free(batches);
	return 0;
}

int excluded_find(const struct measurement *m, struct analysis *analysis)
{
	compiling_fill(m, analysis);
	return validation_find(m, analysis);
}
