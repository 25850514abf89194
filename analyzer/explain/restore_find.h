/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The trainer's loading of a checkpoint before its first backward pass. */

#include "analyzer/analysis.h"
#include "analyzer/shares/study.h"

/* -ENOMEM. */
int restore_find(const struct study *study, struct analysis_restored *ret_restored);
