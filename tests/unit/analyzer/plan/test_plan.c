/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/plan.h"
#include "lib/error.h"
#include "lib/hash.h"

#define GIB      0x1p30
#define N_CORES  9
#define N_MEMORY 4
#define N_KINDS  6
#define N_JOBS   128

static const double cores[N_CORES] = {1, 2, 3, 4, 5, 6, 9, 12, 24};
static const double memory[N_MEMORY] = {20 * GIB, 62.5 * GIB, 125 * GIB, 187.5 * GIB};

/* Speeds of such kinds of jobs as Synergy profiles: hungry for cores, for memory, for both, for none. */
static const double speeds[N_KINDS][N_CORES * N_MEMORY] = {
    {0.1, 0.3, 0.3, 0.3, 0.1, 0.7, 0.7, 0.7, 0.1, 1.0, 1.0, 1.0, 0.1, 1.3, 1.3, 1.3, 0.1, 1.5,
     1.5, 1.5, 0.1, 1.8, 1.8, 1.8, 0.1, 2.0, 2.0, 2.0, 0.1, 2.0, 2.9, 2.9, 0.1, 2.0, 2.9, 2.9},
    {0.1, 0.4, 0.4, 0.4, 0.1, 0.7, 0.7, 0.7, 0.1, 1.0, 1.0, 1.0, 0.1, 1.3, 1.3, 1.3, 0.1, 1.5,
     1.5, 1.5, 0.1, 1.8, 1.8, 1.8, 0.1, 2.4, 2.4, 2.4, 0.1, 2.4, 2.4, 2.4, 0.1, 2.4, 2.4, 2.4},
    {0.1, 0.4, 0.4, 0.4, 0.1, 0.7, 0.7, 0.7, 0.1, 1.0, 1.0, 1.0, 0.1, 1.2, 1.2, 1.2, 0.1, 1.2,
     1.2, 1.2, 0.1, 1.2, 1.2, 1.2, 0.1, 1.2, 1.2, 1.2, 0.1, 1.2, 1.2, 1.2, 0.1, 1.2, 1.2, 1.2},
    {0.1, 0.3, 0.3, 0.3, 0.1, 0.7, 0.7, 0.7, 0.1, 1.0, 1.0, 1.0, 0.1, 1.2, 1.2, 1.2, 0.1, 1.4,
     1.4, 1.4, 0.1, 1.5, 2.0, 2.5, 0.1, 1.5, 2.0, 2.5, 0.1, 1.5, 2.0, 2.5, 0.1, 1.5, 2.0, 2.5},
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
};

static const struct plan_nodes eight = {.n = 16, .accelerators = 8, .cores = 24, .memory_bytes = 500 * GIB};
static const struct plan_cluster cluster = {.kinds = &eight, .n_kinds = 1, .core_step = 1};

static struct plan_job job_of(size_t kind, uint32_t accelerators)
{
	return (struct plan_job){.name = "job",
				 .accelerators = accelerators,
				 .cores = cores,
				 .memory_bytes = memory,
				 .speeds = speeds[kind],
				 .n_cores = N_CORES,
				 .n_memory = N_MEMORY,
				 .cores_known = true,
				 .memory_known = true};
}

static uint64_t draw(uint64_t *state, uint64_t n)
{
	return splitmix64(state) % n;
}

static void jobs_draw(uint64_t seed, uint32_t accelerators_most, struct plan_job jobs[N_JOBS])
{
	for (size_t i = 0; i < N_JOBS; i++) {
		jobs[i] = job_of(draw(&seed, N_KINDS), 1u << draw(&seed, 1 + accelerators_most / 2));
		if (draw(&seed, 10) == 0)
			jobs[i].cores_known = jobs[i].memory_known = false;
	}
}

static void check_nodes(const struct plan_cluster *on, const struct plan_job *jobs, size_t n,
			const struct plan *plan)
{
	for (size_t node = 0; node < plan_n_nodes(on); node++) {
		const struct plan_nodes *size = plan_node(on, node);
		double used_cores = 0, used_memory = 0;
		uint32_t accelerators = 0;

		for (size_t i = 0; i < plan->n_parts; i++) {
			if (plan->parts[i].node != node)
				continue;
			accelerators += plan->parts[i].accelerators;
			used_cores += plan->parts[i].cores;
			used_memory += plan->parts[i].memory_bytes;
		}
		assert_true(accelerators <= size->accelerators);
		assert_true(used_cores <= size->cores + 1e-6);
		assert_true(used_memory <= size->memory_bytes * (1 + 1e-9));
	}
}

