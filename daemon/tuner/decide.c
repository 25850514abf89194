/* SPDX-License-Identifier: Apache-2.0 */
#include "round.h"

#include <math.h>

size_t tuner_state_bytes(void)
{
	return sizeof(struct tuner_state);
}

bool tuner_state_is_sane(const struct tuner_state *state)
{
	return state->n_jobs <= TUNER_MAX_JOBS;
}

static double known(double x)
{
	return x >= 0 && x < INFINITY ? x : NAN;
}

/* Returns the node's figures without implausible ones. */
static struct stall_node clean_node(const struct stall_node *node)
{
	struct stall_node n = node ? *node : stall_node_unknown();

	n.memory_some_avg10 = known(n.memory_some_avg10);
	n.memory_full_avg10 = known(n.memory_full_avg10);
	n.memory_some_now = known(n.memory_some_now);
	n.memory_limit_bytes = known(n.memory_limit_bytes);
	n.memory_headroom_bytes = known(n.memory_headroom_bytes);
	n.memory_free_bytes = known(n.memory_free_bytes);
	n.cores = known(n.cores);
	n.cores_idle = known(n.cores_idle);
	if (!(n.oom_kills > 0 && n.oom_kills < INFINITY))
		n.oom_kills = 0;
	return n;
}

static void plan_begin(struct knob_plan *plan, const struct tuner_job *job)
{
	plan->n = job_estimate(job, job->changed_ns, &plan->now);
	plan->demand = plan->now.demand;
	if (isnan(plan->demand))
		plan->now.demand = demand_least(&plan->now, plan->n);
}

void tuner_decide(const struct tuner_config *config, struct tuner_state *state, const struct stall_node *node,
		  const struct stall_sample *samples, size_t n_samples, uint64_t now_ns,
		  struct tuner_result *ret)
{
	struct tuner_round round = {
	    .config = config, .state = state, .node = clean_node(node), .now_ns = now_ns, .ret = ret};

	ret->n_decisions = ret->n_verdicts = ret->n_views = 0;
	ret->n_samples_refused = 0;
	round_take_samples(&round, samples, n_samples);
	for (uint32_t i = 0; i < state->n_jobs; i++) {
		round_update_phase(&round, i);
		plan_begin(&round.plans[i], &state->jobs[i]);
	}
	round_make_totals(&round);
	/* A verdict may teach something about storage, which changes targets: so judge first, then ask the
	 * model. */
	for (uint32_t i = 0; i < state->n_jobs; i++)
		round_judge(&round, i);
	round_make_spaces(&round);
	for (uint32_t i = 0; i < state->n_jobs; i++)
		round_apply_bounds(&round, i);
	for (uint32_t i = 0; i < state->n_jobs; i++)
		round_apply_rules(&round, i);
	round_views(&round);
}
