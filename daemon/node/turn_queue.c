/* SPDX-License-Identifier: Apache-2.0 */
#include "turn_queue.h"

#include <stddef.h>

/* Merges two heaps; each is NULL or has no siblings. */
static struct turn_entry *meld(struct turn_entry *a, struct turn_entry *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->used < a->used) {
		struct turn_entry *other = a;

		a = b;
		b = other;
	}
	b->prev = a;
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	a->child = b;
	return a;
}

/* Detaches the first of some siblings. Returns the next one. */
static struct turn_entry *cut(struct turn_entry *e)
{
	struct turn_entry *next = e->next;

	e->next = e->prev = NULL;
	return next;
}

/* Merges siblings into one heap: first in pairs, then from the last pair to the first. */
static struct turn_entry *meld_all(struct turn_entry *e)
{
	struct turn_entry *pairs = NULL, *all = NULL;

	while (e) {
		struct turn_entry *a = e, *b = cut(a), *pair;

		e = b ? cut(b) : NULL;
		pair = meld(a, b);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct turn_entry *pair = pairs;

		pairs = cut(pair);
		all = meld(all, pair);
	}
	return all;
}

void turn_queue_add(struct turn_queue *q, struct turn_entry *entry, uint64_t used)
{
	*entry = (struct turn_entry){.used = used, .in = q};
	q->first = meld(q->first, entry);
}

void turn_queue_remove(struct turn_entry *e)
{
	struct turn_queue *q = e->in;

	if (!q)
		return;
	if (e == q->first) {
		q->first = meld_all(e->child);
	} else {
		if (e->prev->child == e)
			e->prev->child = e->next;
		else
			e->prev->next = e->next;
		if (e->next)
			e->next->prev = e->prev;
		q->first = meld(q->first, meld_all(e->child));
	}
	e->in = NULL;
}
