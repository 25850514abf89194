/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_tally.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "lib/clock.h"
#include "lib/sorted.h"

_Static_assert((int)MARK_NEXT_BEGIN == DIESEL_MARK_NEXT_BEGIN && (int)MARK_NEXT_END == DIESEL_MARK_NEXT_END &&
		   (int)MARK_WAIT_BEGIN == DIESEL_MARK_WAIT_BEGIN &&
		   (int)MARK_WAIT_END == DIESEL_MARK_WAIT_END &&
		   (int)MARK_CAUSE_FETCH == DIESEL_MARK_CAUSE_FETCH &&
		   (int)MARK_CAUSE_PREP == DIESEL_MARK_CAUSE_PREP &&
		   (int)MARK_CAUSE_PEERS == DIESEL_MARK_CAUSE_PEERS &&
		   (int)MARK_CAUSE_STAGING == DIESEL_MARK_CAUSE_STAGING,
	       "libdiesel and the recorder must use the same values");

static struct tally_trainer *trainer_of(struct wait_tally *tally, uint32_t tid)
{
	for (uint32_t i = 0; i < tally->n; i++)
		if (tally->trainers[i].tid == tid)
			return &tally->trainers[i];
	if (tally->n == TALLY_TRAINERS)
		return NULL;
	tally->trainers[tally->n] = (struct tally_trainer){.tid = tid};
	return &tally->trainers[tally->n++];
}

static struct tally_trainer *trainer_find(struct wait_tally *tally, uint32_t tid)
{
	for (uint32_t i = 0; i < tally->n; i++)
		if (tally->trainers[i].tid == tid)
			return &tally->trainers[i];
	return NULL;
}

static void trainer_end(struct wait_tally *tally, uint32_t tid)
{
	struct tally_trainer *t = trainer_find(tally, tid);

	if (!t)
		return;
	tally->n--;
	memmove(t, t + 1, (size_t)(&tally->trainers[tally->n] - t) * sizeof(*t));
}

static uint64_t since(uint64_t begin_ns, uint64_t end_ns)
{
	return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

static void step(struct wait_tally *tally, struct tally_trainer *t, uint64_t at_ns)
{
	t->n_steps++;
	if (t->last_ns)
		tally->durations_ns[tally->n_durations++ % TALLY_DURATIONS] = since(t->last_ns, at_ns);
	t->last_ns = at_ns;
}

static void mark(struct wait_tally *tally, const struct event *event)
{
	struct tally_trainer *t = trainer_of(tally, event->tid);
	uint64_t at_ns = event->end_ns;

	if (!t)
		return;
	switch (event->mark.kind) {
	case MARK_NEXT_BEGIN:
		if (!t->marks_next) /* earlier sleeps were not inside next() */
			t->wait_ns = 0;
		t->marks_next = true;
		t->begin_ns = at_ns;
		break;
	case MARK_NEXT_END:
		if (!t->begin_ns)
			break;
		t->wait_ns += since(t->begin_ns, at_ns);
		t->begin_ns = 0;
		if (!tally->has_steps)
			step(tally, t, at_ns);
		break;
	case MARK_WAIT_BEGIN: t->sleep_ns = at_ns; break;
	case MARK_WAIT_END:
		if (!t->sleep_ns)
			break;
		if (!t->marks_next)
			t->wait_ns += since(t->sleep_ns, at_ns);
		t->sleep_ns = 0;
		break;
	}
}

void tally_event(struct wait_tally *tally, const struct event *event)
{
	struct tally_trainer *t;

	switch ((enum event_type)event->type) {
	case EVENT_MARK: mark(tally, event); break;
	case EVENT_STEP:
		/* Counts only steps of threads that use the loader: others have no waits to compare with. */
		t = trainer_find(tally, event->tid);
		if (!t)
			break;
		if (!tally->has_steps) {
			tally->has_steps = true;
			tally->n_durations = 0;
			for (uint32_t i = 0; i < tally->n; i++)
				tally->trainers[i].last_ns = 0;
		}
		step(tally, t, event->end_ns);
		break;
	case EVENT_EXIT: trainer_end(tally, event->tid); break;
	default: break;
	}
}

struct tally_sums tally_sums(const struct wait_tally *tally, uint64_t now_ns)
{
	struct tally_sums sums = {.n_trainers = tally->n};

	for (uint32_t i = 0; i < tally->n; i++) {
		const struct tally_trainer *t = &tally->trainers[i];

		sums.wait_ns += t->wait_ns + (t->begin_ns ? since(t->begin_ns, now_ns) : 0);
		sums.n_steps += t->n_steps;
		if (!t->marks_next && t->sleep_ns)
			sums.wait_ns += since(t->sleep_ns, now_ns);
	}
	if (tally->n)
		sums.wait_ns /= tally->n;
	return sums;
}

double tally_step_s(const struct wait_tally *tally, double quantile)
{
	uint64_t sorted[TALLY_DURATIONS];
	size_t n = tally->n_durations < TALLY_DURATIONS ? (size_t)tally->n_durations : TALLY_DURATIONS;

	if (!n)
		return NAN;
	memcpy(sorted, tally->durations_ns, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_u64);
	return (double)sorted[(size_t)(quantile * (double)(n - 1) + 0.5)] / (double)NS_PER_S;
}
