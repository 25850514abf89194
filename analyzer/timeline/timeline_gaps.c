/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/array.h"

/*
 * In a gap of the recording a thread's records are missing, and "no stretch off the CPU" would read as
 * computing. So each thread gets stretches of unknown state for what the gaps leave open: those parts of a
 * gap, within its life, that no record of it covers.
 */

struct builder {
	struct timeline_off *offs;
	size_t n, n_allocated;
};

static int add_off(struct builder *builder, struct timeline_off off)
{
	if (array_room(builder->offs, builder->n, builder->n_allocated) < 0)
		return -ENOMEM;
	builder->offs[builder->n++] = off;
	return 0;
}

static int add_unknown(struct builder *builder, uint64_t begin_ns, uint64_t end_ns)
{
	const struct timeline_off off = {.begin_ns = begin_ns,
					 .waking_ns = end_ns,
					 .end_ns = end_ns,
					 .state = TIMELINE_UNKNOWN,
					 .exec_ns = builder->n ? builder->offs[builder->n - 1].exec_ns : 0};

	return begin_ns < end_ns ? add_off(builder, off) : 0;
}

/* Adds what the gaps leave open between two records of a thread. */
static int fill_between(struct builder *builder, const struct interval_list *gaps, uint64_t begin_ns,
			uint64_t end_ns)
{
	for (size_t i = interval_list_from(gaps, begin_ns); i < gaps->n && gaps->items[i].begin_ns < end_ns;
	     i++) {
		struct interval gap = gaps->items[i];
		int r = add_unknown(builder, gap.begin_ns > begin_ns ? gap.begin_ns : begin_ns,
				    gap.end_ns < end_ns ? gap.end_ns : end_ns);

		if (r < 0)
			return r;
	}
	return 0;
}

static int fill_thread(struct builder *builder, const struct interval_list *gaps,
		       const struct timeline_thread *thread)
{
	uint64_t at_ns = thread->first_ns;
	int r = 0;

	for (size_t i = 0; i < thread->n_offs && r == 0; i++) {
		const struct timeline_off *off = &thread->offs[i];

		r = fill_between(builder, gaps, at_ns, off->begin_ns);
		if (r == 0)
			r = add_off(builder, *off);
		at_ns = off->end_ns;
	}
	return r < 0 ? r : fill_between(builder, gaps, at_ns, thread->last_ns);
}

int timeline_fill_gaps(struct timeline *timeline)
{
	struct builder builder = {0};
	size_t *begins;

	if (!timeline->gaps.n)
		return 0;
	begins = calloc(timeline->n_threads + 1, sizeof(*begins));
	if (!begins)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		begins[i] = builder.n;
		if (fill_thread(&builder, &timeline->gaps, &timeline->threads[i]) < 0) {
			free(begins);
			free(builder.offs);
			return -ENOMEM;
		}
	}
	begins[timeline->n_threads] = builder.n;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		/* NULL + 0 is undefined: a recording may have gaps in which no thread was off its core */
		timeline->threads[i].offs = builder.offs ? &builder.offs[begins[i]] : NULL;
		timeline->threads[i].n_offs = begins[i + 1] - begins[i];
	}
	free(begins);
	free(timeline->offs);
	timeline->offs = builder.offs;
	return 0;
}
