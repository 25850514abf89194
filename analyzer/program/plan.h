/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `diesel-analyze plan`: shares of several jobs on the nodes of a cluster, or a simulation of them. */

#include "analyzer/plan.h"
#include "lib/error.h"

#define PLAN_KINDS_MAX     16
#define PLAN_ARGUMENTS_MAX 256

struct plan_arguments {
	struct plan_nodes kinds[PLAN_KINDS_MAX];
	size_t n_kinds;
	const char *arguments[PLAN_ARGUMENTS_MAX];
	size_t n_arguments;
	double core_step;
	uint32_t strategy; /* enum plan_strategy */
	bool slots, simulate, stay;
	double jobs_per_hour;
	uint64_t n_jobs, seed;
};

int plan_run(const struct plan_arguments *options, bool json, struct error *err);
