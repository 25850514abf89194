/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/plan.h"

#include <math.h>

#include "json_build.h"

static json_t *nodes(const struct plan_cluster *cluster)
{
	json_t *list = json_array();

	for (size_t i = 0; i < cluster->n_kinds; i++) {
		const struct plan_nodes *kind = &cluster->kinds[i];

		json_append(&list, JSON_OBJECT({"n", json_count(kind->n)},
					       {"accelerators", json_count(kind->accelerators)},
					       {"cores", json_number(kind->cores)},
					       {"memory_bytes", json_number(kind->memory_bytes)}));
	}
	return list;
}

static json_t *parts_of(const struct plan *plan, const struct plan_share *from)
{
	json_t *list = json_array();

	for (size_t i = 0; i < from->n_parts; i++) {
		const struct plan_part *part = &plan->parts[from->first_part + i];

		json_append(&list, JSON_OBJECT({"node", json_count(part->node)},
					       {"accelerators", json_count(part->accelerators)},
					       {"cores", json_number(part->cores)},
					       {"memory_bytes", json_number(floor(part->memory_bytes))}));
	}
	return list;
}

static json_t *share(const struct plan *plan, const struct plan_share *from)
{
	if (from->node == PLAN_WAITS)
		return json_null();
	return JSON_OBJECT({"parts", parts_of(plan, from)}, {"node", json_count(from->node)},
			   {"cores", json_number(from->cores)},
			   {"memory_bytes", json_number(floor(from->memory_bytes))},
			   {"speed", from->speed > 0 ? json_number(from->speed) : json_null()},
			   {"of_equal", json_number(from->relative)});
}

static json_t *job(const struct report_plan *plan, size_t i)
{
	static const char *const lacks[] = {[PLAN_LACKS_ACCELERATORS] = "accelerators",
					    [PLAN_LACKS_CORES] = "cores",
					    [PLAN_LACKS_MEMORY] = "memory"};
	const struct report_plan_job *about = &plan->about[i];
	json_t *shares = json_object(), *waits_for = json_object();

	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		const struct plan_share *from = &plan->plans[s].shares[i];

		json_set(&shares, plan_strategy_name(s), share(&plan->plans[s], from));
		json_set(&waits_for, plan_strategy_name(s), json_bytes(lacks[from->lack]));
	}
	return JSON_OBJECT(
	    {"name", json_bytes(about->name)}, {"accelerators", json_count(plan->jobs[i].accelerators)},
	    {"unit", json_bytes(about->unit)}, {"cores_known", json_boolean(plan->jobs[i].cores_known)},
	    {"memory_known", json_boolean(plan->jobs[i].memory_known)},
	    {"note", json_bytes(*about->note ? about->note : NULL)},
	    {"workers", about->n_workers != UINT32_MAX ? json_count(about->n_workers) : json_null()},
	    {"shares", shares}, {"waits_for", waits_for});
}

static json_t *totals(const struct report_plan *plan)
{
	json_t *object = json_object();

	for (int s = 0; s < PLAN_STRATEGIES; s++)
		json_set(&object, plan_strategy_name(s),
			 JSON_OBJECT({"total_of_equal", json_number(plan->plans[s].total)},
				     {"waiting", json_count(plan->plans[s].n_waiting)}));
	return object;
}

int report_plan_json(FILE *stream, const struct report_plan *plan)
{
	json_t *jobs = json_array();

	for (size_t i = 0; i < plan->n_jobs; i++)
		json_append(&jobs, job(plan, i));
	return json_write(
	    JSON_OBJECT({"schema", json_string("diesel.plan/1")}, {"nodes", nodes(plan->cluster)},
			{"core_step", json_number(plan->cluster->core_step)},
			{"chosen", json_string(plan_strategy_name(plan->chosen))}, {"plans", totals(plan)},
			{"bound_of_equal", json_number(plan->bound)},
			{"no_bound", json_bytes(*plan->no_bound ? plan->no_bound : NULL)}, {"jobs", jobs}),
	    stream, JSON_INDENT(1));
}

static json_t *times_of(const struct report_plan_times *times)
{
	json_t *object = json_object();

	for (int s = 0; s < PLAN_STRATEGIES; s++)
		json_set(&object, plan_strategy_name(s),
			 JSON_OBJECT({"mean_s", json_number(times->times[s].mean_s)},
				     {"p50_s", json_number(times->times[s].p50_s)},
				     {"p99_s", json_number(times->times[s].p99_s)},
				     {"busy_ratio", json_number(times->times[s].busy_ratio)}));
	return object;
}

int report_plan_times_json(FILE *stream, const struct report_plan_times *times)
{
	const struct plan_simulation *simulation = times->simulation;
	json_t *notes = json_array();

	for (size_t i = 0; i < times->n_notes; i++)
		json_append(&notes, JSON_OBJECT({"name", json_bytes(times->notes[2 * i])},
						{"note", json_bytes(times->notes[2 * i + 1])}));
	return json_write(JSON_OBJECT({"notes", notes}, {"schema", json_string("diesel.plan-simulation/1")},
				      {"simulated", json_true()}, {"nodes", nodes(simulation->cluster)},
				      {"jobs_per_hour", json_number(simulation->jobs_per_hour)},
				      {"seed", json_count(simulation->seed)},
				      {"first", json_count(simulation->first)},
				      {"last", json_count(simulation->last)},
				      {"moves", json_boolean(simulation->moves)}, {"plans", times_of(times)}),
			  stream, JSON_INDENT(1));
}
