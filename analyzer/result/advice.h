/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The verdict and what to do about it, from the shares alone.
 *
 * Verdict: with less than ANALYSIS_STALL_THRESHOLD of the window in fetch_stall, prep_stall and
 * checkpoint_stall together the job is device-bound. Otherwise it is bound by the largest of the three. The
 * threshold is this low because a loader that works ahead leaves no wait at all unless it is slower than the
 * device, and then a faster device gains nothing.
 *
 * Gains are upper bounds by arithmetic on measured shares (removing a share s gives at most 1 / (1 - s);
 * halving a part of the work, at most 2), with the replay's prediction if there is one. Where shares are
 * sampled, the bound is that of the largest share that they allow, and said to be about right. What the
 * replay says is in vain is not advised; what it says may be in vain comes last. advice_plan.h has the order.
 */

#include "analyzer/analysis.h"

#define ADVICE_NOTABLE 0.05 /* a smaller share gets neither a note nor an action of its own */

/* The share of the observed time in which the trainer had no core because processes outside the job had it.
 */
double advice_neighbours_share(const struct analysis *analysis);

/* Fills verdict and note. The shares, loader and workers are set already. */
void advice_verdict(struct analysis *analysis);

/* Fills actions. After advice_verdict(). */
void advice_actions(struct analysis *analysis);
