/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Two analyses of (versions of) one job: what changed, and whether it is more than the noise within each.
 *
 * Intervals are 99 % intervals from resampling runs of neighbouring steps, warm-up left out (a circular block
 * bootstrap, because steps come in rhythms, e.g. one slow batch per worker). The seed is fixed: the same
 * recordings give the same answer. They know nothing of how the machine drifts between two recordings; record
 * each version twice to see that. Sampled recordings have no steps: their shares come with the intervals they
 * were found with, and steps/s without.
 */

#include <stdbool.h>

#include "analyzer/analysis.h"

struct comparison_share {
	double a, b;            /* of each one's own time, without warm-up */
	struct estimate change; /* b - a; low and high NAN: no interval */
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

/* Both must have been judged: -ENODATA for ANALYSIS_INSUFFICIENT. -ENOMEM. */
int comparison_make(const struct analysis *a, const struct analysis *b, struct comparison *ret_comparison);
