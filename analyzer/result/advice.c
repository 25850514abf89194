/* SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "analyzer/replay/native.h"
#include "analyzer/replay/summary.h"
#include "lib/clock.h"
#include "lib/container.h"

/*
 * Candidate actions, each with its own prediction. More are collected than shown. The final order:
 *
 *   1. actions against the job's bottleneck, if their gain is not predicted
 *   2. predicted gains that are certain, by the low end of their interval
 *   3. other actions without a prediction, in the order in which they were added
 *   4. predicted gains whose interval contains 1: they may gain nothing
 */

#define ADVICE_PLAN_MAX 16

struct advice_plan {
	struct analysis *analysis;
	struct analysis_action actions[ADVICE_PLAN_MAX];
	bool binds[ADVICE_PLAN_MAX]; /* the action is against the job's bottleneck */
	size_t n;
	bool binding; /* value of binds for actions added from now on */
};

#define NARROW 0.15 /* maximum ratio of interval to value of a prediction that is sure */
#define NEARLY 0.98 /* a gain below 1 / NEARLY counts as none */

static bool predicted(const struct analysis_action *action)
{
	return action->gain.value > 0;
}

/* Adds an action. gain_max: upper bound of the speed-up, by arithmetic. gain: the model's prediction for this
 * action; NULL or NAN: none. The model also covers other time that shrinks with a share, so its high end may
 * raise the bound. A prediction replaces the confidence, too. */
__attribute__((format(printf, 5, 6))) static void advice_add(struct advice_plan *plan, double gain_max,
							     enum analysis_confidence confidence,
							     const struct estimate *gain, const char *format,
							     ...)
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

/* Sorts the actions, and copies the first ANALYSIS_ACTIONS_MAX into the analysis. */
static void advice_take(struct advice_plan *plan)
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

/* Returns true if the action gains nothing in the model, so that it must not be advised. */
static bool advice_in_vain(const struct estimate *gain)
{
	return !isnan(gain->value) && gain->value < 1 / NEARLY;
}

static double most_of(const struct analysis *analysis, double ratio, double error)
{
	if (analysis->sampled.is)
		ratio += error + analysis_steady_ratio(analysis, SHARE_OTHER);
	return fmin(ratio, 1);
}

/* Returns the share of the steady time. If sampled, returns its upper bound, including its error and
 * unexplained time. */
static double advice_share(const struct analysis *analysis, enum analysis_share share)
{
	return most_of(analysis, analysis_steady_ratio(analysis, share), analysis->sampled.error[share]);
}

/* Returns the share of both data waits together, or its upper bound, as advice_share() does. */
static double advice_wait(const struct analysis *analysis)
{
	return most_of(
	    analysis,
	    analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		analysis_steady_ratio(analysis, SHARE_PREP_STALL),
	    fmax(analysis->sampled.error[SHARE_FETCH_STALL], analysis->sampled.error[SHARE_PREP_STALL]));
}

/* Returns the gain of removing this share of the time, as a factor. */
static double advice_gain_of(double share)
{
	return share < 0.99 ? 1 / (1 - share) : 100;
}

/* Returns the number of idle cores, on average over the window: no process or rank of the job had them, nor
 * waited for one that a neighbour had. */
static double advice_idle_cores(const struct analysis *analysis)
{
	double busy = summary_busy_cores(analysis);

	return analysis->window.observed_ns && busy < analysis->job.n_cpus ? analysis->job.n_cpus - busy : 0;
}

/* Returns the part of the observed time that went to waits for the interpreter lock of the trainer's process:
 * the trainer's own waits, or those of a thread that it waited for. */
static double advice_gil_ratio(const struct analysis *analysis)
{
	/* Worker processes have interpreter locks of their own, so the waits of their threads do not
	 * count. */
	uint64_t ns = analysis->parts.gil_starved_ns +
		      (analysis->job.loader == LOADER_WORKERS ? 0 : analysis->parts.gil_ns);

	return analysis->window.observed_ns ? (double)ns / (double)analysis->window.observed_ns : 0;
}

