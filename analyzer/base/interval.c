/* SPDX-License-Identifier: Apache-2.0 */
#include "interval.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/array.h"
#include "lib/sorted.h"

void interval_list_free(struct interval_list *list)
{
	free(list->items);
	*list = (struct interval_list){0};
}

int interval_list_add(struct interval_list *list, uint64_t begin_ns, uint64_t end_ns)
{
	if (begin_ns >= end_ns)
		return 0;
	if (array_reserve(list->items, list->n, list->n_allocated) < 0)
		return -ENOMEM;
	list->items[list->n++] = (struct interval){begin_ns, end_ns};
	return 0;
}

int interval_list_append(struct interval_list *list, const struct interval_list *more)
{
	for (size_t i = 0; i < more->n; i++)
		if (interval_list_add(list, more->items[i].begin_ns, more->items[i].end_ns) < 0)
			return -ENOMEM;
	return 0;
}

static int interval_compare(const void *left, const void *right)
{
	const struct interval *a = left, *b = right;

	if (a->begin_ns != b->begin_ns)
		return a->begin_ns < b->begin_ns ? -1 : 1;
	return a->end_ns < b->end_ns ? -1 : a->end_ns > b->end_ns;
}

void interval_list_tidy(struct interval_list *list)
{
	size_t n = 0;

	if (!list->n)
		return;
	qsort(list->items, list->n, sizeof(*list->items), interval_compare);
	for (size_t i = 1; i < list->n; i++) {
		struct interval *last = &list->items[n];

		if (list->items[i].begin_ns > last->end_ns)
			list->items[++n] = list->items[i];
		else if (list->items[i].end_ns > last->end_ns)
			last->end_ns = list->items[i].end_ns;
	}
	list->n = n + 1;
}

int interval_list_subtract(struct interval_list *list, const struct interval_list *holes)
{
	struct interval_list rest = {0};
	size_t h = 0;

	for (size_t i = 0; i < list->n; i++) {
		uint64_t at_ns = list->items[i].begin_ns, end_ns = list->items[i].end_ns;

		while (h < holes->n && holes->items[h].end_ns <= at_ns)
			h++;
		for (size_t k = h; k < holes->n && holes->items[k].begin_ns < end_ns; k++) {
			if (interval_list_add(&rest, at_ns, holes->items[k].begin_ns) < 0)
				goto no_memory;
			at_ns = holes->items[k].end_ns;
		}
		if (interval_list_add(&rest, at_ns, end_ns) < 0)
			goto no_memory;
	}
	interval_list_free(list);
	*list = rest;
	return 0;
no_memory:
	interval_list_free(&rest);
	return -ENOMEM;
}

size_t interval_list_from(const struct interval_list *list, uint64_t at_ns)
{
	return sorted_count(list->n, i, list->items[i].end_ns <= at_ns);
}

uint64_t interval_list_cover(const struct interval_list *list, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t covered_ns = 0;

	for (size_t i = interval_list_from(list, begin_ns); i < list->n; i++) {
		const struct interval *item = &list->items[i];
		uint64_t from_ns = item->begin_ns > begin_ns ? item->begin_ns : begin_ns;
		uint64_t to_ns = item->end_ns < end_ns ? item->end_ns : end_ns;

		if (item->begin_ns >= end_ns)
			break;
		covered_ns += to_ns - from_ns;
	}
	return covered_ns;
}
