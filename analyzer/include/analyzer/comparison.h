/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Compares two analyses of one job, or of two versions of it: what changed, and whether the change exceeds
 * the noise within each recording.
 *
 * Intervals are 99 % intervals by a circular block bootstrap: runs of neighbouring steps are resampled,
 * without warm-up. Blocks are needed because steps have rhythms, e.g. one slow batch per worker. The seed is
 * fixed: the same recordings give the same answer. The intervals do not cover drift of the machine between
 * the recordings; to see that, record each version twice. Sampled recordings have no steps: their shares have
 * the intervals of the sampling, and steps/s has none.
 */

#include <stdbool.h>

#include "analyzer/analysis.h"

struct comparison_share {
	double a, b;            /* share of the recording's own time, without warm-up */
	struct estimate change; /* b - a; its low and high are NAN without an interval */
	bool significant;       /* the interval excludes 0, and the change is at least one percentage point */
};

struct comparison {
	struct comparison_share shares[SHARE_COUNT];
	struct comparison_share stall;       /* fetch + prep + checkpoint */
	double steps_per_s_a, steps_per_s_b; /* NAN: not known */
	struct estimate speed;               /* steps/s of b over a; NAN: not known */
	bool faster, slower; /* the interval of speed excludes 1, and the speed differs by at least 1 % */
	bool verdict_changed;
};

/* Compares a with b. -ENODATA: the verdict of one is ANALYSIS_INSUFFICIENT; -ENOMEM. */
int comparison_make(const struct analysis *a, const struct analysis *b, struct comparison *ret_comparison);
