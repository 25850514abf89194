/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "split.h"

#define ROUNDS 12 /* of levelling; each hands out everything but what met a step's limit */

struct leveller {
	size_t n;
	double *limit_ns; /* recorded wait of each step */
	double *weight;   /* what the replay saves there */
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

/* One round: hands ns out in proportion to the weights of the steps that are not full. Returns what is left.
 */
static double leveller_round(struct leveller *leveller, double ns)
{
	double sum = 0, given_ns = 0;

	for (size_t k = 0; k < leveller->n; k++)
		if (leveller->given_ns[k] < leveller->limit_ns[k])
			sum += leveller->weight[k];
	for (size_t k = 0; sum > 0 && k < leveller->n; k++) {
		double room_ns = leveller->limit_ns[k] - leveller->given_ns[k];
		double part_ns = fmin(ns * leveller->weight[k] / sum, room_ns);

		leveller->given_ns[k] += part_ns;
		given_ns += part_ns;
	}
	return ns - given_ns;
}

/* Hands ns out in proportion to the weights, but to no step more than its limit. What is left when all steps
 * with a weight are full goes to the others. */
static void leveller_give(struct leveller *leveller, double ns)
{
	for (int i = 0; i < ROUNDS && ns > 1; i++)
		ns = leveller_round(leveller, ns);
	for (size_t k = 0; k < leveller->n; k++)
		leveller->weight[k] = leveller->limit_ns[k] - leveller->given_ns[k];
	if (ns > 1)
		leveller_round(leveller, ns);
}

/* Recorded waits of each step; a wait belongs to the step it begins in. */
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

/* Replays with reading as recorded and with free reading; weight[]: what the latter saves in each step. */
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

int split_by_replay(const struct split_input *input, struct split *split, bool *ret_split)
{
	const struct window *run = input->run;
	struct leveller leveller;
	double observed_ns = (double)run->observed_ns;
	bool replayed;
	int r;

	if (input->service->why_not || !run->observed_ns) {
		*ret_split = false;
		return 0;
	}
	split->recorded_ns = observed_ns;
	r = leveller_init(&leveller, run->n_steps);
	if (r == 0)
		r = replay_believably(input->service, split, leveller.weight);
	replayed = r == 0 && believable(split);
	if (replayed) {
		limits_find(input->waits, run, &leveller);
		leveller_give(&leveller, observed_ns * fmax(0, 1 - split->unfetched_ns / split->replayed_ns));
		waits_fill(input->waits, run, &leveller, split->fetch_ns);
	}
	leveller_free(&leveller);
	if (r < 0 && r != -EINVAL) /* damaged records: nothing to replay */
		return r;
	*ret_split = replayed;
	return 0;
}