/* Each job has all its accelerators, on as few nodes as any kind allows, and the sum of its parts. */
static void check_parts(const struct plan_cluster *on, const struct plan_job *jobs, size_t n,
			const struct plan *plan)
{
	for (size_t i = 0; i < n; i++) {
		const struct plan_share *share = &plan->shares[i];
		double left_cores = share->cores, left_memory = share->memory_bytes;
		uint32_t accelerators = 0;

		assert_int_equal(share->node == PLAN_WAITS, !share->n_parts);
		assert_int_equal(share->node == PLAN_WAITS, share->lack != PLAN_LACKS_NOTHING);
		for (size_t k = share->first_part; k < share->first_part + share->n_parts; k++) {
			assert_true(plan_node(on, plan->parts[k].node) == plan_node(on, share->node));
			accelerators += plan->parts[k].accelerators;
			left_cores -= plan->parts[k].cores;
			left_memory -= plan->parts[k].memory_bytes;
		}
		if (!share->n_parts)
			continue;
		assert_int_equal(accelerators, jobs[i].accelerators);
		assert_float_equal(left_cores, 0, 1e-6);
		assert_float_equal(left_memory, 0, 1);
		for (size_t kind = 0; kind < on->n_kinds; kind++)
			assert_true(!plan_nodes_of(on, kind, &jobs[i]) ||
				    plan_nodes_of(on, kind, &jobs[i]) == share->n_parts);
	}
}

/* Nobody is given cores that slow it down, and both sides of a gain are measured or interpolated. */
TEST(speeds_are_those_of_the_cores_that_a_job_gets)
{
	const double at[] = {1, 2, 4, 8}, all = GIB, fall[] = {900, 800, 400, 100},
		     rise[] = {100, 200, 390, 700};
	const struct plan_nodes two = {1, 2, 8, 64 * GIB};
	const struct plan_cluster whole = {&two, 1, 1}, parts = {&two, 1, 0.3};
	struct plan_job job = {"job", 1, at, &all, fall, 4, 1, true, true};
	struct plan plan;

	assert_int_equal(plan_make(&whole, &job, 1, PLAN_TUNE, &plan), 0);
	assert_float_equal(plan.shares[0].cores, 1, 1e-9);
	assert_float_equal(plan.shares[0].speed, 900, 1e-9);
	plan_free(&plan);
	job.speeds = rise;
	assert_int_equal(plan_make(&parts, &job, 1, PLAN_EQUAL, &plan), 0);
	assert_float_equal(plan.shares[0].cores, 3.9, 1e-9);
	assert_float_equal(plan.shares[0].speed, 200 + 1.9 / 2 * 190, 1e-6);
	plan_free(&plan);
	assert_true(plan_proportional(&parts, &two, &job).interpolated);
	assert_false(plan_proportional(&whole, &two, &job).interpolated);
	/* A speed of 0 is one that the job does not have. */
	job.speeds = (double[]){0, 0, 390, 700};
	assert_float_equal(plan_proportional(&parts, &two, &job).speed, 0, 0);
}

TEST(no_node_gives_more_than_it_has)
{
	const struct plan_nodes kinds[] = {{3, 4, 10, 100 * GIB}, {2, 8, 64, 400 * GIB}};
	const struct plan_cluster mixed = {.kinds = kinds, .n_kinds = 2, .core_step = 1};
	struct plan_job jobs[N_JOBS];
	struct plan plan;

	for (uint64_t seed = 1; seed <= 16; seed++)
		for (int s = 0; s < PLAN_STRATEGIES; s++) {
			jobs_draw(seed, 4, jobs);
			for (size_t i = 0; seed > 8 && i < 3; i++)
				jobs[i].accelerators = (uint32_t)(12 + 4 * i); /* 20: more than `mixed` has */
			assert_int_equal(plan_make(&cluster, jobs, N_JOBS, s, &plan), 0);
			check_nodes(&cluster, jobs, N_JOBS, &plan);
			check_parts(&cluster, jobs, N_JOBS, &plan);
			assert_true(s == PLAN_GREEDY || seed <= 8 || plan.shares[2].n_parts == 3);
			plan_free(&plan);
			assert_int_equal(plan_make(&mixed, jobs, N_JOBS, s, &plan), 0);
			check_nodes(&mixed, jobs, N_JOBS, &plan);
			check_parts(&mixed, jobs, N_JOBS, &plan);
			assert_true(seed <= 8 || plan.shares[2].node == PLAN_WAITS);
			assert_true(plan.n_waiting > 0);
			plan_free(&plan);
		}
}

