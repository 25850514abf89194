/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_tuner_sim [N]: runs N random scenarios (1000) of one job under each policy, N / 5 of two and of three
 * jobs, and N / 5 of one job that decodes images. Prints one JSON object.
 *
 * bench_tuner_sim --trace SEED [JOBS]: runs one scenario. Prints decisions on stderr, seconds as CSV on
 * stdout.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

static const char *const policies[] = {
    [SIM_TUNER] = "tuner", [SIM_CLIMBER] = "climber", [SIM_DEFAULT] = "default"};
enum { N_POLICIES = 3 };

static void print_score(const char *name, const struct sim_score *s)
{
	printf("\"%s\": {\"regret\": %.4f, \"cost_ratio\": %.4f, \"settle_start_s\": %.0f, "
	       "\"settle_change_s\": %.0f, "
	       "\"changes_settled\": %u, \"area\": %.4f, \"mean_cost\": %.4f}",
	       name, s->regret, s->cost_ratio, s->settle_start_s, s->settle_change_s, s->changes_settled,
	       s->area, s->mean_cost);
}

static int run_one(uint64_t seed)
{
	static struct sim_outcome outcome;
	struct sim_scenario s = sim_scenario_random(seed, 1);
	struct sim_static best[SIM_MAX_PHASES];

	for (uint32_t p = 0; p < s.n_phases; p++)
		best[p] = sim_best_static(&s, &s.jobs[0].phases[p], s.cores, s.memory_bytes);
	printf("  {\"seed\": %llu, \"phases\": %u, \"bursts\": %s, ", (unsigned long long)seed, s.n_phases,
	       s.burst_period_s > 0 ? "true" : "false");
	for (int policy = 0; policy < N_POLICIES; policy++) {
		struct sim_score score;

		if (sim_run(&s, (enum sim_policy)policy, false, &outcome) < 0) {
			fprintf(stderr, "bench_tuner_sim: no memory\n");
			return 1;
		}
		sim_judge(&s, &outcome, best, &score);
		print_score(policies[policy], &score);
		printf("%s", policy + 1 < N_POLICIES ? ", " : "");
		if (policy == SIM_TUNER)
			printf("\"undone\": %u, \"verified\": %u, \"limit_broken\": %s, ", outcome.n_undone,
			       outcome.n_verified, outcome.limit_broken ? "true" : "false");
	}
	printf("}");
	return 0;
}

/* Several jobs, compared with the best static settings of an equal split of cores and memory. */
struct multi_score {
	double total; /* mean over the jobs of rate / its rate in the split */
	double least; /* the smallest of these ratios */
};

static void judge_multi(const struct sim_scenario *s, const struct sim_outcome *o, struct multi_score *ret)
{
	struct sim_scenario part = *s;
	struct multi_score m = {.least = INFINITY};
	uint32_t last = o->n_s - 1, phase = s->n_phases - 1;

	part.cores = fmax(floor(s->cores / s->n_jobs), 1);
	for (uint32_t i = 0; i < s->n_jobs; i++) {
		const struct sim_truth *t = &s->jobs[i].phases[phase];
		struct sim_static split =
		    sim_best_static(&part, t, s->cores / s->n_jobs, s->memory_bytes / s->n_jobs);
		double ratio = o->steady[i][last] / split.rate;

		m.total += ratio / s->n_jobs;
		m.least = fmin(m.least, ratio);
	}
	*ret = m;
}

static int run_multi(uint64_t seed, uint32_t n_jobs)
{
	static struct sim_outcome outcome;
	struct sim_scenario s = sim_scenario_random(seed, n_jobs);
	struct multi_score score;

	s.n_phases = 1;
	if (sim_run(&s, SIM_TUNER, false, &outcome) < 0) {
		fprintf(stderr, "bench_tuner_sim: no memory\n");
		return 1;
	}
	judge_multi(&s, &outcome, &score);
	printf("  {\"seed\": %llu, \"jobs\": %u, \"total\": %.4f, \"least\": %.4f, \"limit_broken\": %s}",
	       (unsigned long long)seed, n_jobs, score.total, score.least,
	       outcome.limit_broken ? "true" : "false");
	return 0;
}

/* gain, best_gain: the rate with the last knobs and with the best ones, over the best without decoded copies.
 */
