/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline_births.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_CAPACITY 4096

/* There are far fewer births than events: when the list is full, it is tidied before it grows. */
struct birth_list {
	struct birth *items;
	size_t n, capacity;
};

static int birth_compare(const void *left, const void *right)
{
	const struct birth *a = left, *b = right;

	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	if (a->born_ns != b->born_ns)
		return a->born_ns < b->born_ns ? -1 : 1;
	return 0;
}

bool timeline_usable(const struct event *event)
{
	return event->tid && event->end_ns >= event->start_ns && event->end_ns < TIMELINE_TIME_MAX_NS &&
	       event->type >= EVENT_SWITCH && event->type < EVENT_TYPE_LIMIT && event->type != EVENT_GAP &&
	       event->type != EVENT_LOSS;
}

static void tidy(struct birth_list *list)
{
	size_t n = 0;

	qsort(list->items, list->n, sizeof(*list->items), birth_compare);
	for (size_t i = 0; i < list->n; i++)
		if (!n || birth_compare(&list->items[n - 1], &list->items[i]))
			list->items[n++] = list->items[i];
	list->n = n;
}

static int add(struct birth_list *list, struct birth birth)
{
	if (list->n == list->capacity) {
		size_t capacity = list->capacity ? 2 * list->capacity : FIRST_CAPACITY;
		struct birth *grown;

		if (list->n)
			tidy(list);
		if (list->n >= list->capacity / 2) {
			grown = reallocarray(list->items, capacity, sizeof(*grown));
			if (!grown)
				return -ENOMEM;
			list->items = grown;
			list->capacity = capacity;
		}
	}
	list->items[list->n++] = birth;
	return 0;
}

static int add_of(struct birth_list *list, const struct event *event, uint32_t last_tid)
{
	int r = 0;

	if (event->tid != last_tid)
		r = add(list, (struct birth){.tid = event->tid, .tgid = event->tgid});
	if (r == 0 && event->type == EVENT_FORK && event->fork.child_tid)
		r = add(list, (struct birth){.tid = event->fork.child_tid,
					     .tgid = event->fork.child_tgid,
					     .creator_tid = event->tid,
					     .born_ns = event->end_ns});
	return r;
}

int timeline_births(const struct event *events, size_t n_events, struct birth **ret_births, size_t *ret_n)
{
	struct birth_list list = {0};
	uint32_t last_tid = 0;

	for (size_t i = 0; i < n_events; i++) {
		if (!timeline_usable(&events[i]))
			continue;
		if (add_of(&list, &events[i], last_tid) < 0) {
			free(list.items);
			return -ENOMEM;
		}
		last_tid = events[i].tid;
	}
	if (list.n)
		tidy(&list);
	*ret_births = list.items;
	*ret_n = list.n;
	return 0;
}
