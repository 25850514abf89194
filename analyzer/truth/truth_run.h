/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs of a job with the clock of share/diesel/truth in front of it. */

#include <stdint.h>

#include "truth_result.h"

struct error;

/* A temporary folder for what the clock writes, and where its code lies. */
struct truth_shim {
	char code[4096];   /* folder of sitecustomize.py */
	char folder[4096]; /* removed by truth_shim_close() */
};

/* Fills *shim; -errno. */
int truth_shim_open(struct truth_shim *shim, struct error *err);

void truth_shim_close(struct truth_shim *shim);

/*
 * Runs the command to its end. mode: "learn", "clock" or "synthetic". ret_files: with "learn" the files it
 * read, one path per line (caller frees); else NULL. -ECANCELED: the command failed or a signal ended it;
 * -ENODATA: no DataLoader, or too few steps; or another errno. err says which.
 */
int truth_shim_run(const struct truth_shim *shim, char **command, const char *mode, uint64_t n_steps,
		   struct truth_clock *ret_clock, char **ret_files, struct error *err);
