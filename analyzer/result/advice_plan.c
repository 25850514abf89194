/* SPDX-License-Identifier: Apache-2.0 */
#include "advice_plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/replay/summary.h"

#define NARROW 0.15 /* maximum ratio of interval to value of a prediction that is sure */
#define NEARLY 0.98 /* a gain below 1 / NEARLY counts as none */

static bool predicted(const struct analysis_action *action)
{
	return action->gain.value > 0;
}

void advice_add(struct advice_plan *plan, double gain_max, enum analysis_confidence confidence,
		const struct estimate *gain, const char *format, ...)
{
	struct analysis_action *action = &plan->actions[plan->n];
	va_list arguments;

	if (plan->n == ADVICE_PLAN_MAX)
		return;
	plan->binds[plan->n++] = plan->binding;
	*action = (struct analysis_action){.gain_max = gain_max, .confidence = confidence};
	va_start(arguments, format);
	vsnprintf(action->text, sizeof(action->text), format, arguments);
	va_end(arguments);
	if (!gain || !(gain->value > 0)) {
		action->about = plan->analysis->sampled.is || plan->analysis->verdict == ANALYSIS_UNCLEAR;
		return;
	}
	action->gain = *gain;
	action->gain_max = fmax(gain_max, gain->high);
	action->confidence =
	    gain->high - gain->low < NARROW * gain->value ? CONFIDENCE_HIGH : CONFIDENCE_MEDIUM;
	if (!(gain->low > 1))
		action->confidence = CONFIDENCE_LOW;
}

static int place_of(const struct advice_plan *plan, size_t i)
{
	const struct analysis_action *action = &plan->actions[i];

	if (!predicted(action))
		return plan->binds[i] ? 0 : 2;
	return action->gain.low > 1 ? 1 : 3;
}

static bool comes_before(const struct advice_plan *plan, size_t a, size_t b)
{
	int left = place_of(plan, a), right = place_of(plan, b);

	if (left != right)
		return left < right;
	if (left == 1 && plan->actions[a].gain.low > plan->actions[b].gain.low)
		return true;
	return (left != 1 || plan->actions[a].gain.low == plan->actions[b].gain.low) && a < b;
}

/* A user who reads only the first action must not mistake a guess for a gain. */
static void say_that_nothing_is_sure(struct analysis *analysis)
{
	struct analysis_action *action = &analysis->actions[analysis->n_actions++];

	*action = (struct analysis_action){.gain_max = 1, .confidence = CONFIDENCE_MEDIUM};
	snprintf(action->text, sizeof(action->text),
		 "Record longer before you change anything: with so few steps, no change is certain to help");
}

void advice_take(struct advice_plan *plan)
{
	struct analysis *analysis = plan->analysis;
	bool taken[ADVICE_PLAN_MAX] = {false};

	while (analysis->n_actions < ANALYSIS_ACTIONS_MAX) {
		size_t best = plan->n;

		for (size_t i = 0; i < plan->n; i++)
			if (!taken[i] && (best == plan->n || comes_before(plan, i, best)))
				best = i;
		if (best == plan->n)
			return;
		if (!analysis->n_actions && place_of(plan, best) == 3)
			say_that_nothing_is_sure(analysis);
		analysis->actions[analysis->n_actions++] = plan->actions[best];
		taken[best] = true;
	}
}

bool advice_in_vain(const struct estimate *gain)
{
	return !isnan(gain->value) && gain->value < 1 / NEARLY;
}

static double most_of(const struct analysis *analysis, double ratio, double error)
{
	if (analysis->sampled.is)
		ratio += error + analysis_steady_ratio(analysis, SHARE_OTHER);
	return fmin(ratio, 1);
}

double advice_share(const struct analysis *analysis, enum analysis_share share)
{
	return most_of(analysis, analysis_steady_ratio(analysis, share), analysis->sampled.error[share]);
}

double advice_wait(const struct analysis *analysis)
{
	return most_of(
	    analysis,
	    analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		analysis_steady_ratio(analysis, SHARE_PREP_STALL),
	    fmax(analysis->sampled.error[SHARE_FETCH_STALL], analysis->sampled.error[SHARE_PREP_STALL]));
}

double advice_gain_of(double share)
{
	return share < 0.99 ? 1 / (1 - share) : 100;
}

double advice_idle_cores(const struct analysis *analysis)
{
	double busy = summary_busy_cores(analysis);

	return analysis->window.observed_ns && busy < analysis->job.n_cpus ? analysis->job.n_cpus - busy : 0;
}

double advice_gil_ratio(const struct analysis *analysis)
{
	/* Worker processes have interpreter locks of their own, so the waits of their threads do not
	 * count. */
	uint64_t ns = analysis->parts.gil_starved_ns +
		      (analysis->job.loader == LOADER_WORKERS ? 0 : analysis->parts.gil_ns);

	return analysis->window.observed_ns ? (double)ns / (double)analysis->window.observed_ns : 0;
}
