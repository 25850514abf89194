/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The ranks of a job: processes that train, each measured by itself. A report shows one of them at the top:
 * the straggler, if there is one, because it sets the job's pace; else the rank with the most steps.
 *
 * Ranks meet at the end of their steps. The last to arrive waits least. So the straggler is the rank with the
 * least time in collective operations, if the others spend notably more of their time there.
 */

#include "analyzer/replay/measure.h"

struct analysis;

struct ranks {
	struct measurement *items; /* sorted by tgid */
	size_t n;                  /* at least 1 */
	size_t shown;
	bool straggles;     /* items[shown] is the straggler */
	double waits_ratio; /* share of time that the other ranks wait for the straggler, on average */
};

/* If the input's trainer_tid is 0, measures all ranks; else only that thread. The input's n_cpus is for all
 * of them together. If there is no trainer, items[0].roles.trainer is NULL. -ENOMEM is the only failure; free
 * *ranks then, too. */
int ranks_measure(const struct timeline *timeline, const struct analysis_input *input, struct ranks *ranks);
void ranks_free(struct ranks *ranks);

/* Sets analysis->ranks if there are several; several: even if others were not recorded. -ENOMEM. */
int ranks_fill(const struct ranks *ranks, bool several, struct analysis *analysis);
/* Prepends information about ranks, if the reader needs it, to analysis->note. */
void ranks_note(const struct ranks *ranks, struct analysis *analysis);
