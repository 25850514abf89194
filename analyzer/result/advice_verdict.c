/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "advice.h"

#define LARGE_OTHER 0.05 /* more unexplained time than this is mentioned */

double advice_neighbours_share(const struct analysis *analysis)
{
	return analysis->observed_ns ? (double)analysis->neighbours_ns / (double)analysis->observed_ns : 0;
}

/* Notes on what a reader must know beside the verdict. Each function returns true if it has something to
 * say. */

#define SAY(analysis, ...) (snprintf((analysis)->note, sizeof((analysis)->note), __VA_ARGS__) > 0)

/* From the whole window: the steady steps leave compiling out. */
static bool note_compiling(struct analysis *analysis)
{
	double compiling = analysis_share_ratio(analysis, SHARE_COMPILING);

	return compiling > ANALYSIS_STALL_THRESHOLD &&
	       SAY(analysis,
		   "%.0f %% of the time was compiling, which is paid once: verdict and advice are of the "
		   "rest, as in a longer run",
		   100 * compiling);
}

static bool note_warmup(struct analysis *analysis)
{
	return analysis->warmup_ns > analysis->steady_ns &&
	       SAY(analysis,
		   "the first %zu steps took longer than the other %zu together, and are left out: record "
		   "longer, or mind the start",
		   analysis->n_warmup_steps, analysis->n_steps - analysis->n_warmup_steps);
}

static bool note_walk_alone(struct analysis *analysis)
{
	double data = analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		      analysis_steady_ratio(analysis, SHARE_PREP_STALL);

	return analysis->loader == LOADER_WORKERS && analysis->method == METHOD_WALK &&
	       data > ADVICE_NOTABLE &&
	       SAY(analysis,
		   "fetch and prep are told apart by the walk alone, which puts fetch low where workers "
		   "overlap: %s",
		   analysis->no_predictions[0] ? analysis->no_predictions : "no replay");
}

static bool note_blind(struct analysis *analysis)
{
	return analysis->blind && analysis->verdict == ANALYSIS_DEVICE_BOUND &&
	       SAY(analysis, "how the job loads its data was not seen: what the trainer prepares itself "
			     "counts as device; a DataLoader's next() would be seen");
}

static bool note_unexplained(struct analysis *analysis)
{
	double other = analysis_steady_ratio(analysis, SHARE_OTHER);

	return other > LARGE_OTHER &&
	       SAY(analysis,
		   "%.0f %% of the time is unexplained: the trainer slept and nothing seen tells why",
		   100 * other);
}

static bool note_gil(struct analysis *analysis)
{
	double gil =
	    analysis->observed_ns ? (double)analysis->gil_starved_ns / (double)analysis->observed_ns : 0;

	return gil > ANALYSIS_STALL_THRESHOLD / 2 &&
	       SAY(analysis,
		   "for %.0f %% of the time the trainer waited for the interpreter lock (GIL) that other "
		   "threads of its process held",
		   100 * gil);
}

static bool note_starved(struct analysis *analysis)
{
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double neighbours = advice_neighbours_share(analysis);

	if (starved <= ANALYSIS_STALL_THRESHOLD)
		return false;
	if (analysis->approximate)
		return SAY(analysis,
			   "for %.0f %% of the time the trainer was ready to compute but had no core",
			   100 * starved);
	return SAY(analysis,
		   "for %.0f %% of the time the trainer was ready to compute but had no core: %.0f %% the "
		   "job's own threads had it, %.0f %% others",
		   100 * starved, 100 * fmax(0, starved - neighbours), 100 * neighbours);
}

static void verdict_find(struct analysis *analysis)
{
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double checkpoint = analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);

	if (fetch + prep + checkpoint < ANALYSIS_STALL_THRESHOLD)
		analysis->verdict = ANALYSIS_DEVICE_BOUND;
	else if (checkpoint > fetch && checkpoint > prep)
		analysis->verdict = ANALYSIS_CHECKPOINT_BOUND;
	else
		analysis->verdict = fetch >= prep ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND;
}

void advice_verdict(struct analysis *analysis)
{
	/* Only the first that applies is said: the one that changes most what the verdict means. */
	static bool (*const notes[])(struct analysis *) = {
	    note_compiling,   note_warmup, note_walk_alone, note_blind,
	    note_unexplained, note_gil,    note_starved,
	};

	verdict_find(analysis);
	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && !notes[i](analysis); i++) {
	}
}
