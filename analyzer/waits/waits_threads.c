/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"

#include <errno.h>
#include <sys/syscall.h>

#include "analyzer/timeline/calls.h"

/* Maximum CPU time in a hand-over: after more, the trainer waits for something else. */
#define HANDOVER_CPU_NS UINT64_C(300000)

/* Returns true if this interval off the CPU belongs to handing over. `helper_tid`: thread that may end it; 0:
 * none. */
static bool hands_over(const struct roles *roles, const struct timeline_off *off, uint32_t helper_tid)
{
	if (!off->state)
		return off->syscall_nr == SYS_futex; /* preempted in futex(), the call that wakes */
	return (helper_tid && off->waker_tid == helper_tid) || gil_waits(&roles->gil, roles->trainer, off);
}

uint64_t data_waits_handover_end(const struct roles *roles, uint64_t at_ns, uint32_t helper_tid)
{
	uint64_t end_ns = at_ns, cpu_ns = 0;

	for (;;) {
		struct timeline_piece piece = timeline_piece_at(roles->trainer, at_ns, UINT64_MAX);

		if (piece.state == STATE_CPU) {
			cpu_ns += piece.end_ns - at_ns;
			if (cpu_ns > HANDOVER_CPU_NS)
				return end_ns;
		} else if (!piece.off || !hands_over(roles, piece.off, helper_tid)) {
			return end_ns;
		} else {
			end_ns = piece.end_ns = piece.off->end_ns;
		}
		at_ns = piece.end_ns;
	}
}

static bool ends_waits(const struct timeline *timeline, const struct roles *roles,
		       const struct timeline_off *off)
{
	const struct timeline_thread *waker;

	if (!off->waker_tid)
		return false;
	waker = timeline_find(timeline, off->waker_tid, off->waking_ns);
	return waker && (waker == roles->reader || role_of(timeline, roles, waker) == ROLE_LOADER) &&
	       !gil_waits(&roles->gil, roles->trainer, off);
}

/* Returns the start of the first try: a wait with a timeout is repeated until a batch is ready. */
static uint64_t first_try_ns(const struct timeline_thread *trainer, size_t i)
{
	uint64_t begin_ns = trainer->offs[i].begin_ns;

	while (i > 0) {
		const struct timeline_off *before = &trainer->offs[i - 1];

		if (!before->state || before->state == TIMELINE_UNKNOWN || before->waker_tid ||
		    before->syscall_nr != SYS_futex ||
		    timeline_account(trainer, before->end_ns, begin_ns).cpu_ns > HANDOVER_CPU_NS)
			break;
		begin_ns = before->begin_ns;
		i--;
	}
	return begin_ns;
}

int data_waits_find_threads(const struct timeline *timeline, const struct roles *roles,
			    struct data_waits *waits)
{
	const struct timeline_thread *trainer = roles->trainer;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (!ends_waits(timeline, roles, off))
			continue;
		if (data_waits_add(
			waits, (struct data_wait){.begin_ns = first_try_ns(trainer, i),
						  .end_ns = data_waits_handover_end(roles, off->end_ns, 0),
						  .ready_ns = off->waking_ns,
						  .clipped = off->flags & EVENT_FLAG_CLIPPED}) < 0)
			return -ENOMEM;
	}
	return 0;
}
