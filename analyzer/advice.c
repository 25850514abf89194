/* SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define NOTABLE_SHARE 0.05 /* less is not worth an action of its own */
#define NARROW        0.15 /* an interval, of its value: the prediction is sure */
#define NEARLY        0.98 /* as good as the best */
#define LARGE_OTHER   0.05 /* more unexplained time must be said */

static double wait_share(const struct analysis *analysis)
{
	return analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
	       analysis_steady_ratio(analysis, SHARE_PREP_STALL);
}

/* Of the observed time: the trainer had no core, as processes that are not of the job had it. */
static double neighbours_share(const struct analysis *analysis)
{
	return analysis->observed_ns ? (double)analysis->neighbours_ns / (double)analysis->observed_ns : 0;
}

void advice_verdict(struct analysis *analysis)
{
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double checkpoint = analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double neighbours = neighbours_share(analysis);
	double other = analysis_steady_ratio(analysis, SHARE_OTHER);
	double gil =
	    analysis->observed_ns ? (double)analysis->gil_starved_ns / (double)analysis->observed_ns : 0;

	if (fetch + prep + checkpoint < ANALYSIS_STALL_THRESHOLD)
		analysis->verdict = ANALYSIS_DEVICE_BOUND;
	else if (checkpoint > fetch && checkpoint > prep)
		analysis->verdict = ANALYSIS_CHECKPOINT_BOUND;
	else
		analysis->verdict = fetch >= prep ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND;
	if (analysis->warmup_ns > analysis->steady_ns)
		snprintf(
		    analysis->note, sizeof(analysis->note),
		    "the first %zu steps took longer than the other %zu together, and are left out: record "
		    "longer, or mind the start",
		    analysis->n_warmup_steps, analysis->n_steps - analysis->n_warmup_steps);
	else if (analysis->loader == LOADER_WORKERS && analysis->method == METHOD_WALK &&
		 fetch + prep > NOTABLE_SHARE)
		snprintf(
		    analysis->note, sizeof(analysis->note),
		    "fetch and prep are told apart by the walk alone, which puts fetch low where workers "
		    "overlap: %s",
		    analysis->no_predictions[0] ? analysis->no_predictions : "no replay");
	else if (other > LARGE_OTHER)
		snprintf(analysis->note, sizeof(analysis->note),
			 "%.0f %% of the time is unexplained: the trainer slept and nothing seen tells why",
			 100 * other);
	else if (gil > ANALYSIS_STALL_THRESHOLD / 2)
		snprintf(
		    analysis->note, sizeof(analysis->note),
		    "for %.0f %% of the time the trainer waited for the interpreter lock (GIL) that other "
		    "threads of its process held",
		    100 * gil);
	else if (starved > ANALYSIS_STALL_THRESHOLD && analysis->approximate)
		snprintf(analysis->note, sizeof(analysis->note),
			 "for %.0f %% of the time the trainer was ready to compute but had no core",
			 100 * starved);
	else if (starved > ANALYSIS_STALL_THRESHOLD)
		snprintf(analysis->note, sizeof(analysis->note),
			 "for %.0f %% of the time the trainer was ready to compute but had no core: %.0f %% "
			 "the job's "
			 "own threads had it, %.0f %% others",
			 100 * starved, 100 * fmax(0, starved - neighbours), 100 * neighbours);
}

/* gain of removing this share of the time, as a factor */
static double gain_of(double share)
{
	return share < 0.99 ? 1 / (1 - share) : 100;
}

__attribute__((format(printf, 4, 5))) static void action_add(struct analysis *analysis, double gain_max,
							     enum analysis_confidence confidence,
							     const char *format, ...)
{
	struct analysis_action *action;
	va_list arguments;

	if (analysis->n_actions == ANALYSIS_ACTIONS_MAX)
		return;
	action = &analysis->actions[analysis->n_actions++];
	action->gain_max = gain_max;
	action->confidence = confidence;
	va_start(arguments, format);
	vsnprintf(action->text, sizeof(action->text), format, arguments);
	va_end(arguments);
}

/* What the model predicts for the action that was added last. The bound is by arithmetic on shares; the model
 * also knows what else shrinks with them. */
static void action_predict(struct analysis *analysis, const struct estimate *gain)
{
	struct analysis_action *action = &analysis->actions[analysis->n_actions - 1];

	if (!analysis->predictions || isnan(gain->value))
		return;
	action->gain = *gain;
	if (action->gain_max < gain->high)
		action->gain_max = gain->high;
	action->confidence =
	    gain->high - gain->low < NARROW * gain->value ? CONFIDENCE_HIGH : CONFIDENCE_MEDIUM;
}

static const struct estimate *speedup_at(const struct what_if_curve *curve, double x)
{
	static const struct estimate unknown = {NAN, NAN, NAN};

	for (size_t i = 0; i < curve->n_points; i++)
		if (curve->points[i].x == x)
			return &curve->points[i].speedup;
	return &unknown;
}

