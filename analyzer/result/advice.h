/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The verdict and the advice, based only on the shares.
 *
 * Verdict: with less than ANALYSIS_STALL_THRESHOLD of the window in fetch_stall, prep_stall and
 * checkpoint_stall together the job is device-bound. Otherwise it is bound by the largest of the three. The
 * threshold is this low because a loader that works ahead causes no wait at all unless it is slower than the
 * device, and then a faster device gains nothing.
 *
 * Gains are upper bounds by arithmetic on measured shares, with the replay's prediction if there is one.
 * Removing a share s gives at most 1 / (1 - s); halving a part of the work, at most 2. If shares are sampled,
 * the bound is that of the largest share within their error, and reported as approximate. Actions that gain
 * nothing in the replay are left out; actions that may gain nothing come last.
 */

#include "analyzer/analysis.h"

#define ADVICE_NOTABLE 0.05 /* smaller shares get neither a note nor an action of their own */

/* Fills verdict and note. The shares, loader and workers must be set. */
void advice_verdict(struct analysis *analysis);

/* Fills actions. Call it after advice_verdict(). */
void advice_actions(struct analysis *analysis);
