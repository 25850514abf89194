/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Classifies what a sleeping trainer waits for, from one sample. */

#include "analyzer/analysis.h"
#include "sampled_job.h"

enum charge {
	CHARGE_DATA,
	CHARGE_FETCH, /* waits for data in its own file calls */
	CHARGE_DEVICE,
	CHARGE_OTHER,
	CHARGE_NAP,  /* a plain sleep */
	CHARGE_LOCK, /* waits for the interpreter lock, which another thread has */
	CHARGE_COUNT,
};

/* Returns the charge. The sample must have found the trainer asleep. */
enum charge sampled_charge(const struct sampled_job *job, enum analysis_loader loader,
			   const struct event *sample);

/* Returns true if the thread was asleep at the end of the sample. NULL: false. */
bool sampled_asleep(const struct event *sample);