/* The fewest workers that come within 2 % of the best that workers give. NULL: not known, or no better than
 * those there are. */
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
	return found && found->x != curve->here && found->speedup.value > 1 + NOTABLE_SHARE &&
		       found->speedup.low > 1
		   ? found
		   : NULL;
}

/* The model says that it would not help: then it is no advice. */
static bool in_vain(const struct estimate *gain)
{
	return !isnan(gain->value) && gain->value < 1 / NEARLY;
}

static void act_on_workers(struct analysis *analysis, const struct what_if_point *point)
{
	uint32_t n = analysis->workers.n_at_once;

	if (analysis->loader == LOADER_INLINE)
		action_add(analysis, point->speedup.high, CONFIDENCE_MEDIUM,
			   "Load in the background: num_workers=%.0f overlaps loading with the step",
			   point->x);
	else
		action_add(analysis, point->speedup.high, CONFIDENCE_MEDIUM,
			   "Use %.0f worker%s instead of %u", point->x, point->x == 1 ? "" : "s", n);
	action_predict(analysis, &point->speedup);
}

static void act_on_storage(struct analysis *analysis)
{
	const struct predictions *predictions = analysis->predictions;
	double cache = predictions->cache_ratio_needed.value,
	       storage = predictions->storage_factor_needed.value;

	if (!isnan(cache) && !isnan(storage))
		action_add(
		    analysis, 1, CONFIDENCE_MEDIUM,
		    "Keep %.0f %% of the dataset in memory (dieseld does), or read %.1f times as fast: "
		    "pack it (dieselctl pack), or faster storage",
		    100 * cache, storage);
	else
		action_add(
		    analysis, 1, CONFIDENCE_MEDIUM,
		    "Make reading cheaper: pack the dataset (dieselctl pack) and serve it with dieseld, "
		    "or move it to faster storage or into memory");
	action_predict(analysis, speedup_at(&predictions->curves[WHAT_IF_CACHE], 1));
}

#define READ_AHEAD_EXCESS 3 /* times as much brought in as used: less is the price of large reads */

/* Reading neighbours of what is wanted costs bandwidth: without them storage is as much faster. */
static void act_on_read_ahead(struct analysis *analysis)
{
	double excess = analysis->page_cache ? page_cache_excess(analysis->page_cache) : 0;
	const struct what_if_curve *curve;

	if (excess < READ_AHEAD_EXCESS)
		return;
	action_add(
	    analysis, gain_of(analysis_steady_ratio(analysis, SHARE_FETCH_STALL)), CONFIDENCE_MEDIUM,
	    "Turn read-ahead off where records are read at random (lmdb.open(readahead=False), MADV_RANDOM, "
	    "POSIX_FADV_RANDOM): %.0f times as much came from storage as was used",
	    excess);
	if (!analysis->predictions)
		return;
	curve = &analysis->predictions->curves[WHAT_IF_STORAGE];
	for (size_t i = curve->n_points; i-- > 0;)
		if (curve->points[i].x <= excess && curve->points[i].x > 1) {
			action_predict(analysis, &curve->points[i].speedup);
			return;
		}
}

/* Cores that nobody needed, on average over the window: neither the trainer nor the workers had them, nor did
 * these wait for one that a neighbour had. */
static double idle_cores(const struct analysis *analysis)
{
	double wall = (double)analysis->observed_ns;
	double busy = (double)analysis->workers.cpu_ns + (double)analysis->workers.queue_ns +
		      (double)analysis->share_ns[SHARE_DEVICE] +
		      (double)analysis->share_ns[SHARE_CPU_STARVED];

	if (!analysis->n_cpus || wall <= 0)
		return 0;
	return busy / wall < (double)analysis->n_cpus ? (double)analysis->n_cpus - busy / wall : 0;
}

static void act_on_fetch(struct analysis *analysis)
{
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	bool diesel = analysis->loader == LOADER_DIESEL;
	uint32_t n = analysis->workers.n_at_once;

	if (fetch < NOTABLE_SHARE)
		return;
	act_on_read_ahead(analysis);
	if (analysis->predictions && !diesel) {
		act_on_storage(analysis);
		return;
	}
	action_add(analysis, gain_of(fetch),
		   analysis->method == METHOD_WALK && analysis->loader == LOADER_WORKERS ? CONFIDENCE_LOW
											 : CONFIDENCE_HIGH,
		   "%s",
		   diesel
		       ? "Give dieseld a larger cache or a deeper prefetch: it still waits for storage"
		       : "Make reading cheaper: pack the dataset (dieselctl pack) and serve it with dieseld, "
			 "or move it to faster storage or into memory");
	if (analysis->loader == LOADER_WORKERS && n && analysis->workers.fetch_ns > analysis->workers.cpu_ns)
		action_add(analysis, gain_of(fetch / 2), CONFIDENCE_LOW,
			   "Use %u workers instead of %u, if the storage serves several readers at once",
			   2 * n, n);
}