/* The kind of files that the job reads its data from, and the way to pack them. */

#define ADVICE_PACK_BYTES 160

#define STEPS_MIN 20 /* minimum steps: in fewer, one sample may be half of the bytes */

static double weight(const struct page_cache_place *file)
{
	return fmax((double)file->used_bytes, (double)file->cold_bytes);
}

/* Returns false for programs, libraries and shared memory, which may be read more than a small dataset is. */
static bool may_be_data(const char *path)
{
	static const char *const endings[] = {".so", ".py", ".pyc"};
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t length = strlen(name);

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (length >= strlen(endings[i]) &&
		    strcmp(name + length - strlen(endings[i]), endings[i]) == 0)
			return false;
	return strncmp(path, "/dev/", strlen("/dev/")) != 0 && !strstr(name, ".so.");
}

static void add(struct page_cache_place *sum, const struct page_cache_place *file)
{
	sum->used_bytes += file->used_bytes;
	sum->cold_bytes += file->cold_bytes;
}

/* Returns the kind of the most-read container, if containers have most of the bytes read; else NULL. Only
 * some of many tar shards are among the known files, so only known files are compared. */
static const struct container *container_read(const struct page_cache *cache)
{
	const struct container *found = NULL;
	struct page_cache_place all = {0}, of_containers = {0};
	double most = 0;

	for (size_t i = 0; i < cache->n_files; i++) {
		const struct page_cache_place *file = &cache->files[i];
		const struct container *container = container_of_path(file->path);

		if (may_be_data(file->path))
			add(&all, file);
		if (!container)
			continue;
		add(&of_containers, file);
		if (!found || weight(file) > most) {
			found = container;
			most = weight(file);
		}
	}
	return 2 * weight(&of_containers) > weight(&all) ? found : NULL;
}

/* Returns the file that provides more than half of all bytes; NULL: none. It cannot be one sample, so it
 * contains many. */
static const struct page_cache_place *array_read(const struct analysis *analysis)
{
	const struct page_cache *cache = analysis->page_cache;
	double all = fmax((double)cache->used_bytes, (double)cache->cold_bytes);

	for (size_t i = 0; analysis->n_steps >= STEPS_MIN && i < cache->n_files; i++)
		if (2 * weight(&cache->files[i]) > all && cache->files[i].path[0] == '/' &&
		    may_be_data(cache->files[i].path))
			return &cache->files[i];
	return NULL;
}

/*
 * Returns what the user must do so that dieseld can serve the data: "pack it (dieselctl pack)" for files of
 * one sample each, "if ..." if that is not known, and another way if pack would refuse the files.
 */
static const char *advice_pack(const struct analysis *analysis, char *buffer, size_t size)
{
	const struct page_cache *cache = analysis->page_cache;
	const struct container *container = cache ? container_read(cache) : NULL;

	if (container)
		snprintf(buffer, size, "its samples are in %s, so %s", container->what, container->instead);
	else if (cache && array_read(analysis))
		snprintf(buffer, size,
			 "write its samples with diesel_loader.create(), because dieselctl pack makes each "
			 "file one sample");
	else if (cache && cache->n_files)
		snprintf(buffer, size, "pack it (dieselctl pack)");
	else
		snprintf(buffer, size, "if each file is one sample, pack it (dieselctl pack)");
	return buffer;
}

/* Advice about waits for data that is prepared. */

#define NEARLY 0.98 /* fraction of the best speed-up that counts as equally good */

/* Returns the point with the fewest workers within 2 % of the best speed-up by workers. NULL: not known,
 * or no better than the present number. */
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

/* Returns the text for the job's loader: a job's own loop has no number of workers to set. */
static const char *by_loader(const struct analysis *analysis)
{
	return analysis->job.blind || analysis->parts.waits_sampled ? ", by a DataLoader with" : ":";
}

