/* SPDX-License-Identifier: Apache-2.0 */
#include "window.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/sorted.h"

#define FIRST_GAP_CPU_NS UINT64_C(20000000) /* minimum CPU time of a validation or warm-up */
#define STEPS_PER_WAIT   8 /* steps for each wait, beyond which waits do not show where a step begins */

struct window_finder {
	const uint64_t *times;
	size_t n_times;
	const struct data_waits *waits;
	const struct timeline_thread *trainer;
	/* first_wait[k]: index of the first wait that begins after k backward passes and before the next;
	 * waits->n: none */
	size_t *first_wait;
	uint64_t tail_ns; /* median time from a backward pass to the next wait; 0: waits are rare */
};

/* Returns the first wait of the first next(). With workers that have to start up, it can take long, and the
 * loader checks every few seconds that they live: waits with hardly any computing between them are one wait.
 * A trainer that reads files itself may have read anything before its first step, and a wait that began
 * before the recording shows nothing. */
static size_t first_next_begin(const struct window_finder *finder, size_t i)
{
	const struct data_wait *items = finder->waits->items;

	if (finder->waits->loader != LOADER_WORKERS && finder->waits->loader != LOADER_THREADS)
		return i;
	while (i && i < finder->waits->n && !items[i - 1].clipped &&
	       timeline_cpu_between(finder->trainer, items[i - 1].end_ns, items[i].begin_ns) <
		   FIRST_GAP_CPU_NS)
		i--;
	return i;
}

static int first_waits_find(struct window_finder *finder)
{
	const struct data_waits *waits = finder->waits;
	size_t k = 0;

	finder->first_wait = calloc(finder->n_times + 1, sizeof(*finder->first_wait));
	if (!finder->first_wait)
		return -ENOMEM;
	for (size_t i = 0; i <= finder->n_times; i++)
		finder->first_wait[i] = waits->n;
	for (size_t i = 0; i < waits->n; i++) {
		while (k < finder->n_times && finder->times[k] <= waits->items[i].begin_ns)
			k++;
		/* Only the last wait before the first step belongs to that step; earlier waits are warm-up.
		 */
		if (finder->first_wait[k] == waits->n || !k)
			finder->first_wait[k] = i;
	}
	finder->first_wait[0] = first_next_begin(finder, finder->first_wait[0]);
	return 0;
}

static int tail_measure(struct window_finder *finder)
{
	uint64_t *tails = calloc(finder->n_times + 1, sizeof(*tails));
	size_t n = 0;

	if (!tails)
		return -ENOMEM;
	for (size_t k = 1; k <= finder->n_times; k++)
		if (finder->first_wait[k] < finder->waits->n)
			tails[n++] =
			    finder->waits->items[finder->first_wait[k]].begin_ns - finder->times[k - 1];
	qsort(tails, n, sizeof(*tails), compare_u64);
	/* The trainer's own reads may be of anything, and a step must not begin in the middle of a save. */
	if (finder->waits->loader != LOADER_INLINE || STEPS_PER_WAIT * n >= finder->n_times)
		finder->tail_ns = n ? tails[n / 2] : 0;
	free(tails);
	return 0;
}

/* Returns the first completely recorded step; n_times: none. */
static size_t first_step(const struct window_finder *finder)
{
	for (size_t k = 0; k < finder->n_times; k++) {
		size_t i = finder->first_wait[k];

		if (i < finder->waits->n && !finder->waits->items[i].clipped)
			return k;
	}
	return finder->n_times;
}

static uint64_t step_begin(const struct window_finder *finder, size_t k)
{
	size_t i = finder->first_wait[k];
	uint64_t begin_ns;

	if (i < finder->waits->n)
		return finder->waits->items[i].begin_ns;
	begin_ns = finder->times[k - 1] + finder->tail_ns;
	return begin_ns < finder->times[k] ? begin_ns : finder->times[k];
}