TEST(nobody_is_slower_than_with_its_proportional_share)
{
	struct plan_job jobs[N_JOBS];
	struct plan plan, equal;

	for (uint64_t seed = 1; seed <= 8; seed++) {
		jobs_draw(seed, 1, jobs);
		assert_int_equal(plan_make(&cluster, jobs, N_JOBS, PLAN_TUNE, &plan), 0);
		assert_int_equal(plan_make(&cluster, jobs, N_JOBS, PLAN_EQUAL, &equal), 0);
		assert_int_equal(plan.n_waiting, 0);
		for (size_t i = 0; i < N_JOBS; i++)
			assert_true(plan.shares[i].speed >= equal.shares[i].speed);
		assert_true(plan.total > equal.total);
		plan_free(&plan);
		plan_free(&equal);
	}
}

/* Jobs of one and a half nodes, of two, and of one accelerator, which fill the cluster. */
TEST(nobody_loses_where_jobs_have_several_nodes)
{
	static double many_cores[N_CORES], much_memory[N_MEMORY];
	struct plan_job jobs[24];
	struct plan plan, equal;
	double total;

	for (size_t i = 0; i < N_CORES; i++)
		many_cores[i] = 12 * cores[i];
	for (size_t i = 0; i < N_MEMORY; i++)
		much_memory[i] = 12 * memory[i];
	for (size_t kind = 0; kind < N_KINDS; kind++) {
		for (size_t i = 0; i < 24; i++) {
			jobs[i] = job_of(i < 8 ? kind : (kind + i) % N_KINDS, i < 4 ? 12 : i < 8 ? 16 : 1);
			if (i < 8) {
				jobs[i].cores = many_cores;
				jobs[i].memory_bytes = much_memory;
			}
		}
		assert_int_equal(plan_make(&cluster, jobs, 24, PLAN_TUNE, &plan), 0);
		assert_int_equal(plan_make(&cluster, jobs, 24, PLAN_EQUAL, &equal), 0);
		assert_int_equal(plan.n_waiting + equal.n_waiting, 0);
		check_nodes(&cluster, jobs, 24, &plan);
		check_parts(&cluster, jobs, 24, &plan);
		check_parts(&cluster, jobs, 24, &equal);
		for (size_t i = 0; i < 24; i++)
			assert_true(plan.shares[i].speed >= equal.shares[i].speed);
		assert_float_equal(equal.shares[0].cores, 36, 1e-9);
		assert_int_equal(plan_point(&equal, &jobs[0], &equal.shares[0]), 2 * N_MEMORY + 1);
		if (plan_bound(&cluster, jobs, 24, &plan, &total, NULL) == 0)
			assert_true(plan.total <= total * (1 + 1e-6) && plan.total > 0.95 * total);
		plan_free(&plan);
		plan_free(&equal);
	}
}

TEST(a_job_of_unknown_sensitivity_keeps_its_proportional_share)
{
	struct plan_job jobs[8];
	struct plan plan;

	for (size_t i = 0; i < 8; i++)
		jobs[i] = job_of(i % 2 ? 4 : 0, 1);
	jobs[0].cores_known = jobs[0].memory_known = false;
	jobs[1].memory_known = false;
	assert_int_equal(plan_make(&cluster, jobs, 8, PLAN_TUNE, &plan), 0);
	assert_true(plan.shares[0].cores == 3 && plan.shares[0].memory_bytes == 62.5 * GIB);
	assert_true(plan.shares[0].relative == 1);
	assert_true(plan.shares[1].memory_bytes == 62.5 * GIB);
	assert_true(plan.shares[2].relative > 1.5);
	plan_free(&plan);
	/* A share below all points: its speed is not known, so it is not changed. */
	jobs[2].n_cores = 2;
	jobs[2].cores = cores + 6;
	assert_int_equal(plan_make(&cluster, jobs, 8, PLAN_TUNE, &plan), 0);
	assert_true(plan.shares[2].cores == 3 && plan.shares[2].speed == 0 && plan.shares[2].relative == 1);
	plan_free(&plan);
}