/* One worker more takes the waits of a step in parallel with the step: at most both overlap wholly. */
static void act_on_inline(struct analysis *analysis)
{
	double wait = wait_share(analysis), rest = 1 - wait;
	double left = rest > wait ? rest : wait;

	if (wait < NOTABLE_SHARE || analysis->predictions)
		return;
	action_add(analysis, 1 / left, analysis->n_cpus > 1 ? CONFIDENCE_MEDIUM : CONFIDENCE_LOW,
		   "Load in the background: num_workers=1 overlaps loading with the step%s",
		   analysis->n_cpus == 1 ? " (but there is one core only)" : "; then measure again");
}

static void act_on_prep(struct analysis *analysis)
{
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double idle = idle_cores(analysis);
	uint32_t n = analysis->workers.n_at_once;

	if (prep < NOTABLE_SHARE)
		return;
	/* A fetch-bound job was told to use more workers already. */
	if (analysis->loader == LOADER_WORKERS && analysis->verdict != ANALYSIS_FETCH_BOUND && n &&
	    !analysis->predictions && idle >= 0.5) {
		uint32_t more = n + (uint32_t)(idle + 0.5);
		/* The stall cannot shrink by more than the number of workers grows. */
		double share = prep * (1 - (double)n / (double)more);

		action_add(analysis, gain_of(share), CONFIDENCE_MEDIUM,
			   "Use %u workers instead of %u: %.1f of %u cores were idle", more, n, idle,
			   analysis->n_cpus);
	}
	if (analysis->predictions && in_vain(&analysis->predictions->half_prep_speedup))
		return;
	action_add(analysis, gain_of(prep), CONFIDENCE_HIGH, "%s",
		   analysis->loader == LOADER_WORKERS && idle < 0.5
		       ? "Make preparing cheaper (fewer or faster transforms, smaller images, "
			 "preprocess once), by half say: all cores are busy, more workers would not help"
		       : "Make preparing cheaper, by half say: fewer or faster transforms, smaller images, "
			 "preprocess "
			 "once");
	if (analysis->predictions)
		action_predict(analysis, &analysis->predictions->half_prep_speedup);
}

/* CheckFreq's interval, if it is longer than the job's own. */
static bool act_on_interval(struct analysis *analysis)
{
	const struct checkpoint_report *report = analysis->checkpoints;
	double factor;

	if (!report || !report->advised_steps || !(report->advised_overhead < report->overhead))
		return false;
	factor = (1 + report->overhead) / (1 + report->advised_overhead);
	if (report->interval_steps < report->advised_steps)
		action_add(
		    analysis, factor, CONFIDENCE_HIGH,
		    "Write a checkpoint every %u steps instead of every %.0f: that costs %.1f %% instead "
		    "of %.0f %%",
		    report->advised_steps, report->interval_steps, 100 * report->advised_overhead,
		    100 * report->overhead);
	else if (!(report->interval_steps >= 1)) /* one was seen */
		action_add(analysis, factor, CONFIDENCE_MEDIUM,
			   "Write a checkpoint every %u steps at most: that costs %.1f %%",
			   report->advised_steps, 100 * report->advised_overhead);
	else
		return false;
	return true;
}

static void act_on_checkpoint(struct analysis *analysis)
{
	double checkpoint = analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);

	if (checkpoint < NOTABLE_SHARE)
		return;
	action_add(
	    analysis, gain_of(checkpoint), CONFIDENCE_HIGH,
	    "Write checkpoints in the background: copy the state, then let a thread or process write it; "
	    "or write to faster storage");
	if (!act_on_interval(analysis))
		action_add(analysis, gain_of(checkpoint / 2), CONFIDENCE_HIGH,
			   "Write checkpoints half as often");
}

static void act_on_cores(struct analysis *analysis)
{
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double neighbours = neighbours_share(analysis);

	if (starved < NOTABLE_SHARE)
		return;
	action_add(analysis, gain_of(starved), CONFIDENCE_MEDIUM, "Keep a core free for the trainer: %s",
		   neighbours > starved / 2 ? "other processes of this machine had it most of the time"
					    : "the job's own workers and threads had it most of the time");
}

void advice_actions(struct analysis *analysis)
{
	const struct what_if_point *workers = best_workers(analysis);

	/* What binds comes first; the rest as far as there is room. */
	switch (analysis->verdict) {
	case ANALYSIS_INSUFFICIENT: return;
	case ANALYSIS_CHECKPOINT_BOUND: act_on_checkpoint(analysis); break;
	case ANALYSIS_FETCH_BOUND: act_on_fetch(analysis); break;
	case ANALYSIS_PREP_BOUND:
	case ANALYSIS_DEVICE_BOUND: break;
	}
	if (workers)
		act_on_workers(analysis, workers);
	if (analysis->loader == LOADER_INLINE)
		act_on_inline(analysis);
	act_on_prep(analysis);
	if (analysis->verdict != ANALYSIS_FETCH_BOUND)
		act_on_fetch(analysis);
	if (analysis->verdict != ANALYSIS_CHECKPOINT_BOUND)
		act_on_checkpoint(analysis);
	act_on_cores(analysis);
	if (!analysis->n_actions)
		action_add(analysis, gain_of(wait_share(analysis)), CONFIDENCE_HIGH,
			   "Nothing to gain at the input pipeline: look at the model or the device");
}