static uint64_t window_end(const struct window_finder *finder, const struct interval_list *checkpoints,
			   const struct timeline_thread *trainer)
{
	uint64_t last_ns = finder->times[finder->n_times - 1];
	uint64_t end_ns = last_ns + finder->tail_ns;
	size_t after = finder->first_wait[finder->n_times];

	for (size_t i = interval_list_from(checkpoints, last_ns); i < checkpoints->n; i++) {
		if (checkpoints->items[i].begin_ns > end_ns)
			break;
		if (checkpoints->items[i].end_ns > end_ns)
			end_ns = checkpoints->items[i].end_ns;
	}
	if (after < finder->waits->n && finder->waits->items[after].begin_ns < end_ns)
		end_ns = finder->waits->items[after].begin_ns;
	if (end_ns > trainer->last_ns)
		end_ns = trainer->last_ns;
	return end_ns > last_ns ? end_ns : last_ns;
}

static int steps_between_passes(const uint64_t *times, size_t n_times, struct window *window)
{
	if (n_times < 2)
		return 0;
	window->steps = calloc(n_times, sizeof(*window->steps));
	if (!window->steps)
		return -ENOMEM;
	window->n_steps = n_times - 1;
	for (size_t k = 0; k < window->n_steps; k++)
		window->steps[k] = (struct analysis_step){
		    .begin_ns = times[k], .end_ns = times[k + 1], .backward_ns = times[k]};
	window->begin_ns = times[0];
	window->end_ns = times[n_times - 1];
	return 0;
}

static int steps_from_waits(const struct window_finder *finder, const struct interval_list *checkpoints,
			    const struct timeline_thread *trainer, struct window *window)
{
	size_t first = first_step(finder);

	if (first == finder->n_times)
		return 0;
	window->steps = calloc(finder->n_times - first + 1, sizeof(*window->steps));
	if (!window->steps)
		return -ENOMEM;
	window->n_steps = finder->n_times - first;
	window->end_ns = window_end(finder, checkpoints, trainer);
	for (size_t k = 0; k < window->n_steps; k++)
		window->steps[k] = (struct analysis_step){
		    .begin_ns = step_begin(finder, first + k),
		    .end_ns =
			first + k + 1 < finder->n_times ? step_begin(finder, first + k + 1) : window->end_ns,
		    .backward_ns = finder->times[first + k],
		};
	window->begin_ns = window->steps[0].begin_ns;
	return 0;
}

int window_find(const uint64_t *times, size_t n_times, const struct data_waits *waits,
		const struct interval_list *checkpoints, const struct timeline_thread *trainer,
		struct window *ret_window)
{
	struct window_finder finder = {
	    .times = times, .n_times = n_times, .waits = waits, .trainer = trainer};
	struct window window = {0};
	int r;

	r = first_waits_find(&finder);
	if (r == 0)
		r = tail_measure(&finder);
	if (r == 0)
		r = waits->n ? steps_from_waits(&finder, checkpoints, trainer, &window)
			     : steps_between_passes(times, n_times, &window);
	free(finder.first_wait);
	if (r < 0)
		return r;
	*ret_window = window;
	return 0;
}

void window_leave_gaps(struct window *window, const struct interval_list *gaps)
{
	size_t n = 0;

	window->observed_ns = 0;
	for (size_t k = 0; k < window->n_steps; k++) {
		const struct analysis_step step = window->steps[k];
		size_t i = interval_list_from(gaps, step.begin_ns);

		if (i < gaps->n && gaps->items[i].begin_ns < step.end_ns)
			continue;
		window->observed_ns += step.end_ns - step.begin_ns;
		window->steps[n++] = step;
	}
	window->n_steps = n;
}

struct window window_longest_run(const struct window *window)
{
	struct window best = {0};
	size_t first = 0;

	for (size_t k = 1; k <= window->n_steps; k++) {
		const struct analysis_step *last = &window->steps[k - 1];
		uint64_t ns = last->end_ns - window->steps[first].begin_ns;

		if (k < window->n_steps && window->steps[k].begin_ns == last->end_ns)
			continue;
		if (!best.n_steps || ns > best.observed_ns)
			best = (struct window){.begin_ns = window->steps[first].begin_ns,
					       .end_ns = last->end_ns,
					       .steps = window->steps + first,
					       .n_steps = k - first,
					       .observed_ns = ns};
		first = k;
	}
	return best;
}

void window_free(struct window *window)
{
	free(window->steps);
	*window = (struct window){0};
}
