/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The jobs of `diesel-analyze plan`: how fast each is with each share, out of a recording, a profile, or the
 * figures that dieseld measures of the jobs that it serves. */

#include <stdint.h>

#include "analyzer/plan.h"
#include "lib/error.h"

#define PLAN_NAME_BYTES 80

/* One job, or several alike. */
struct plan_input {
	char name[PLAN_NAME_BYTES];
	char note[240]; /* why its sensitivity to cores or memory is not known, or what was assumed; "": none
			 */
	const char *unit; /* of its speeds */
	struct plan_job job;
	uint32_t *workers; /* per speed; UINT32_MAX: not known. NULL: for none */
	uint32_t count;
	double weight;
};

struct plan_inputs {
	struct plan_input *items;
	size_t n, n_allocated;
};

/* Reads the file of each argument (FILE[,KEY=VALUE ...]) and adds its jobs. Recordings of one job become one
 * input. Errors: as recording_open() and recording_analyze(); -EINVAL: a wrong argument, a file of another
 * kind, or one that contradicts itself. */
int plan_inputs_load(const char *const *arguments, size_t n, const struct plan_cluster *cluster,
		     struct plan_inputs *inputs, struct error *err);
void plan_inputs_free(struct plan_inputs *inputs);

/* Sets the error of a job that fits on no nodes. Returns -EINVAL. */
int plan_too_large(const char *name, uint32_t accelerators, struct error *err);
