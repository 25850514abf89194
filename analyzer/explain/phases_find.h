/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the named ranges that the program marks on the trainer. */

#include "analyzer/phases.h"
#include "analyzer/shares/study.h"

/* *ret_phases: NULL where the trainer marked nothing. -ENOMEM. */
int phases_find(const struct study *study, struct phase_times **ret_phases);
