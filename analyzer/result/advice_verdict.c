/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "advice.h"

#define LARGE_OTHER 0.05 /* unexplained time beyond this share is mentioned */

/* Notes that a reader needs in addition to the verdict. Each function returns true if it set a note. */

#define SAY(analysis, ...) (snprintf((analysis)->note, sizeof((analysis)->note), __VA_ARGS__) > 0)

/* Uses the whole window, because the steady steps leave compiling out. */
static bool note_compiling(struct analysis *analysis)
{
	double compiling = analysis_share_ratio(analysis, SHARE_COMPILING);

	return compiling > ANALYSIS_STALL_THRESHOLD &&
	       SAY(analysis,
		   "compiling took %.0f %% of the time, a cost that is paid once: verdict and advice are for "
		   "the rest, as in a longer run",
		   100 * compiling);
}

static bool note_warmup(struct analysis *analysis)
{
	return analysis->steady.warmup_ns > analysis->steady.ns &&
	       SAY(analysis,
		   "the first %zu steps took longer than the other %zu together, and are left out as "
		   "warm-up: record longer, or look at the start of the job",
		   analysis->steady.n_warmup_steps, analysis->n_steps - analysis->steady.n_warmup_steps);
}

static bool note_walk_alone(struct analysis *analysis)
{
	double data = analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		      analysis_steady_ratio(analysis, SHARE_PREP_STALL);

	return analysis->job.loader == LOADER_WORKERS && analysis->job.method == METHOD_WALK &&
	       data > ADVICE_NOTABLE &&
	       SAY(analysis,
		   "fetch and prep were told apart only by wake-up chains, which show too little fetch where "
		   "workers overlap: %s",
		   analysis->no_predictions[0] ? analysis->no_predictions : "no replay");
}

static double part_of_window(const struct analysis *analysis, uint64_t ns)
{
	return analysis->window.observed_ns ? (double)ns / (double)analysis->window.observed_ns : 0;
}

/* Returns the time that counts as computing but may be loading: no event marks the boundary. */
static double unseen_share(const struct analysis *analysis)
{
	double device = analysis_steady_ratio(analysis, SHARE_DEVICE);
	double waits =
	    analysis->parts.gpu_wait_known ? part_of_window(analysis, analysis->parts.gpu_wait_ns) : 0;
	double helped = part_of_window(analysis, analysis->parts.helped_ns), rest = fmax(0, device - waits);

	if (!analysis->job.blind && !analysis->parts.waits_sampled)
		return 0;
	if (isnan(analysis->parts.computing_part))
		return rest;
	/* Work of other threads for a generator looks like work for the model. */
	if (!analysis->parts.waits_sampled)
		helped = 0;
	return fmin(rest, helped) + fmax(0, rest - helped) * (1 - analysis->parts.computing_part);
}

/* Returns the share asleep without a known purpose. */
static double unexplained_share(const struct analysis *analysis)
{
	return fmax(0, analysis_steady_ratio(analysis, SHARE_OTHER) -
			   part_of_window(analysis, analysis->parts.asleep_ns));
}

static bool note_asleep(struct analysis *analysis)
{
	double asleep = part_of_window(analysis, analysis->parts.asleep_ns);

	return asleep > ANALYSIS_STALL_THRESHOLD &&
	       SAY(analysis,
		   "for %.0f %% of the time the trainer was sleeping on purpose (time.sleep and the like): "
		   "neither its data nor its device is the reason",
		   100 * asleep);
}

static bool note_blind(struct analysis *analysis)
{
	double unseen = unseen_share(analysis);

	return analysis->verdict == ANALYSIS_UNCLEAR && unseen > ANALYSIS_STALL_THRESHOLD &&
	       unseen >= part_of_window(analysis, analysis->parts.asleep_ns) &&
	       SAY(analysis,
		   "the recording does not show how the job loads its data: loading without next() of a "
		   "DataLoader or of a generator looks like computing (%s shows the code)",
		   analysis->sampled.is ? "recording as root, or py-spy dump --pid PID,"
					: "py-spy dump --pid PID");
}

