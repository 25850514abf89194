/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds when the trainer waited for data, as a clock around next(loader) would measure it. Four kinds of
 * loader, recognised by evidence:
 *
 *   libdiesel  MARK_NEXT_BEGIN to MARK_NEXT_END on the trainer is the wait, exactly
 *   workers    from the trainer's first poll or read of a result pipe to the end of the handshake that
 *              follows (the tensors' descriptors come over a Unix socket) and of asking for one more batch
 *   inline     PyTorch's DataLoader without workers: MARK_BATCH_BEGIN to MARK_BATCH_END, exactly. A loader of
 *              the job's own: from the first file call after a step to the last one before the next, and on
 *              to the end of the last sample, whose decoding no call ends: one median gap between two
 *              samples. If no steps are seen, the rhythm of its reads shows which of them make a batch
 *   threads    a loader thread of the trainer's process ends the trainer's sleep, which is the wait
 *
 * If a pin-memory thread reads the result pipe instead of the trainer, the wait is the sleep that this thread
 * ends, too.
 */

#include "analyzer/loader.h"
#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/timeline.h"

struct downloads;

struct data_wait {
	uint64_t begin_ns, end_ns;
	uint64_t ready_ns; /* workers: when the batch's message was read; else end_ns */
	bool clipped;      /* the wait began before the recording */
};

struct data_waits {
	enum analysis_loader loader;
	bool marked;             /* the loader itself marks its waits: libdiesel, or PyTorch's DataLoader */
	struct data_wait *items; /* sorted, without overlaps */
	size_t n, n_allocated;
	struct interval_list file_calls; /* inline: the trainer's file calls, in waits or not; tidy */
};

/* checkpoints: intervals in which the trainer's file calls are not reads of data; tidy. -ENOMEM. */
int data_waits_find(const struct timeline *timeline, const struct roles *roles,
		    const struct interval_list *checkpoints, struct data_waits *ret_waits);
void data_waits_free(struct data_waits *waits);

/* Removes the waits that overlap a gap of the recording. gaps: tidy. */
void data_waits_leave_gaps(struct data_waits *waits, const struct interval_list *gaps);

/* Makes *list the tidy list of all waits. The caller frees it, also after -ENOMEM. */
int data_waits_intervals(const struct data_waits *waits, struct interval_list *list);

/* Appends a wait, for the finders below; an empty one is left out. -ENOMEM. */
int data_waits_add(struct data_waits *waits, struct data_wait wait);

/* Returns the end of a hand-over. At at_ns the trainer woke another thread of its process, or was woken by
 * one. Then both need the interpreter lock, or the core, so the trainer may be delayed once more. The result
 * is the end of the last interval off the CPU that belongs to the hand-over; at_ns: none does. These belong
 * to it:
 *
 * - sleeps at the interpreter lock,
 * - preemptions within futex(), the call that wakes,
 * - sleeps that helper_tid ends; 0: nobody's
 *
 * as long as the trainer has computed for at most 0.3 ms in total since at_ns, and no other or unknown
 * interval off the CPU came in between. */
uint64_t data_waits_handover_end(const struct roles *roles, uint64_t at_ns, uint32_t helper_tid);

/* Returns the index of the first wait that ends after at_ns; n: none. */
size_t data_waits_from(const struct data_waits *waits, uint64_t at_ns);

/* Finds the times when a batch was handed over, ascending, from the waits of a job that another thread feeds
 * (handovers.h). Leaves out short waits, which are for a lock. ret_times: one entry per wait. Returns their
 * number. */
size_t data_waits_handovers(const struct data_waits *waits, uint64_t *ret_times);
