/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * `diesel-analyze truth`: the three-run differential of DS-Analyzer on an unmodified PyTorch job.
 *
 * The job runs once to learn which files it reads, then with them in the page cache, with them evicted, and
 * with batches from memory: the differences are preparing and fetching. The job's Python first runs
 * share/diesel/truth/sitecustomize.py: this is the only verb that adds code to the job.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/error.h"

struct truth_options {
	char **command;
	const char *data; /* folder of the job's files; NULL: learn the files from a run */
	uint64_t n_steps; /* steps per run */
	uint64_t n_rounds;
	bool json;
	bool verbose; /* the job's standard output goes to standard error; otherwise it is dropped */
};

#define TRUTH_STEPS_DEFAULT  100
#define TRUTH_ROUNDS_DEFAULT 1
#define TRUTH_ROUNDS_MAX     10

/* Prints the result on standard output, and the current run on standard error. -ENODATA: too little to
 * compare; -ECANCELED: the command failed; or another errno. */
int truth_run(const struct truth_options *options, struct error *err);
