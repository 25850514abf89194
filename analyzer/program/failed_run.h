/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Handles a command that failed before its first training steps, so that there is nothing to report. */

#include <stdbool.h>
#include <stdint.h>

struct failed_run {
	const char *recording;
	int status; /* as waitpid() returns it */
	uint64_t duration_ns;
	uint32_t trainer_tid; /* 0: find it */
};

/* If the command failed that early, logs one line and returns true. Returns false, and logs nothing, if it
 * did not or the recording cannot be read. */
bool failed_run_say(const struct failed_run *run);
