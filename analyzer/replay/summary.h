/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns the parts into figures of a report: waits per step, what workers did, bytes read, evidence. */

#include "analyzer/analysis.h"
#include "analyzer/roles/roles.h"
#include "split.h"

/* Mean and 95th percentile of the data wait per step. -ENOMEM. */
int summary_waits(struct analysis *analysis);

/* What the worker processes (or loader threads) did in the window, and bytes read by all threads of the job.
 */
void summary_workers(const struct timeline *timeline, const struct roles *roles, struct analysis *analysis);

/* The largest entries of the tally, by time. */
void summary_evidence(const struct tally *tally, struct analysis *analysis);

/* Finds the steps in which records were lost, n_lost and coverage. */
void summary_losses(const struct analysis_input *input, struct analysis *analysis);
