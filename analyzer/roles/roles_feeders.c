/* SPDX-License-Identifier: Apache-2.0 */
#include "roles_feeders.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/timeline/calls.h"
#include "handovers.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"

#define ENDS_MIN     2 /* minimum steps in which a feeder ends a sleep of the trainer; one may be chance */
#define CALLS_MIN    2 /* minimum naps and reads; computing threads have none of them */
#define STAGES_RATIO 8 /* a reader that ends a sleep of the trainer in under 1/8 of steps feeds a thread */
#define STEPS_MIN    3 /* minimum steps in which a pipe is read */
#define READS_MIN    3 /* minimum reads of a pipe: a length and a message, and one more */

static bool in_training(const struct timeline_thread *trainer, uint64_t at_ns)
{
	return !trainer->n_steps || at_ns >= trainer->steps[0];
}

/* Returns true if the trainer's own next() feeds it, so that no other feeder must be found. */
static bool loads_by_itself(const struct timeline_thread *trainer)
{
	size_t n = 0;

	for (size_t i = 0; i < trainer->n_marks; i++)
		n += trainer->marks[i].kind == MARK_NEXT_END || trainer->marks[i].kind == MARK_BATCH_END;
	return n && 2 * n >= trainer->n_steps;
}

static bool has_next(const struct timeline_thread *thread)
{
	for (size_t i = 0; i < thread->n_marks; i++)
		if (thread->marks[i].kind == MARK_NEXT_END || thread->marks[i].kind == MARK_BATCH_END)
			return true;
	return false;
}

/* Returns true if the thread takes naps, waits with a timeout (as for the interpreter lock), or makes calls
 * on pipes or sockets. OpenMP's and autograd's threads do none of this. Threads that read files were examined
 * already (roles.c), and io_uring's threads read files for the trainer itself. */
static bool does_more_than_compute(const struct timeline_thread *thread,
				   const struct timeline_thread *trainer)
{
	size_t n = 0;

	for (size_t i = 0; i < thread->n_calls && n < CALLS_MIN; i++) {
		const struct timeline_call *call = &thread->calls[i];

		n += in_training(trainer, call->begin_ns) &&
		     (call->kind == CALL_NAP || call_is_lock_timed_wait(call) || call_is_pipe_read(call) ||
		      call_is_pipe_poll(call) || call_is_socket(call));
	}
	return n == CALLS_MIN;
}

static bool runs_python(const struct stack_samples *samples, const struct timeline_thread *thread)
{
	for (size_t i = sorted_count(samples->n, k, samples->items[k].thread < thread);
	     i < samples->n && samples->items[i].thread == thread; i++)
		if (samples->items[i].python)
			return true;
	return false;
}

/* Returns the number of steps in which the thread ended a sleep of the trainer; without steps, the number of
 * sleeps. A thread that lives for one step, as for one save, wakes the trainer often, but feeds nothing.
 * Sleeps that signals cannot end are for locks of the kernel, such as that of the process's memory. */
static size_t n_ended_by(const struct timeline *timeline, const struct roles *roles,
			 const struct timeline_thread *thread)
{
	const struct timeline_thread *trainer = roles->trainer;
	size_t n = 0, last = SIZE_MAX;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];
		size_t step;

		if (off->waker_tid != thread->tid || !in_training(trainer, off->waking_ns) ||
		    timeline_off_blocks(off) ||
		    timeline_find(timeline, off->waker_tid, off->waking_ns) != thread ||
		    gil_waits(&roles->gil, trainer, off))
			continue;
		step = sorted_count(trainer->n_steps, k, trainer->steps[k] <= off->waking_ns);
		n += step != last || !trainer->n_steps;
		last = step;
	}
	return n;
}

/* Returns true if the thread that reads the workers' results hands them to the trainer, perhaps through other
 * threads. */
static bool workers_feed(const struct timeline *timeline, const struct roles *roles)
{
	if (!roles->n_workers || !roles->reader)
		return roles->n_workers > 0;
	return roles->reader == roles->trainer ||
	       STAGES_RATIO * n_ended_by(timeline, roles, roles->reader) >= roles->trainer->n_steps;
}

static int threads_find(const struct timeline *timeline, const struct stack_samples *samples,
			const uint8_t *saves, struct roles *roles)
{
	bool tells_steps = roles->trainer->n_steps || roles->step_mark;
	const struct timeline_thread **loaders;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (roles->of[i] != ROLE_HELPER || saves[i] || n_ended_by(timeline, roles, thread) < ENDS_MIN)
			continue;
		if (!has_next(thread) && !(tells_steps ? does_more_than_compute(thread, roles->trainer) ||
							     runs_python(samples, thread)
						       : handovers_go_on(timeline, roles, thread)))
			continue;
		loaders = roles->loaders;
		if (!loaders)
			loaders = calloc(timeline->n_threads + 1, sizeof(*loaders));
		if (!loaders)
			return -ENOMEM;
		roles->loaders = loaders;
		roles->of[i] = ROLE_LOADER;
		loaders[roles->n_loaders++] = thread;
	}
	return 0;
}

