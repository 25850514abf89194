/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The analysis of a recording that was sampled without privilege: the same result, approximate, with
 * intervals.
 */

#include <stdbool.h>

#include "analyzer/analysis.h"

#define SAMPLED_LOOKS_MIN 100 /* looks at the trainer in the window: fewer say nothing about the job */

bool sampled_is(const struct analysis_input *input);

/* Fills what analysis_run() fills of an exact recording; verdict and actions included. -ENOMEM. */
int sampled_analyze(const struct analysis_input *input, struct analysis *analysis);