static void use_workers(struct advice_plan *plan, const struct what_if_point *point)
{
	double here = plan->analysis->predictions->curves[WHAT_IF_WORKERS].here;
	const struct estimate *gain = &point->speedup;

	if (!is_notable(gain))
		return;
	if (plan->analysis->job.loader == LOADER_INLINE)
		advice_add(plan, gain->high, CONFIDENCE_MEDIUM, gain,
			   "Load in the background%s num_workers=%.0f, which overlaps loading with the step",
			   by_loader(plan->analysis), point->x);
	else
		advice_add(plan, gain->high, CONFIDENCE_MEDIUM, gain, "Use %.0f worker%s instead of %.0f",
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
	advice_add(plan, gain->high, CONFIDENCE_MEDIUM, gain,
		   "Keep the workers from epoch to epoch with DataLoader(persistent_workers=True); now each "
		   "epoch waits for new ones to start");
}

/* Without a replay the required number of workers is unknown. No number makes the job faster than without
 * any wait, or than its work on all cores. */
static void load_in_background(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double wait = analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		      analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double limit = fmin(advice_gain_of(advice_wait(analysis)), summary_cores_limit(analysis));

	if (wait < ADVICE_NOTABLE || analysis->predictions || !(limit > 1 + ADVICE_NOTABLE))
		return;
	advice_add(plan, limit, analysis->job.n_cpus > 1 ? CONFIDENCE_MEDIUM : CONFIDENCE_LOW, NULL,
		   "Load in the background%s num_workers=1, which overlaps loading with the step%s",
		   by_loader(analysis),
		   analysis->job.n_cpus == 1 ? " (but there is only one core)" : "; then measure again");
}

static void advice_on_workers(struct advice_plan *plan)
{
	const struct what_if_point *point = best_workers(plan->analysis);

	keep_workers(plan);
	if (point)
		use_workers(plan, point);
	if (plan->analysis->job.loader == LOADER_INLINE)
		load_in_background(plan);
}

/* diesel_loader without worker processes: whatever workers take over, the time without preparing remains, and
 * n cores do not make the job more than n times as fast. */
static void on_own_prep(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double left = fmax(1 - advice_share(analysis, SHARE_PREP_STALL), 1 / (double)analysis->job.n_cpus);

	if (analysis->job.loader != LOADER_DIESEL || analysis->job.n_cpus < 2 ||
	    2 * analysis->parts.own_prep_ns < analysis->share_ns[SHARE_PREP_STALL])
		return;
	advice_add(plan, 1 / left, CONFIDENCE_MEDIUM, NULL,
		   "Let worker processes prepare the data: num_workers=\"auto\", the default, takes this "
		   "work off the trainer, which now does all of it");
}

#define NATIVE_SAMPLES_SURE 100 /* samples of decoding; with fewer the advice is only a hint */

/* The names of torchvision's transforms in stacks show which of them dieseld can run, but not their
 * parameters or order: loader.plan() has both. */
static void decode_natively(struct advice_plan *plan, double gain_max, double part,
			    const struct estimate *gain)
{
	char pack[ADVICE_PACK_BYTES];

	if (plan->analysis->job.loader == LOADER_DIESEL) {
		advice_add(plan, gain_max, CONFIDENCE_LOW, gain,
			   "Decode in dieseld (native): decoding and transforming images in Python takes "
			   "%.0f %% of preparation's CPU time, because of decode=Decode(native=False) or a "
			   "transform that dieseld "
			   "does not run (see loader.plan())",
			   100 * part);
		return;
	}
	advice_pack(plan->analysis, pack, sizeof(pack));
	advice_add(plan, gain_max, CONFIDENCE_LOW, gain,
		   "Decode in dieseld (native): %s, then use diesel_loader's DataLoader, as far as its "
		   "loader.plan() supports the transform; decoding and transforming images takes %.0f %% of "
		   "preparation's CPU time, and dieseld needs %.1f to %.1f times less",
		   pack, 100 * part, NATIVE_SPEEDUP_LOW, NATIVE_SPEEDUP_HIGH);
}

/* Returns true if stacks show torchvision's transforms, but none that dieseld can run: a plan would leave
 * all of them to Python. */
static bool plan_takes_nothing(const struct profile *profile)
{
	return profile->images.n_foreign && !profile->images.n_transform;
}

/* Advises dieseld for images that Python decodes. The gain is known from other jobs, so it is never sure. */
static void advice_on_native(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	const struct native_prediction *native =
	    analysis->predictions ? &analysis->predictions->native : NULL;
	const struct estimate part = native_part(analysis->profile);
	/* The step cannot take less time than the rest of preparing on all cores, nor less than its other
	 * work. */
	double cores = fmax(1, (double)analysis->job.n_cpus / fmax(1, (double)analysis->workers.n_at_once));
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

/* Without a replay, advises one more worker per idle core. */
static void add_workers(struct advice_plan *plan, double idle)
{
	const struct analysis *analysis = plan->analysis;
	uint32_t n = analysis->workers.n_at_once, more = n + (uint32_t)(idle + 0.5);
	/* The stall cannot shrink by more than the number of workers grows. */
	double share = advice_share(analysis, SHARE_PREP_STALL) * (1 - (double)n / (double)more);

	/* A fetch-bound job has the advice to use more workers already. */
	if (analysis->job.loader != LOADER_WORKERS || analysis->verdict == ANALYSIS_FETCH_BOUND || !n ||
	    analysis->predictions || idle < 0.5)
		return;
	advice_add(plan, fmin(advice_gain_of(share), summary_cores_limit(analysis)), CONFIDENCE_MEDIUM, NULL,
		   "Use %u workers instead of %u: %.1f of %u cores were idle", more, n, idle,
		   analysis->job.n_cpus);
}

static void advice_on_prep(struct advice_plan *plan)
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
	if (analysis->job.loader == LOADER_DIESEL &&
	    2 * analysis->parts.daemon_prep_ns > analysis->share_ns[SHARE_PREP_STALL]) {
		advice_add(plan, gain, CONFIDENCE_LOW, NULL,
			   "Give dieseld more cores, or less to decode, with smaller images or JPEG files "
			   "with restart markers (dieselctl pack --jpeg-restarts); dieselctl why shows how "
			   "dieseld uses its cores now");
		return;
	}
	/* Half the work takes at least half the time, whatever the trainer waits for. */
	advice_add(plan, fmin(gain, 2), CONFIDENCE_HIGH, half, "%s",
		   analysis->job.loader == LOADER_WORKERS && idle < 0.5
		       ? "Make data preparation cheaper, for example by half (fewer or faster transforms, "
			 "smaller images, preprocessing once): all cores are busy, so more workers would not "
			 "help"
		       : "Make data preparation cheaper, for example by half: fewer or faster transforms, "
			 "smaller images, preprocessing once");
}

/* Advice about waits for data that is read. */

static const struct estimate *speedup_at(const struct what_if_curve *curve, double x)
{
	static const struct estimate unknown = {NAN, NAN, NAN};

	for (size_t i = 0; i < curve->n_points; i++)
		if (curve->points[i].x == x)
			return &curve->points[i].speedup;
	return &unknown;
}

static double gain_without_fetch(const struct analysis *analysis)
{
	return advice_gain_of(advice_share(analysis, SHARE_FETCH_STALL));
}

static void cheaper_reading(struct advice_plan *plan, enum analysis_confidence confidence,
			    const struct estimate *gain)
{
	char pack[ADVICE_PACK_BYTES];

	advice_pack(plan->analysis, pack, sizeof(pack));
	advice_add(
	    plan, gain_without_fetch(plan->analysis), confidence, gain,
	    "Make reading cheaper with faster storage, by moving the dataset to memory, or with dieseld: %s",
	    pack);
}

static void on_storage(struct advice_plan *plan)
{
	const struct predictions *predictions = plan->analysis->predictions;
	double cache = predictions->cache_ratio_needed.value,
	       storage = predictions->storage_factor_needed.value;
	const struct estimate *gain = speedup_at(&predictions->curves[WHAT_IF_CACHE], 1);
	char pack[ADVICE_PACK_BYTES];

	if (advice_in_vain(gain))
		return;
	if (isnan(cache) || isnan(storage)) {
		cheaper_reading(plan, CONFIDENCE_MEDIUM, gain);
		return;
	}
	advice_pack(plan->analysis, pack, sizeof(pack));
	advice_add(plan, gain_without_fetch(plan->analysis), CONFIDENCE_MEDIUM, gain,
		   "Keep %.0f %% of the dataset in memory, or read %.1f times as fast, from faster storage "
		   "or with dieseld: %s",
		   100 * cache, storage, pack);
}

#define READ_AHEAD_EXCESS 3 /* minimum ratio of bytes read to bytes used; large reads explain a lower one */

/* Unused read-ahead costs bandwidth: without it, storage is faster by the same amount. */
static void on_read_ahead(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double excess = analysis->page_cache ? page_cache_excess(analysis->page_cache) : 0;
	const struct what_if_curve *curve;
	const struct estimate *gain = NULL;

	if (excess < READ_AHEAD_EXCESS)
		return;
	curve = analysis->predictions ? &analysis->predictions->curves[WHAT_IF_STORAGE] : NULL;
	for (size_t i = curve ? curve->n_points : 0; i-- > 0 && !gain;)
		if (curve->points[i].x <= excess && curve->points[i].x > 1)
			gain = &curve->points[i].speedup;
	if (gain && advice_in_vain(gain))
		return;
	advice_add(
	    plan, gain_without_fetch(analysis), CONFIDENCE_MEDIUM, gain,
	    "Turn off the kernel's readahead where records are read at random (lmdb.open(readahead=False), "
	    "MADV_RANDOM, POSIX_FADV_RANDOM): %.0f times as much came from storage as was used",
	    excess);
}

/* Advice on fetching, by the resource that it changes. */
static void advice_on_fetch(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	bool workers = analysis->job.loader == LOADER_WORKERS;
	uint32_t n = analysis->workers.n_at_once;

	if (fetch < ADVICE_NOTABLE)
		return;
	on_read_ahead(plan);
	if (analysis->job.loader == LOADER_DIESEL) {
		if (2 * analysis->parts.peers_ns > analysis->share_ns[SHARE_FETCH_STALL])
			advice_add(plan, gain_without_fetch(analysis), CONFIDENCE_MEDIUM, NULL,
				   "Get chunks from the job's other nodes faster: dieseld waits for these, "
				   "not for storage (`dieselctl cluster status` and diesel-top show "
				   "which node, and how fast its link is)");
		else
			advice_add(plan, gain_without_fetch(analysis), CONFIDENCE_HIGH, NULL,
				   "Give dieseld a larger cache or a deeper prefetch: it still waits for "
				   "storage");
		return;
	}
	if (analysis->predictions) {
		on_storage(plan);
		return;
	}
	cheaper_reading(
	    plan, analysis->job.method == METHOD_WALK && workers ? CONFIDENCE_LOW : CONFIDENCE_HIGH, NULL);
	if (workers && n && analysis->workers.fetch_ns > analysis->workers.cpu_ns)
		advice_add(
		    plan, advice_gain_of(advice_share(analysis, SHARE_FETCH_STALL) / 2), CONFIDENCE_LOW, NULL,
		    "Use %u workers instead of %u, if the storage serves several readers at once", 2 * n, n);
}

/* Recommends CheckFreq's checkpoint interval if it is longer than the job's own, or that is unknown. Where
 * the cost of a save is not clear, the advice is a range. Returns true if it did. */
static bool on_interval(struct advice_plan *plan)
{
	const struct checkpoint_report *report = plan->analysis->checkpoints;
	double most = report ? fmax(report->overhead_max, report->advised_overhead) : 0, factor;

	if (!report || !(report->overhead > most))
		return false;
	factor = (1 + report->overhead) / (1 + most);
	if (!report->advised_steps && report->interval_steps < report->advised_least)
		advice_add(plan, factor, CONFIDENCE_MEDIUM, NULL,
			   "Write a checkpoint every %u to %u steps instead of every %.0f, to spend at most "
			   "%.0f %% of the time on them instead of %.0f %%; record more saves for a better "
			   "figure",
			   report->advised_least, report->advised_most, report->interval_steps,
			   100 * report->overhead_max, 100 * report->overhead);
	else if (!report->advised_steps)
		return false;
	else if (report->interval_steps < report->advised_steps)
		advice_add(plan, factor, CONFIDENCE_HIGH, NULL,
			   "Write a checkpoint every %u steps instead of every %.0f: that costs %.1f %% "
			   "instead of %.0f %%",
			   report->advised_steps, report->interval_steps, 100 * report->advised_overhead,
			   100 * report->overhead);
	else if (!(report->interval_steps >= 1)) /* only one checkpoint seen */
		advice_add(plan, factor, CONFIDENCE_MEDIUM, NULL,
			   "Write a checkpoint every %u steps at most: that costs %.1f %%",
			   report->advised_steps, 100 * report->advised_overhead);
	else
		return false;
	return true;
}

/* Returns true if a thread or process other than the trainer writes most checkpoints. */
static bool in_background(const struct checkpoint_report *report)
{
	return report && 2 * report->n_background > report->n_items;
}

/* Returns the part of the time that ns of each save are. */
static double of_saves(const struct analysis *analysis, double ns)
{
	double n = (double)analysis->checkpoints->n_items;

	return analysis->window.observed_ns ? fmin(1, fmax(0, n * ns / (double)analysis->window.observed_ns))
					    : 0;
}

/* Advises on staging that takes more from the steps than it would take by itself. */
static void on_staging(struct advice_plan *plan)
{
	const struct checkpoint_report *report = plan->analysis->checkpoints;
	double more_ns = report->stage_slowed_ns - report->stage_ns;

	if (of_saves(plan->analysis, more_ns) < ADVICE_NOTABLE ||
	    report->stage_slowed_ns < 1.5 * report->stage_ns)
		return;
	advice_add(
	    plan, advice_gain_of(of_saves(plan->analysis, more_ns)), CONFIDENCE_MEDIUM, NULL,
	    "Wait for the staging of a checkpoint instead of training meanwhile: it is %.0f ms of work, "
	    "but makes the steps meanwhile %.0f ms longer",
	    report->stage_ns / NS_PER_MS, report->stage_slowed_ns / NS_PER_MS);
}

/* Advises on what a save in the background takes from the steps meanwhile. */
static void on_tail(struct advice_plan *plan)
{
	static const struct {
		enum checkpoint_cause cause;
		const char *text;
	} cures[] = {
	    {CHECKPOINT_LOCK, "Let a process write checkpoints instead of a thread: the thread holds the "
			      "interpreter lock, which costs training %.0f of the %.0f ms that a save costs"},
	    {CHECKPOINT_CORES, "Leave a core free for who writes checkpoints (fewer workers or computing "
			       "threads): cores taken are %.0f of the %.0f ms that a save costs"},
	    {CHECKPOINT_STORAGE,
	     "Write checkpoints to other storage than the dataset's: longer waits for data "
	     "are %.0f of the %.0f ms that a save costs"},
	};
	const struct checkpoint_report *report = plan->analysis->checkpoints;

	if (of_saves(plan->analysis, report->cause_ns[CHECKPOINT_AWAIT]) >= ADVICE_NOTABLE / 2 &&
	    report->cause_ns[CHECKPOINT_AWAIT] > report->cost_ns / 4)
		advice_add(
		    plan, advice_gain_of(of_saves(plan->analysis, report->cause_ns[CHECKPOINT_AWAIT])),
		    CONFIDENCE_MEDIUM, NULL,
		    "Train on while a checkpoint is staged or written: waiting for that is %.0f of the "
		    "%.0f ms that a save costs",
		    report->cause_ns[CHECKPOINT_AWAIT] / NS_PER_MS, report->cost_ns / NS_PER_MS);
	/* Only slower steps that are certain are charged. */
	for (size_t i = 0; i < sizeof(cures) / sizeof(cures[0]); i++) {
		double ns = report->cause_ns[cures[i].cause], ratio = of_saves(plan->analysis, ns);

		if (report->tail && report->tail->ns > report->tail->error_ns &&
		    ratio >= ADVICE_NOTABLE / 2 && ns > report->cost_ns / 4)
			advice_add(plan, advice_gain_of(ratio), CONFIDENCE_MEDIUM, NULL, cures[i].text,
				   ns / NS_PER_MS, report->cost_ns / NS_PER_MS);
	}
}

static void on_checkpoint(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double checkpoint = advice_share(analysis, SHARE_CHECKPOINT_STALL);

	if (analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL) < ADVICE_NOTABLE)
		return;
	if (!in_background(analysis->checkpoints)) {
		advice_add(plan, advice_gain_of(checkpoint), CONFIDENCE_HIGH, NULL,
			   "Write checkpoints in the background (copy the state, then let a thread or "
			   "process write it), or to faster storage");
		if (!on_interval(plan))
			advice_add(plan, advice_gain_of(checkpoint / 2), CONFIDENCE_HIGH, NULL,
				   "Write checkpoints half as often");
		return;
	}
	if (!on_interval(plan))
		advice_add(plan, advice_gain_of(checkpoint), CONFIDENCE_MEDIUM, NULL,
			   "Save less often, or to faster storage: checkpoints are written in the "
			   "background already, and the remaining cost is copying the state, waiting for "
			   "the previous save, and slower steps meanwhile");
	on_staging(plan);
	on_tail(plan);
}

