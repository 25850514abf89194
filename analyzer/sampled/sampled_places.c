/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer whose Python stack was read at each look: data wait is what lies within a loader's next(),
 * whatever it does there. It went in or out at some time between two looks, on average in the middle.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "sampled_trainer.h"
#include "lib/clock.h"
#include "lib/sorted.h"
#include "times.h"

#define KNOWN_RATIO    0.5      /* of the looks at least: else the stack was mostly unreadable */
#define ITERATOR_RATIO 50       /* of the looks: an iterator that takes less is no loader, or needs no time */
#define START_UP_NS    NS_PER_S /* outside of iterators, and so many times a step: no step */
#define START_UP_STEPS 10
#define RUN_LOOKS      3 /* if a step's next() and its computing each last so many looks, all of them are seen */
#define UNIFORM_SIGMA  0.2887 /* standard deviation of a uniform distribution of width 1 */

/* Successive looks that found the trainer at the same place. */
struct look_run {
	uint64_t begin_ns, end_ns;
	bool inside;
};

struct runs {
	struct look_run *items;
	size_t n;
	size_t n_looks;
	double edge_variance; /* in ns^2, of all borders between runs */
};

enum sample_place sampled_place(const struct sampled_thread *thread)
{
	size_t n_known = 0, n_inside = 0, n_diesel = 0, n_iterator = 0;

	for (size_t i = 0; i < thread->n; i++) {
		n_known += thread->looks[i]->sample.place != SAMPLE_PLACE_UNKNOWN;
		n_inside += sampled_inside(thread->looks[i]);
		n_diesel += thread->looks[i]->sample.place == SAMPLE_PLACE_DIESEL;
		n_iterator += thread->looks[i]->sample.place == SAMPLE_PLACE_ITERATOR;
	}
	if ((double)n_known < KNOWN_RATIO * (double)thread->n || !n_known)
		return SAMPLE_PLACE_UNKNOWN;
	if (!n_inside)
		return SAMPLE_PLACE_OUTSIDE;
	if (2 * n_iterator > n_inside)
		return ITERATOR_RATIO * n_iterator < n_known ? SAMPLE_PLACE_OUTSIDE : SAMPLE_PLACE_ITERATOR;
	return 2 * n_diesel > n_inside ? SAMPLE_PLACE_DIESEL : SAMPLE_PLACE_NEXT;
}

static int runs_find(const struct sampled_thread *thread, bool guessed, struct runs *runs)
{
	uint64_t last_ns = 0; /* the end of the last look that knew the place */

	runs->items = calloc(thread->n + 1, sizeof(*runs->items));
	if (!runs->items)
		return -ENOMEM;
	for (size_t i = 0; i < thread->n; i++) {
		const struct event *look = thread->looks[i];
		struct look_run *last = runs->n ? &runs->items[runs->n - 1] : NULL;
		uint64_t begin_ns = look->end_ns;
		/* Where there is a loader, other iterators are none. */
		bool inside =
		    sampled_inside(look) && (guessed || look->sample.place != SAMPLE_PLACE_ITERATOR);

		if (look->sample.place == SAMPLE_PLACE_UNKNOWN)
			continue;
		runs->n_looks += look->sample.n;
		if (last && last->inside == inside) {
			last->end_ns = look->end_ns;
		} else {
			/* A look says where the trainer was at its end. */
			if (last) {
				double width = (double)(look->end_ns - last_ns);

				begin_ns = last_ns + (look->end_ns - last_ns) / 2;
				last->end_ns = begin_ns;
				runs->edge_variance += width * width * UNIFORM_SIGMA * UNIFORM_SIGMA;
			}
			runs->items[runs->n++] = (struct look_run){begin_ns, look->end_ns, inside};
		}
		last_ns = look->end_ns;
	}
	return 0;
}

static uint64_t median_length(const struct look_run *runs, size_t n, bool inside, uint64_t *scratch)
{
	size_t n_scratch = 0;

	for (size_t i = 0; i < n; i++)
		if (runs[i].inside == inside)
			scratch[n_scratch++] = runs[i].end_ns - runs[i].begin_ns;
	qsort(scratch, n_scratch, sizeof(*scratch), compare_u64);
	return n_scratch ? scratch[n_scratch / 2] : 0;
}

/* The window of runs [first, last]: the first and the last next(), and what is computed after it. */
static int window_set(const struct runs *runs, size_t first, size_t last, struct sampled_trainer *trainer)
{
	const struct look_run *run = runs->items;
	uint64_t *scratch = calloc(runs->n + 1, sizeof(*scratch));
	uint64_t look_ns = (run[runs->n - 1].end_ns - run[0].begin_ns) / (runs->n_looks ? runs->n_looks : 1);
	uint64_t inside_ns, outside_ns;

	trainer->computing = calloc(runs->n + 1, sizeof(*trainer->computing));
	if (!scratch || !trainer->computing) {
		free(scratch);
		return -ENOMEM;
	}
	inside_ns = median_length(run + first, last - first + 1, true, scratch);
	outside_ns = median_length(run + first, last - first + 1, false, scratch);
	free(scratch);
	trainer->begin_ns = run[first].begin_ns;
	trainer->end_ns = run[last].end_ns;
	for (size_t i = first; i <= last; i++) {
		if (!run[i].inside)
			trainer->computing[trainer->n_computing++] =
			    (struct sampled_stretch){run[i].begin_ns, run[i].end_ns};
		else
			trainer->n_steps++;
	}
	/* The end of the job is no part of the last step. */
	if (last + 1 < runs->n) {
		uint64_t rest_ns = run[last + 1].end_ns - run[last + 1].begin_ns;

		trainer->end_ns += min_ns(rest_ns, outside_ns);
		trainer->computing[trainer->n_computing++] =
		    (struct sampled_stretch){run[last].end_ns, trainer->end_ns};
	}
	/* Some were too short to be seen: nobody knows how many. */
	if (min_ns(inside_ns, outside_ns) < RUN_LOOKS * look_ns)
		trainer->n_steps = 0;
	trainer->placed = true;
	trainer->edge_error_ns = sqrt(runs->edge_variance);
	return 0;
}

/* Iterators are everywhere: one that is followed by far more than a step was not the loader yet. */
static int first_step_find(const struct runs *runs, size_t *first)
{
	uint64_t *scratch = calloc(runs->n + 1, sizeof(*scratch)), outside_ns;

	if (!scratch)
		return -ENOMEM;
	outside_ns = median_length(runs->items, runs->n, false, scratch);
	free(scratch);
	for (size_t i = *first; i + 2 < runs->n; i++) {
		uint64_t ns = runs->items[i].end_ns - runs->items[i].begin_ns;

		if (!runs->items[i].inside && ns > START_UP_NS && ns > START_UP_STEPS * outside_ns &&
		    2 * i < runs->n)
			*first = i + 1;
	}
	return 0;
}

int sampled_places_find(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	struct runs runs = {0};
	size_t first = 0, last;
	int r = runs_find(thread, trainer->guessed, &runs);

	while (first < runs.n && !runs.items[first].inside)
		first++;
	if (r == 0 && trainer->guessed)
		r = first_step_find(&runs, &first);
	last = runs.n;
	while (last > first && !runs.items[last - 1].inside)
		last--;
	if (r == 0 && last > first)
		r = window_set(&runs, first, last - 1, trainer);
	free(runs.items);
	return r;
}