static bool note_unexplained(struct analysis *analysis)
{
	double unexplained = unexplained_share(analysis);

	return unexplained > LARGE_OTHER &&
	       SAY(analysis,
		   "%.0f %% of the time is unexplained: the trainer slept, and the recording does not show "
		   "why%s",
		   100 * unexplained,
		   analysis->verdict != ANALYSIS_UNCLEAR ? ""
		   : analysis->sampled.is ? "; recording as root, or py-spy dump --pid PID, would show it"
					  : "; py-spy dump --pid PID shows where it sleeps");
}

static bool note_gil(struct analysis *analysis)
{
	double gil = analysis->window.observed_ns
			 ? (double)analysis->parts.gil_starved_ns / (double)analysis->window.observed_ns
			 : 0;

	return gil > ANALYSIS_STALL_THRESHOLD / 2 &&
	       SAY(analysis,
		   "for %.0f %% of the time the trainer waited for the interpreter lock (GIL) that other "
		   "threads of its process held",
		   100 * gil);
}

static bool note_starved(struct analysis *analysis)
{
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double neighbours = part_of_window(analysis, analysis->parts.neighbours_ns);
	double own =
	    fmin(part_of_window(analysis, analysis->parts.own_threads_ns), fmax(0, starved - neighbours));
	double unknown = starved - neighbours - own;
	char rest[64] = "";

	if (starved <= ANALYSIS_STALL_THRESHOLD)
		return false;
	if (analysis->sampled.is)
		return SAY(analysis,
			   "for %.0f %% of the time the trainer was ready to compute but had no core",
			   100 * starved);
	if (unknown >= 0.005)
		snprintf(rest, sizeof(rest), ", for %.0f %% it is not known what did", 100 * unknown);
	return SAY(analysis,
		   "for %.0f %% of the time the trainer was ready to compute but had no core: for %.0f %% "
		   "the job's own threads occupied it, for %.0f %% other processes%s",
		   100 * starved, 100 * own, 100 * neighbours, rest);
}

static enum analysis_verdict verdict_of_stalls(const struct analysis *analysis)
{
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	double prep = analysis_steady_ratio(analysis, SHARE_PREP_STALL);
	double checkpoint = analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);

	if (checkpoint > fetch && checkpoint > prep)
		return ANALYSIS_CHECKPOINT_BOUND;
	return fetch >= prep ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND;
}

/* Returns true if too much of the time may be waits for data that no event shows. */
static bool is_unclear(const struct analysis *analysis, double stall)
{
	double unexplained = unexplained_share(analysis);

	if (unexplained > ANALYSIS_STALL_THRESHOLD && unexplained > stall)
		return true;
	return stall < ANALYSIS_STALL_THRESHOLD &&
	       unexplained + unseen_share(analysis) > ANALYSIS_STALL_THRESHOLD;
}

static void verdict_find(struct analysis *analysis)
{
	double stall = analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
		       analysis_steady_ratio(analysis, SHARE_PREP_STALL) +
		       analysis_steady_ratio(analysis, SHARE_CHECKPOINT_STALL);
	double device = analysis_steady_ratio(analysis, SHARE_DEVICE);
	double starved = analysis_steady_ratio(analysis, SHARE_CPU_STARVED);
	double gil = part_of_window(analysis, analysis->parts.gil_starved_ns);
	double asleep = part_of_window(analysis, analysis->parts.asleep_ns);

	bool starves =
	    device < 0.5 && starved > ANALYSIS_STALL_THRESHOLD && starved > stall && starved >= asleep;

	if (is_unclear(analysis, stall))
		analysis->verdict = ANALYSIS_UNCLEAR;
	else if (starves)
		analysis->verdict = 2 * gil > starved ? ANALYSIS_LOCK_BOUND : ANALYSIS_CPU_STARVED;
	else if (stall >= ANALYSIS_STALL_THRESHOLD)
		analysis->verdict = verdict_of_stalls(analysis);
	else
		analysis->verdict = device >= 0.5 ? ANALYSIS_DEVICE_BOUND : ANALYSIS_UNCLEAR;
}

void advice_verdict(struct analysis *analysis)
{
	/* Only the first note that applies is shown: the order is by effect on the meaning of the verdict. */
	static bool (*const notes[])(struct analysis *) = {
	    note_compiling, note_warmup,      note_walk_alone, note_blind,
	    note_asleep,    note_unexplained, note_gil,        note_starved,
	};

	verdict_find(analysis);
	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && !notes[i](analysis); i++) {
	}
}
