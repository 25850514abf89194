/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The cost of saves for training, beyond their stalls: the copy of the state (clone(), deepcopy(), .cpu()
 * look like any other computing), and the slower steps while somebody else writes the copy. Both are found by
 * comparing the steps of each save with the steps around it that belong to no save.
 */

#include "analyzer/checkpoints.h"
#include "analyzer/shares/study.h"

/* Fills in the report's copy, tail, cost and advice, and wait_ns of its items, which must be complete
 * otherwise. stall_ns: the share checkpoint_stall of the window. -ENOMEM. */
int checkpoint_cost_find(const struct study *study, uint64_t stall_ns, struct checkpoint_report *report);
