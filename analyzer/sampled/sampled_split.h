/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sampled data wait, split into fetch and prep, and how far off it all may be.
 *
 * With worker processes: the time of the window if reading cost nothing is the largest of what the trainer
 * needs by itself, what the workers need without their reading, and what all CPU time needs on the cores
 * there are. fetch_stall is what that saves, at most the wait: the quick answer of the stall model.
 * Half-widths are 95 %: for the sampled sleep they follow from the number of looks, for the split from how
 * the model did against three runs.
 */

#include "analyzer/analysis.h"
#include "sampled_job.h"
#include "sampled_trainer.h"

/* What the workers did in the window. */
void sampled_workers_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
			  struct analysis *analysis, uint64_t *ret_process_ns);

/* Fills shares and their errors; analysis->workers and n_cpus are set already. */
void sampled_split(const struct sampled_job *job, const struct sampled_trainer *trainer,
		   uint64_t workers_process_ns, struct analysis *analysis);
