/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "advice.h"

#define LARGE_OTHER 0.05 /* more unexplained time must be said */

double advice_neighbours_share(const struct analysis *analysis)
{
	return analysis->observed_ns ? (double)analysis->neighbours_ns / (double)analysis->observed_ns : 0;
}

/* Not said by the steady steps, that are without it. */
static void note_compiling(struct analysis *analysis)
{
	snprintf(analysis->note, sizeof(analysis->note),
		 "%.0f %% of the time was compiling, which is paid once: verdict and advice are of the rest, "
		 "as in "
		 "a longer run",
		 100 * analysis_share_ratio(analysis, SHARE_COMPILING));
}

void advice_verdict(struct analysis *analysis)
{
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double checkpoint = analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double neighbours = advice_neighbours_share(analysis);
	double other = analysis_steady_ratio(analysis, SHARE_OTHER);
	double gil =
	    analysis->observed_ns ? (double)analysis->gil_starved_ns / (double)analysis->observed_ns : 0;

	if (fetch + prep + checkpoint < ANALYSIS_STALL_THRESHOLD)
		analysis->verdict = ANALYSIS_DEVICE_BOUND;
	else if (checkpoint > fetch && checkpoint > prep)
		analysis->verdict = ANALYSIS_CHECKPOINT_BOUND;
	else
		analysis->verdict = fetch >= prep ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND;
	if (analysis_share_ratio(analysis, SHARE_COMPILING) > ANALYSIS_STALL_THRESHOLD)
		note_compiling(analysis);
	else if (analysis->warmup_ns > analysis->steady_ns)
		snprintf(
		    analysis->note, sizeof(analysis->note),
		    "the first %zu steps took longer than the other %zu together, and are left out: record "
		    "longer, or mind the start",
		    analysis->n_warmup_steps, analysis->n_steps - analysis->n_warmup_steps);
	else if (analysis->loader == LOADER_WORKERS && analysis->method == METHOD_WALK &&
		 fetch + prep > ADVICE_NOTABLE)
		snprintf(
		    analysis->note, sizeof(analysis->note),
		    "fetch and prep are told apart by the walk alone, which puts fetch low where workers "
		    "overlap: %s",
		    analysis->no_predictions[0] ? analysis->no_predictions : "no replay");
	else if (analysis->blind && analysis->verdict == ANALYSIS_DEVICE_BOUND)
		snprintf(
		    analysis->note, sizeof(analysis->note),
		    "how the job loads its data was not seen: what the trainer prepares itself counts as "
		    "device; a DataLoader's next() would be seen");
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
