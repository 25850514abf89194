/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/seconds.h"

#include <math.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/sorted.h"
#include "analyzer/base/times.h"

/* If an interval has more steps, its percentiles are those of the first ones. */
#define STEPS_MAX 4096

static uint64_t overlap_ns(const struct lane_segment *segment, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t from_ns = max_ns(segment->begin_ns, begin_ns), to_ns = min_ns(segment->end_ns, end_ns);

	return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* Returns the first segment that ends after a time. */
static size_t segment_after(const struct lane *lane, uint64_t at_ns)
{
	return sorted_count(lane->n_segments, i, lane->segments[i].end_ns <= at_ns);
}

/* Sums up a lane's time by state. */
static void lane_times(const struct lane *lane, uint64_t begin_ns, uint64_t end_ns,
		       uint64_t ret_ns[LANE_STATES])
{
	for (size_t i = 0; i < LANE_STATES; i++)
		ret_ns[i] = 0;
	for (size_t i = segment_after(lane, begin_ns);
	     i < lane->n_segments && lane->segments[i].begin_ns < end_ns; i++)
		ret_ns[lane->segments[i].state] += overlap_ns(&lane->segments[i], begin_ns, end_ns);
}

static void add_trainer(struct analysis_interval *s, const uint64_t ns[LANE_STATES])
{
	for (enum analysis_share i = 0; i < SHARE_COUNT; i++) {
		s->share_ns[i] += ns[lane_state_of_share(i)];
		s->known_ns += ns[lane_state_of_share(i)];
	}
	s->share_ns[SHARE_DEVICE] += ns[LANE_GPU_WAIT];
	s->gpu_wait_ns += ns[LANE_GPU_WAIT];
	s->known_ns += ns[LANE_GPU_WAIT];
	s->queue_ns += ns[LANE_STARVED];
}

/* Returns the number of batches that ended by at_ns: a worker prepares one after the other. */
static size_t batches_until(const struct lane *lane, uint64_t at_ns)
{
	return sorted_count(lane->n_batches, i, lane->batches[i].end_ns <= at_ns);
}

static void add_worker(struct analysis_interval *s, const struct lane *lane, const uint64_t ns[LANE_STATES],
		       uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t seen_ns = 0;

	for (size_t i = 0; i < LANE_STATES; i++)
		seen_ns += ns[i];
	s->worker_cpu_ns += ns[LANE_CPU];
	s->worker_fetch_ns += ns[LANE_FETCH];
	s->n_workers += lane->role == LANE_WORKER && seen_ns > 0;
	s->n_batches += batches_until(lane, end_ns) - batches_until(lane, begin_ns);
}

static void add_lanes(struct analysis_interval *s, const struct analysis *analysis, uint64_t begin_ns,
		      uint64_t end_ns)
{
	const struct lanes *lanes = analysis->lanes;
	uint64_t ns[LANE_STATES];

	for (size_t i = 0; i < lanes->n_items; i++) {
		const struct lane *lane = &lanes->items[i];

		lane_times(lane, begin_ns, end_ns, ns);
		s->queue_ns += ns[LANE_QUEUE];
		switch (lane->role) {
		case LANE_TRAINER:
			if (lane->tid == analysis->job.trainer_tid)
				add_trainer(s, ns);
			break;
		case LANE_WORKER:
		case LANE_HANDOFF: add_worker(s, lane, ns, begin_ns, end_ns); break;
		case LANE_HELPER: break;
		}
	}
}

/* Returns the number of steps that ended by at_ns. */
static size_t steps_until(const struct analysis *analysis, uint64_t at_ns)
{
	return sorted_count(analysis->n_steps, i, analysis->steps[i].end_ns <= at_ns);
}

static void add_steps(struct analysis_interval *s, const struct analysis *analysis, uint64_t begin_ns,
		      uint64_t end_ns)
{
	size_t first = steps_until(analysis, begin_ns), end = steps_until(analysis, end_ns), n = 0;
	uint64_t ns[STEPS_MAX];

	s->n_steps = (double)(end - first);
	for (size_t i = first; i < end && n < STEPS_MAX; i++)
		ns[n++] = analysis->steps[i].end_ns - analysis->steps[i].begin_ns;
	if (n) {
		qsort(ns, n, sizeof(*ns), compare_u64);
		s->step_p50_s = (double)ns[n / 2] / (double)NS_PER_S;
		s->step_p95_s = (double)ns[sorted_p95(n)] / (double)NS_PER_S;
	}
	if (analysis->sampled.is && analysis->window.end_ns > analysis->window.begin_ns)
		s->n_steps = (double)analysis->sampled.n_steps_estimated * (double)(end_ns - begin_ns) /
			     (double)(analysis->window.end_ns - analysis->window.begin_ns);
}

struct analysis_interval analysis_interval(const struct analysis *analysis, uint64_t begin_ns,
					   uint64_t end_ns)
{
	struct analysis_interval s = {.step_p50_s = NAN, .step_p95_s = NAN};

	if (!analysis->lanes || end_ns <= begin_ns)
		return s;
	add_lanes(&s, analysis, begin_ns, end_ns);
	add_steps(&s, analysis, begin_ns, end_ns);
	return s;
}
