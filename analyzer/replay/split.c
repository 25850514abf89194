/* SPDX-License-Identifier: Apache-2.0 */
#include "split.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"

#define ROUNDS 12 /* rounds of levelling; each distributes all but the excess over the steps' limits */

struct leveller {
	size_t n;
	double *limit_ns; /* recorded wait of each step */
	double *weight;   /* time that the replay saves in each step */
	double *given_ns;
};

static int leveller_init(struct leveller *leveller, size_t n)
{
	*leveller = (struct leveller){.n = n,
				      .limit_ns = calloc(n + 1, sizeof(double)),
				      .weight = calloc(n + 1, sizeof(double)),
				      .given_ns = calloc(n + 1, sizeof(double))};
	return leveller->limit_ns && leveller->weight && leveller->given_ns ? 0 : -ENOMEM;
}

static void leveller_free(struct leveller *leveller)
{
	free(leveller->limit_ns);
	free(leveller->weight);
	free(leveller->given_ns);
}

/* Runs one round: distributes ns in proportion to the weights of the steps that are not full. Returns the
 * rest. */
static double leveller_round(struct leveller *leveller, double ns)
{
	double sum = 0, given_ns = 0;

	for (size_t k = 0; k < leveller->n; k++)
		if (leveller->given_ns[k] < leveller->limit_ns[k])
			sum += leveller->weight[k];
	for (size_t k = 0; sum > 0 && k < leveller->n; k++) {
		double space_ns = leveller->limit_ns[k] - leveller->given_ns[k];
		double part_ns = fmin(ns * leveller->weight[k] / sum, space_ns);

		leveller->given_ns[k] += part_ns;
		given_ns += part_ns;
	}
	return ns - given_ns;
}

/* Distributes ns in proportion to the weights, but gives no step more than its limit. The rest, when all
 * steps with a weight are full, goes to the others. */
static void leveller_give(struct leveller *leveller, double ns)
{
	for (int i = 0; i < ROUNDS && ns > 1; i++)
		ns = leveller_round(leveller, ns);
	for (size_t k = 0; k < leveller->n; k++)
		leveller->weight[k] = leveller->limit_ns[k] - leveller->given_ns[k];
	if (ns > 1)
		leveller_round(leveller, ns);
}

/* Finds the recorded waits of each step. A wait belongs to the step in which it begins. */
static void limits_find(const struct data_waits *waits, const struct window *window,
			struct leveller *leveller)
{
	size_t i = data_waits_from(waits, window->begin_ns);

	for (size_t k = 0; k < leveller->n; k++)
		for (; i < waits->n && waits->items[i].begin_ns < window->steps[k].end_ns; i++)
			if (waits->items[i].begin_ns >= window->steps[k].begin_ns)
				leveller->limit_ns[k] +=
				    (double)(waits->items[i].end_ns - waits->items[i].begin_ns);
}

static void waits_fill(const struct data_waits *waits, const struct window *window,
		       const struct leveller *leveller, uint64_t *fetch_ns)
{
	size_t i = data_waits_from(waits, window->begin_ns);

	for (size_t k = 0; k < leveller->n; k++) {
		double ratio =
		    leveller->limit_ns[k] > 0 ? fmin(1, leveller->given_ns[k] / leveller->limit_ns[k]) : 0;

		for (; i < waits->n && waits->items[i].begin_ns < window->steps[k].end_ns; i++) {
			uint64_t whole_ns = waits->items[i].end_ns - waits->items[i].begin_ns;

			fetch_ns[i] = (uint64_t)(ratio * (double)whole_ns);
		}
	}
}

/* Replays with reading as recorded and with free reading. weight[]: time saved by free reading in each
 * step. */
static int replay_both(const struct model_job *job, struct split *split, double *weight)
{
	struct model_scenario scenario = model_scenario_recorded();
	struct model_outcome recorded, unfetched;
	double *wait_ns = calloc(job->n_steps + 1, sizeof(*wait_ns));
	int r = wait_ns ? 0 : -ENOMEM;

	if (r == 0)
		r = model_replay(job, &scenario, NULL, weight, &recorded);
	scenario.fetch_free = true;
	if (r == 0)
		r = model_replay(job, &scenario, NULL, wait_ns, &unfetched);
	for (size_t k = 0; r == 0 && k < job->n_steps; k++)
		weight[k] = fmax(0, weight[k] - wait_ns[k]);
	if (r == 0) {
		split->replayed_ns = recorded.wall_ns;
		split->unfetched_ns = unfetched.wall_ns;
	}
	free(wait_ns);
	return r;
}

static bool believable(const struct split *split)
{
	return fabs(split->replayed_ns / split->recorded_ns - 1) <= SPLIT_TOLERANCE;
}

/* Replays with waits as recorded; if that does not reproduce the recording, with a server that causes the
 * waits. */
static int replay_believably(const struct service *service, struct split *split, double *weight)
{
	struct model_segment *segments = NULL;
	struct model_job job = service->job;
	struct split served = *split;
	int r = replay_both(&job, split, weight);

	if (r == 0 && !believable(split))
		r = service_serve(service, &job, &segments);
	if (r == 0 && segments) {
		r = replay_both(&job, &served, weight);
		if (r == 0)
			*split = served;
	}
	free(segments);
	return r;
}

