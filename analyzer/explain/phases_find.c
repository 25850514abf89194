/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "analyzer/roles/roles.h"
#include "analyzer/waits/window.h"

#define DEPTH_MAX 64   /* maximum depth of nested ranges; deeper ones are only counted */
#define NAMES_MAX 2048 /* same limit as the collector's */

struct open_range {
	uint64_t key, begin_ns;
};

struct phase_sum {
	uint64_t key, n, ns;
};

struct phase_finder {
	const struct study *study;
	struct open_range open[DEPTH_MAX];
	size_t depth; /* may be above DEPTH_MAX */
	struct phase_sum *sums;
	size_t n_sums;
};

static struct phase_sum *sum_of(struct phase_finder *finder, uint64_t key)
{
	for (size_t i = 0; i < finder->n_sums; i++)
		if (finder->sums[i].key == key)
			return &finder->sums[i];
	if (finder->n_sums == NAMES_MAX)
		return NULL;
	finder->sums[finder->n_sums] = (struct phase_sum){.key = key};
	return &finder->sums[finder->n_sums++];
}

static void range_add(struct phase_finder *finder, struct open_range range, uint64_t end_ns)
{
	const struct window *window = finder->study->window;
	uint64_t begin_ns = range.begin_ns > window->begin_ns ? range.begin_ns : window->begin_ns;
	struct phase_sum *sum;

	if (end_ns > window->end_ns)
		end_ns = window->end_ns;
	sum = begin_ns < end_ns ? sum_of(finder, range.key) : NULL;
	if (!sum)
		return;
	sum->n++;
	sum->ns += end_ns - begin_ns;
}

/* An NVTX end closes the innermost range. A USDT end names its range: ranges still open within that one lost
 * their ends, and an end without an open range belongs to a range from before the recording. */
static void range_end(struct phase_finder *finder, uint64_t key, uint64_t at_ns)
{
	size_t at = finder->depth;

	if (!at)
		return;
	if (at > DEPTH_MAX) {
		finder->depth--;
		return;
	}
	at--;
	while (key && finder->open[at].key != key) {
		if (!at)
			return;
		at--;
	}
	range_add(finder, finder->open[at], at_ns);
	finder->depth = at;
}

static void phase_add(struct phase_finder *finder, const struct event *event)
{
	if (event->phase.kind == PHASE_END) {
		range_end(finder, event->phase.value, event->end_ns);
	} else if (event->phase.kind == PHASE_BEGIN) {
		if (finder->depth < DEPTH_MAX)
			finder->open[finder->depth] = (struct open_range){event->phase.value, event->end_ns};
		finder->depth++;
	}
}

static int event_compare(const void *left, const void *right)
{
	const struct event *const *a = left, *const *b = right;

	if ((*a)->end_ns != (*b)->end_ns)
		return (*a)->end_ns < (*b)->end_ns ? -1 : 1;
	return *a < *b ? -1 : *a > *b; /* in the order in which they were recorded */
}

static bool is_wanted(const struct phase_finder *finder, const struct event *event)
{
	return event->type == EVENT_PHASE && event->tid == finder->study->roles->trainer->tid;
}

static int ranges_add(struct phase_finder *finder)
{
	const struct analysis_input *input = finder->study->input;
	const struct event **events;
	size_t n = 0;

	for (size_t i = 0; i < input->n_events; i++)
		n += is_wanted(finder, &input->events[i]);
	events = calloc(n + 1, sizeof(*events));
	if (!events)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < input->n_events; i++)
		if (is_wanted(finder, &input->events[i]))
			events[n++] = &input->events[i];
	qsort(events, n, sizeof(*events), event_compare);
	for (size_t i = 0; i < n; i++)
		phase_add(finder, events[i]);
	free(events);
	return 0;
}

static const char *name_of(const struct analysis_input *input, uint64_t key)
{
	for (size_t i = 0; i < input->n_phase_labels; i++)
		if (input->phase_labels[i].key == key)
			return input->phase_labels[i].name;
	return "?";
}

/* libdiesel's markers, by their USDT names. */
static void marks_add(struct phase_finder *finder, struct phase_time *next, struct phase_time *wait)
{
	const struct timeline_thread *trainer = finder->study->roles->trainer;
	const struct window *window = finder->study->window;
	uint64_t begin_ns[2] = {0};

	for (size_t i = 0; i < trainer->n_marks; i++) {
		const struct timeline_mark *mark = &trainer->marks[i];
		bool waits = mark->kind == MARK_WAIT_BEGIN || mark->kind == MARK_WAIT_END;
		struct phase_time *phase = waits ? wait : next;
		uint64_t from_ns, to_ns;

		if (mark->kind == MARK_NEXT_BEGIN || mark->kind == MARK_WAIT_BEGIN) {
			begin_ns[waits] = mark->at_ns;
			continue;
		}
		if (!begin_ns[waits] || (mark->kind != MARK_NEXT_END && mark->kind != MARK_WAIT_END))
			continue;
		from_ns = begin_ns[waits] > window->begin_ns ? begin_ns[waits] : window->begin_ns;
		to_ns = mark->at_ns < window->end_ns ? mark->at_ns : window->end_ns;
		begin_ns[waits] = 0;
		if (from_ns >= to_ns)
			continue;
		phase->n++;
		phase->ns += to_ns - from_ns;
	}
}

static int time_compare(const void *left, const void *right)
{
	const struct phase_time *a = left, *b = right;

	return a->ns > b->ns ? -1 : a->ns < b->ns;
}

static int sum_compare(const void *left, const void *right)
{
	const struct phase_sum *a = left, *b = right;

	return a->ns > b->ns ? -1 : a->ns < b->ns;
}

static void fill(struct phase_finder *finder, struct phase_times *phases)
{
	struct phase_time next = {.name = "diesel:next"}, wait = {.name = "diesel:wait"};

	marks_add(finder, &next, &wait);
	if (next.n)
		phases->items[phases->n++] = next;
	if (wait.n)
		phases->items[phases->n++] = wait;
	qsort(finder->sums, finder->n_sums, sizeof(*finder->sums), sum_compare);
	for (size_t i = 0; i < finder->n_sums && phases->n < PHASES_MAX; i++) {
		struct phase_time *item = &phases->items[phases->n++];

		snprintf(item->name, sizeof(item->name), "%s",
			 name_of(finder->study->input, finder->sums[i].key));
		item->n = finder->sums[i].n;
		item->ns = finder->sums[i].ns;
	}
	qsort(phases->items, phases->n, sizeof(*phases->items), time_compare);
}

int phases_find(const struct study *study, struct phase_times **ret_phases)
{
	_cleanup_(freep) struct phase_times *phases = calloc(1, sizeof(*phases));
	_cleanup_(freep) struct phase_sum *sums = calloc(NAMES_MAX, sizeof(*sums));
	struct phase_finder finder = {.study = study, .sums = sums};
	int r;

	if (!phases || !sums)
		return -ENOMEM;
	r = ranges_add(&finder);
	if (r < 0)
		return r;
	fill(&finder, phases);
	*ret_phases = phases->n ? steal_pointer(phases) : NULL;
	return 0;
}

void phase_times_free(struct phase_times *phases)
{
	free(phases);
}
