/* SPDX-License-Identifier: Apache-2.0 */
#include "batches.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/sorted.h"

#define EMPTY_RATIO  8 /* factor by which an empty batch is faster than the others, at least */
#define EMPTY_MAX_NS (NS_PER_MS / 2)

/* A next(), as its marks show it. */
struct next {
	uint64_t begin_ns, end_ns;
	bool inside; /* the trainer makes the batch itself */
};

static size_t nexts_collect(const struct timeline_thread *trainer, struct next *nexts)
{
	struct next next = {0};
	size_t n = 0;

	for (size_t i = 0; i < trainer->n_marks; i++) {
		const struct timeline_mark *mark = &trainer->marks[i];

		if (mark->kind == MARK_BATCH_BEGIN) {
			next = (struct next){.begin_ns = mark->at_ns,
					     .inside = mark->value == MARK_BATCH_INLINE};
		} else if (mark->kind == MARK_BATCH_END && next.begin_ns) {
			next.end_ns = mark->at_ns;
			nexts[n++] = next;
			next.begin_ns = 0;
		}
	}
	return n;
}

/* Returns true if next() returned no batch. Only a next() that makes the batch itself can show this: with
 * workers, a batch that arrived early is also available at once. */
static bool is_empty(const struct next *next, uint64_t usual_ns)
{
	uint64_t ns = next->end_ns - next->begin_ns;

	return next->inside && ns < EMPTY_MAX_NS && EMPTY_RATIO * ns < usual_ns;
}

static bool a_worker_ends(const struct timeline *timeline, const struct roles *roles, const struct next *next)
{
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (roles->of[i] == ROLE_WORKER && thread->exit_ns >= next->begin_ns &&
		    thread->exit_ns <= next->end_ns)
			return true;
	}
	return false;
}

int batches_times(const struct timeline *timeline, const struct roles *roles, uint64_t *ret_times,
		  size_t *ret_n)
{
	const struct timeline_thread *trainer = roles->trainer;
	struct next *nexts = calloc(trainer->n_marks + 1, sizeof(*nexts));
	uint64_t usual_ns;
	size_t n, n_times = 0;

	if (!nexts)
		return -ENOMEM;
	n = nexts_collect(trainer, nexts);
	for (size_t i = 0; i < n; i++)
		ret_times[i] = nexts[i].end_ns - nexts[i].begin_ns;
	qsort(ret_times, n, sizeof(*ret_times), compare_u64);
	usual_ns = n ? ret_times[n / 2] : 0;
	for (size_t i = 0; i < n; i++)
		if (!is_empty(&nexts[i], usual_ns) && !a_worker_ends(timeline, roles, &nexts[i]))
			ret_times[n_times++] = nexts[i].end_ns;
	free(nexts);
	*ret_n = n_times;
	return 0;
}
