/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a trainer that a look found asleep waits for. */

#include "analyzer/analysis.h"
#include "sampled_job.h"

enum charge {
	CHARGE_DATA,
	CHARGE_FETCH, /* data as well: its own file calls */
	CHARGE_DEVICE,
	CHARGE_OTHER,
	CHARGE_COUNT,
};

/* Only for a look that found it asleep. */
enum charge sampled_charge(const struct sampled_job *job, enum analysis_loader loader,
			   const struct event *look);

/* look: may be NULL. */
bool sampled_asleep(const struct event *look);
