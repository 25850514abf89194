/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/plan.h"

#include <errno.h>
#include <math.h>

#include "json_build.h"

static json_t *nodes(const struct plan_cluster *cluster)
{
	json_t *list = json_array();

	for (size_t i = 0; i < cluster->n_kinds; i++) {
		const struct plan_nodes *kind = &cluster->kinds[i];

		if (json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:o}", "n", json_count(kind->n),
							  "accelerators", json_count(kind->accelerators),
							  "cores", json_number(kind->cores), "memory_bytes",
							  json_number(kind->memory_bytes))) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *parts_of(const struct plan *plan, const struct plan_share *from)
{
	json_t *list = json_array();

	for (size_t i = 0; i < from->n_parts; i++) {
		const struct plan_part *part = &plan->parts[from->first_part + i];

		if (json_array_append_new(list,
					  json_pack("{s:o, s:o, s:o, s:o}", "node", json_count(part->node),
						    "accelerators", json_count(part->accelerators), "cores",
						    json_number(part->cores), "memory_bytes",
						    json_number(floor(part->memory_bytes)))) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *share(const struct plan *plan, const struct plan_share *from)
{
	if (from->node == PLAN_WAITS)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "parts", parts_of(plan, from), "node",
			 json_count(from->node), "cores", json_number(from->cores), "memory_bytes",
			 json_number(floor(from->memory_bytes)), "speed",
			 from->speed > 0 ? json_number(from->speed) : json_null(), "of_equal",
			 json_number(from->relative));
}

static json_t *job(const struct report_plan *plan, size_t i)
{
	const struct report_plan_job *about = &plan->about[i];
	json_t *root =
	    json_pack("{s:o, s:o, s:o, s:b, s:b, s:o, s:o}", "name", json_bytes(about->name), "accelerators",
		      json_count(plan->jobs[i].accelerators), "unit", json_bytes(about->unit), "cores_known",
		      plan->jobs[i].cores_known, "memory_known", plan->jobs[i].memory_known, "note",
		      *about->note ? json_bytes(about->note) : json_null(), "workers",
		      about->n_workers != UINT32_MAX ? json_count(about->n_workers) : json_null());
	static const char *const lacks[] = {[PLAN_LACKS_ACCELERATORS] = "accelerators",
					    [PLAN_LACKS_CORES] = "cores",
					    [PLAN_LACKS_MEMORY] = "memory"};
	json_t *shares = json_object(), *waits_for = json_object();
	int r = root ? 0 : -ENOMEM;

	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		const char *lack = lacks[plan->plans[s].shares[i].lack];

		r |= json_object_set_new(shares, plan_strategy_name(s),
					 share(&plan->plans[s], &plan->plans[s].shares[i]));
		r |= json_object_set_new(waits_for, plan_strategy_name(s),
					 lack ? json_string(lack) : json_null());
	}
	r |= json_object_set_new(root, "shares", shares);
	r |= json_object_set_new(root, "waits_for", waits_for);
	if (r < 0) {
		json_decref(root);
		return NULL;
	}
	return root;
}

static json_t *totals(const struct report_plan *plan)
{
	json_t *root = json_object();
	int r = 0;

	for (int s = 0; s < PLAN_STRATEGIES; s++)
		r |= json_object_set_new(root, plan_strategy_name(s),
					 json_pack("{s:o, s:o}", "total_of_equal",
						   json_number(plan->plans[s].total), "waiting",
						   json_count(plan->plans[s].n_waiting)));
	if (r < 0) {
		json_decref(root);
		return NULL;
	}
	return root;
}

int report_plan_json(FILE *stream, const struct report_plan *plan)
{
	json_t *root = json_object(), *jobs = json_array();
	int r = 0;

	for (size_t i = 0; i < plan->n_jobs; i++)
		r |= json_array_append_new(jobs, job(plan, i));
	r |= json_object_set_new(root, "schema", json_string("diesel.plan/1"));
	r |= json_object_set_new(root, "nodes", nodes(plan->cluster));
	r |= json_object_set_new(root, "core_step", json_number(plan->cluster->core_step));
	r |= json_object_set_new(root, "chosen", json_string(plan_strategy_name(plan->chosen)));
	r |= json_object_set_new(root, "plans", totals(plan));
	r |= json_object_set_new(root, "bound_of_equal", json_number(plan->bound));
	r |= json_object_set_new(root, "no_bound",
				 *plan->no_bound ? json_string(plan->no_bound) : json_null());
	r |= json_object_set_new(root, "jobs", jobs);
	if (r < 0) {
		json_decref(root);
		return -ENOMEM;
	}
	return json_write(root, stream, JSON_INDENT(1));
}

int report_plan_times_json(FILE *stream, const struct report_plan_times *times)
{
	const struct plan_simulation *simulation = times->simulation;
	json_t *root = json_object(), *plans = json_object(), *notes = json_array();
	int r = 0;

	for (size_t i = 0; i < times->n_notes; i++)
		r |= json_array_append_new(notes,
					   json_pack("{s:o, s:o}", "name", json_bytes(times->notes[2 * i]),
						     "note", json_bytes(times->notes[2 * i + 1])));
	r |= json_object_set_new(root, "notes", notes);
	for (int s = 0; s < PLAN_STRATEGIES; s++)
		r |= json_object_set_new(
		    plans, plan_strategy_name(s),
		    json_pack("{s:o, s:o, s:o, s:o}", "mean_s", json_number(times->times[s].mean_s), "p50_s",
			      json_number(times->times[s].p50_s), "p99_s", json_number(times->times[s].p99_s),
			      "busy_ratio", json_number(times->times[s].busy_ratio)));
	r |= json_object_set_new(root, "schema", json_string("diesel.plan-simulation/1"));
	r |= json_object_set_new(root, "simulated", json_true());
	r |= json_object_set_new(root, "nodes", nodes(simulation->cluster));
	r |= json_object_set_new(root, "jobs_per_hour", json_number(simulation->jobs_per_hour));
	r |= json_object_set_new(root, "seed", json_count(simulation->seed));
	r |= json_object_set_new(root, "first", json_count(simulation->first));
	r |= json_object_set_new(root, "last", json_count(simulation->last));
	r |= json_object_set_new(root, "moves", json_boolean(simulation->moves));
	r |= json_object_set_new(root, "plans", plans);
	if (r < 0) {
		json_decref(root);
		return -ENOMEM;
	}
	return json_write(root, stream, JSON_INDENT(1));
}
