/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics_totals.h"

#include <math.h>

#define COVERED_MAX_S 3600.0

const char *metrics_stall_name(enum metrics_stall stall)
{
	static const char *const names[] = {"fetch",      "preprocess", "gpu_wait",
					    "checkpoint", "cpu_queue",  "other"};

	_Static_assert(sizeof(names) / sizeof(names[0]) == METRICS_N_STALLS, "a name each");
	return names[stall];
}

const struct metrics_job *metrics_totals_find(const struct metrics_totals *t, uint64_t job)
{
	for (size_t i = 0; i < METRICS_MAX_JOBS; i++)
		if (job && t->jobs[i].job == job)
			return &t->jobs[i];
	return NULL;
}

static struct metrics_job *find_or_begin(struct metrics_totals *t, uint64_t job)
{
	struct metrics_job *place = &t->jobs[0];

	for (size_t i = 0; i < METRICS_MAX_JOBS; i++) {
		if (t->jobs[i].job == job)
			return &t->jobs[i];
		if (t->jobs[i].at_ns < place->at_ns)
			place = &t->jobs[i];
	}
	*place = (struct metrics_job){.job = job, .step_p50_s = NAN, .step_p95_s = NAN};
	return place;
}

/* If the rate or share is known, adds its product with the covered time to the sum, and the covered time
 * to *known_s. */
static bool add_amount(double *sum, double *known_s, double rate, double covered_s, double max_rate)
{
	if (!(rate >= 0 && rate <= max_rate))
		return false;
	*sum += rate * covered_s;
	*known_s += covered_s;
	return true;
}

static void add_stalls(struct metrics_job *j, const struct stall_sample *s)
{
	const double shares[METRICS_N_STALLS] = {
	    [METRICS_STALL_FETCH] = s->shares.fetch_stall,
	    [METRICS_STALL_PREPROCESS] = s->shares.prep_stall,
	    [METRICS_STALL_GPU_WAIT] = s->shares.gpu_wait,
	    [METRICS_STALL_CHECKPOINT] = s->shares.checkpoint_stall,
	    [METRICS_STALL_CPU_QUEUE] = s->shares.cpu_starved,
	    [METRICS_STALL_OTHER] = s->shares.other,
	};

	bool any = false;

	for (size_t i = 0; i < METRICS_N_STALLS; i++)
		any |= add_amount(&j->stall_s[i], &j->known_s[i], shares[i], s->covered_s, 1.0);
	if (any)
		j->trainer_s += s->covered_s;
}

static void add(struct metrics_totals *t, const struct stall_sample *s)
{
	struct metrics_job *j;
	double taken_s = 0;

	if (!s->job || !(s->covered_s >= 0) || s->covered_s > COVERED_MAX_S)
		return;
	j = find_or_begin(t, s->job);
	j->at_ns = s->at_ns;
	j->source = s->source;
	j->step_p50_s = s->step_p50_s;
	j->step_p95_s = s->step_p95_s;
	(void)add_amount(&j->steps, &j->step_s, s->steps_per_s, s->covered_s, 1e9);
	(void)add_amount(&j->samples, &taken_s, s->samples_per_s, s->covered_s, 1e12);
	add_stalls(j, s);
}

void metrics_totals_add(struct metrics_totals *t, const struct stall_node *node,
			const struct stall_sample *samples, size_t n)
{
	if (node) {
		t->node = *node;
		t->has_node = true;
	}
	for (size_t i = 0; i < n; i++)
		add(t, &samples[i]);
}
