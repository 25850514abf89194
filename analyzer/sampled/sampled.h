/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Analyses a recording that was sampled without privilege: approximate results, with intervals. */

#include <stdbool.h>

#include "analyzer/analysis.h"

#define SAMPLED_SAMPLES_MIN 100 /* minimum number of the trainer's samples in the window for a verdict */

bool sampled_is(const struct analysis_input *input);

/* Fills the analysis as analysis_run() does for an exact recording, verdict and actions included. -ENOMEM. */
int sampled_analyze(const struct analysis_input *input, struct analysis *analysis);
