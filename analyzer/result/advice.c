/* SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "native.h"

#define NARROW 0.15 /* interval over value: a prediction this narrow is sure */
#define NEARLY 0.98 /* as good as the best */

static double wait_share(const struct analysis *analysis)
{
	return analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
	       analysis_steady_ratio(analysis, SHARE_PREP_STALL);
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

/* What the model predicts for the action that was added last. The bound is arithmetic on shares; the model
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
	return found && found->x != curve->here && found->speedup.value > 1 + ADVICE_NOTABLE &&
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
	double here = analysis->predictions->curves[WHAT_IF_WORKERS].here;

	if (analysis->loader == LOADER_INLINE)
		action_add(analysis, point->speedup.high, CONFIDENCE_MEDIUM,
			   "Load in the background: num_workers=%.0f overlaps loading with the step",
			   point->x);
	else
		action_add(analysis, point->speedup.high, CONFIDENCE_MEDIUM,
			   "Use %.0f worker%s instead of %.0f", point->x, point->x == 1 ? "" : "s", here);
	action_predict(analysis, &point->speedup);
}

/* Each epoch waits for workers to start: a new Python has to start, or a forked one copies memory page by
 * page. */
static void act_on_fresh_workers(struct analysis *analysis)
{
	const struct estimate *gain;

	if (!analysis->predictions)
		return;
	gain = &analysis->predictions->persistent_speedup;
	if (!(gain->value > 1 + ADVICE_NOTABLE))
		return;
	action_add(
	    analysis, gain->high, CONFIDENCE_MEDIUM,
	    "Keep the workers from epoch to epoch: DataLoader(persistent_workers=True); now each epoch "
	    "waits for new ones to start");
	action_predict(analysis, gain);
}

static void act_on_storage(struct analysis *analysis)
{
	const struct predictions *predictions = analysis->predictions;
	double cache = predictions->cache_ratio_needed.value,
	       storage = predictions->storage_factor_needed.value;
	const struct estimate *gain = speedup_at(&predictions->curves[WHAT_IF_CACHE], 1);
	double most = gain_of(analysis_steady_ratio(analysis, SHARE_FETCH_STALL));

	if (in_vain(gain))
		return;
	if (!isnan(cache) && !isnan(storage))
		action_add(
		    analysis, most, CONFIDENCE_MEDIUM,
		    "Keep %.0f %% of the dataset in memory (dieseld does), or read %.1f times as fast: "
		    "pack it (dieselctl pack), or faster storage",
		    100 * cache, storage);
	else
		action_add(
		    analysis, most, CONFIDENCE_MEDIUM,
		    "Make reading cheaper: pack the dataset (dieselctl pack) and serve it with dieseld, "
		    "or move it to faster storage or into memory");
	action_predict(analysis, gain);
}

#define READ_AHEAD_EXCESS 3 /* times as much read from storage as used: less is the price of large reads */

/* Read-ahead that nobody uses costs bandwidth: without it, storage is faster by as much. */
static void act_on_read_ahead(struct analysis *analysis)
{
	double excess = analysis->page_cache ? page_cache_excess(analysis->page_cache) : 0;
	const struct what_if_curve *curve;
	const struct estimate *gain = NULL;

	if (excess < READ_AHEAD_EXCESS)
		return;
	curve = analysis->predictions ? &analysis->predictions->curves[WHAT_IF_STORAGE] : NULL;
	for (size_t i = curve ? curve->n_points : 0; i-- > 0 && !gain;)
		if (curve->points[i].x <= excess && curve->points[i].x > 1)
			gain = &curve->points[i].speedup;
	if (gain && in_vain(gain))
		return;
	action_add(
	    analysis, gain_of(analysis_steady_ratio(analysis, SHARE_FETCH_STALL)), CONFIDENCE_MEDIUM,
	    "Turn read-ahead off where records are read at random (lmdb.open(readahead=False), MADV_RANDOM, "
	    "POSIX_FADV_RANDOM): %.0f times as much came from storage as was used",
	    excess);
	if (gain)
		action_predict(analysis, gain);
}

/* Cores that nobody needed, on average over the window: no process or rank of the job had them, nor waited
 * for one that a neighbour had. */
static double idle_cores(const struct analysis *analysis)
{
	double wall = (double)analysis->observed_ns, busy = (double)analysis->job_busy_ns;

	if (!analysis->job_busy_ns) /* sampled: one trainer, and its workers */
		busy = (double)analysis->workers.cpu_ns + (double)analysis->workers.queue_ns +
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

	if (fetch < ADVICE_NOTABLE)
		return;
	act_on_read_ahead(analysis);
	if (analysis->predictions && !diesel) {
		act_on_storage(analysis);
		return;
	}
	if (diesel && 2 * analysis->peers_ns > analysis->share_ns[SHARE_FETCH_STALL]) {
		action_add(
		    analysis, gain_of(fetch), CONFIDENCE_MEDIUM,
		    "Bring chunks from the job's other nodes sooner: dieseld waits for these and not for "
		    "storage; `dieselctl cluster status` and diesel-top say for which, and how fast its "
		    "link is");
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

/* With one worker, loading runs in parallel with the step: at best the two overlap wholly. */
static void act_on_inline(struct analysis *analysis)
{
	double wait = wait_share(analysis), rest = 1 - wait;
	double left = rest > wait ? rest : wait;

	if (wait < ADVICE_NOTABLE || analysis->predictions)
		return;
	action_add(analysis, 1 / left, analysis->n_cpus > 1 ? CONFIDENCE_MEDIUM : CONFIDENCE_LOW,
		   "Load in the background: num_workers=1 overlaps loading with the step%s",
		   analysis->n_cpus == 1 ? " (but there is one core only)" : "; then measure again");
}

/* diesel_loader without worker processes: whatever workers take over, the time without preparing remains, and
 * n cores do not make the job more than n times as fast. */
static void act_on_own_prep(struct analysis *analysis)
{
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double left = fmax(1 - prep, 1 / (double)analysis->n_cpus);

	if (analysis->loader != LOADER_DIESEL || analysis->n_cpus < 2 ||
	    2 * analysis->own_prep_ns < analysis->share_ns[SHARE_PREP_STALL])
		return;
	action_add(
	    analysis, 1 / left, CONFIDENCE_MEDIUM,
	    "Let worker processes prepare: num_workers=\"auto\", the default, takes it off the trainer, "
	    "which does it all by itself now");
}

#define NATIVE_SAMPLES_SURE 100 /* of decoding: fewer are a hint */

/* Images that Python decodes: dieseld could. What is gained is known from other jobs, so that it is never
 * sure. */
static void act_on_native(struct analysis *analysis)
{
	const struct native_prediction *native =
	    analysis->predictions ? &analysis->predictions->native : NULL;
	const struct estimate part = native_part(analysis->profile);
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	/* The step cannot take less than what is left of preparing, on all cores; nor than the rest. */
	double cores = fmax(1, (double)analysis->n_cpus / fmax(1, (double)analysis->workers.n_at_once));
	double left = fmax(1 - prep, native_cost(part.high, NATIVE_SPEEDUP_HIGH) / cores);
	size_t n = analysis->n_actions;

	if (isnan(part.value) || prep < ADVICE_NOTABLE || (native && in_vain(&native->speedup)))
		return;
	if (analysis->loader == LOADER_DIESEL)
		action_add(
		    analysis, 1 / left, CONFIDENCE_LOW,
		    "Decode in dieseld (native): %.0f %% of preparing decodes and transforms images in "
		    "Python, "
		    "by native=False or a transform that dieseld does not run: loader.plan() says which",
		    100 * part.value);
	else
		action_add(
		    analysis, 1 / left, CONFIDENCE_LOW,
		    "Decode in dieseld (native): dieselctl pack, then diesel_loader's DataLoader with the "
		    "same transform; %.0f %% of preparing decodes and transforms images, which takes "
		    "dieseld %.1f to %.1f times less CPU time",
		    100 * part.value, NATIVE_SPEEDUP_LOW, NATIVE_SPEEDUP_HIGH);
	if (!native || analysis->n_actions == n)
		return;
	action_predict(analysis, &native->speedup);
	analysis->actions[n].confidence =
	    analysis->profile->images.n_decode < NATIVE_SAMPLES_SURE ? CONFIDENCE_LOW : CONFIDENCE_MEDIUM;
}

static void act_on_prep(struct analysis *analysis)
{
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double idle = idle_cores(analysis);
	uint32_t n = analysis->workers.n_at_once;

	if (prep < ADVICE_NOTABLE)
		return;
	act_on_own_prep(analysis);
	/* A fetch-bound job has the advice to use more workers already. */
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
	if (analysis->loader == LOADER_DIESEL &&
	    2 * analysis->daemon_prep_ns > analysis->share_ns[SHARE_PREP_STALL]) {
		action_add(
		    analysis, gain_of(prep), CONFIDENCE_LOW,
		    "Give dieseld more cores, or less to decode: smaller images, or JPEG files with restart "
		    "markers (dieselctl pack --jpeg-restarts); dieselctl why says what it does with those it "
		    "has");
		return;
	}
	/* Half the work takes at least half the time, however long the trainer waits for it. */
	action_add(analysis, fmin(gain_of(prep), 2), CONFIDENCE_HIGH, "%s",
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
	else if (!(report->interval_steps >= 1)) /* only one checkpoint was seen */
		action_add(analysis, factor, CONFIDENCE_MEDIUM,
			   "Write a checkpoint every %u steps at most: that costs %.1f %%",
			   report->advised_steps, 100 * report->advised_overhead);
	else
		return false;
	return true;
}

/* Are most checkpoints written by a thread or process other than the trainer? */
static bool in_background(const struct checkpoint_report *report)
{
	size_t n = 0;

	for (size_t i = 0; report && i < report->n_items; i++)
		n += report->items[i].background;
	return report && 2 * n > report->n_items;
}

static void act_on_checkpoint(struct analysis *analysis)
{
	double checkpoint = analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);

	if (checkpoint < ADVICE_NOTABLE)
		return;
	if (!in_background(analysis->checkpoints))
		action_add(
		    analysis, gain_of(checkpoint), CONFIDENCE_HIGH,
		    "Write checkpoints in the background: copy the state, then let a thread or process "
		    "write it; or write to faster storage");
	else if (!act_on_interval(analysis))
		action_add(
		    analysis, gain_of(checkpoint), CONFIDENCE_MEDIUM,
		    "Checkpoints are written in the background; what is left is copying the state, and "
		    "waiting for the save before: save less often, or to faster storage");
	if (!in_background(analysis->checkpoints) && !act_on_interval(analysis))
		action_add(analysis, gain_of(checkpoint / 2), CONFIDENCE_HIGH,
			   "Write checkpoints half as often");
}

static void act_on_cores(struct analysis *analysis)
{
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double neighbours = advice_neighbours_share(analysis);

	if (starved < ADVICE_NOTABLE)
		return;
	action_add(analysis, gain_of(starved), CONFIDENCE_MEDIUM, "Keep a core free for the trainer: %s",
		   analysis->approximate      ? "who had it was not seen"
		   : neighbours > starved / 2 ? "other processes of this machine had it most of the time"
					      : "the job's own workers and threads had it most of the time");
}

/* Compiling is paid once in a run, however long; a cache of what was compiled saves it in the next run. */
static void act_on_compiling(struct analysis *analysis)
{
	double compiling = analysis_share_ratio(analysis, SHARE_COMPILING);

	if (compiling < ANALYSIS_STALL_THRESHOLD)
		return;
	action_add(
	    analysis, gain_of(compiling), CONFIDENCE_MEDIUM,
	    "Compiling took %.0f %% of this run, once: a longer run hides it, and runs that share its cache "
	    "save it (TORCHINDUCTOR_CACHE_DIR; JAX: jax_compilation_cache_dir)",
	    100 * compiling);
}

/* Lowers the confidence if something could not be seen, or if the job trained for less time than it
 * compiled. */
static void confidence_limit(struct analysis *analysis)
{
	enum analysis_confidence most =
	    analysis->verdict == ANALYSIS_DEVICE_BOUND ? CONFIDENCE_LOW : CONFIDENCE_MEDIUM;
	bool unsure = analysis->blind || analysis_share_ratio(analysis, SHARE_COMPILING) > 0.5;

	for (size_t i = 0; unsure && i < analysis->n_actions; i++)
		if (analysis->actions[i].confidence > most)
			analysis->actions[i].confidence = most;
}

void advice_actions(struct analysis *analysis)
{
	const struct what_if_point *workers = best_workers(analysis);

	/* What binds the job comes first, and the rest as far as there is room. */
	switch (analysis->verdict) {
	case ANALYSIS_INSUFFICIENT: return;
	case ANALYSIS_CHECKPOINT_BOUND: act_on_checkpoint(analysis); break;
	case ANALYSIS_FETCH_BOUND: act_on_fetch(analysis); break;
	case ANALYSIS_PREP_BOUND: act_on_native(analysis); break;
	case ANALYSIS_DEVICE_BOUND: break;
	}
	act_on_fresh_workers(analysis);
	if (workers)
		act_on_workers(analysis, workers);
	if (analysis->loader == LOADER_INLINE)
		act_on_inline(analysis);
	if (analysis->verdict != ANALYSIS_PREP_BOUND)
		act_on_native(analysis);
	act_on_prep(analysis);
	if (analysis->verdict != ANALYSIS_FETCH_BOUND)
		act_on_fetch(analysis);
	if (analysis->verdict != ANALYSIS_CHECKPOINT_BOUND)
		act_on_checkpoint(analysis);
	act_on_cores(analysis);
	act_on_compiling(analysis);
	if (!analysis->n_actions)
		action_add(
		    analysis, gain_of(wait_share(analysis)), CONFIDENCE_HIGH, "%s",
		    analysis->blind
			? "Nothing to gain where reading was seen; if the job prepares its data by itself, "
			  "give it a DataLoader and measure again"
			: "Nothing to gain at the input pipeline: look at the model or the device");
	confidence_limit(analysis);
}
