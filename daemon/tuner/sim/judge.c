/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/sim.h"

#include <math.h>

#define SETTLED  0.90
#define START_S  10
#define CHANGE_S 15
#define QUIET_S  10

/* Seconds into the phase after which the knobs stay good. */
static double settle_time(const struct sim_scenario *s, const struct sim_outcome *o, uint32_t phase,
			  double best_rate)
{
	uint32_t begin = phase * s->phase_s, t = begin + s->phase_s;

	while (t > begin && o->steady[0][t - 1] >= SETTLED * best_rate)
		t--;
	return t - begin;
}

static uint32_t most_changes(const struct sim_scenario *s, const struct sim_outcome *o, uint32_t phase)
{
	uint32_t from = phase * s->phase_s + (phase ? CHANGE_S : START_S), to = (phase + 1) * s->phase_s,
		 most = 0;

	for (uint32_t t = from; t < to; t++) {
		uint32_t n = 0;

		for (uint32_t k = t; k < t + QUIET_S && k < to; k++)
			n += o->n_changes[0][k];
		most = n > most ? n : most;
	}
	return most;
}

void sim_judge(const struct sim_scenario *s, const struct sim_outcome *o, const struct sim_static *best,
	       struct sim_score *ret)
{
	struct sim_score score = {0};
	double got = 0, could = 0, cost = 0, cheap = 0;

	for (uint32_t p = 0; p < s->n_phases; p++) {
		uint32_t end = (p + 1) * s->phase_s - 1, n;
		double settled = settle_time(s, o, p, best[p].rate);

		score.regret = fmax(score.regret, 1 - o->steady[0][end] / best[p].rate);
		score.cost_ratio = fmax(score.cost_ratio, o->cost[0][end] / best[p].cheap_cost);
		if (p)
			score.settle_change_s = fmax(score.settle_change_s, settled);
		else
			score.settle_start_s = settled;
		n = most_changes(s, o, p);
		score.changes_settled = n > score.changes_settled ? n : score.changes_settled;
		for (uint32_t t = p * s->phase_s; t <= end; t++) {
			got += o->rate[0][t];
			cost += o->cost[0][t];
		}
		could += best[p].rate * s->phase_s;
		cheap += best[p].cheap_cost * s->phase_s;
	}
	score.area = got / could;
	score.mean_cost = cost / cheap;
	*ret = score;
}
