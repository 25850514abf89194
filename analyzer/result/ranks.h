/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The ranks of a job: processes that train, each measured by itself. One of them is shown at the top of a
 * report: the straggler, where there is one, because it alone sets the job's pace; else the one with most
 * steps.
 *
 * Ranks meet at the end of their steps. Whoever comes last waits least, so the straggler is the rank with the
 * least time in collective operations, if the others spend notably more of theirs there.
 */

#include "measure.h"

struct analysis;

struct ranks {
	struct measurement *items; /* by tgid */
	size_t n;                  /* at least 1 */
	size_t shown;
	bool straggles;     /* items[shown] is the straggler */
	double waits_ratio; /* of the others' time they wait for it, on average */
};

/* The input's trainer_tid: 0: all ranks; else that thread alone. Its n_cpus: for all of them together.
 * Without any trainer items[0].roles.trainer is NULL. To be freed also after -ENOMEM, the only failure. */
int ranks_measure(const struct timeline *timeline, const struct analysis_input *input, struct ranks *ranks);
void ranks_free(struct ranks *ranks);

/* analysis->ranks, where there are several. -ENOMEM. */
int ranks_fill(const struct ranks *ranks, struct analysis *analysis);
/* What the reader should know about ranks, appended to analysis->note. */
void ranks_note(const struct ranks *ranks, struct analysis *analysis);