static int run_decoding(uint64_t seed)
{
	static struct sim_outcome outcome;
	struct sim_scenario s = sim_scenario_decoding(seed);
	const struct sim_truth *t = &s.jobs[0].phases[0];
	struct sim_static best = sim_best_static(&s, t, s.cores, s.memory_bytes);
	struct sim_truth bare = *t;
	struct sim_score score;
	double without;

	bare.decoded_bytes = 0;
	without = sim_best_static(&s, &bare, s.cores, s.memory_bytes).rate;
	if (sim_run(&s, SIM_TUNER, false, &outcome) < 0) {
		fprintf(stderr, "bench_tuner_sim: no memory\n");
		return 1;
	}
	sim_judge(&s, &outcome, &best, &score);
	printf("  {\"seed\": %llu, \"regret\": %.4f, \"area\": %.4f, \"gain\": %.4f, \"best_gain\": %.4f, "
	       "\"undone\": %u, \"verified\": %u, \"limit_broken\": %s}",
	       (unsigned long long)seed, score.regret, score.area,
	       outcome.steady[0][outcome.n_s - 1] / without, best.rate / without, outcome.n_undone,
	       outcome.n_verified, outcome.limit_broken ? "true" : "false");
	return 0;
}

static int trace(uint64_t seed, uint32_t n_jobs)
{
	static struct sim_outcome outcome[N_POLICIES];
	struct sim_scenario s = sim_scenario_random(seed, n_jobs);

	for (uint32_t p = 0; p < s.n_phases * n_jobs; p++) {
		const struct sim_truth *t = &s.jobs[p / s.n_phases].phases[p % s.n_phases];
		struct sim_static best = sim_best_static(&s, t, s.cores, s.memory_bytes);

		fprintf(stderr,
			"phase %u: best %.0f/s; cheapest within 2 %%: cache %llu prefetch %llu daemon %llu "
			"client %llu; "
			"G %.0f/s storage %.0f/s latency %.1f ms window %.0f daemon %.2f client %.2f cores "
			"of %.0f, data "
			"%.0f MB, need %.0f MB, memory %.0f MB, hand-off %.1f us, step %.1f us\n",
			p, best.rate, (unsigned long long)best.cheap.value[0],
			(unsigned long long)best.cheap.value[1], (unsigned long long)best.cheap.value[2],
			(unsigned long long)best.cheap.value[3], t->device_rate,
			t->storage_bytes_per_s / t->sample_bytes, 1e3 * t->latency_s, t->window,
			t->daemon_cpu_s * t->device_rate, t->client_cpu_s * t->device_rate, s.cores,
			t->dataset_bytes / 1e6, sim_need_bytes(t) / 1e6, s.memory_bytes / 1e6,
			1e6 * t->handoff_s, 1e6 / t->device_rate);
	}
	for (int policy = 0; policy < N_POLICIES; policy++)
		if (sim_run(&s, (enum sim_policy)policy, policy == SIM_TUNER, &outcome[policy]) < 0)
			return 1;
	printf("second");
	for (int policy = 0; policy < N_POLICIES; policy++)
		printf(",%s_rate,%s_cost,%s_changes", policies[policy], policies[policy], policies[policy]);
	printf("\n");
	for (uint32_t t = 0; t < outcome[0].n_s; t++) {
		printf("%u", t);
		for (int policy = 0; policy < N_POLICIES; policy++)
			printf(",%.1f,%.4f,%u", outcome[policy].rate[0][t], outcome[policy].cost[0][t],
			       outcome[policy].n_changes[0][t]);
		printf("\n");
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t n = 1000;

	if ((argc == 3 || argc == 4) && strcmp(argv[1], "--trace") == 0)
		return trace(strtoull(argv[2], NULL, 10),
			     argc == 4 ? (uint32_t)strtoul(argv[3], NULL, 10) % 4 : 1);
	if (argc == 2)
		n = strtoull(argv[1], NULL, 10);
	if (argc > 2 || !n) {
		fprintf(stderr, "usage: bench_tuner_sim [N] | --trace SEED [JOBS]\n");
		return 2;
	}
	printf("{\"scenarios\": [\n");
	for (uint64_t seed = 1; seed <= n; seed++) {
		if (run_one(seed))
			return 1;
		printf("%s\n", seed < n ? "," : "");
	}
	printf("], \"multi\": [\n");
	for (uint64_t seed = 1; seed <= n / 5 + 1; seed++) {
		for (uint32_t jobs = 2; jobs <= 3; jobs++) {
			if (run_multi(seed, jobs))
				return 1;
			printf("%s\n", seed < n / 5 + 1 || jobs < 3 ? "," : "");
		}
	}
	printf("], \"decoding\": [\n");
	for (uint64_t seed = 1; seed <= n / 5 + 1; seed++) {
		if (run_decoding(seed))
			return 1;
		printf("%s\n", seed < n / 5 + 1 ? "," : "");
	}
	printf("]}\n");
	return 0;
}
