/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Computes figures of a report from the parts: waits per step, workers' times, bytes read, evidence. */

#include "analyzer/analysis.h"
#include "analyzer/roles/roles.h"
#include "split.h"

/* Mean and 95th percentile of the data wait per step. -ENOMEM. */
int summary_waits(struct analysis *analysis);

/* Sums the times of worker processes (or loader threads) in the window, and bytes read by all the job's
 * threads. */
void summary_workers(const struct timeline *timeline, const struct roles *roles, struct analysis *analysis);

/* Returns the number of cores that the job had or waited for, on average over the window. */
double summary_busy_cores(const struct analysis *analysis);

/* Return the largest speed-up of the same work, if all cores do it all the time. INFINITY: not known.
 * cores_limit: on the cores that the job has, of which neighbours may have a part; at least 1. own_limit: on
 * as many cores without neighbours. */
double summary_cores_limit(const struct analysis *analysis);

/* Fills the evidence with the largest entries of the tally, by time. */
void summary_evidence(const struct tally *tally, struct analysis *analysis);

/* Finds the steps in which records were lost, n_lost and coverage. */
void summary_losses(const struct analysis_input *input, struct analysis *analysis);
