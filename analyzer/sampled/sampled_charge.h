/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the trainer waits for when a look finds it asleep. */

#include "analyzer/analysis.h"
#include "sampled_job.h"

enum charge {
	CHARGE_DATA,
	CHARGE_FETCH, /* data as well: its own file calls */
	CHARGE_DEVICE,
	CHARGE_OTHER,
	CHARGE_NAP,  /* a plain sleep */
	CHARGE_LOCK, /* the interpreter lock, which another thread has */
	CHARGE_COUNT,
};

/* look: one that found the trainer asleep. */
enum charge sampled_charge(const struct sampled_job *job, enum analysis_loader loader,
			   const struct event *look);

/* look: may be NULL. */
bool sampled_asleep(const struct event *look);