/* One of the trainer's reads of a pipe. */
struct pipe_read {
	uint64_t inode;
	size_t call;
};

static int read_compare(const void *a, const void *b)
{
	const struct pipe_read *left = a, *right = b;

	if (left->inode != right->inode)
		return left->inode < right->inode ? -1 : 1;
	return left->call < right->call ? -1 : left->call > right->call;
}

/* Returns true if the pipe is read in several steps, and never to its end, unlike a child's answer. reads:
 * all reads of one pipe. */
static bool feeds_steps(const struct timeline_thread *trainer, const struct pipe_read *reads, size_t n)
{
	size_t n_steps = 0, n_training = 0, last = SIZE_MAX;

	for (size_t i = 0; i < n; i++) {
		const struct timeline_call *call = &trainer->calls[reads[i].call];
		size_t step = sorted_count(trainer->n_steps, k, trainer->steps[k] <= call->begin_ns);

		if (!call->result)
			return false;
		n_steps += step != last;
		last = step;
		n_training += call->result > 0 && in_training(trainer, call->begin_ns);
	}
	return n_training >= READS_MIN && (n_steps >= STEPS_MIN || !trainer->n_steps);
}

/* Sets *ret_inodes to the pipes that feed steps, sorted; NULL: there are none. */
static int pipes_of_steps(const struct timeline_thread *trainer, uint64_t **ret_inodes, size_t *ret_n)
{
	_cleanup_(freep) struct pipe_read *reads = calloc(trainer->n_calls + 1, sizeof(*reads));
	uint64_t *inodes = NULL;
	size_t n = 0, n_inodes = 0;

	if (!reads)
		return -ENOMEM;
	for (size_t i = 0; i < trainer->n_calls; i++)
		if (call_is_pipe_read(&trainer->calls[i]))
			reads[n++] = (struct pipe_read){trainer->calls[i].inode, i};
	qsort(reads, n, sizeof(*reads), read_compare);
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && reads[end].inode == reads[i].inode;)
			end++;
		if (!feeds_steps(trainer, reads + i, end - i))
			continue;
		inodes = inodes ? inodes : calloc(n, sizeof(*inodes));
		if (!inodes)
			return -ENOMEM;
		inodes[n_inodes++] = reads[i].inode;
	}
	*ret_inodes = inodes;
	*ret_n = n_inodes;
	return 0;
}

/* Finds the pipes that the trainer itself reads while it trains, and that other processes of the job
 * write. */
static int pipes_find(const struct timeline *timeline, const uint8_t *saves, struct roles *roles)
{
	const struct timeline_thread *trainer = roles->trainer;
	_cleanup_(freep) uint64_t *inodes = NULL;
	_cleanup_(freep) bool *written = NULL;
	size_t n = 0, n_results = 0;
	int r = pipes_of_steps(trainer, &inodes, &n);

	if (r < 0 || !n)
		return r;
	written = calloc(n, sizeof(*written));
	if (!written)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		for (size_t k = 0; k < thread->n_calls && !saves[i]; k++) {
			const struct timeline_call *call = &thread->calls[k];
			const uint64_t *found =
			    call_is_pipe_write(call)
				? bsearch(&call->inode, inodes, n, sizeof(*inodes), compare_u64)
				: NULL;

			if (found && !timeline_same_process(thread, trainer))
				written[found - inodes] = true;
		}
	}
	for (size_t i = 0; i < n; i++)
		if (written[i])
			inodes[n_results++] = inodes[i];
	if (!n_results)
		return 0;
	free(roles->results);
	roles->results = steal_pointer(inodes);
	roles->n_results = n_results;
	roles->reader = trainer;
	roles->fed = true;
	free(roles->result_loaders);
	roles->result_loaders = calloc(n_results, sizeof(*roles->result_loaders));
	return roles->result_loaders ? 0 : -ENOMEM;
}

int roles_find_feeders(const struct timeline *timeline, const struct stack_samples *samples,
		       const uint8_t *saves, struct roles *roles)
{
	int r;

	if (roles->n_loaders || loads_by_itself(roles->trainer) || workers_feed(timeline, roles))
		return 0;
	r = threads_find(timeline, samples, saves, roles);
	return r == 0 && !roles->n_workers ? pipes_find(timeline, saves, roles) : r;
}
