/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The jobs of `diesel-analyze plan`: how fast each is with each share, out of a recording, a profile, or the
 * figures that dieseld measures of the jobs that it serves. */

#include <stdint.h>

#include "analyzer/plan.h"
#include "lib/error.h"

#define PLAN_NAME_BYTES 80

/* One argument: FILE[,KEY=VALUE ...]. */
struct plan_argument {
	char *file;
	char *name;                           /* NULL: the file's */
	char *job;                            /* recordings with the same one are of one job; NULL: none */
	uint32_t accelerators;                /* 0: not given */
	uint32_t count;                       /* jobs like this */
	double weight;                        /* its part of all arrivals */
	double dataset_bytes, resident_bytes; /* NAN: not given */
};

/* Parses an argument. -EINVAL, -ENOMEM. Free the strings. */
int plan_argument_parse(const char *text, struct plan_argument *ret_argument, struct error *err);
void plan_argument_free(struct plan_argument *argument);

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

/* Reads an argument's file and adds its jobs, or reads the recordings of n arguments and adds the one job
 * that they are of. Errors: as recording_open() and recording_analyze(); -EINVAL: a file of another kind, or
 * one that contradicts itself. */
int plan_inputs_add(const struct plan_argument *const *arguments, size_t n,
		    const struct plan_cluster *cluster, struct plan_inputs *inputs, struct error *err);
void plan_inputs_free(struct plan_inputs *inputs);

/* Sets the error of a job that fits on no nodes. Returns -EINVAL. */
int plan_too_large(const char *name, uint32_t accelerators, struct error *err);