/* A wait for the interpreter lock looks like a wait for a core or for data, but more cores or workers do
 * not shorten it. */
static void on_gil(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double ratio = advice_gil_ratio(analysis);

	if (ratio < ADVICE_NOTABLE)
		return;
	plan->binding = ratio > ANALYSIS_STALL_THRESHOLD || analysis->verdict == ANALYSIS_LOCK_BOUND;
	advice_add(plan, advice_gain_of(fmin(ratio, 1)), CONFIDENCE_MEDIUM, NULL,
		   "%s: for %.0f %% of the time the trainer waited for the interpreter lock (GIL), which "
		   "only one thread of a process can hold; more cores or threads do not help",
		   analysis->job.loader == LOADER_THREADS || analysis->job.loader == LOADER_INLINE
		       ? "Load with processes instead of threads (num_workers), and run no Python in another "
			 "thread of the trainer"
		       : "Use a process instead of a thread for the Python code that runs alongside the "
			 "trainer",
		   100 * ratio);
	plan->binding = false;
}

static double part_of_all(const struct analysis *analysis, uint64_t ns)
{
	return analysis->window.observed_ns ? (double)ns / (double)analysis->window.observed_ns : 0;
}

static void on_cores(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double gil = part_of_all(analysis, analysis->parts.gil_starved_ns);
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED) - gil;
	double neighbours = part_of_all(analysis, analysis->parts.neighbours_ns);
	double own = part_of_all(analysis, analysis->parts.own_threads_ns);
	bool known = !analysis->sampled.is && fmax(neighbours, own) > starved / 2;

	if (starved < ADVICE_NOTABLE)
		return;
	advice_add(plan, advice_gain_of(advice_share(analysis, SHARE_CPU_STARVED) - gil),
		   known || analysis->sampled.is ? CONFIDENCE_MEDIUM : CONFIDENCE_LOW, NULL,
		   "Keep a core free for the trainer: %s",
		   !known             ? "the recording does not show what occupied it"
		   : neighbours > own ? "other processes on this machine occupied it most of the time"
				      : "the job's own workers and threads occupied it most of the time");
}

