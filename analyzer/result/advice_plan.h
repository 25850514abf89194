/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Candidate actions, each with its own prediction. More are collected than shown. The final order:
 *
 *   1. actions against the job's bottleneck, if their gain is not predicted
 *   2. predicted gains that are certain, by the low end of their interval
 *   3. other actions without a prediction, in the order in which they were added
 *   4. predicted gains whose interval contains 1: they may gain nothing
 */

#include "analyzer/analysis.h"

#define ADVICE_PLAN_MAX 16

struct advice_plan {
	struct analysis *analysis;
	struct analysis_action actions[ADVICE_PLAN_MAX];
	bool binds[ADVICE_PLAN_MAX]; /* the action is against the job's bottleneck */
	size_t n;
	bool binding; /* value of binds for actions added from now on */
};

/* Adds an action. gain_max: upper bound of the speed-up, by arithmetic. gain: the model's prediction for this
 * action; NULL or NAN: none. The model also covers other time that shrinks with a share, so its high end may
 * raise the bound. A prediction replaces the confidence, too. */
__attribute__((format(printf, 5, 6))) void advice_add(struct advice_plan *plan, double gain_max,
						      enum analysis_confidence confidence,
						      const struct estimate *gain, const char *format, ...);

/* Sorts the actions, and copies the first ANALYSIS_ACTIONS_MAX into the analysis. */
void advice_take(struct advice_plan *plan);

/* Returns true if the action gains nothing in the model, so that it must not be advised. */
bool advice_in_vain(const struct estimate *gain);

/* Returns the share of the steady time. If sampled, returns its upper bound, including its error and
 * unexplained time. */
double advice_share(const struct analysis *analysis, enum analysis_share share);
/* Returns the share of both data waits together, or its upper bound, as advice_share() does. */
double advice_wait(const struct analysis *analysis);

/* Returns the gain of removing this share of the time, as a factor. */
double advice_gain_of(double share);

/* Returns the number of idle cores, on average over the window: no process or rank of the job had them, nor
 * waited for one that a neighbour had. */
double advice_idle_cores(const struct analysis *analysis);

/* Returns the part of the observed time that went to waits for the interpreter lock of the trainer's process:
 * the trainer's own waits, or those of a thread that it waited for. */
double advice_gil_ratio(const struct analysis *analysis);
