/* SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"

#include <math.h>

#include "advice_plan.h"

/* CheckFreq's interval, if it is longer than the job's own. */
static bool on_interval(struct advice_plan *plan)
{
	const struct checkpoint_report *report = plan->analysis->checkpoints;
	double factor;

	if (!report || !report->advised_steps || !(report->advised_overhead < report->overhead))
		return false;
	factor = (1 + report->overhead) / (1 + report->advised_overhead);
	if (report->interval_steps < report->advised_steps)
		advice_add(plan, factor, CONFIDENCE_HIGH, NULL,
			   "Write a checkpoint every %u steps instead of every %.0f: that costs %.1f %% "
			   "instead of %.0f %%",
			   report->advised_steps, report->interval_steps, 100 * report->advised_overhead,
			   100 * report->overhead);
	else if (!(report->interval_steps >= 1)) /* only one checkpoint was seen */
		advice_add(plan, factor, CONFIDENCE_MEDIUM, NULL,
			   "Write a checkpoint every %u steps at most: that costs %.1f %%",
			   report->advised_steps, 100 * report->advised_overhead);
	else
		return false;
	return true;
}

/* Are most checkpoints written by a thread or process other than the trainer? */
static bool in_background(const struct checkpoint_report *report)
{
	return report && 2 * report->n_background > report->n_items;
}

/* Part of the time that went to copies of states for saves in the background, which counts as computing. */
static double copy_ratio(const struct analysis *analysis)
{
	const struct checkpoint_report *report = analysis->checkpoints;

	return report && analysis->observed_ns
		   ? report->copy_ns * (double)report->n_background / (double)analysis->observed_ns
		   : 0;
}

static void on_checkpoint(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double copy = copy_ratio(analysis);
	double checkpoint = fmin(1, advice_share(analysis, SHARE_CHECKPOINT_STALL) + copy);

	if (analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL) + copy < ADVICE_NOTABLE)
		return;
	if (!in_background(analysis->checkpoints))
		advice_add(
		    plan, advice_gain_of(checkpoint), CONFIDENCE_HIGH, NULL,
		    "Write checkpoints in the background: copy the state, then let a thread or process "
		    "write it; or write to faster storage");
	else if (!on_interval(plan))
		advice_add(
		    plan, advice_gain_of(checkpoint), CONFIDENCE_MEDIUM, NULL,
		    "Checkpoints are written in the background; what is left is copying the state, and "
		    "waiting for the save before: save less often, or to faster storage");
	if (!in_background(analysis->checkpoints) && !on_interval(plan))
		advice_add(plan, advice_gain_of(checkpoint / 2), CONFIDENCE_HIGH, NULL,
			   "Write checkpoints half as often");
}

/* Waiting for the interpreter lock looks like waiting for a core, or for data, and no core or worker ends it.
 */
static void on_gil(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double ratio = advice_gil_ratio(analysis);

	if (ratio < ADVICE_NOTABLE)
		return;
	plan->binding = ratio > ANALYSIS_STALL_THRESHOLD || analysis->verdict == ANALYSIS_LOCK_BOUND;
	advice_add(
	    plan, advice_gain_of(fmin(ratio, 1)), CONFIDENCE_MEDIUM, NULL,
	    "%s: for %.0f %% of the time the interpreter lock (GIL) was waited for, which one thread of a "
	    "process has at a time; more cores or threads do not help",
	    analysis->loader == LOADER_THREADS || analysis->loader == LOADER_INLINE
		? "Load with processes instead of threads (num_workers), and have no Python run beside the "
		  "trainer in a thread"
		: "Use a process instead of a thread for the Python that runs beside the trainer",
	    100 * ratio);
	plan->binding = false;
}

static void on_cores(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double gil =
	    analysis->observed_ns ? (double)analysis->gil_starved_ns / (double)analysis->observed_ns : 0;
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED) - gil;
	double neighbours = advice_neighbours_share(analysis);

	if (starved < ADVICE_NOTABLE)
		return;
	advice_add(plan, advice_gain_of(advice_share(analysis, SHARE_CPU_STARVED) - gil), CONFIDENCE_MEDIUM,
		   NULL, "Keep a core free for the trainer: %s",
		   analysis->approximate      ? "who had it was not seen"
		   : neighbours > starved / 2 ? "other processes of this machine had it most of the time"
					      : "the job's own workers and threads had it most of the time");
}

/* Compiling is paid once in a run, however long; a cache of what was compiled saves it in the next run. */
static void on_compiling(struct advice_plan *plan)
{
	double compiling = analysis_share_ratio(plan->analysis, SHARE_COMPILING);

	if (compiling < ANALYSIS_STALL_THRESHOLD)
		return;
	advice_add(
	    plan, advice_gain_of(compiling), CONFIDENCE_MEDIUM, NULL,
	    "Compiling took %.0f %% of this run, once: a longer run hides it, and runs that share its cache "
	    "save it (TORCHINDUCTOR_CACHE_DIR; JAX: jax_compilation_cache_dir)",
	    100 * compiling);
}

/* Unseen time may be waits: where there is any, nothing bounds the gain. */
static void on_nothing(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	bool sleeps = 2 * analysis->asleep_ns > analysis->observed_ns;

	if (analysis->verdict == ANALYSIS_UNCLEAR)
		advice_add(plan, 0, CONFIDENCE_LOW, NULL, "%s",
			   sleeps ? "Find out why the trainer sleeps on purpose (time.sleep and the like): "
				    "py-spy dump --pid PID shows where"
				  : "Find out where the time goes before anything is changed: py-spy dump "
				    "--pid PID shows it; if the job prepares its data by itself, give it a "
				    "DataLoader and measure again");
	else if (analysis->blind)
		advice_add(plan, 0, CONFIDENCE_HIGH, NULL,
			   "Nothing to gain where reading was seen; if the job prepares its data by itself, "
			   "give it a DataLoader and measure again");
	else
		advice_add(plan, advice_gain_of(advice_wait(analysis)), CONFIDENCE_HIGH, NULL,
			   "Nothing to gain at the input pipeline: look at the model or the device");
}

/* Lowers the confidence if something could not be seen, or if the job trained for less time than it
 * compiled. */
static void confidence_limit(struct analysis *analysis)
{
	enum analysis_confidence most =
	    analysis->verdict == ANALYSIS_DEVICE_BOUND || analysis->verdict == ANALYSIS_UNCLEAR
		? CONFIDENCE_LOW
		: CONFIDENCE_MEDIUM;
	bool unsure = analysis->blind || analysis->verdict == ANALYSIS_UNCLEAR ||
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