TEST(cores_that_one_job_does_not_need_speed_up_its_neighbour)
{
	const struct plan_nodes node = {1, 2, 4, 125 * GIB};
	const struct plan_cluster one = {.kinds = &node, .n_kinds = 1, .core_step = 1};
	const struct plan_job jobs[] = {job_of(4, 1), job_of(1, 1)};
	struct plan plan;

	assert_int_equal(plan_make(&one, jobs, 2, PLAN_TUNE, &plan), 0);
	assert_true(plan.shares[0].cores == 1 && plan.shares[0].relative == 1);
	assert_true(plan.shares[1].cores == 3 && fabs(plan.shares[1].relative - 1 / 0.7) < 1e-9);
	plan_free(&plan);
	/* Greedily, the second wishes for all four, and waits. */
	assert_int_equal(plan_make(&one, jobs, 2, PLAN_GREEDY, &plan), 0);
	assert_true(plan.shares[0].cores == 1 && plan.shares[1].node == PLAN_WAITS && plan.n_waiting == 1);
	assert_int_equal(plan.shares[1].lack, PLAN_LACKS_CORES);
	plan_free(&plan);
}

TEST(earlier_jobs_get_the_accelerators)
{
	const struct plan_nodes node = {1, 4, 12, 250 * GIB};
	const struct plan_cluster one = {.kinds = &node, .n_kinds = 1, .core_step = 1};
	const struct plan_job jobs[] = {job_of(4, 2), job_of(0, 4), job_of(1, 2), job_of(2, 1)};
	struct plan plan;

	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		if (s == PLAN_GREEDY)
			continue;
		assert_int_equal(plan_make(&one, jobs, 4, s, &plan), 0);
		assert_int_equal(plan.n_waiting, 2);
		assert_true(plan.shares[0].node == 0 && plan.shares[2].node == 0);
		assert_true(plan.shares[1].node == PLAN_WAITS && plan.shares[3].node == PLAN_WAITS);
		plan_free(&plan);
	}
	assert_int_equal(plan_first_too_large(&one, jobs, 4), 4);
	assert_int_equal(
	    plan_first_too_large(&(struct plan_cluster){&(struct plan_nodes){1, 3, 9, GIB}, 1, 1}, jobs, 4),
	    1);
	assert_int_equal(
	    plan_first_too_large(&(struct plan_cluster){&(struct plan_nodes){2, 3, 9, GIB}, 1, 1}, jobs, 4),
	    4);
}

TEST(nodes_of_several_sizes_have_one_measure_of_speed)
{
	const struct plan_nodes kinds[] = {{2, 4, 8, 250 * GIB}, {2, 4, 24, 500 * GIB}};
	const struct plan_cluster mixed = {.kinds = kinds, .n_kinds = 2, .core_step = 1};
	struct plan_job jobs[16];
	struct plan plan;
	double total;

	for (size_t i = 0; i < 16; i++)
		jobs[i] = job_of(1, 1);
	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		assert_int_equal(plan_make(&mixed, jobs, 16, s, &plan), 0);
		for (size_t i = 0; i < 16; i++)
			if (plan.shares[i].node != PLAN_WAITS)
				assert_float_equal(plan.shares[i].relative, plan.shares[i].speed / 0.7, 1e-9);
		if (s == PLAN_TUNE && plan_bound(&mixed, jobs, 16, &plan, &total, NULL) == 0)
			assert_true(plan.total <= total * (1 + 1e-6) && plan.total > 0.8 * total);
		plan_free(&plan);
	}
}

#define OPTIMUM_RATIO 0.97