/* *ret_split: the replay is accurate enough to be used; otherwise fetch_ns is unchanged. -ENOMEM. */
static int split_by_replay(const struct study *study, struct split *split, bool *ret_split)
{
	const struct window *run = study->run;
	struct leveller leveller;
	double observed_ns = (double)run->observed_ns;
	bool replayed;
	int r;

	if (study->service->why_not || !run->observed_ns) {
		*ret_split = false;
		return 0;
	}
	split->recorded_ns = observed_ns;
	r = leveller_init(&leveller, run->n_steps);
	if (r == 0)
		r = replay_believably(study->service, split, leveller.weight);
	replayed = r == 0 && believable(split);
	if (replayed) {
		limits_find(study->waits, run, &leveller);
		leveller_give(&leveller, observed_ns * fmax(0, 1 - split->unfetched_ns / split->replayed_ns));
		waits_fill(study->waits, run, &leveller, split->fetch_ns);
	}
	leveller_free(&leveller);
	if (r < 0 && r != -EINVAL) /* damaged records: nothing to replay */
		return r;
	*ret_split = replayed;
	return 0;
}

/* Lists the intervals in which the trainer slept in libdiesel, waiting for chunks. */
static int mark_intervals(const struct timeline_thread *trainer, struct interval_list *ret_list)
{
	struct interval_list list = {0};
	uint64_t begin_ns = 0;

	for (size_t i = 0; i < trainer->n_marks; i++) {
		const struct timeline_mark *mark = &trainer->marks[i];

		if (mark->kind == MARK_WAIT_BEGIN) {
			begin_ns = mark->at_ns;
		} else if (mark->kind == MARK_WAIT_END && begin_ns) {
			if (mark_cause_fetches(mark->value) &&
			    interval_list_add(&list, begin_ns, mark->at_ns) < 0) {
				interval_list_free(&list);
				return -ENOMEM;
			}
			begin_ns = 0;
		}
	}
	interval_list_tidy(&list);
	*ret_list = list;
	return 0;
}

static void split_by_cover(const struct data_waits *waits, const struct interval_list *fetch,
			   struct split *split)
{
	for (size_t i = 0; i < waits->n; i++)
		split->fetch_ns[i] =
		    interval_list_cover(fetch, waits->items[i].begin_ns, waits->items[i].end_ns);
}

/* Splits the window's waits outside of the run in the run's proportion. */
static void split_extend(const struct study *study, struct split *split)
{
	const struct data_waits *waits = study->waits;
	const struct window *window = study->window, *run = study->run;
	double wait_ns = 0, fetch_ns = 0, ratio;

	for (size_t i = data_waits_from(waits, run->begin_ns);
	     i < waits->n && waits->items[i].begin_ns < run->end_ns; i++) {
		wait_ns += (double)(waits->items[i].end_ns - waits->items[i].begin_ns);
		fetch_ns += (double)split->fetch_ns[i];
	}
	ratio = wait_ns > 0 ? fetch_ns / wait_ns : 0;
	for (size_t i = data_waits_from(waits, window->begin_ns);
	     i < waits->n && waits->items[i].begin_ns < window->end_ns; i++) {
		const struct data_wait *wait = &waits->items[i];

		if (wait->begin_ns < run->begin_ns || wait->begin_ns >= run->end_ns)
			split->fetch_ns[i] = (uint64_t)(ratio * (double)(wait->end_ns - wait->begin_ns));
	}
}

static void split_by_walk(const struct study *study, struct split *split)
{
	const struct data_waits *waits = study->waits;

	for (size_t i = data_waits_from(waits, study->window->begin_ns);
	     i < waits->n && waits->items[i].begin_ns < study->window->end_ns; i++)
		split->fetch_ns[i] = walk_wait(study->timeline, study->roles, waits->items[i].begin_ns,
					       waits->items[i].end_ns, &split->tally);
}

static int split_of_workers(const struct study *study, struct split *split)
{
	bool replayed;
	int r = split_by_replay(study, split, &replayed);

	if (r < 0)
		return r;
	split->method = replayed ? METHOD_REPLAY : METHOD_WALK;
	if (replayed)
		split_extend(study, split);
	return 0;
}

static int split_by_marks(const struct study *study, struct split *split)
{
	_cleanup_(interval_list_free) struct interval_list marks = {0};
	int r = mark_intervals(study->roles->trainer, &marks);

	if (r < 0)
		return r;
	split->method = METHOD_MARKS;
	split_by_cover(study->waits, &marks, split);
	return 0;
}

int split_waits(const struct study *study, struct split *split)
{
	split_by_walk(study, split);
	switch (study->waits->loader) {
	case LOADER_NONE: break;
	case LOADER_THREADS: split->method = METHOD_WALK; break;
	case LOADER_WORKERS: return split_of_workers(study, split);
	case LOADER_INLINE:
		split->method = METHOD_WALK;
		split_by_cover(study->waits, &study->waits->file_calls, split);
		break;
	case LOADER_DIESEL: return split_by_marks(study, split);
	}
	return 0;
}
