/* SPDX-License-Identifier: Apache-2.0 */
#include "collectives.h"

#include <errno.h>

#include "analyzer/timeline/calls.h"

#define HOPS_MAX 8 /* maximum threads in between: gloo has two, other libraries a few more */

static const struct timeline_off *last_sleep(const struct timeline_thread *thread, uint64_t at_ns)
{
	const struct timeline_off *off = timeline_off_before(thread, at_ns);

	while (off && !off->state && off > thread->offs)
		off--;
	return off && off->state ? off : NULL;
}

static bool in_socket_call(const struct timeline_thread *thread, const struct timeline_off *off)
{
	const struct timeline_call *call = timeline_call_at(thread, off->begin_ns);

	return call && (call_is_socket(call) || call_is_poll(call));
}

/* Returns true if the sleep lasted until other ranks arrived. */
static bool is_collective(const struct timeline *timeline, const struct roles *roles,
			  const struct timeline_off *off)
{
	const struct timeline_thread *thread = roles->trainer;

	for (int i = 0; i < HOPS_MAX && off; i++) {
		const struct timeline_thread *waker = timeline_waker(timeline, off);

		if (!waker || !timeline_same_process(waker, thread))
			return in_socket_call(thread, off);
		if (waker == roles->trainer || gil_waits(&roles->gil, thread, off))
			return false;
		thread = waker;
		off = last_sleep(thread, off->waking_ns);
	}
	return false;
}

int collectives_find(const struct timeline *timeline, const struct roles *roles,
		     struct interval_list *ret_collectives)
{
	const struct timeline_thread *trainer = roles->trainer;
	struct interval_list list = {0};

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (off->state && is_collective(timeline, roles, off) &&
		    interval_list_add(&list, off->begin_ns, off->waking_ns) < 0) {
			interval_list_free(&list);
			return -ENOMEM;
		}
	}
	interval_list_tidy(&list);
	*ret_collectives = list;
	return 0;
}