TEST(the_tuned_plan_is_near_the_optimum_of_the_linear_programme)
{
	struct plan_job jobs[N_JOBS];
	double total, worst = 2;
	struct plan plan;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct error err = ERROR_INIT;
		int r;

		jobs_draw(seed, 1, jobs);
		assert_int_equal(plan_make(&cluster, jobs, N_JOBS, PLAN_TUNE, &plan), 0);
		r = plan_bound(&cluster, jobs, N_JOBS, &plan, &total, &err);
		if (r == -ELIBACC) {
			plan_free(&plan);
			printf("%s\n", err.text);
			skip();
		}
		assert_int_equal(r, 0);
		assert_true(plan.total <= total * (1 + 1e-6));
		worst = fmin(worst, plan.total / total);
		plan_free(&plan);
	}
	if (worst < OPTIMUM_RATIO)
		fail_msg("the worst plan has %.4f of the optimum", worst);
}

TEST(bad_clusters_are_refused)
{
	const struct plan_job job = job_of(0, 1);
	struct plan_nodes none = eight;
	struct plan plan;

	none.accelerators = 0;
	assert_int_equal(plan_make(&(struct plan_cluster){&none, 1, 1}, &job, 1, PLAN_TUNE, &plan), -EINVAL);
	assert_int_equal(plan_make(&(struct plan_cluster){&none, 0, 1}, &job, 1, PLAN_TUNE, &plan), -EINVAL);
}

/* Synergy's setting (its section 5): 16 nodes, 9 single-accelerator jobs per hour, of which 20 % read images,
 * 70 % language and 10 % speech. Equal shares are overloaded; tuned ones are not. */
TEST(tuned_shares_shorten_completion_in_the_published_setting)
{
	static const double weights[N_KINDS] = {8, 4, 8, 5, 70, 5};
	struct plan_job kinds[N_KINDS];
	struct plan_arrival arrivals[N_KINDS];
	struct plan_simulation simulation = {.cluster = &cluster,
					     .arrivals = arrivals,
					     .n_arrivals = N_KINDS,
					     .jobs_per_hour = 9,
					     .first = 4000,
					     .last = 5000,
					     .moves = true};
	struct plan_times equal, tune, again;

	for (size_t i = 0; i < N_KINDS; i++) {
		kinds[i] = job_of(i, 1);
		arrivals[i] = (struct plan_arrival){&kinds[i], weights[i]};
	}
	for (simulation.seed = 1; simulation.seed <= 2; simulation.seed++) {
		assert_int_equal(plan_simulate(&simulation, PLAN_EQUAL, &equal), 0);
		assert_int_equal(plan_simulate(&simulation, PLAN_TUNE, &tune), 0);
		assert_true(equal.mean_s > 2 * tune.mean_s);
		assert_true(equal.p99_s > tune.p99_s);
		assert_true(tune.busy_ratio <= 1 && equal.busy_ratio <= 1);
	}
	simulation.seed--;
	assert_int_equal(plan_simulate(&simulation, PLAN_TUNE, &again), 0);
	assert_memory_equal(&tune, &again, sizeof(tune));
	/* With few jobs nothing waits, and times are the drawn ones. */
	simulation.jobs_per_hour = 0.1;
	simulation.first = 0;
	simulation.last = 500;
	assert_int_equal(plan_simulate(&simulation, PLAN_EQUAL, &equal), 0);
	assert_true(equal.p50_s > 3600 && equal.p50_s < 8 * 3600.0);
	simulation.last = 0;
	assert_int_equal(plan_simulate(&simulation, PLAN_EQUAL, &equal), -EINVAL);
}

/* Jobs of one accelerator lie on all nodes, where one of two nodes finds no whole ones. */
TEST(small_jobs_move_out_of_the_way_of_large_ones)
{
	const struct plan_job kinds[] = {job_of(4, 1), job_of(4, 16)};
	const struct plan_arrival arrivals[] = {{&kinds[0], 30}, {&kinds[1], 1}};
	struct plan_simulation simulation = {.cluster = &cluster,
					     .arrivals = arrivals,
					     .n_arrivals = 2,
					     .jobs_per_hour = 4,
					     .first = 500,
					     .last = 1500,
					     .seed = 3};
	struct plan_times stay, move;

	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		simulation.moves = false;
		assert_int_equal(plan_simulate(&simulation, s, &stay), 0);
		simulation.moves = true;
		assert_int_equal(plan_simulate(&simulation, s, &move), 0);
		/* Only tuned jobs lie scattered at first. */
		assert_true(s == PLAN_TUNE ? 1.2 * move.mean_s < stay.mean_s : move.mean_s <= stay.mean_s);
	}
}
