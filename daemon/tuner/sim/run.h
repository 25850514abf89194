/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A run of the simulator: the state that its parts share. */

#include "sim/sim.h"

struct sim_live {
	struct sim_state state;
	struct tuner_knobs knobs, ordered; /* knobs in force; knobs in force from the next second on */
	struct sim_rates rates;            /* rates of the last second */
	double daemon_cpu_s; /* CPU time per sample in the last second, after savings by decoded copies */
	/* The hill climber's state. */
	uint32_t knob, wait_s;
	int direction;
	double measured, before;
	struct tuner_knobs last;
};

struct sim_run {
	const struct sim_scenario *scenario;
	struct sim_random random;
	uint64_t now_ns;
	uint32_t second, phase;
	struct sim_live jobs[SIM_MAX_JOBS];
};

static inline const struct sim_truth *sim_truth_now(const struct sim_run *run, uint32_t index)
{
	return &run->scenario->jobs[index].phases[run->phase];
}

/* Returns the bytes that caches leave to decoded copies. */
double sim_decoded_space(const struct sim_run *run);
struct stall_sample sim_sense(struct sim_run *run, uint32_t index);
struct stall_node sim_sense_node(const struct sim_run *run);
double sim_cpu_used(const struct sim_run *run, uint32_t index);
/* Decides for one job; writes the knobs to `ordered`. */
void sim_climb(struct sim_run *run, uint32_t index);
