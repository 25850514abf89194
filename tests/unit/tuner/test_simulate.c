/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's scenarios guard against regressions of the tuner's results. The figures are exact, since
 * all of them follow from the seeds. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>

#include "sim/sim.h"

#define N 200

static struct sim_score scores[N];
static bool limit_broken[N];

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double quantile(double *x, size_t n, double q)
{
	qsort(x, n, sizeof(*x), by_value);
	return x[(size_t)(q * (double)(n - 1))];
}

static int run_all(void **unused)
{
	struct sim_outcome *outcome = malloc(sizeof(*outcome));

	for (uint64_t seed = 1; outcome && seed <= N; seed++) {
		struct sim_scenario s = sim_scenario_random(seed, 1);
		struct sim_static best[SIM_MAX_PHASES];

		for (uint32_t p = 0; p < s.n_phases; p++)
			best[p] = sim_best_static(&s, &s.jobs[0].phases[p], s.cores, s.memory_bytes);
		if (sim_run(&s, SIM_TUNER, false, outcome) < 0)
			break;
		sim_judge(&s, outcome, best, &scores[seed - 1]);
		limit_broken[seed - 1] = outcome->limit_broken;
	}
	free(outcome);
	return outcome ? 0 : -1;
}

/* Returns a quantile of one figure over all scenarios. offset: of the figure in struct sim_score. */
static double quantile_of(size_t offset, double q)
{
	double x[N];

	for (size_t i = 0; i < N; i++)
		x[i] = *(const double *)((const char *)&scores[i] + offset);
	return quantile(x, N, q);
}

#define QUANTILE(field, q) quantile_of(offsetof(struct sim_score, field), q)

TEST(simulated_jobs_have_little_regret)
{
	assert_true(QUANTILE(regret, 0.99) <= 0.10);
	assert_true(QUANTILE(regret, 0.90) <= 0.05);
}

TEST(simulated_jobs_use_few_resources)
{
	assert_true(QUANTILE(cost_ratio, 0.50) <= 1.10);
	assert_true(QUANTILE(cost_ratio, 0.90) <= 1.25);
}

TEST(simulated_jobs_settle_soon)
{
	assert_true(QUANTILE(settle_start_s, 0.90) <= 10);
	assert_true(QUANTILE(settle_change_s, 0.90) <= 15);
}

TEST(settled_jobs_change_seldom)
{
	double x[N];

	for (size_t i = 0; i < N; i++)
		x[i] = scores[i].changes_settled;
	assert_true(quantile(x, N, 0.90) <= 1);
}

TEST(limits_of_simulated_jobs_hold)
{
	for (size_t i = 0; i < N; i++)
		assert_false(limit_broken[i]);
}

/* Decoded copies are used where they are worth it, with noisy sensors, and kept. */
TEST(decoded_decoded_are_taken_where_worth_it)
{
	struct sim_outcome *outcome = malloc(sizeof(*outcome));
	double regret[N];

	assert_non_null(outcome);
	for (uint64_t seed = 1; seed <= N; seed++) {
		struct sim_scenario s = sim_scenario_decoding(seed);
		struct sim_static best = sim_best_static(&s, &s.jobs[0].phases[0], s.cores, s.memory_bytes);
		struct sim_score score;

		assert_int_equal(sim_run(&s, SIM_TUNER, false, outcome), 0);
		sim_judge(&s, outcome, &best, &score);
		assert_false(outcome->limit_broken);
		regret[seed - 1] = score.regret;
	}
	free(outcome);
	assert_true(quantile(regret, N, 0.90) <= 0.05);
	assert_true(quantile(regret, N, 0.99) <= 0.10);
}

int main(void)
{
	return run_unit_tests(run_all, NULL);
}
