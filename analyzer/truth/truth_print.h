/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The report of `truth`, as text and as JSON ("diesel.truth/1"). */

#include <stdbool.h>
#include <stdio.h>

#include "truth_files.h"
#include "truth_result.h"

#define TRUTH_NOTES_MAX 8

struct truth_report {
	const struct truth_round *rounds;
	size_t n_rounds;
	struct truth_result result;
	size_t n_files;
	struct truth_residence warm, cold; /* before the cached and the cold run; the worst of all rounds */
	char notes[TRUTH_NOTES_MAX][200];  /* what could not be controlled */
	size_t n_notes;
};

void truth_print(FILE *out, const struct truth_report *report, bool json);