/* Compiling costs the same in short and long runs. A cache of the compiled code saves it in the next run. */
static void on_compiling(struct advice_plan *plan)
{
	double compiling = analysis_share_ratio(plan->analysis, SHARE_COMPILING);

	if (compiling < ANALYSIS_STALL_THRESHOLD)
		return;
	advice_add(plan, advice_gain_of(compiling), CONFIDENCE_MEDIUM, NULL,
		   "Run longer, or share a cache of compiled code between runs "
		   "(TORCHINDUCTOR_CACHE_DIR; JAX: jax_compilation_cache_dir): compiling took %.0f %% "
		   "of this run, which each run pays once",
		   100 * compiling);
}

/* Unseen time may be waits. If there is any, the gain has no bound. */
static void on_nothing(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	bool sleeps = 2 * analysis->parts.asleep_ns > analysis->window.observed_ns;

	if (analysis->verdict == ANALYSIS_UNCLEAR)
		advice_add(plan, 0, CONFIDENCE_LOW, NULL, "%s",
			   sleeps ? "Find out why the trainer sleeps on purpose (time.sleep and the like): "
				    "py-spy dump --pid PID shows where"
				  : "Find out where the time goes before you change anything, with py-spy "
				    "dump --pid PID; if the job prepares its data by itself, give it a "
				    "DataLoader and measure again");
	else if (analysis->job.blind)
		advice_add(plan, 0, CONFIDENCE_HIGH, NULL,
			   "Nothing to gain from the reads that were seen; if the job prepares its data by "
			   "itself, give it a DataLoader and measure again");
	else
		advice_add(plan, advice_gain_of(advice_wait(analysis)), CONFIDENCE_HIGH, NULL,
			   "Nothing to gain in the input pipeline: look at the model or the device");
}

