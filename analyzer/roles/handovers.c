/* SPDX-License-Identifier: Apache-2.0 */
#include "handovers.h"

#include "analyzer/timeline/calls.h"

#define PARTS     16 /* parts of the time from the first hand-over to the trainer's end */
#define PARTS_MIN 12 /* fewest of these parts that must have a hand-over */

static bool reads_in(const struct timeline_thread *thread, size_t *call, uint64_t begin_ns, uint64_t end_ns)
{
	bool reads = false;

	for (; *call < thread->n_calls && thread->calls[*call].begin_ns < end_ns; ++*call)
		reads |= thread->calls[*call].begin_ns >= begin_ns && call_read_bytes(&thread->calls[*call]);
	return reads;
}

bool handovers_go_on(const struct timeline *timeline, const struct roles *roles,
		     const struct timeline_thread *thread)
{
	const struct timeline_thread *trainer = roles->trainer;
	uint64_t first_ns = 0, last_ns = thread->first_ns, part_ns = 0;
	size_t call = 0, n_parts = 0, next_part = 0;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];
		size_t part;

		if (off->waker_tid != thread->tid || gil_waits(&roles->gil, trainer, off) ||
		    timeline_find(timeline, off->waker_tid, off->waking_ns) != thread ||
		    !reads_in(thread, &call, last_ns, off->waking_ns))
			continue;
		last_ns = off->waking_ns;
		if (!part_ns) {
			first_ns = last_ns;
			part_ns = (trainer->last_ns > first_ns ? trainer->last_ns - first_ns : 0) / PARTS + 1;
		}
		part = (last_ns - first_ns) / part_ns;
		n_parts += part >= next_part;
		if (part >= next_part)
			next_part = part + 1;
	}
	return n_parts >= PARTS_MIN;
}
