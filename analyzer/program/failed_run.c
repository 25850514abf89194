/* SPDX-License-Identifier: Apache-2.0 */
#include "failed_run.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "analyzer/analysis.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/log.h"
#include "lib/units.h"

/* Returns true if the command was stopped on purpose: the user knows why. */
static bool was_stopped(int status)
{
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

/* *ret_steps: number of steps a report would have. Returns false if they suffice for a report, or are not
 * known. */
static bool has_few_steps(const struct failed_run *run, size_t *ret_steps)
{
	const struct recording_analysis_options how = {.trainer_tid = run->trainer_tid};
	struct recording *recording = NULL;
	struct analysis *analysis = NULL;
	bool few = recording_open(run->recording, &recording, NULL) == 0 &&
		   recording_analyze(recording, &how, &analysis, NULL) == 0 &&
		   analysis->verdict == ANALYSIS_INSUFFICIENT && analysis->n_steps < ANALYSIS_STEPS_MIN &&
		   analysis->sampled.n_steps_estimated < ANALYSIS_STEPS_MIN;

	if (few) /* with sampling, the number of steps is only an estimate */
		*ret_steps = analysis->n_steps > analysis->sampled.n_steps_estimated
				 ? analysis->n_steps
				 : analysis->sampled.n_steps_estimated;
	analysis_free(analysis);
	recording_close(recording);
	return few;
}

bool failed_run_say(const struct failed_run *run)
{
	char end[64], duration[24], steps[40] = "no training step was";
	size_t n_steps;

	if (run->status == 0 || was_stopped(run->status) || !has_few_steps(run, &n_steps))
		return false;
	if (WIFSIGNALED(run->status))
		snprintf(end, sizeof(end), "was killed by signal %d (%s)", WTERMSIG(run->status),
			 strsignal(WTERMSIG(run->status)));
	else
		snprintf(end, sizeof(end), "ended with status %d", WEXITSTATUS(run->status));
	if (n_steps)
		snprintf(steps, sizeof(steps), "only %zu step%s", n_steps, n_steps == 1 ? " was" : "s were");
	log_error(
	    "the job %s; there is nothing to report, as %s seen in the %s that were recorded: see what it "
	    "says itself, mend that, and run it again",
	    end, steps, units_format_duration(duration, sizeof(duration), run->duration_ns));
	return true;
}
