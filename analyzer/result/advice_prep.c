/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about waits for data that is prepared. */
#include <math.h>
#include <stdio.h>

#include "advice.h"
#include "advice_data.h"
#include "advice_plan.h"
#include "native.h"

#define NEARLY 0.98 /* as good as the best */

/* A value that the cores limit is no surer than the model's own: its low end comes down with it. */
static struct estimate limited(const struct estimate *gain, double most)
{
	if (!(gain->value > most))
		return (struct estimate){gain->value, gain->low, fmin(gain->high, most)};
	return (struct estimate){most, gain->low * most / gain->value, most};
}

/* The fewest workers that come within 2 % of the best speed-up by workers. NULL: not known, or no better than
 * the present number. */
static const struct what_if_point *best_workers(const struct analysis *analysis)
{
	const struct what_if_curve *curve;
	const struct what_if_point *found = NULL;
	double best = 0;

	if (!analysis->predictions)
		return NULL;
	curve = &analysis->predictions->curves[WHAT_IF_WORKERS];
	for (size_t i = 0; i < curve->n_points; i++)
		best = fmax(best, curve->points[i].speedup.value);
	for (size_t i = 0; i < curve->n_points && !found; i++)
		if (curve->points[i].speedup.value >= NEARLY * best)
			found = &curve->points[i];
	return found && found->x != curve->here ? found : NULL;
}

static bool is_notable(const struct estimate *gain)
{
	return gain->value > 1 + ADVICE_NOTABLE && gain->low > 1;
}

/* A loop of the job's own has no workers to set the number of. */
static const char *by_loader(const struct analysis *analysis)
{
	return analysis->blind || analysis->waits_sampled ? ", by a DataLoader with" : ":";
}

static void use_workers(struct advice_plan *plan, const struct what_if_point *point)
{
	double here = plan->analysis->predictions->curves[WHAT_IF_WORKERS].here;
	/* More workers have no more cores than there are. */
	double most = point->x > here ? advice_cores_limit(plan->analysis) : INFINITY;
	struct estimate gain = limited(&point->speedup, most);

	if (!is_notable(&gain))
		return;
	if (plan->analysis->loader == LOADER_INLINE)
		advice_add(plan, gain.high, CONFIDENCE_MEDIUM, &gain,
			   "Load in the background%s num_workers=%.0f, which overlaps loading with the step",
			   by_loader(plan->analysis), point->x);
	else
		advice_add(plan, gain.high, CONFIDENCE_MEDIUM, &gain, "Use %.0f worker%s instead of %.0f",
			   point->x, point->x == 1 ? "" : "s", here);
}

/* Each epoch waits for workers to start: a new Python has to start, or a forked one copies memory page by
 * page. */
static void keep_workers(struct advice_plan *plan)
{
	const struct estimate *gain;

	if (!plan->analysis->predictions)
		return;
	gain = &plan->analysis->predictions->persistent_speedup;
	if (!(gain->value > 1 + ADVICE_NOTABLE))
		return;
	advice_add(
	    plan, gain->high, CONFIDENCE_MEDIUM, gain,
	    "Keep the workers from epoch to epoch: DataLoader(persistent_workers=True); now each epoch "
	    "waits for new ones to start");
}

/* Without a replay nobody knows how many workers it takes. No number of them makes the job faster than
 * without any wait, nor than its work takes all cores. */
static void load_in_background(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double wait = analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		      analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double limit = fmin(advice_gain_of(advice_wait(analysis)), advice_cores_limit(analysis));

	if (wait < ADVICE_NOTABLE || analysis->predictions || !(limit > 1 + ADVICE_NOTABLE))
		return;
	advice_add(plan, limit, analysis->n_cpus > 1 ? CONFIDENCE_MEDIUM : CONFIDENCE_LOW, NULL,
		   "Load in the background%s num_workers=1, which overlaps loading with the step%s",
		   by_loader(analysis),
		   analysis->n_cpus == 1 ? " (but there is one core only)" : "; then measure again");
}

void advice_on_workers(struct advice_plan *plan)
{
	const struct what_if_point *point = best_workers(plan->analysis);

	keep_workers(plan);
	if (point)
		use_workers(plan, point);
	if (plan->analysis->loader == LOADER_INLINE)
		load_in_background(plan);
}

/* diesel_loader without worker processes: whatever workers take over, the time without preparing remains, and
 * n cores do not make the job more than n times as fast. */
static void on_own_prep(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double left = fmax(1 - advice_share(analysis, SHARE_PREP_STALL), 1 / (double)analysis->n_cpus);

	if (analysis->loader != LOADER_DIESEL || analysis->n_cpus < 2 ||
	    2 * analysis->own_prep_ns < analysis->share_ns[SHARE_PREP_STALL])
		return;
	advice_add(
	    plan, 1 / left, CONFIDENCE_MEDIUM, NULL,
	    "Let worker processes prepare: num_workers=\"auto\", the default, takes it off the trainer, "
	    "which does it all by itself now");
}

#define NATIVE_SAMPLES_SURE 100 /* of decoding: fewer are a hint */

/* The names that torchvision's transforms have in stacks tell which of them dieseld runs, but not their
 * parameters nor their order: loader.plan() has both. */
