/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the trainer and the workers of a sampled recording did, for drawing: one state for each look, the one
 * that lasted longest. Waits are fetch where a worker was found reading at the time, else prep. */

#include "analyzer/lanes.h"
#include "sampled_job.h"
#include "sampled_trainer.h"

/* n_segments_max: over all lanes. -ENOMEM. */
int sampled_lanes_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
		       size_t n_segments_max, struct lanes **ret_lanes);
