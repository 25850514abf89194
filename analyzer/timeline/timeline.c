/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include "lib/sorted.h"
#include "analyzer/base/times.h"

/* Returns the index of the first interval off the CPU that begins at or after at_ns. */
static size_t off_lower(const struct timeline_thread *thread, uint64_t at_ns)
{
	return sorted_count(thread->n_offs, i, thread->offs[i].begin_ns < at_ns);
}

const struct timeline_off *timeline_off_before(const struct timeline_thread *thread, uint64_t at_ns)
{
	size_t i = off_lower(thread, at_ns);

	return i ? &thread->offs[i - 1] : NULL;
}

const struct timeline_thread *timeline_find(const struct timeline *timeline, uint32_t tid, uint64_t at_ns)
{
	const struct timeline_thread *threads = timeline->threads, *found = NULL;

	for (size_t i = sorted_count(timeline->n_threads, k, threads[k].tid < tid);
	     i < timeline->n_threads && threads[i].tid == tid; i++)
		if (!found || threads[i].born_ns <= at_ns)
			found = &threads[i];
	return found;
}

/* Returns the piece from at_ns on within off, which covers at_ns. */
static struct timeline_piece piece_off(const struct timeline_off *off, uint64_t at_ns, uint64_t limit_ns)
{
	struct timeline_piece piece = {.begin_ns = at_ns, .off = off};

	if (off->state == TIMELINE_UNKNOWN) {
		piece.off = NULL;
		piece.state = STATE_UNKNOWN;
		piece.end_ns = min_ns(off->end_ns, limit_ns);
		return piece;
	}
	if (at_ns < off->waking_ns) {
		piece.state = timeline_off_blocks(off) ? STATE_BLOCK : STATE_SLEEP;
		piece.end_ns = min_ns(off->waking_ns, limit_ns);
	} else {
		piece.state = STATE_QUEUE;
		piece.end_ns = min_ns(off->end_ns, limit_ns);
	}
	return piece;
}

struct timeline_piece timeline_piece_at(const struct timeline_thread *thread, uint64_t at_ns,
					uint64_t limit_ns)
{
	struct timeline_piece piece = {.begin_ns = at_ns, .end_ns = limit_ns, .state = STATE_UNKNOWN};
	size_t next;

	if (at_ns < thread->first_ns) {
		piece.end_ns = min_ns(thread->first_ns, limit_ns);
		return piece;
	}
	if (at_ns >= thread->last_ns)
		return piece;
	next = off_lower(thread, at_ns + 1);
	if (next && thread->offs[next - 1].end_ns > at_ns)
		return piece_off(&thread->offs[next - 1], at_ns, limit_ns);
	piece.state = STATE_CPU;
	piece.end_ns = min_ns(limit_ns, thread->last_ns);
	if (next < thread->n_offs)
		piece.end_ns = min_ns(piece.end_ns, thread->offs[next].begin_ns);
	return piece;
}

/* Returns how long the thread really ran in a piece on the CPU, in ns. exec_ns is read at the end of each
 * interval off the CPU, so two adjacent intervals show how long the thread ran between them. */
static uint64_t exec_of(const struct timeline_thread *thread, struct timeline_piece piece)
{
	size_t next = off_lower(thread, piece.begin_ns + 1);
	uint64_t piece_ns = piece.end_ns - piece.begin_ns, wall_ns, ran_ns;

	if (!next || next >= thread->n_offs)
		return piece_ns;
	wall_ns = thread->offs[next].begin_ns - thread->offs[next - 1].end_ns;
	if (thread->offs[next].exec_ns < thread->offs[next - 1].exec_ns)
		return piece_ns;
	ran_ns = thread->offs[next].exec_ns - thread->offs[next - 1].exec_ns;
	if (!wall_ns || ran_ns >= wall_ns)
		return piece_ns;
	return (uint64_t)((double)piece_ns * ((double)ran_ns / (double)wall_ns));
}

const struct timeline_thread *timeline_waker(const struct timeline *timeline, const struct timeline_off *off)
{
	return off && off->waker_tid ? timeline_find(timeline, off->waker_tid, off->waking_ns) : NULL;
}

struct timeline_account timeline_account(const struct timeline_thread *thread, uint64_t begin_ns,
					 uint64_t end_ns)
{
	struct timeline_account account = {0};

	for (uint64_t at_ns = begin_ns; at_ns < end_ns;) {
		struct timeline_piece piece = timeline_piece_at(thread, at_ns, end_ns);
		uint64_t ns = piece.end_ns - piece.begin_ns;

		switch (piece.state) {
		case STATE_UNKNOWN: account.unknown_ns += ns; break;
		case STATE_CPU:
			account.cpu_ns += ns;
			account.exec_ns += exec_of(thread, piece);
			break;
		case STATE_QUEUE: account.queue_ns += ns; break;
		case STATE_SLEEP: account.sleep_ns += ns; break;
		case STATE_BLOCK: account.block_ns += ns; break;
		}
		at_ns = piece.end_ns;
	}
	return account;
}

uint64_t timeline_cpu_between(const struct timeline_thread *thread, uint64_t begin_ns, uint64_t end_ns)
{
	struct timeline_account account = timeline_account(thread, begin_ns, end_ns);

	return account.cpu_ns + account.unknown_ns;
}

size_t timeline_call_from(const struct timeline_thread *thread, uint64_t at_ns)
{
	/* Calls do not overlap, so their ends are sorted too. */
	return sorted_count(thread->n_calls, i, thread->calls[i].end_ns <= at_ns);
}

uint64_t timeline_call_busy(const struct timeline_call *call, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t from_ns = max_ns(call->begin_ns, begin_ns), to_ns = min_ns(call->end_ns, end_ns);
	uint64_t span_ns = call->end_ns - call->begin_ns;

	if (from_ns >= to_ns)
		return 0;
	if (to_ns - from_ns == span_ns)
		return call->busy_ns;
	return (uint64_t)((double)(to_ns - from_ns) * ((double)call->busy_ns / (double)span_ns));
}

const struct timeline_call *timeline_call_at(const struct timeline_thread *thread, uint64_t at_ns)
{
	size_t i = timeline_call_from(thread, at_ns ? at_ns - 1 : 0);

	if (i == thread->n_calls || thread->calls[i].begin_ns > at_ns)
		return NULL;
	/* If two calls touch at at_ns, the later one counts. */
	if (i + 1 < thread->n_calls && thread->calls[i + 1].begin_ns <= at_ns)
		i++;
	return max_ns(thread->calls[i].end_ns, at_ns) == thread->calls[i].end_ns ? &thread->calls[i] : NULL;
}

bool timeline_off_is_fault(const struct timeline_thread *thread, const struct timeline_off *off)
{
	const struct timeline_call *call = timeline_call_at(thread, off->begin_ns);

	return (off->flags & EVENT_FLAG_MAJOR_FAULT) && !(call && call->kind == CALL_FAULT);
}

uint64_t timeline_after_cpu(const struct timeline_thread *thread, uint64_t at_ns, uint64_t cpu_ns,
			    uint64_t limit_ns)
{
	while (at_ns < limit_ns) {
		struct timeline_piece piece = timeline_piece_at(thread, at_ns, limit_ns);
		uint64_t ns = piece.end_ns - at_ns;

		if (piece.state == STATE_CPU || piece.state == STATE_UNKNOWN) {
			if (ns >= cpu_ns)
				return at_ns + cpu_ns;
			cpu_ns -= ns;
		}
		at_ns = piece.end_ns;
	}
	return at_ns;
}
