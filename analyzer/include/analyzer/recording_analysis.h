/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Analyses a recording: reads all events into memory (64 bytes each) and calls analysis_run(). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct analysis;
struct error;
struct recording;
struct what_if_grid;
struct what_if_question;

struct recording_analysis_options {
	uint32_t trainer_tid;                   /* 0: found automatically */
	bool several;                           /* as in analysis_input */
	double checkpoint_overhead_max;         /* 0: CHECKPOINT_OVERHEAD_MAX */
	size_t n_lane_segments_max;             /* 0: no lanes */
	const struct what_if_question *what_if; /* NULL: none */
	const struct what_if_grid *grid;        /* NULL: none */
};

/* Errors: as recording_cursor_open(), -ENOMEM. */
int recording_analyze(struct recording *recording, const struct recording_analysis_options *options,
		      struct analysis **ret_analysis, struct error *err);
