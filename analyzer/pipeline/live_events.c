/* SPDX-License-Identifier: Apache-2.0 */
#include "live_events.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/sorted.h"

#define LIVES_MIN 1024 /* fewer are not worth tidying */

void live_events_free(struct live_events *events)
{
	free(events->lives.items);
	free(events->recent.items);
	*events = (struct live_events){0};
}

static int list_add(struct live_list *list, const struct event *event)
{
	if (array_reserve(list->items, list->n, list->n_allocated) < 0)
		return -ENOMEM;
	list->items[list->n++] = *event;
	return 0;
}

/* Returns true for an event that identifies a thread, and that must be kept during the thread's life. */
static bool is_life(const struct event *event)
{
	switch ((enum event_type)event->type) {
	case EVENT_FORK:
	case EVENT_EXEC:
	case EVENT_EXIT:
	case EVENT_NAME:
	case EVENT_ALIVE: return true;
	default: return false;
	}
}

int live_events_add(struct live_events *events, const struct event *event, size_t n_max)
{
	struct live_list *recent = &events->recent;
	int r;

	if (is_life(event))
		return list_add(&events->lives, event);
	if (recent->n >= n_max)
		live_events_forget(events, recent->items[recent->n / 2].end_ns);
	if (recent->n >= n_max) /* all events have the same time */
		return -ENOMEM;
	r = list_add(recent, event);
	if (r < 0)
		events->n_dropped++;
	return r;
}

struct exit_at {
	uint32_t tid;
	uint64_t at_ns;
};

static int exit_compare(const void *left, const void *right)
{
	const struct exit_at *a = left, *b = right;

	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Returns the last exit of this tid that was long enough ago; 0: none. */
static uint64_t exit_of(const struct exit_at *exits, size_t n, uint32_t tid)
{
	size_t until = sorted_count(n, i, exits[i].tid <= tid);

	return until && exits[until - 1].tid == tid ? exits[until - 1].at_ns : 0;
}

/* Removes the lives of threads that ended before begin_ns, because they are no longer needed. */
static void lives_tidy(struct live_events *events)
{
	struct live_list *lives = &events->lives;
	struct exit_at *exits;
	size_t n_exits = 0, n = 0;

	if (lives->n < LIVES_MIN || lives->n < 2 * events->n_lives_tidied)
		return;
	exits = calloc(lives->n, sizeof(*exits));
	if (!exits)
		return; /* next time */
	for (size_t i = 0; i < lives->n; i++)
		if (lives->items[i].type == EVENT_EXIT && lives->items[i].end_ns < events->begin_ns)
			exits[n_exits++] = (struct exit_at){lives->items[i].tid, lives->items[i].end_ns};
	qsort(exits, n_exits, sizeof(*exits), exit_compare);
	for (size_t i = 0; i < lives->n; i++) {
		const struct event event = lives->items[i];
		uint32_t tid = event.type == EVENT_FORK ? event.fork.child_tid : event.tid;

		if (event.end_ns > exit_of(exits, n_exits, tid))
			lives->items[n++] = event;
	}
	lives->n = events->n_lives_tidied = n;
	free(exits);
}

void live_events_forget(struct live_events *events, uint64_t begin_ns)
{
	struct live_list *recent = &events->recent;
	size_t n = 0;

	if (begin_ns <= events->begin_ns)
		return;
	events->begin_ns = begin_ns;
	for (size_t i = 0; i < recent->n; i++)
		if (recent->items[i].end_ns >= begin_ns)
			recent->items[n++] = recent->items[i];
	recent->n = n;
	lives_tidy(events);
}

int live_events_copy(const struct live_events *events, struct event **ret_events, size_t *ret_n)
{
	size_t n = events->lives.n + events->recent.n;
	struct event *copy = calloc(n + 1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	if (events->lives.n)
		memcpy(copy, events->lives.items, events->lives.n * sizeof(*copy));
	if (events->recent.n)
		memcpy(copy + events->lives.n, events->recent.items, events->recent.n * sizeof(*copy));
	*ret_events = copy;
	*ret_n = n;
	return 0;
}
