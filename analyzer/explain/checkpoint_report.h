/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The checkpoints of a measured job, one by one. */

#include "analyzer/checkpoints.h"
#include "analyzer/shares/study.h"

/* Lists the checkpoints, and moves their costs to checkpoint_stall in the window's steps. stall_ns: that
 * share of the window before. *ret_report: NULL without checkpoints. -ENOMEM. */
int checkpoint_report_find(const struct study *study, uint64_t stall_ns,
			   struct checkpoint_report **ret_report);
