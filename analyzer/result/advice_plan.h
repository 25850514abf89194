/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The actions that are being thought of, each with its own prediction. More of them are collected than are
 * shown; the order is made at the end:
 *
 *   1. what binds the job, where nothing predicts its gain
 *   2. predicted gains that are certain, by the low end of their interval
 *   3. other actions that nothing predicts, in the order in which they were added
 *   4. predictions whose interval holds 1: they may gain nothing
 */

#include "analyzer/analysis.h"

#define ADVICE_PLAN_MAX 16

struct advice_plan {
	struct analysis *analysis;
	struct analysis_action actions[ADVICE_PLAN_MAX];
	bool binds[ADVICE_PLAN_MAX]; /* it is about what binds the job */
	size_t n;
	bool binding; /* what is added from now on is so */
};

/* gain_max: upper bound of the speed-up, by arithmetic. gain: what the model predicts for this action; NULL
 * or NAN: nothing. The model also knows what else shrinks with a share, so its high end may raise the bound;
 * it decides on the confidence, too. */
__attribute__((format(printf, 5, 6))) void advice_add(struct advice_plan *plan, double gain_max,
						      enum analysis_confidence confidence,
						      const struct estimate *gain, const char *format, ...);

/* Puts the actions in order, and as many as there is room for into the analysis. */
void advice_take(struct advice_plan *plan);

/* The model says that it would not help: then it is no advice. */
bool advice_in_vain(const struct estimate *gain);

/* The share of the steady time, or, where it is sampled, the most that it may be: with its error, and with
 * time that nothing explains. */
double advice_share(const struct analysis *analysis, enum analysis_share share);
/* The same of both data waits together. */
double advice_wait(const struct analysis *analysis);

/* The gain of removing this share of the time, as a factor. */
double advice_gain_of(double share);

/* Cores that nobody needed, on average over the window: no process or rank of the job had them, nor waited
 * for one that a neighbour had. */
double advice_idle_cores(const struct analysis *analysis);

/* How many times as fast the job can be at most if all cores work all the time, and its work stays the same;
 * at least 1. INFINITY: not known. */
double advice_cores_limit(const struct analysis *analysis);

/* Part of the observed time that went to waits for the interpreter lock of the trainer's process: its own, or
 * those of a thread that it waited for. */
double advice_gil_ratio(const struct analysis *analysis);
