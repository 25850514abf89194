/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reports a plan for a cluster, or a simulation of it. Results as in reports/report.h. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "analyzer/plan.h"

struct report_plan_job {
	const char *name;
	const char *unit;   /* of its speeds: "steps/s" or "samples/s" */
	const char *note;   /* "": none */
	uint32_t n_workers; /* DataLoader workers with the share of `chosen`; UINT32_MAX: not known */
	size_t input;       /* jobs of one input are alike */
};

struct report_plan {
	const struct plan_cluster *cluster;
	const struct plan_job *jobs;
	const struct report_plan_job *about;
	size_t n_jobs;
	struct plan plans[PLAN_STRATEGIES];
	enum plan_strategy chosen;
	double bound;         /* NAN: not known */
	const char *no_bound; /* why; "" if it is known */
	bool slots;           /* accelerators are only slots */
};

struct report_plan_times {
	const struct plan_simulation *simulation;
	struct plan_times times[PLAN_STRATEGIES];
	const char *const *notes; /* n_notes pairs of a job's name and the note about it */
	size_t n_notes;
};

/* Writes tables for people: the strategies, the chosen plan, and lines for Slurm and Kubernetes. */
int report_plan_text(FILE *stream, const struct report_plan *plan);
int report_plan_times_text(FILE *stream, const struct report_plan_times *times);

/* Write one JSON object, "schema": "diesel.plan/1" or "diesel.plan-simulation/1". */
int report_plan_json(FILE *stream, const struct report_plan *plan);
int report_plan_times_json(FILE *stream, const struct report_plan_times *times);