static void decode_natively(struct advice_plan *plan, double gain_max, double part,
			    const struct estimate *gain)
{
	char pack[ADVICE_PACK_BYTES];

	if (plan->analysis->loader == LOADER_DIESEL) {
		advice_add(
		    plan, gain_max, CONFIDENCE_LOW, gain,
		    "Decode in dieseld (native): %.0f %% of preparing decodes and transforms images in "
		    "Python, "
		    "by native=False or a transform that dieseld does not run: loader.plan() says which",
		    100 * part);
		return;
	}
	advice_pack(plan->analysis, pack, sizeof(pack));
	advice_add(plan, gain_max, CONFIDENCE_LOW, gain,
		   "Decode in dieseld (native): %s, then use diesel_loader's DataLoader, as far as its "
		   "loader.plan() takes the transform; %.0f %% of preparing decodes and transforms images, "
		   "which takes dieseld %.1f to %.1f times less CPU time",
		   pack, 100 * part, NATIVE_SPEEDUP_LOW, NATIVE_SPEEDUP_HIGH);
}

/* Transforms of torchvision's were seen, and none that dieseld runs: it would leave all of it to Python. */
static bool plan_takes_nothing(const struct profile *profile)
{
	return profile->images.n_foreign && !profile->images.n_transform;
}

/* Images that Python decodes: dieseld could. What is gained is known from other jobs, so that it is never
 * sure. */
void advice_on_native(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	const struct native_prediction *native =
	    analysis->predictions ? &analysis->predictions->native : NULL;
	const struct estimate part = native_part(analysis->profile);
	/* The step cannot take less than what is left of preparing, on all cores; nor than the rest. */
	double cores = fmax(1, (double)analysis->n_cpus / fmax(1, (double)analysis->workers.n_at_once));
	double left = fmax(1 - advice_share(analysis, SHARE_PREP_STALL),
			   native_cost(part.high, NATIVE_SPEEDUP_HIGH) / cores);
	size_t n = plan->n;

	if (isnan(part.value) || analysis_steady_ratio(analysis, SHARE_PREP_STALL) < ADVICE_NOTABLE ||
	    plan_takes_nothing(analysis->profile) || (native && advice_in_vain(&native->speedup)))
		return;
	decode_natively(plan, 1 / left, part.value, native ? &native->speedup : NULL);
	if (native && plan->n > n && plan->actions[n].confidence > CONFIDENCE_LOW)
		plan->actions[n].confidence = analysis->profile->images.n_decode < NATIVE_SAMPLES_SURE
						  ? CONFIDENCE_LOW
						  : CONFIDENCE_MEDIUM;
}

/* Without a replay: as many workers more as there are idle cores. */
static void add_workers(struct advice_plan *plan, double idle)
{
	const struct analysis *analysis = plan->analysis;
	uint32_t n = analysis->workers.n_at_once, more = n + (uint32_t)(idle + 0.5);
	/* The stall cannot shrink by more than the number of workers grows. */
	double share = advice_share(analysis, SHARE_PREP_STALL) * (1 - (double)n / (double)more);

	/* A fetch-bound job has the advice to use more workers already. */
	if (analysis->loader != LOADER_WORKERS || analysis->verdict == ANALYSIS_FETCH_BOUND || !n ||
	    analysis->predictions || idle < 0.5)
		return;
	advice_add(plan, fmin(advice_gain_of(share), advice_cores_limit(analysis)), CONFIDENCE_MEDIUM, NULL,
		   "Use %u workers instead of %u: %.1f of %u cores were idle", more, n, idle,
		   analysis->n_cpus);
}

void advice_on_prep(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	const struct estimate *half =
	    analysis->predictions ? &analysis->predictions->half_prep_speedup : NULL;
	double gain = advice_gain_of(advice_share(analysis, SHARE_PREP_STALL));
	double idle = advice_idle_cores(analysis);

	if (analysis_steady_ratio(analysis, SHARE_PREP_STALL) < ADVICE_NOTABLE)
		return;
	on_own_prep(plan);
	add_workers(plan, idle);
	if (half && advice_in_vain(half))
		return;
	if (analysis->loader == LOADER_DIESEL &&
	    2 * analysis->daemon_prep_ns > analysis->share_ns[SHARE_PREP_STALL]) {
		advice_add(
		    plan, gain, CONFIDENCE_LOW, NULL,
		    "Give dieseld more cores, or less to decode: smaller images, or JPEG files with restart "
		    "markers (dieselctl pack --jpeg-restarts); dieselctl why says what it does with those it "
		    "has");
		return;
	}
	/* Half the work takes at least half the time, however long the trainer waits for it. */
	advice_add(plan, fmin(gain, 2), CONFIDENCE_HIGH, half, "%s",
		   analysis->loader == LOADER_WORKERS && idle < 0.5
		       ? "Make preparing cheaper (fewer or faster transforms, smaller images, "
			 "preprocess once), by half say: all cores are busy, more workers would not help"
		       : "Make preparing cheaper, by half say: fewer or faster transforms, smaller images, "
			 "preprocess "
			 "once");
}
