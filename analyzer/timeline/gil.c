/* SPDX-License-Identifier: Apache-2.0 */
#include "gil.h"

#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "lib/sorted.h"

#define INTERVAL_MIN_NS UINT64_C(4900000) /* minimum timeout; CPython's switch interval is 5 ms */
#define INTERVAL_MAX_NS UINT64_C(8000000) /* maximum timeout that counts: a timer can be late */
#define OTHERS_FACTOR   4
#define WAITS_MIN       8 /* fewer waits are no evidence, and cost little */

/* glibc's condition variable has other words around the two, which a waker waits on for a moment. CPython has
 * its mutex right after it. struct pthread_cond_t is 48 bytes, and the words are at 40 and 44. */
#define BEFORE_BYTES 24
#define AROUND_BYTES 48

/* Use of a pair of futex words by a thread. */
struct use {
	uint64_t process, address; /* address: a multiple of 8 */
	uint32_t tid;
	uint32_t n_waits; /* waits with a timeout on the monotonic clock */
	bool low, high;   /* the thread waited on the first word, on the second word */
	bool wakes;
	uint32_t n_intervals, n_others; /* waits that timed out after 5 ms, and after another time */
};

struct uses {
	struct use *items;
	size_t n;
};

/* Returns how long the thread slept in a call that timed out. */
static uint64_t timeout_ns(const struct timeline_thread *thread, const struct timeline_call *call)
{
	const struct timeline_off *off = timeline_off_before(thread, call->end_ns);

	return off && off->begin_ns >= call->begin_ns ? off->waking_ns - off->begin_ns : 0;
}

static struct use use_of(const struct timeline_thread *thread, const struct timeline_call *call)
{
	struct use use = {
	    .process = thread->process, .address = call->inode & ~UINT64_C(7), .tid = thread->tid};
	uint64_t ns;

	if (call_is_lock_wake(call)) {
		use.wakes = call->result > 0;
		return use;
	}
	use.n_waits = 1;
	use.low = !(call->inode & 7);
	use.high = (call->inode & 7) == 4;
	if (call->result == -ETIMEDOUT) {
		ns = timeout_ns(thread, call);
		use.n_intervals = ns >= INTERVAL_MIN_NS && ns <= INTERVAL_MAX_NS;
		use.n_others = ns && !use.n_intervals; /* 0: it timed out before it slept */
	}
	return use;
}

static void use_merge(struct use *into, const struct use *from)
{
	into->n_waits += from->n_waits;
	into->low |= from->low;
	into->high |= from->high;
	into->wakes |= from->wakes;
	into->n_intervals += from->n_intervals;
	into->n_others += from->n_others;
}

static bool is_use(const struct timeline_call *call)
{
	return call_is_lock_timed_wait(call) || call_is_lock_wake(call);
}

static int use_compare(const void *left, const void *right)
{
	const struct use *a = left, *b = right;

	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

/* Collects one use for each process, pair of words and thread. */
static int uses_collect(const struct timeline *timeline, struct uses *ret_uses)
{
	struct uses uses = {0};
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++)
		for (size_t k = 0; k < timeline->threads[i].n_calls; k++)
			n += is_use(&timeline->threads[i].calls[k]);
	uses.items = calloc(n + 1, sizeof(*uses.items));
	if (!uses.items)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		for (size_t k = 0; k < thread->n_calls; k++)
			if (is_use(&thread->calls[k]))
				uses.items[uses.n++] = use_of(thread, &thread->calls[k]);
	}
	qsort(uses.items, uses.n, sizeof(*uses.items), use_compare);
	n = 0;
	for (size_t i = 0; i < uses.n; i++) {
		if (n && !use_compare(&uses.items[n - 1], &uses.items[i]))
			use_merge(&uses.items[n - 1], &uses.items[i]);
		else
			uses.items[n++] = uses.items[i];
	}
	uses.n = n;
	*ret_uses = uses;
	return 0;
}

/* Returns true if uses [begin, end), which are of one pair of words of a process, are those of a lock. */
static bool is_lock(const struct uses *uses, size_t begin, size_t end)
{
	uint32_t n_waits = 0, n_waiters = 0, n_wakers = 0, n_intervals = 0, n_others = 0;
	bool low = false, high = false;

	for (size_t i = begin; i < end; i++) {
		const struct use *use = &uses->items[i];

		n_intervals += use->n_intervals;
		n_others += use->n_others;
		n_waits += use->n_waits;
		n_waiters += use->n_waits > 0;
		n_wakers += use->wakes && use->n_waits > 0;
		low |= use->low;
		high |= use->high;
	}
	/* Some timeouts may be of other lengths, because a timer is late now and then. */
	if (OTHERS_FACTOR * n_others > n_intervals)
		return false;
	return n_waits >= WAITS_MIN && n_waiters >= 2 && n_wakers >= 2 && low && high;
}

int gil_find(const struct timeline *timeline, struct gil *ret_gil)
{
	struct uses uses;
	struct gil gil = {0};
	int r = uses_collect(timeline, &uses);

	if (r < 0)
		return r;
	gil.locks = calloc(uses.n + 1, sizeof(*gil.locks));
	for (size_t begin = 0, end; gil.locks && begin < uses.n; begin = end) {
		const struct use *first = &uses.items[begin];

		end = begin + 1;
		while (end < uses.n && uses.items[end].process == first->process &&
		       uses.items[end].address == first->address)
			end++;
		if (is_lock(&uses, begin, end))
			gil.locks[gil.n++] =
			    (struct gil_lock){.process = first->process, .address = first->address};
	}
	free(uses.items);
	if (!gil.locks)
		return -ENOMEM;
	*ret_gil = gil;
	return 0;
}

void gil_free(struct gil *gil)
{
	free(gil->locks);
	*gil = (struct gil){0};
}

uint64_t gil_held_ns(const struct timeline *timeline, const struct timeline_thread *waiter, uint64_t begin_ns,
		     uint64_t end_ns)
{
	uint64_t sum_ns = 0;

	for (uint64_t at_ns = begin_ns, limit_ns; at_ns < end_ns; at_ns = limit_ns) {
		bool runs = false;

		limit_ns = end_ns;
		for (size_t i = 0; i < timeline->n_threads; i++) {
			const struct timeline_thread *thread = &timeline->threads[i];
			struct timeline_piece piece;

			if (thread == waiter || !timeline_same_process(thread, waiter) ||
			    thread->last_ns <= at_ns || thread->first_ns >= limit_ns)
				continue;
			piece = timeline_piece_at(thread, at_ns, limit_ns);
			limit_ns = piece.end_ns;
			runs |= piece.state == STATE_CPU;
		}
		sum_ns += runs ? limit_ns - at_ns : 0;
	}
	return sum_ns;
}

bool gil_waits(const struct gil *gil, const struct timeline_thread *thread, const struct timeline_off *off)
{
	const struct timeline_call *call;

	if (!gil->n || !off || !off->state)
		return false;
	call = timeline_call_at(thread, off->begin_ns);
	if (!call || !call_is_lock_wait(call))
		return false;
	for (size_t i = sorted_count(gil->n, k, gil->locks[k].process < thread->process);
	     i < gil->n && gil->locks[i].process == thread->process; i++)
		if (call->inode - gil->locks[i].address + BEFORE_BYTES < AROUND_BYTES)
			return true;
	return false;
}
