/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The verdict and what to do about it, from the shares alone.
 *
 * Verdict: with less than ANALYSIS_STALL_THRESHOLD of the window in fetch_stall, prep_stall and
 * checkpoint_stall together the job is device-bound. Otherwise it is bound by the largest of the three. A
 * threshold this low is right because a loader that works ahead leaves no wait at all unless it is slower
 * than the device: then a faster device gains nothing.
 *
 * Gains are upper bounds by arithmetic on measured shares (removing a share s gives at most 1 / (1 - s);
 * halving a part of the work, at most 2), and what the replay predicts, where there is one. What the replay
 * says is in vain is no advice.
 */

#include "analyzer/analysis.h"

#define ADVICE_NOTABLE 0.05 /* a smaller share is not worth a word or an action of its own */

/* Of the observed time: the trainer had no core, as processes that are not of the job had it. */
double advice_neighbours_share(const struct analysis *analysis);

/* Fills verdict and note. The shares, loader and workers are set already. */
void advice_verdict(struct analysis *analysis);

/* Fills actions. After advice_verdict(). */
void advice_actions(struct analysis *analysis);