/* Lowers the confidence if something could not be seen, or if the job trained for less time than it
 * compiled. */
static void confidence_limit(struct analysis *analysis)
{
	enum analysis_confidence most =
	    analysis->verdict == ANALYSIS_DEVICE_BOUND || analysis->verdict == ANALYSIS_UNCLEAR
		? CONFIDENCE_LOW
		: CONFIDENCE_MEDIUM;
	bool unsure = analysis->job.blind || analysis->verdict == ANALYSIS_UNCLEAR ||
		      analysis_share_ratio(analysis, SHARE_COMPILING) > 0.5;

	for (size_t i = 0; unsure && i < analysis->n_actions; i++)
		if (analysis->actions[i].confidence > most)
			analysis->actions[i].confidence = most;
}

void advice_actions(struct analysis *analysis)
{
	struct advice_plan plan = {.analysis = analysis, .binding = true};

	switch (analysis->verdict) {
	case ANALYSIS_INSUFFICIENT: return;
	case ANALYSIS_CHECKPOINT_BOUND: on_checkpoint(&plan); break;
	case ANALYSIS_FETCH_BOUND: advice_on_fetch(&plan); break;
	case ANALYSIS_PREP_BOUND: advice_on_native(&plan); break;
	case ANALYSIS_CPU_STARVED: on_cores(&plan); break;
	case ANALYSIS_LOCK_BOUND:
	case ANALYSIS_DEVICE_BOUND:
	case ANALYSIS_UNCLEAR: break;
	}
	plan.binding = false;
	on_gil(&plan);
	advice_on_workers(&plan);
	if (analysis->verdict != ANALYSIS_PREP_BOUND)
		advice_on_native(&plan);
	advice_on_prep(&plan);
	if (analysis->verdict != ANALYSIS_FETCH_BOUND)
		advice_on_fetch(&plan);
	if (analysis->verdict != ANALYSIS_CHECKPOINT_BOUND)
		on_checkpoint(&plan);
	if (analysis->verdict != ANALYSIS_CPU_STARVED)
		on_cores(&plan);
	on_compiling(&plan);
	if (!plan.n)
		on_nothing(&plan);
	advice_take(&plan);
	confidence_limit(analysis);
}
