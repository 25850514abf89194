/* SPDX-License-Identifier: Apache-2.0 */
#include "roles.h"

#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "handovers.h"

#define STEPS_MIN 2 /* in which a loader thread reads, and sleeps of the trainer that it ends */

static bool reads_data(const struct timeline_thread *thread, size_t call)
{
	return call_read_bytes(&thread->calls[call]) > 0;
}

/* A thread that writes more than it reads is no loader: it saves, and looks at what is there already. */
static bool writes_more(const struct timeline_thread *thread)
{
	uint64_t read_bytes = 0, written_bytes = 0;

	for (size_t i = 0; i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];

		if (call_is_file_write(call) && call->result > 0)
			written_bytes += (uint64_t)call->result;
		else
			read_bytes += call_read_bytes(call);
	}
	return written_bytes > read_bytes;
}

/* In how many steps does the thread read files? What comes before the first one is start-up. */
static size_t n_reading_steps(const struct timeline_thread *thread, const struct timeline_thread *trainer)
{
	size_t n = 0, call = 0, off = 0;

	for (size_t step = 1; step < trainer->n_steps; step++) {
		uint64_t begin_ns = trainer->steps[step - 1], end_ns = trainer->steps[step];
		bool reads = false;

		for (; call < thread->n_calls && thread->calls[call].begin_ns < end_ns; call++)
			reads |= thread->calls[call].begin_ns >= begin_ns && reads_data(thread, call);
		for (; off < thread->n_offs && thread->offs[off].begin_ns < end_ns; off++)
			reads |= thread->offs[off].begin_ns >= begin_ns &&
				 (thread->offs[off].flags & EVENT_FLAG_MAJOR_FAULT);
		n += reads;
	}
	return n;
}

static bool is_loader(const struct timeline *timeline, const struct roles *roles, uint32_t tid,
		      uint64_t at_ns)
{
	return role_of(timeline, roles, timeline_find(timeline, tid, at_ns)) == ROLE_LOADER;
}

/* Sleeps of the thread that tasks ended, other than waits for the interpreter lock; and those of them that
 * loader threads ended. */
static size_t n_sleeps(const struct timeline *timeline, const struct roles *roles,
		       const struct timeline_thread *thread, size_t *ret_n_by_loaders)
{
	size_t n = 0, n_by_loaders = 0;

	for (size_t i = 0; i < thread->n_offs; i++) {
		const struct timeline_off *off = &thread->offs[i];

		if (!off->waker_tid || gil_waits(&roles->gil, thread, off))
			continue;
		n++;
		n_by_loaders += is_loader(timeline, roles, off->waker_tid, off->waking_ns);
	}
	*ret_n_by_loaders = n_by_loaders;
	return n;
}

/* Threads that are mostly woken by loader threads are the next stage of the same pipeline. Returns true if it
 * found one. */
static bool stage_add(const struct timeline *timeline, struct roles *roles)
{
	bool found = false;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		size_t n, n_by_loaders;

		if (roles->of[i] != ROLE_HELPER)
			continue;
		n = n_sleeps(timeline, roles, &timeline->threads[i], &n_by_loaders);
		if (n_by_loaders >= STEPS_MIN && 2 * n_by_loaders > n) {
			roles->of[i] = ROLE_LOADER;
			found = true;
		}
	}
	return found;
}

/* Sleeps of the trainer that loader threads ended; only those within next(), if that makes the batch itself.
 */
static size_t n_ended_by_loaders(const struct timeline *timeline, const struct roles *roles)
{
	const struct timeline_thread *trainer = roles->trainer;
	bool anywhere = !roles->n_own_batches, within = false;
	size_t n = 0, mark = 0;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		for (; mark < trainer->n_marks && trainer->marks[mark].at_ns <= off->begin_ns; mark++) {
			within |= trainer->marks[mark].kind == MARK_BATCH_BEGIN;
			within &= trainer->marks[mark].kind != MARK_BATCH_END;
		}
		n += (anywhere || within) && off->waker_tid && !gil_waits(&roles->gil, trainer, off) &&
		     is_loader(timeline, roles, off->waker_tid, off->waking_ns);
	}
	return 2 * n < roles->n_own_batches ? 0 : n;
}

static bool loads(const struct timeline *timeline, const struct roles *roles,
		  const struct timeline_thread *thread)
{
	if (!roles->trainer->n_steps && !roles->step_mark)
		return handovers_go_on(timeline, roles, thread);
	return n_reading_steps(thread, roles->trainer) >= STEPS_MIN;
}

int roles_find_loaders(const struct timeline *timeline, struct roles *roles)
{
	size_t n_ended, n = 0, n_own;

	for (size_t i = 0; i < timeline->n_threads; i++)
		if (roles->of[i] == ROLE_HELPER && !writes_more(&timeline->threads[i]) &&
		    loads(timeline, roles, &timeline->threads[i])) {
			roles->of[i] = ROLE_LOADER;
			n++;
		}
	if (!n)
		return 0;
	while (stage_add(timeline, roles))
		;
	roles->loaders = calloc(timeline->n_threads + 1, sizeof(*roles->loaders));
	if (!roles->loaders)
		return -ENOMEM;
	n_ended = n_ended_by_loaders(timeline, roles);
	n_own = n_reading_steps(roles->trainer, roles->trainer);
	for (size_t i = 0; i < timeline->n_threads; i++) {
		if (roles->of[i] != ROLE_LOADER)
			continue;
		/* If the trainer reads by itself, they read for somebody else: a monitor or an index. */
		if (!n_ended || 4 * n_ended < n_own)
			roles->of[i] = ROLE_HELPER;
		else
			roles->loaders[roles->n_loaders++] = &timeline->threads[i];
	}
	return 0;
}
